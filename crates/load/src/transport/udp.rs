//! Connected UDP sockets, looked at by spinning.

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use taillab_model::{Monotonic, Nanos};

use super::descriptors::{self, errno, fault};
use super::poll::Poll;
use super::{DatagramTransport, Departure, NotSent, Receipt, Sockets};
use crate::stamps::{self, KernelStamps, RealtimeBridge};
use crate::{Endpoint, LoadError};

/// Receive buffer of a socket: room for a few hundred answers while the generator does not have its
/// CPU.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// The most connections that one look with epoll reports.
const EVENTS: usize = 64;

/// No UDP datagram is larger.
const LARGEST_DATAGRAM: usize = 65_536;

/// Empty looks at the expected socket before epoll is asked for all sockets.
const PATIENCE: u32 = 4;

/// Looks for stamps, while no connection is known to have one, before epoll is asked for
/// all connections.
const STAMP_PATIENCE: u32 = 16;

/// N connected UDP sockets.
///
/// Requests use the sockets in turn, so a server that answers in their order also
/// answers on the sockets in turn. So the socket after the last one that
/// had an answer is tried first: an answer takes one system call, an empty look one short one
/// (`EAGAIN`). After four empty looks the next one asks epoll for all sockets, so
/// that a lost answer or a server that reorders costs only about a microsecond.
pub struct UdpSockets {
    sockets: Vec<OwnedFd>,
    ports: Vec<u16>,
    poll: Poll,
    /// Connections that epoll reported and that have not been read yet.
    ready: Vec<usize>,
    expected: usize,
    empty_looks: u32,
    buffer: Box<[u8]>,
    stamps: KernelStamps,
    bridge: RealtimeBridge,
    /// The kernel's stamp of the datagram received last.
    stamp: Option<Monotonic>,
    /// Connections whose datagrams have left, as an answer or epoll shows.
    stamped: Vec<usize>,
    empty_stamp_looks: u32,
    /// Whether the kernel's numbers of a connection's datagrams are still ours: it may or may not
    /// count a datagram that it refused.
    counted: Vec<bool>,
}

impl UdpSockets {
    /// Opens `connections` sockets to `server` in the calling thread's network namespace.
    /// The kernel's `stamps` are on from the beginning.
    ///
    /// # Errors
    /// [`LoadError::NoConnections`], [`LoadError::TooManyFiles`], [`LoadError::TooManyPorts`],
    /// [`LoadError::Refused`] or [`LoadError::Socket`].
    pub fn connect(
        server: SocketAddr,
        connections: usize,
        stamps: KernelStamps,
    ) -> Result<Self, LoadError> {
        if connections == 0 {
            return Err(LoadError::NoConnections);
        }
        descriptors::make_room(connections)?;
        let failed = |error: Errno| fault(&Endpoint::Udp(server), connections, error);
        let poll = Poll::new(connections.min(EVENTS)).map_err(failed)?;
        let mut sockets = Vec::with_capacity(connections);
        let mut ports = Vec::with_capacity(connections);
        for connection in 0..connections {
            let (socket, port) = open(server).map_err(|error| failed(errno(&error)))?;
            if stamps.any() {
                stamps::enable(&socket, stamps).map_err(|error| failed(errno(&error)))?;
            }
            poll.add(&socket, connection, EventFlags::IN)
                .map_err(failed)?;
            sockets.push(OwnedFd::from(socket));
            ports.push(port);
        }
        Ok(Self {
            poll,
            ready: Vec::with_capacity(connections.min(EVENTS)),
            sockets,
            ports,
            expected: 0,
            empty_looks: 0,
            // every byte written now: no page fault later
            buffer: vec![1; LARGEST_DATAGRAM].into_boxed_slice(),
            stamps,
            bridge: RealtimeBridge::default(),
            stamp: None,
            stamped: Vec::with_capacity(if stamps.sent { 4 * connections } else { 0 }),
            empty_stamp_looks: 0,
            counted: vec![true; connections],
        })
    }

    #[inline]
    fn look_at(&mut self, connection: usize) -> Result<usize, Errno> {
        if self.stamps.received {
            return self.look_with_stamp(connection);
        }
        // no datagram is larger than the buffer, so TRUNC is not needed
        let flags = RecvFlags::DONTWAIT;
        recv(&self.sockets[connection], &mut self.buffer[..], flags).map(|(n, _)| n)
    }

    #[cold]
    #[inline(never)]
    fn look_with_stamp(&mut self, connection: usize) -> Result<usize, Errno> {
        self.stamp = None;
        let socket = &self.sockets[connection];
        let (length, stamp) = stamps::recv(socket, &mut self.buffer, &mut self.bridge)
            .map_err(|error| errno(&error))?;
        self.stamp = stamp;
        Ok(length)
    }

    /// Asks epoll for all connections; waits at most `wait` for something to arrive.
    fn look_at_all(&mut self, wait: Nanos) {
        self.ready.clear();
        for (connection, flags) in self.poll.wait(wait) {
            // a refusal is an error too; reading finds it
            self.ready.push(connection);
            let room = self.stamped.len() < self.stamped.capacity();
            if self.stamps.sent && room && flags.contains(EventFlags::ERR) {
                self.stamped.push(connection);
            }
        }
    }

    #[inline]
    fn has_stamps(&mut self, connection: usize) {
        // without room, epoll reports it again
        if self.stamped.len() < self.stamped.capacity() {
            self.stamped.push(connection);
        }
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
    let own = socket.local_addr()?;
    if own == server {
        // Nothing listens, and the kernel picked the server's port: the socket would answer itself.
        return Err(Errno::CONNREFUSED.into());
    }
    // Without the privilege the kernel caps the size at net.core.rmem_max, which may be enough;
    // answers lost for lack of space are counted like other lost ones.
    if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
    }
    Ok((socket, own.port()))
}

