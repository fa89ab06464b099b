//! TCP, UDP and Unix sockets: blocking, spinning, or with epoll.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, Timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use taillab_model::{Monotonic, Nanos};

use super::error::RttError;
use super::kinds::Mode;
use super::wire::{WaitOutcome, Wire};
use crate::clock::now;
use crate::endpoint::Endpoint;
use crate::transport::descriptors::{errno, fault};
use crate::transport::poll::Poll;

/// The longest time for which a receive call polls the device, in microseconds.
const BUSY_POLL_US: u32 = 100;

/// The longest sleep in the kernel, and so the longest delay of an interruption.
pub(super) const LONGEST_SLEEP: Nanos = Nanos::from_millis(200);

/// Looks at the sockets before a spinning wait returns to the engine.
const LOOKS: u32 = 512;

/// One socket, and the part of the next message that has come.
pub(super) struct Socket {
    pub(super) descriptor: OwnedFd,
    pub(super) is_stream: bool,
    address: Option<IpAddr>,
    server: String,
    pub(super) buffer: Box<[u8]>,
    pub(super) have: usize,
    pub(super) received: u64,
}

impl Socket {
    /// A connected socket for messages of `size` bytes.
    ///
    /// # Errors
    /// [`RttError::Connect`], [`RttError::BusyPoll`].
    pub(super) fn connect(
        endpoint: &Endpoint,
        mode: Mode,
        size: usize,
        timeout: Nanos,
    ) -> Result<Self, RttError> {
        let failed = |error: std::io::Error| fault(endpoint, 1, errno(&error));
        let (descriptor, is_stream, address) = match endpoint {
            Endpoint::Tcp(address) => {
                let patience = Duration::from_nanos(timeout.get()).max(Duration::from_secs(3));
                let stream = TcpStream::connect_timeout(address, patience).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                (OwnedFd::from(stream), true, Some(*address))
            }
            Endpoint::Udp(address) => (open_udp(*address).map_err(failed)?, false, Some(*address)),
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).map_err(failed)?;
                (OwnedFd::from(stream), true, None)
            }
        };
        if address.is_some() && own_address(&descriptor) == address {
            // Nothing listens, and the kernel picked the server's port for the client: the socket
            // is connected to itself.
            return Err(failed(Errno::CONNREFUSED.into()).into());
        }
        let prepared = prepare(&descriptor, mode, timeout);
        prepared.map_err(|error| RttError::Kernel {
            call: "setsockopt",
            source: error.into(),
        })?;
        if mode == Mode::BusyPoll {
            let microseconds = BUSY_POLL_US;
            let (level, option) = (libc::SOL_SOCKET, libc::SO_BUSY_POLL);
            crate::sockopt::set(&descriptor, level, option, &microseconds).map_err(|source| {
                RttError::BusyPoll {
                    source,
                    microseconds,
                }
            })?;
        }
        // one byte more, so that a datagram that is too long is noticed
        let room = if is_stream { size } else { size + 1 };
        Ok(Self {
            descriptor,
            is_stream,
            address: address.map(|address| address.ip()),
            server: endpoint.to_string(),
            buffer: vec![1; room].into_boxed_slice(),
            have: 0,
            received: 0,
        })
    }

    /// Sends the whole message. While a non-blocking socket has no room, it reads what has come back
    /// already, so that a server that echoes piece by piece never waits for us.
    #[inline]
    fn send(&mut self, message: &[u8], blocks: bool, timeout: Nanos) -> Result<(), RttError> {
        let flags = if blocks {
            SendFlags::NOSIGNAL
        } else {
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT
        };
        let mut sent = 0;
        let mut since: Option<Monotonic> = None;
        loop {
            match send(&self.descriptor, &message[sent..], flags) {
                Ok(n) if sent + n == message.len() => return Ok(()),
                Ok(n) => sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let began = *since.get_or_insert_with(now);
                    if now().saturating_since(began) > timeout {
                        return Err(self.silent(timeout));
                    }
                    if !blocks && self.is_stream {
                        self.take(RecvFlags::DONTWAIT)?;
                    }
                }
                Err(why) => return Err(self.ended(why)),
            }
        }
    }

    /// Reads once; returns whether a whole message is there.
    #[inline]
    fn take(&mut self, flags: RecvFlags) -> Result<bool, RttError> {
        if self.is_stream && self.have == self.buffer.len() {
            return Ok(true);
        }
        match recv(&self.descriptor, &mut self.buffer[self.have..], flags) {
            Ok((0, _)) if self.is_stream => Err(self.gone()),
            Ok((n, _)) => {
                self.have += n;
                Ok(!self.is_stream || self.have == self.buffer.len())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(why) => Err(self.ended(why)),
        }
    }

    /// The message that has come; the next one will overwrite it.
    #[inline]
    pub(super) fn message(&mut self) -> &[u8] {
        let n = std::mem::take(&mut self.have);
        self.received += 1;
        &self.buffer[..n]
    }

    #[cold]
    pub(super) fn gone(&self) -> RttError {
        RttError::PeerGone {
            server: self.server.clone(),
            answered: self.received,
        }
    }

    #[cold]
    fn silent(&self, waited: Nanos) -> RttError {
        RttError::Silent {
            server: self.server.clone(),
            waited,
            lost: 1,
        }
    }

    #[cold]
    pub(super) fn ended(&self, why: Errno) -> RttError {
        match why {
            Errno::MSGSIZE => RttError::TooLarge {
                // without the byte more
                size: self.buffer.len() - usize::from(!self.is_stream),
                server: self.server.clone(),
                most: self.largest_datagram(),
            },
            Errno::CONNREFUSED if self.received == 0 => RttError::Refused {
                server: self.server.clone(),
            },
            // over UDP an ICMP error for an earlier message, which either call may report
            Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE => self.gone(),
            // a firewall on this machine gives EPERM
            Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::NETDOWN
            | Errno::PERM => RttError::Unreachable {
                server: self.server.clone(),
                source: why.into(),
            },
            why => RttError::Kernel {
                call: "send or recv",
                source: why.into(),
            },
        }
    }

    /// The client's port, where there is one.
    pub(super) fn port(&self) -> Option<u16> {
        Some(own_address(&self.descriptor)?.port())
    }

    /// UDP payload that the path carries in one packet.
    fn largest_datagram(&self) -> Option<usize> {
        const UDP: usize = 8;
        let (mtu, header) = match self.address? {
            IpAddr::V4(_) => (sockopt::ip_mtu(&self.descriptor).ok()?, 20),
            IpAddr::V6(_) => (sockopt::ipv6_mtu(&self.descriptor).ok()?, 40),
        };
        (mtu as usize).checked_sub(header + UDP)
    }
}

