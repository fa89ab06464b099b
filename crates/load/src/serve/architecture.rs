//! The architectures by name.

use std::fmt;
use std::str::FromStr;

/// How a server divides requests among its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// An accept thread, and for each connection a worker thread that reads and writes
    /// with blocking calls and makes no other system call (*Tales of the Tail*,
    /// section 3.1.1). Which request is next is the scheduler's choice.
    NullRpc,
    /// Workers that wait on one epoll instance: any worker serves any connection, in the
    /// order in which the connections became ready.
    EpollShared,
    /// Workers with an epoll instance each; an accept thread gives each connection to
    /// one of them for ever, in turn (as nginx assigns clients, section 3.1.3).
    EpollPerWorker,
    /// Workers that all wait on one UDP socket (as memcached does, section 3.1.2): the
    /// kernel's receive queue is one FIFO queue for all.
    UdpShared,
    /// Workers with a UDP socket each on the same port (`SO_REUSEPORT`): the kernel
    /// assigns by a hash of the client's address and port.
    UdpReuseport,
}

/// A name that no architecture has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a server architecture: choose null-rpc, epoll-shared, epoll-per-worker, udp-shared or udp-reuseport"
)]
pub struct UnknownArchitecture(String);

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::NullRpc,
        Self::EpollShared,
        Self::EpollPerWorker,
        Self::UdpShared,
        Self::UdpReuseport,
    ];

    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::NullRpc => "null-rpc",
            Self::EpollShared => "epoll-shared",
            Self::EpollPerWorker => "epoll-per-worker",
            Self::UdpShared => "udp-shared",
            Self::UdpReuseport => "udp-reuseport",
        }
    }

    /// Whether it serves datagrams (UDP); the others serve streams (TCP, Unix).
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::UdpShared | Self::UdpReuseport)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Architecture {
    type Err = UnknownArchitecture;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|architecture| architecture.name() == text)
            .ok_or_else(|| UnknownArchitecture(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_back() {
        for architecture in Architecture::ALL {
            assert_eq!(architecture.to_string().parse(), Ok(architecture));
        }
        let error = "udp".parse::<Architecture>().unwrap_err().to_string();
        for architecture in Architecture::ALL {
            assert!(error.contains(architecture.name()), "{error}");
        }
    }
}
