//! Software events of the kernel's perf (perf_event_open(2)).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Opens a software event in no group. The attributes are the first 64 bytes of `struct perf_event_attr`,
/// which every kernel takes (`PERF_ATTR_SIZE_VER0`); type and size are filled in.
pub fn software_event(
    mut attributes: [u64; 8],
    thread: libc::pid_t,
    cpu: libc::c_int,
) -> io::Result<OwnedFd> {
    const SOFTWARE: u64 = 1;
    const NO_GROUP: libc::c_int = -1;
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    attributes[0] = SOFTWARE | (size_of_val(&attributes) as u64) << 32;
    // SAFETY: the kernel reads the attributes, of the size that they name, until the call
    // returns.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            thread,
            cpu,
            NO_GROUP,
            CLOSE_ON_EXEC,
        )
    };
    if event < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(event as i32) })
}
