//! Whether a port is free.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::error::ServerError;

/// Checks that nobody holds a UDP port, in the namespace of the calling thread.
///
/// Servers bind with SO_REUSEADDR, and then two of them share a UDP port without an
/// error and each gets some of the requests: the bind here is exclusive.
///
/// # Errors
/// [`ServerError::PortTaken`], [`ServerError::Port`].
pub fn ensure_udp_port_free(address: SocketAddr) -> Result<(), ServerError> {
    outcome("UDP", address, UdpSocket::bind(address).map(drop))
}

/// Checks that nobody listens on a TCP port, in the namespace of the calling thread.
///
/// Without SO_REUSEPORT, so that a listener that shares its port is found too.
///
/// # Errors
/// [`ServerError::PortTaken`], [`ServerError::Port`].
pub fn ensure_tcp_port_free(address: SocketAddr) -> Result<(), ServerError> {
    outcome("TCP", address, TcpListener::bind(address).map(drop))
}

fn outcome(
    transport: &'static str,
    address: SocketAddr,
    bound: io::Result<()>,
) -> Result<(), ServerError> {
    bound.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServerError::PortTaken { transport, address },
        _ => ServerError::Port {
            transport,
            address,
            source,
        },
    })
}