impl Sockets for UdpSockets {
    fn connections(&self) -> usize {
        self.sockets.len()
    }

    fn wait(&mut self, at_most: Nanos) {
        if self.ready.is_empty() {
            self.look_at_all(at_most);
        }
    }

    fn stamps(&self) -> KernelStamps {
        self.stamps
    }

    #[inline]
    fn stamp(&self) -> Option<Monotonic> {
        self.stamp
    }
}

impl DatagramTransport for UdpSockets {
    fn port(&self, connection: usize) -> u16 {
        self.ports[connection]
    }

    #[inline]
    fn send(&mut self, connection: usize, datagram: &[u8]) -> Result<(), NotSent> {
        let attempt = || send(&self.sockets[connection], datagram, SendFlags::DONTWAIT);
        let Err(why) = attempt() else {
            return Ok(());
        };
        self.counted[connection] = false;
        // A refusal is the response to an earlier datagram, so this one is tried once more.
        let result = match why {
            Errno::CONNREFUSED | Errno::INTR => attempt(),
            other => Err(other),
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
                self.look_at_all(Nanos::ZERO);
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
                if self.stamps.sent {
                    self.has_stamps(connection);
                }
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
        // bounded: a server that never stops sending must not block the caller
        for connection in 0..self.sockets.len() {
            let mut looks = 0..10_000;
            while looks.next().is_some() && self.look_at(connection) != Err(Errno::AGAIN) {}
        }
        self.ready.clear();
        self.empty_looks = 0;
        // the next request takes the first connection
        self.expected = 0;
        self.stamped.clear();
        if self.stamps.sent {
            for (socket, counted) in self.sockets.iter().zip(&mut self.counted) {
                while stamps::sent(socket, &mut self.bridge).is_some() {}
                // off and on: the kernel counts from 0 again
                *counted = stamps::enable(socket, KernelStamps::NONE)
                    .and_then(|()| stamps::enable(socket, self.stamps))
                    .is_ok();
            }
        }
    }

    fn departure(&mut self) -> Option<Departure> {
        if !self.stamps.sent {
            return None;
        }
        while let Some(connection) = self.stamped.pop() {
            let Some(sent) = stamps::sent(&self.sockets[connection], &mut self.bridge) else {
                continue;
            };
            // there may be more
            self.has_stamps(connection);
            if self.counted[connection] {
                return Some(Departure {
                    connection,
                    number: sent.number as usize,
                    at: sent.at,
                });
            }
        }
        self.empty_stamp_looks += 1;
        if self.empty_stamp_looks > STAMP_PATIENCE && self.ready.is_empty() {
            self.empty_stamp_looks = 0;
            self.look_at_all(Nanos::ZERO);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::fake::until;

    fn echo() -> (UdpSocket, SocketAddr) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        (server, address)
    }

    /// What each connection sends is numbered from 0 after each discard, whatever was
    /// sent before, and stamped after its send.
    #[test]
    fn departures_are_numbered_by_connection() {
        let (_server, address) = echo();
        let mut sockets = UdpSockets::connect(address, 3, KernelStamps::ALL).unwrap();
        for _ in 0..2 {
            sockets.discard();
            let before = now();
            let mut expected = Vec::new();
            for (connection, datagrams) in [(0, 2), (1, 5), (2, 1)] {
                for number in 0..datagrams {
                    sockets.send(connection, b"hello").unwrap();
                    expected.push((connection, number));
                }
            }
            let mut found: Vec<_> = expected
                .iter()
                .map(|_| {
                    let departure = until(|| sockets.departure());
                    assert!(departure.at + Nanos::from_micros(1) >= before);
                    (departure.connection, departure.number)
                })
                .collect();
            found.sort_unstable();
            assert_eq!(found, expected);
            assert_eq!(sockets.departure(), None);
        }
    }

    #[test]
    fn an_answer_ends_a_wait_and_has_a_stamp() {
        let (server, address) = echo();
        let stamps = KernelStamps {
            received: true,
            sent: false,
        };
        let mut sockets = UdpSockets::connect(address, 2, stamps).unwrap();
        let to = SocketAddr::from(([127, 0, 0, 1], sockets.port(1)));
        let stamp = until(|| {
            let before = now();
            server.send_to(b"hello", to).unwrap();
            // a wait that an answer did not end would end the test by its length
            sockets.wait(Nanos::from_secs(3600));
            let found = sockets.receive();
            let expected = Receipt::Datagram {
                connection: 1,
                bytes: b"hello",
            };
            assert_eq!(found, expected);
            // the kernel begins to stamp a moment after the first socket asked for it
            sockets.stamp().map(|at| (before, at))
        });
        assert!(stamp.1 + Nanos::from_micros(1) >= stamp.0 && stamp.1 <= now());
        assert_eq!(sockets.receive(), Receipt::Nothing);
    }

    #[test]
    fn a_wait_for_nothing_ends() {
        let (_server, address) = echo();
        let mut sockets = UdpSockets::connect(address, 2, KernelStamps::NONE).unwrap();
        let before = now();
        sockets.wait(Nanos::from_millis(3));
        assert!(now().saturating_since(before) >= Nanos::from_millis(3));
        assert_eq!(sockets.receive(), Receipt::Nothing);
        assert_eq!((sockets.stamp(), sockets.departure()), (None, None));
    }
}
