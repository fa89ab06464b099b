//! Why the time stamp counter's loop cannot run as wanted.

use std::io;

use crate::cpus::{CpuError, CpuSet};

/// Why the loop cannot run as requested, and what can be measured instead.
#[derive(Debug, thiserror::Error)]
pub enum NoiseError {
    /// Another architecture, or a CPU without the instruction.
    #[error(
        "this CPU has no time stamp counter that says on which CPU it was read (rdtscp): \
         `taillab noise` needs x86-64 from 2008 or later; `taillab load` can still measure the \
         client's lateness here"
    )]
    NoTsc,
    /// The kernel does not trust the counter, or it does not count at one rate.
    #[error(
        "the time stamp counter cannot be trusted ({why}; the kernel uses {current} of \
         {available}): gaps and their causes would be wrong. What remains measurable: `taillab \
         load` and `run`, which use the kernel's clock"
    )]
    Unstable {
        /// What is wrong with it.
        why: &'static str,
        /// `current_clocksource`.
        current: String,
        /// `available_clocksource`.
        available: String,
    },
    /// Which clocks the kernel trusts is not known.
    #[error(
        "whether the kernel trusts the time stamp counter cannot be read: \
         /sys/devices/system/clocksource is not there; mount sysfs at /sys (a container: start it with the \
         host's /sys, read-only)"
    )]
    ClockUnknown,
    /// CPUs that are not online.
    #[error(
        "CPU {offline} is offline or does not exist, so nothing runs on it; online are {online}: \
         choose among these with --cpus"
    )]
    Offline {
        /// The requested CPUs that are offline.
        offline: CpuSet,
        /// The CPUs that are online.
        online: CpuSet,
    },
    /// No privilege for real time.
    #[error(
        "the kernel refuses SCHED_FIFO priority {priority} ({source}): run as root or with \
         CAP_SYS_NICE (`ulimit -r` shows what else allows it); with --policy other everything is \
         measured as an ordinary thread experiences it"
    )]
    NoRealTime {
        /// The priority asked for.
        priority: u8,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Real-time threads everywhere, and nothing that holds them back.
    #[error(
        "SCHED_FIFO on every CPU with RT throttling off (kernel.sched_rt_runtime_us is -1) would \
         leave no CPU to anything else until the end, not even to Ctrl-C: leave a CPU out with \
         --cpus, or use --policy other"
    )]
    WouldHang,
    /// A CPU cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}; free some memory or processes")]
    Thread(io::Error),
}
