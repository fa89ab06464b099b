//! Protocols and modes by name, and which go together.

use crate::named::named;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proto {
    /// TCP with `TCP_NODELAY`.
    Tcp,
    /// UDP, never fragmented.
    Udp,
    /// RDMA: a message is sent, received by a thread of the server, and sent back.
    RdmaSend,
    /// RDMA: a message is read from the server's memory; the server's threads take no part.
    RdmaRead,
    /// RDMA: a message is written into the server's memory; the server's threads take no part.
    RdmaWrite,
    /// AF_XDP: whole packets between the driver and the process.
    Xdp,
    /// A Unix stream socket.
    Unix,
    /// Memory that both ends share. The kernel takes no part: this is the machine's floor.
    Shm,
}

/// How both ends wait for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A receive call that sleeps until a message has come.
    Blocking,
    /// Receive calls that return at once, in a loop.
    Nonblocking,
    /// `epoll_wait`, then a receive call.
    Epoll,
    /// A receive call that polls the device before it sleeps (`SO_BUSY_POLL`).
    BusyPoll,
    /// Send and receive through io_uring.
    IoUring,
}

/// The text is not the name of a protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a protocol; choose tcp, udp, rdma-send, rdma-read, rdma-write, xdp, unix or shm"
)]
pub struct UnknownProto(String);

/// The text is not the name of a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a mode; choose blocking, nonblocking, epoll, busy-poll or io_uring")]
pub struct UnknownMode(String);

/// Another name for [`Proto::RdmaSend`].
pub const RDMA: &str = "rdma";

named! {
    Proto, UnknownProto, [RDMA => RdmaSend]:
    Tcp = "tcp",
    Udp = "udp",
    RdmaSend = "rdma-send",
    RdmaRead = "rdma-read",
    RdmaWrite = "rdma-write",
    Xdp = "xdp",
    Unix = "unix",
    Shm = "shm",
}

named! {
    Mode, UnknownMode, []:
    Blocking = "blocking",
    Nonblocking = "nonblocking",
    Epoll = "epoll",
    BusyPoll = "busy-poll",
    IoUring = "io_uring",
}

impl Proto {
    /// Whether messages can be lost.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::Xdp)
    }

    /// Whether an RDMA adapter moves the messages, by verbs.
    pub const fn is_rdma(self) -> bool {
        matches!(self, Self::RdmaSend | Self::RdmaRead | Self::RdmaWrite)
    }

    /// The modes that it supports, the default first.
    pub const fn modes(self) -> &'static [Mode] {
        match self {
            Self::Tcp | Self::Udp => &Mode::ALL,
            Self::Unix => &[
                Mode::Blocking,
                Mode::Nonblocking,
                Mode::Epoll,
                Mode::IoUring,
            ],
            Self::RdmaSend | Self::RdmaRead | Self::RdmaWrite | Self::Xdp => {
                &[Mode::Nonblocking, Mode::Blocking]
            }
            Self::Shm => &[Mode::Nonblocking],
        }
    }
}

impl Mode {
    /// Whether one thread can wait for several connections.
    pub(super) const fn is_shared(self) -> bool {
        !matches!(self, Self::Blocking | Self::BusyPoll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_back() {
        for proto in Proto::ALL {
            assert_eq!(proto.to_string().parse(), Ok(proto));
            let error = "sctp".parse::<Proto>().unwrap_err().to_string();
            assert!(error.contains(proto.name()), "{error}");
            assert!(!proto.modes().is_empty());
        }
        assert_eq!(RDMA.parse(), Ok(Proto::RdmaSend));
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            let error = "poll".parse::<Mode>().unwrap_err().to_string();
            assert!(error.contains(mode.name()), "{error}");
        }
    }
}
