//! Opens a stream socket without waiting.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, getpeername, getsockname,
    socket_with, sockopt,
};

use super::Origin;
use super::sequence::next_sequence;
use crate::Endpoint;

/// Where an open connection's packets come from, if it is known.
pub(super) struct Opened(pub(super) Option<Origin>);

/// Opens sockets to one server.
#[derive(Debug)]
pub(super) struct Opener {
    server: Address,
    /// Whether to ask for sequence numbers; cleared when the kernel refuses.
    may_ask: bool,
}

#[derive(Debug)]
enum Address {
    Tcp(SocketAddr),
    Unix(SocketAddrUnix),
}

impl Opener {
    pub(super) fn new(server: &Endpoint) -> Result<Self, Errno> {
        let server = match server {
            Endpoint::Tcp(address) => Address::Tcp(*address),
            Endpoint::Unix(path) => Address::Unix(SocketAddrUnix::new(path)?),
            Endpoint::Udp(_) => return Err(Errno::PROTOTYPE),
        };
        Ok(Self {
            server,
            may_ask: true,
        })
    }

    /// Makes a socket and begins to connect it; also returns whether it is already connected.
    pub(super) fn begin(&self) -> Result<(OwnedFd, bool), Errno> {
        let family = match &self.server {
            Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Address::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        let begun = match &self.server {
            Address::Tcp(address) => {
                sockopt::set_tcp_nodelay(&socket, true)?;
                connect(&socket, address)
            }
            Address::Unix(address) => connect(&socket, address),
        };
        match begun {
            Ok(()) | Err(Errno::INPROGRESS) => Ok((socket, begun.is_ok())),
            Err(error) => Err(error),
        }
    }

    /// Checks a socket that is being connected; `None` while it is not connected yet.
    pub(super) fn finish(&mut self, socket: &OwnedFd) -> Result<Option<Opened>, Errno> {
        sockopt::socket_error(socket)??;
        match getpeername(socket) {
            Ok(_) => {}
            Err(Errno::NOTCONN) => return Ok(None),
            Err(error) => return Err(error),
        }
        let Address::Tcp(server) = &self.server else {
            return Ok(Some(Opened(None)));
        };
        let local = SocketAddr::try_from(getsockname(socket)?)?;
        if local == *server {
            // If nothing listens and the kernel picks the server's port for the client, TCP
            // connects the socket to itself (simultaneous open, RFC 9293, 3.5).
            return Err(Errno::CONNREFUSED);
        }
        Ok(Some(Opened(Some(Origin {
            port: local.port(),
            sequence: self.sequence(socket),
        }))))
    }

    fn sequence(&mut self, socket: &OwnedFd) -> Option<u32> {
        if !self.may_ask {
            return None;
        }
        let found = next_sequence(socket.as_fd());
        self.may_ask = found.is_ok();
        found.ok()
    }
}