/// The client's address; `None` for a Unix socket.
fn own_address(socket: &OwnedFd) -> Option<SocketAddr> {
    let own = rustix::net::getsockname(socket).ok()?;
    SocketAddr::try_from(own).ok()
}

fn open_udp(server: SocketAddr) -> std::io::Result<OwnedFd> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // a connected socket receives from the server only
    socket.connect(server)?;
    // One message is one packet: the kernel refuses what does not fit instead of fragmenting it.
    match server {
        SocketAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?,
    }
    Ok(socket.into())
}

fn prepare(socket: &OwnedFd, mode: Mode, timeout: Nanos) -> Result<(), Errno> {
    if mode.is_shared() {
        return rustix::io::ioctl_fionbio(socket, true);
    }
    let sleep = Duration::from_nanos(timeout.min(LONGEST_SLEEP).get());
    sockopt::set_socket_timeout(socket, Timeout::Recv, Some(sleep))?;
    sockopt::set_socket_timeout(socket, Timeout::Send, Some(sleep))
}

/// Sockets of one thread.
pub(super) struct Sockets {
    sockets: Vec<Socket>,
    wait: Wait,
    timeout: Nanos,
    /// The socket that a spinning wait looks at next.
    next: usize,
}

enum Wait {
    /// In a receive call, on the only socket.
    Block,
    /// By spinning.
    Spin,
    /// In epoll.
    Epoll {
        poll: Poll,
        /// Connections reported but not read yet.
        ready: Vec<usize>,
    },
}

