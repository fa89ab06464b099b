//! The components of latency between a program and a network that one machine can measure by
//! itself: the way through the kernel to a device and back, and the way to a PCI device. Each gives
//! the samples it took, in order of time.

mod error;
mod pci;
mod tap;

pub use error::ComponentError;
pub use pci::{PciFunction, config_reads, first_function};
pub use tap::{Reflector, tap_round_trips};
