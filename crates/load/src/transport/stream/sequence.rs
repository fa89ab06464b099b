//! The TCP sequence number of the next byte that a socket will send.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sockopt;

// linux/tcp.h
const TCP_REPAIR_ON: libc::c_int = 1;
const TCP_REPAIR_OFF: libc::c_int = 0;
/// Leaves the repair mode without a window probe, which would be an extra packet.
const TCP_REPAIR_OFF_NO_WP: libc::c_int = -1;
const TCP_SEND_QUEUE: libc::c_int = 2;

/// Asks the kernel for the sequence number of the next byte that is written to this connected
/// TCP socket (`write_seq`, by TCP_REPAIR and TCP_QUEUE_SEQ: `tcp(7)`, net/ipv4/tcp.c
/// `do_tcp_getsockopt`).
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN in the socket's network namespace; others where the
/// kernel lacks the option.
pub(super) fn next_sequence(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let set = |option, value| sockopt::set(socket, libc::IPPROTO_TCP, option, &value);
    set(libc::TCP_REPAIR, TCP_REPAIR_ON)?;
    let found = set(libc::TCP_REPAIR_QUEUE, TCP_SEND_QUEUE)
        .and_then(|()| sockopt::get(socket, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ));
    // A kernel before 4.20 can only leave with a probe.
    set(libc::TCP_REPAIR, TCP_REPAIR_OFF_NO_WP)
        .or_else(|_| set(libc::TCP_REPAIR, TCP_REPAIR_OFF))?;
    found
}
