//! Receive buffers of a server's datagram sockets.
//!
//! A server that is kept from its core for some milliseconds finds its socket full, and the
//! kernel drops what comes in the meantime: exactly the requests that would have waited
//! longest leave the distribution. A buffer that is large enough keeps them in it.

use std::io;

use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::roots::Roots;

/// Why the receive buffers could not be set.
#[derive(Debug, thiserror::Error)]
pub enum SocketBufferError {
    /// The kernel refused.
    #[error(
        "cannot set the receive buffer of the server's sockets while {doing}: {source}; needs \
         Linux 5.6, CAP_NET_ADMIN and CAP_SYS_PTRACE, or leave the server's own with \
         --receive-buffer 0"
    )]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The server has no UDP socket.
    #[error(
        "the server has no datagram socket to give a receive buffer to: does it listen on UDP? \
         (--receive-buffer 0 leaves it alone)"
    )]
    NoSocket,
}

/// Gives every UDP socket of `pid` a receive buffer of `bytes`, beyond the system's limit
/// if need be (`SO_RCVBUFFORCE`), and returns the smallest that the kernel then reports:
/// twice as much, since it counts its own overhead (socket(7)).
///
/// # Errors
/// [`SocketBufferError`] when the kernel refuses or `pid` has no UDP socket.
pub fn set_receive_buffers(
    roots: &Roots,
    pid: u32,
    bytes: u32,
) -> Result<usize, SocketBufferError> {
    let refused = |doing| {
        move |error: rustix::io::Errno| SocketBufferError::Refused {
            doing,
            source: error.into(),
        }
    };
    let target = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(SocketBufferError::NoSocket)?;
    let pidfd = pidfd_open(target, PidfdFlags::empty()).map_err(refused("opening the process"))?;
    let folder = roots.proc.join(pid.to_string()).join("fd");
    let entries = std::fs::read_dir(&folder).map_err(|source| SocketBufferError::Refused {
        doing: "listing its descriptors",
        source,
    })?;
    let mut smallest = None;
    for entry in entries.filter_map(Result::ok) {
        let is_socket = std::fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let number = entry.file_name().to_str().and_then(|n| n.parse().ok());
        let (true, Some(number)) = (is_socket, number) else {
            continue;
        };
        let socket = match pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) {
            // closed since we looked
            Err(rustix::io::Errno::BADF) => continue,
            socket => socket.map_err(refused("borrowing a socket"))?,
        };
        // not those of syslog, which are Unix sockets
        let is_inet = matches!(
            sockopt::socket_domain(&socket),
            Ok(AddressFamily::INET | AddressFamily::INET6)
        );
        if !is_inet || sockopt::socket_type(&socket) != Ok(SocketType::DGRAM) {
            continue;
        }
        sockopt::set_socket_recv_buffer_size_force(&socket, bytes as usize)
            .map_err(refused("setting SO_RCVBUFFORCE"))?;
        let effective =
            sockopt::socket_recv_buffer_size(&socket).map_err(refused("reading SO_RCVBUF"))?;
        smallest = Some(smallest.map_or(effective, |least: usize| least.min(effective)));
    }
    smallest.ok_or(SocketBufferError::NoSocket)
}
