//! The TCP sequence number of the next byte that a socket will send.

use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

// linux/tcp.h
const TCP_REPAIR_ON: libc::c_int = 1;
const TCP_REPAIR_OFF: libc::c_int = 0;
/// Leaves the repair mode without a window probe, which would be a packet of its own.
const TCP_REPAIR_OFF_NO_WP: libc::c_int = -1;
const TCP_SEND_QUEUE: libc::c_int = 2;

/// Asks the kernel for the sequence number of the next byte that this connected TCP
/// socket will be given (`write_seq`, by TCP_REPAIR and TCP_QUEUE_SEQ: `tcp(7)`,
/// net/ipv4/tcp.c `do_tcp_getsockopt`).
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN in the socket's network namespace; others where the
/// kernel lacks the option.
pub(super) fn next_sequence(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    set(socket, libc::TCP_REPAIR, TCP_REPAIR_ON)?;
    let found = set(socket, libc::TCP_REPAIR_QUEUE, TCP_SEND_QUEUE)
        .and_then(|()| get(socket, libc::TCP_QUEUE_SEQ));
    // A kernel before 4.20 knows only the way with a probe.
    set(socket, libc::TCP_REPAIR, TCP_REPAIR_OFF_NO_WP)
        .or_else(|_| set(socket, libc::TCP_REPAIR, TCP_REPAIR_OFF))?;
    found
}

fn set(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> Result<(), Errno> {
    // SAFETY: the pointer is to a live c_int, whose size is given; the descriptor is open
    // because it is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    checked(result)
}

fn get(socket: BorrowedFd<'_>, option: libc::c_int) -> Result<u32, Errno> {
    let mut value = 0_u32;
    let mut length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, and `length` is the first one's size;
    // the descriptor is open because it is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    checked(result).map(|()| value)
}

fn checked(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 {
        Ok(())
    } else {
        let error = std::io::Error::last_os_error();
        Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}
