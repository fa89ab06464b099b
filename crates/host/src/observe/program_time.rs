//! The kernel's own count of the time that eBPF programs take.

use std::io;
use std::os::fd::OwnedFd;

use crate::syscall::{bpf, descriptor};

/// While this is held, the kernel reads its clock before and after every eBPF program of the
/// machine (BPF_ENABLE_STATS of bpf(2)).
#[derive(Debug)]
pub struct ProgramTime {
    _fd: OwnedFd,
}

impl ProgramTime {
    /// Begins to count.
    ///
    /// # Errors
    /// The kernel's answer: it needs Linux 5.8 and CAP_SYS_ADMIN.
    pub fn count() -> io::Result<Self> {
        /// `enum bpf_cmd` and `enum bpf_stats_type` of `include/uapi/linux/bpf.h`.
        const BPF_ENABLE_STATS: libc::c_int = 32;
        const BPF_STATS_RUN_TIME: u32 = 0;
        let fd = descriptor(bpf(BPF_ENABLE_STATS, &[BPF_STATS_RUN_TIME])?);
        Ok(Self { _fd: fd })
    }
}
