//! The kernel's own count of the time that eBPF programs take.

use std::io;
use std::os::fd::OwnedFd;

use crate::syscall::{bpf, descriptor};

/// The kernel refuses to count.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel does not count the time of eBPF programs: {0}; needs Linux 5.8 and CAP_SYS_ADMIN"
)]
pub struct ProgramTimeError(#[from] io::Error);

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
    /// [`ProgramTimeError`].
    pub fn count() -> Result<Self, ProgramTimeError> {
        /// `enum bpf_cmd` and `enum bpf_stats_type` of `include/uapi/linux/bpf.h`.
        const BPF_ENABLE_STATS: libc::c_int = 32;
        const BPF_STATS_RUN_TIME: u32 = 0;
        let fd = descriptor(bpf(BPF_ENABLE_STATS, &[BPF_STATS_RUN_TIME])?);
        Ok(Self { _fd: fd })
    }
}
