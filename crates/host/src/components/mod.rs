//! The components of latency between a program and a network that one machine can measure by
//! itself: the path through the kernel to a device and back, the path around the kernel with DPDK, and
//! the path to a PCI device. Each returns its samples in order of time.

mod bounds;
mod dpdk;
mod error;
mod frames;
mod pci;
mod ptp;
mod stamps;
mod tap;

pub use bounds::Bounds;
pub use dpdk::testpmd_round_trips;
pub use error::ComponentError;
pub use pci::{PciFunction, config_reads, first_function};
pub use ptp::{PtpClock, cross_time_stamps, ptp_clocks};
pub use stamps::{StampingDevice, stamping_devices};
pub use tap::{Reflector, tap_round_trips};