impl Sockets {
    /// Connects them.
    ///
    /// # Errors
    /// As [`Socket::connect`].
    pub(super) fn connect(
        endpoints: &[Endpoint],
        mode: Mode,
        size: usize,
        timeout: Nanos,
    ) -> Result<Self, RttError> {
        let sockets: Vec<Socket> = (endpoints.iter())
            .map(|endpoint| Socket::connect(endpoint, mode, size, timeout))
            .collect::<Result<_, _>>()?;
        let wait = match mode {
            Mode::Epoll => {
                let failed = |error: Errno| RttError::Kernel {
                    call: "epoll",
                    source: error.into(),
                };
                let poll = Poll::new(sockets.len()).map_err(failed)?;
                for (connection, socket) in sockets.iter().enumerate() {
                    poll.add(&socket.descriptor, connection, EventFlags::IN)
                        .map_err(failed)?;
                }
                Wait::Epoll {
                    poll,
                    ready: Vec::with_capacity(sockets.len()),
                }
            }
            mode if mode.is_shared() => Wait::Spin,
            _ => Wait::Block,
        };
        Ok(Self {
            sockets,
            wait,
            timeout,
            next: 0,
        })
    }

    #[inline]
    fn spin(&mut self) -> Result<Option<usize>, RttError> {
        for _ in 0..LOOKS {
            let connection = self.next;
            self.next += 1;
            if self.next == self.sockets.len() {
                self.next = 0;
            }
            if self.sockets[connection].take(RecvFlags::DONTWAIT)? {
                return Ok(Some(connection));
            }
        }
        Ok(None)
    }
}

impl Wire for Sockets {
    fn ports(&self) -> Vec<u16> {
        self.sockets.iter().filter_map(Socket::port).collect()
    }

    #[inline]
    fn send(&mut self, connection: usize, message: &[u8]) -> Result<(), RttError> {
        let blocks = matches!(self.wait, Wait::Block);
        self.sockets[connection].send(message, blocks, self.timeout)
    }

    #[inline]
    fn receive(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        let found = match &mut self.wait {
            Wait::Block => {
                let found = self.sockets[0].take(RecvFlags::empty())?;
                found.then_some(0)
            }
            Wait::Spin => self.spin()?,
            Wait::Epoll { poll, ready } => {
                if ready.is_empty() {
                    let found = poll.wait(self.timeout.min(LONGEST_SLEEP));
                    ready.extend(found.map(|(connection, _)| connection));
                }
                match ready.pop() {
                    Some(connection) => self.sockets[connection]
                        .take(RecvFlags::DONTWAIT)?
                        .then_some(connection),
                    None => None,
                }
            }
        };
        Ok(match found {
            Some(connection) => WaitOutcome::Message {
                connection,
                bytes: self.sockets[connection].message(),
            },
            None => WaitOutcome::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_large_is_named_by_its_own_size() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Udp(server.local_addr().unwrap());
        let timeout = Nanos::from_secs(1);
        let socket = Socket::connect(&endpoint, Mode::Nonblocking, 64, timeout).unwrap();
        // the kernel reports it to a receive, too
        let error = socket.ended(Errno::MSGSIZE);
        assert!(
            matches!(error, RttError::TooLarge { size: 64, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_host_that_cannot_be_reached_any_more_is_no_fault_of_this_program() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Udp(server.local_addr().unwrap());
        let timeout = Nanos::from_secs(1);
        let socket = Socket::connect(&endpoint, Mode::Nonblocking, 64, timeout).unwrap();
        for error in [Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::PERM] {
            let text = socket.ended(error).to_string();
            assert!(
                text.contains(&endpoint.to_string()) && text.contains("route"),
                "{text}"
            );
        }
    }

    /// The error of the message before: sending reports it as receiving would.
    #[test]
    fn a_udp_server_that_has_gone_is_noticed_by_the_next_send() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Udp(server.local_addr().unwrap());
        let timeout = Nanos::from_secs(1);
        let mut wire = Sockets::connect(&[endpoint], Mode::Nonblocking, 16, timeout).unwrap();
        wire.send(0, &[1; 16]).unwrap();
        let mut buffer = [0; 16];
        let (length, client) = server.recv_from(&mut buffer).unwrap();
        server.send_to(&buffer[..length], client).unwrap();
        while matches!(wire.receive().unwrap(), WaitOutcome::Nothing) {}
        drop(server);
        // the kernel delivers the error a moment later
        let error = (0..3_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            wire.send(0, &[1; 16]).err()
        });
        assert!(
            matches!(error, Some(RttError::PeerGone { answered: 1, .. })),
            "{error:?}"
        );
    }
}
