//! Options of sockets for which rustix has no function.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option to a value of the type that the kernel expects.
///
/// # Errors
/// What the kernel says.
pub(crate) fn set<T>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads a live value of
    // the given length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    checked(result)
}

/// Reads an option that is a number.
///
/// # Errors
/// What the kernel says.
pub(crate) fn get(socket: impl AsFd, level: libc::c_int, option: libc::c_int) -> io::Result<u32> {
    let mut found = 0_u32;
    let mut length = size_of_val(&found) as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes at most `length`
    // bytes into a number of that size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    checked(result)?;
    Ok(found)
}

/// The result of a call that returns -1 when it fails.
fn checked(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
