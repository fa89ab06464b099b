//! Connected UDP sockets, looked at by spinning.

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::{NotSent, Receipt, Transport};
use crate::{Endpoint, LoadError};

/// Bytes of receive buffer asked for per socket: room for some hundred answers while
/// the generator's CPU is taken away from it.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// No UDP datagram is larger.
const LARGEST_DATAGRAM: usize = 65_536;

/// Empty looks at the expected socket before all sockets are looked at.
const PATIENCE: u32 = 4;

/// N connected UDP sockets.
///
/// A server that answers in the order of the requests answers on the sockets in turn,
/// because requests take the sockets in turn. So the socket after the last one that
/// had an answer is looked at first: one system call for an answer, and one short one
/// (`EAGAIN`) for none. Every fourth look without an answer asks epoll for all sockets, so
/// that a lost answer or a server that reorders costs a microsecond and no more.
pub struct UdpSockets {
    sockets: Vec<OwnedFd>,
    ports: Vec<u16>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Connections that epoll reported and that were not yet read.
    ready: Vec<usize>,
    expected: usize,
    empty_looks: u32,
    buffer: Box<[u8]>,
}

// SAFETY: the one part that is not `Send` is the buffer of epoll events, whose data may
// be a pointer for other users of epoll; ours is always a connection's number.
unsafe impl Send for UdpSockets {}

impl UdpSockets {
    /// Opens `connections` sockets to `server` in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`LoadError::NoConnections`], [`LoadError::TooManyFiles`] or [`LoadError::Socket`].
    pub fn connect(server: SocketAddr, connections: usize) -> Result<Self, LoadError> {
        if connections == 0 {
            return Err(LoadError::NoConnections);
        }
        let failed = |source: std::io::Error| {
            let full = [Errno::MFILE, Errno::NFILE].map(|e| Some(e.raw_os_error()));
            if full.contains(&source.raw_os_error()) {
                LoadError::TooManyFiles {
                    connections,
                    needed: connections + 64,
                }
            } else {
                LoadError::Socket {
                    server: Endpoint::Udp(server),
                    source,
                }
            }
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let mut sockets = Vec::with_capacity(connections);
        let mut ports = Vec::with_capacity(connections);
        for connection in 0..connections {
            let (socket, port) = open(server).map_err(failed)?;
            let data = epoll::EventData::new_u64(connection as u64);
            epoll::add(&epoll, &socket, data, epoll::EventFlags::IN)
                .map_err(|e| failed(e.into()))?;
            sockets.push(OwnedFd::from(socket));
            ports.push(port);
        }
        Ok(Self {
            events: Vec::with_capacity(connections.min(64)),
            ready: Vec::with_capacity(connections.min(64)),
            sockets,
            ports,
            epoll,
            expected: 0,
            empty_looks: 0,
            // every byte written now: no page fault later
            buffer: vec![1; LARGEST_DATAGRAM].into_boxed_slice(),
        })
    }

    fn look_at(&mut self, connection: usize) -> Result<usize, Errno> {
        // TRUNC is not needed: no datagram is larger than the buffer
        let flags = RecvFlags::DONTWAIT;
        recv(&self.sockets[connection], &mut self.buffer[..], flags).map(|(n, _)| n)
    }

    fn look_at_all(&mut self) {
        self.events.clear();
        let no_wait = rustix::time::Timespec::default();
        // An error here (a signal) only means that nothing was found this time.
        let _ = epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            Some(&no_wait),
        );
        self.ready.clear();
        // reversed: `ready` is read from its end
        let found = self.events.iter().rev();
        self.ready
            .extend(found.map(|event| event.data.u64() as usize));
    }
}

impl fmt::Debug for UdpSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSockets")
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

fn open(server: SocketAddr) -> std::io::Result<(UdpSocket, u16)> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    // Without the privilege the kernel caps the size at net.core.rmem_max, which may
    // do; answers lost for want of space are counted like all others.
    if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
    }
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}

impl Transport for UdpSockets {
    fn connections(&self) -> usize {
        self.sockets.len()
    }

    fn port(&self, connection: usize) -> u16 {
        self.ports[connection]
    }

    #[inline]
    fn send(&mut self, connection: usize, datagram: &[u8]) -> Result<(), NotSent> {
        let attempt = || send(&self.sockets[connection], datagram, SendFlags::DONTWAIT);
        // A refusal is the answer to an earlier datagram, and so is worth one more try.
        let result = match attempt() {
            Err(Errno::CONNREFUSED | Errno::INTR) => attempt(),
            other => other,
        };
        match result {
            Ok(_) => Ok(()),
            Err(Errno::CONNREFUSED) => Err(NotSent::Refused),
            Err(_) => Err(NotSent::Failed),
        }
    }

    #[inline]
    fn receive(&mut self) -> Receipt<'_> {
        let connection = match self.ready.pop() {
            Some(connection) => connection,
            None if self.empty_looks < PATIENCE => self.expected,
            None => {
                self.empty_looks = 0;
                self.look_at_all();
                match self.ready.pop() {
                    Some(connection) => connection,
                    None => return Receipt::Nothing,
                }
            }
        };
        match self.look_at(connection) {
            Ok(length) => {
                self.empty_looks = 0;
                self.expected = (connection + 1) % self.sockets.len();
                Receipt::Datagram {
                    connection,
                    bytes: &self.buffer[..length],
                }
            }
            Err(Errno::CONNREFUSED) => Receipt::Refused,
            Err(_) => {
                self.empty_looks += 1;
                Receipt::Nothing
            }
        }
    }

    fn discard(&mut self) {
        // bounded: a server that never stops sending must not hold the caller
        for connection in 0..self.sockets.len() {
            let mut looks = 0..10_000;
            while looks.next().is_some() && self.look_at(connection) != Err(Errno::AGAIN) {}
        }
        self.ready.clear();
        self.empty_looks = 0;
        // the next request takes the first connection
        self.expected = 0;
    }
}
