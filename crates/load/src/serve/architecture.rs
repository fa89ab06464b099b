//! The architectures by name.

use crate::named::named;

/// How a server divides requests among its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// An accept thread, and for each connection a worker thread that reads and writes
    /// with blocking calls and makes no other system call (*Tales of the Tail*,
    /// section 3.1.1). The scheduler chooses which request is served next.
    NullRpc,
    /// Workers that wait on one epoll instance: any worker serves any connection, in the
    /// order in which the connections became ready.
    EpollShared,
    /// Workers with an epoll instance each. An accept thread assigns the connections to them in
    /// turn, for good (as nginx assigns clients, section 3.1.3).
    EpollPerWorker,
    /// Workers that all wait on one UDP socket (as memcached does, section 3.1.2): the
    /// kernel's receive queue is one FIFO queue for all.
    UdpShared,
    /// Workers with a UDP socket each on the same port (`SO_REUSEPORT`): the kernel
    /// assigns by a hash of the client's address and port.
    UdpReuseport,
}

/// The text is not the name of an architecture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a server architecture: choose null-rpc, epoll-shared, epoll-per-worker, udp-shared or udp-reuseport"
)]
pub struct UnknownArchitecture(String);

named! {
    Architecture, UnknownArchitecture, []:
    NullRpc = "null-rpc",
    EpollShared = "epoll-shared",
    EpollPerWorker = "epoll-per-worker",
    UdpShared = "udp-shared",
    UdpReuseport = "udp-reuseport",
}

impl Architecture {
    /// Whether it serves datagrams (UDP); the others serve streams (TCP, Unix).
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::UdpShared | Self::UdpReuseport)
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
