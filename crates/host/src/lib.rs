//! Facts about the machine, the testbed and the server process.
//!
//! What this crate makes is tied to descriptors or to the kernel's death signal, so it disappears with
//! our process; the [`journal`] lists the rest.
//!
//! `unsafe` is needed for namespaces, death signals, children without privileges, the cap on memory, trials of
//! hooks, scheduling, the time stamp counter, drivers and bpf(2).

pub mod activity;
mod cgroup;
pub mod clock;
pub mod components;
mod cpu_lock;
pub mod cpu_time;
pub mod cpus;
mod detached;
pub mod disk;
pub mod doctor;
pub mod environment;
mod error;
mod ethtool;
mod hazard;
pub mod interrupt;
mod invoker;
pub mod journal;
pub mod keep_awake;
mod lock_holder;
mod memory_cap;
mod netdev;
pub mod netns;
pub mod noise;
pub mod observe;
pub mod private_folder;
pub mod process;
pub mod programs;
mod queues;
mod roots;
pub mod server;
pub mod socket_buffers;
mod syscall;
mod sysfs;
mod tail;
pub mod target;
pub mod testbed;
pub mod tune;
mod unprivileged;
mod user;
pub mod user_files;
pub mod veth;

pub use cgroup::{CpuQuota, cpu_quota, throttled_time};
pub use cpu_lock::{CpuLockError, CpuLocks};
pub use cpu_time::{CpuSample, CpuUsage, process_ticks, waiting_time};
pub use cpus::{CpuError, CpuSet, Placement, RequestedCpus};
pub use environment::{CaptureSpec, Environment};
pub use error::{ErrorKind, HostError};
pub use hazard::capture_environment;
pub use interrupt::{Interrupt, InterruptPipe};
pub use invoker::Invoker;
pub use journal::{Journal, JournalError, JournalFolder, Recovered};
pub use memory_cap::{MemoryCap, available as available_memory};
pub use netns::NetNamespace;
pub use private_folder::PrivateFolder;
pub use process::{HeldProcess, ProcessIdentity};
pub use roots::Roots;
pub use server::{ServerExit, ServerProcess, ServerSpec};
pub use sysfs::SysfsError;
pub use testbed::{DeviceId, Testbed, TestbedSpec};
pub use unprivileged::run_unprivileged;
pub use user::{UnknownUser, User};
