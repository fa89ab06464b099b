//! Options of sockets for which rustix has no function.

use std::io;
use std::mem::MaybeUninit;
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

/// Reads an option.
///
/// # Safety
/// `T` must be valid with all bytes zero and with whatever the kernel writes.
///
/// # Errors
/// What the kernel says.
pub(crate) unsafe fn get<T>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<T> {
    let mut found = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes at most `length`
    // bytes into a value of that size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            found.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    checked(result)?;
    // SAFETY: the caller guarantees that `T` is valid with these bytes.
    Ok(unsafe { found.assume_init() })
}

/// The result of a call that returns -1 when it fails.
pub(crate) fn checked(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
