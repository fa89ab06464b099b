//! The kernel's own count of the time that eBPF programs take.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The kernel would not count.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel does not count the time of eBPF programs: {0}; needs Linux 5.8 and CAP_SYS_ADMIN"
)]
pub struct ProgramTimeError(#[from] io::Error);

/// While this is there the kernel reads its clock before and after every eBPF program, of
/// everybody (BPF_ENABLE_STATS of bpf(2)).
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
        const BPF_ENABLE_STATS: libc::c_long = 32;
        const BPF_STATS_RUN_TIME: u32 = 0;
        let attributes: [u32; 1] = [BPF_STATS_RUN_TIME];
        // SAFETY: the kernel reads as many bytes of the attributes as it is told there are.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_ENABLE_STATS,
                attributes.as_ptr(),
                size_of_val(&attributes),
            )
        };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
        let fd = fd.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: it is new, open, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { _fd: fd })
    }
}
