//! Protocols and modes by name, and which go together.

use std::fmt;
use std::str::FromStr;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proto {
    /// TCP with `TCP_NODELAY`.
    Tcp,
    /// UDP, never fragmented.
    Udp,
    /// RDMA: a message is sent, received by a thread of the server, and sent back.
    RdmaSend,
    /// RDMA: a message is read from the server's memory, without its threads.
    RdmaRead,
    /// RDMA: a message is written into the server's memory, without its threads.
    RdmaWrite,
    /// AF_XDP: whole packets between the driver and the process.
    Xdp,
    /// A Unix stream socket.
    Unix,
    /// Memory that both ends share: no kernel at all, the floor of this machine.
    Shm,
}

/// How both ends wait for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A receive call that sleeps until there is something.
    Blocking,
    /// Receive calls that return at once, again and again.
    Nonblocking,
    /// `epoll_wait`, then a receive call.
    Epoll,
    /// A receive call that polls the device before it sleeps (`SO_BUSY_POLL`).
    BusyPoll,
    /// Send and receive through io_uring.
    IoUring,
}

/// A name that no protocol has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a protocol; choose tcp, udp, rdma-send, rdma-read, rdma-write, xdp, unix or shm"
)]
pub struct UnknownProto(String);

/// A name that no mode has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a mode; choose blocking, nonblocking, epoll, busy-poll or io_uring")]
pub struct UnknownMode(String);

/// Another name of [`Proto::RdmaSend`].
pub const RDMA: &str = "rdma";

impl Proto {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Tcp,
        Self::Udp,
        Self::RdmaSend,
        Self::RdmaRead,
        Self::RdmaWrite,
        Self::Xdp,
        Self::Unix,
        Self::Shm,
    ];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::RdmaSend => "rdma-send",
            Self::RdmaRead => "rdma-read",
            Self::RdmaWrite => "rdma-write",
            Self::Xdp => "xdp",
            Self::Unix => "unix",
            Self::Shm => "shm",
        }
    }

    /// Whether messages can get lost.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::Xdp)
    }

    /// Whether an adapter moves the messages, by verbs.
    pub const fn is_rdma(self) -> bool {
        matches!(self, Self::RdmaSend | Self::RdmaRead | Self::RdmaWrite)
    }

    /// The modes that it has.
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
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Blocking,
        Self::Nonblocking,
        Self::Epoll,
        Self::BusyPoll,
        Self::IoUring,
    ];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Nonblocking => "nonblocking",
            Self::Epoll => "epoll",
            Self::BusyPoll => "busy-poll",
            Self::IoUring => "io_uring",
        }
    }

    /// Whether one thread can wait for several connections.
    pub(super) const fn is_shared(self) -> bool {
        !matches!(self, Self::Blocking | Self::BusyPoll)
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Proto {
    type Err = UnknownProto;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = match text.trim() {
            // what a server echoes, as over the other protocols
            RDMA => Self::RdmaSend.name(),
            name => name,
        };
        let mut all = Self::ALL.into_iter();
        all.find(|proto| proto.name() == name)
            .ok_or_else(|| UnknownProto(text.to_owned()))
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|mode| mode.name() == text.trim())
            .ok_or_else(|| UnknownMode(text.to_owned()))
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
