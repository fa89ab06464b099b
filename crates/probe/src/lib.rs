//! eBPF programs that stamp T1..T6 of every request of one server, and their loader.
//!
//! A [`Probe`] is loaded once for a [`ProbeSpec`] and can be attached and detached any number of
//! times. A thread of the caller's choice drains it: an event wakes nobody up, and draining
//! neither enters the kernel nor allocates. The drained events become a
//! [`taillab_model::Recording`], which the matcher reads.
//!
//! Only this crate needs clang, and only with the feature `bpf` (the default).
//! Without it the interface is the same, and [`Probe::load`] returns
//! [`ProbeError::NotBuilt`].
//!
//! `unsafe` is needed for rings in shared memory, and for loading and attaching programs (in tests: for calling what they
//! share with them).

mod disturbances;
mod error;
mod noise_account;
mod spec;

#[cfg(feature = "bpf")]
mod cgroup;
#[cfg(feature = "bpf")]
mod hooks;
#[cfg(feature = "bpf")]
mod noise;
#[cfg(feature = "bpf")]
mod object;
#[cfg(feature = "bpf")]
mod perf_event;
#[cfg(feature = "bpf")]
mod probe;
#[cfg(feature = "bpf")]
mod ring;
#[cfg(feature = "bpf")]
mod slices;
#[cfg(feature = "bpf")]
mod store;
#[cfg(feature = "bpf")]
mod survey;
#[cfg(all(test, feature = "bpf"))]
mod table;
#[cfg(feature = "bpf")]
mod threads;
#[cfg(feature = "bpf")]
mod upstreams;
#[cfg(not(feature = "bpf"))]
mod without_bpf;

#[cfg(feature = "bpf")]
pub use noise::{IpiWatch, KernelLoop};
#[cfg(feature = "bpf")]
pub use probe::Probe;
#[cfg(feature = "bpf")]
pub use survey::survey;
#[cfg(not(feature = "bpf"))]
pub use without_bpf::{IpiWatch, KernelLoop, Probe, survey};

pub use disturbances::{Disturbances, UnknownDisturbance};
pub use error::ProbeError;
pub use noise_account::KernelAccount;
pub use spec::{Addresses, Devices, ProbeSpec, ProgramCost, ServerProcesses, UNCONNECTED_T5};
pub use taillab_model::Transport;
