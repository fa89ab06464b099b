//! Results and arguments of system calls, and bpf(2).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The number that a system call has returned, or the error in `errno`.
pub(crate) fn answer(returned: impl Into<libc::c_long>) -> io::Result<libc::c_long> {
    match returned.into() {
        done @ 0.. => Ok(done),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A request about a network device, by its name (netdevice(7)).
pub(crate) fn interface_request(device: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all bits zero are a valid `ifreq`, which is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(rustix::io::Errno::NODEV.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

/// bpf(2) with the attributes that the command reads.
pub(crate) fn bpf<const WORDS: usize>(
    command: libc::c_int,
    attributes: &[u32; WORDS],
) -> io::Result<libc::c_long> {
    let size = size_of_val(attributes);
    // SAFETY: the kernel reads `size` bytes of `attributes`, and what these point to is live.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size) };
    answer(returned)
}

/// The descriptor that a system call has just made.
pub(crate) fn descriptor(made: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(made as libc::c_int) }
}
