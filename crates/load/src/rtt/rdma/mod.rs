//! RDMA: over a reliable connection, by verbs, the adapter reads messages from the memory of one
//! process and writes them into the memory of the other.
//!
//! A send is echoed by the server's thread, like a message on a socket. A read or a write ends
//! when the adapter reports it, and no thread of the server takes part: *Deconstructing
//! the Tail at Scale Effect*, section 4.3, measures this. A read fetches the message, so that every
//! byte of it is checked; the last written message is read back after the run.
//!
//! | module | what it does |
//! |---|---|
//! | `ffi` | libibverbs, loaded at run time |
//! | `place` | which device leads to an address |
//! | `link` | one end of a connection |
//! | `handshake` | how the ends exchange their addresses, over TCP |
//! | `client`, `server` | the two ends |

mod client;
mod ffi;
mod handshake;
mod link;
mod place;
mod server;

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

pub(super) use self::client::Verbs;
use self::link::LinkError;
pub(super) use self::server::RdmaServer;
use super::error::RttError;
use super::kinds::Proto;

/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(200);
/// Looks before a spinning wait returns.
const LOOKS: u32 = 1_024;

/// Whether this machine can use RDMA with itself: it has an active device, and the library.
pub fn has_rdma() -> bool {
    let itself = Ipv4Addr::LOCALHOST.into();
    place::choose(Path::new("/sys"), itself).is_ok() && ffi::Library::load().is_ok()
}

/// What is done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// It is sent, received and sent back.
    Send,
    /// It is read from the server's memory.
    Read,
    /// It is written into the server's memory.
    Write,
}

impl Verb {
    const ALL: [Self; 3] = [Self::Send, Self::Read, Self::Write];

    /// The verb of a protocol, if it is RDMA.
    pub(super) const fn of(proto: Proto) -> Option<Self> {
        match proto {
            Proto::RdmaSend => Some(Self::Send),
            Proto::RdmaRead => Some(Self::Read),
            Proto::RdmaWrite => Some(Self::Write),
            Proto::Tcp | Proto::Udp | Proto::Xdp | Proto::Unix | Proto::Shm => None,
        }
    }

    const fn proto(self) -> Proto {
        match self {
            Self::Send => Proto::RdmaSend,
            Self::Read => Proto::RdmaRead,
            Self::Write => Proto::RdmaWrite,
        }
    }

    const fn number(self) -> u8 {
        self as u8
    }

    fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.number() == number)
    }

    /// The error of a measurement whose link failed.
    fn error(self, error: LinkError, server: &str, answered: u64) -> RttError {
        match error {
            LinkError::Missing(why) => RttError::Unavailable {
                proto: self.proto(),
                why,
            },
            LinkError::Call(call, source) => RttError::Kernel { call, source },
            LinkError::Status(status) => RttError::Verbs {
                server: server.to_owned(),
                answered,
                status: status_name(status),
            },
        }
    }
}

/// The names of `enum ibv_wc_status`, as in `ibv_wc_status_str`.
fn status_name(status: u32) -> &'static str {
    match status {
        1 => "local length error",
        2 => "local QP operation error",
        4 => "local protection error",
        5 => "work request flushed",
        7 => "bad response",
        8 => "local access error",
        9 => "remote invalid request",
        10 => "remote access error",
        11 => "remote operation error",
        12 => "transport retry counter exceeded",
        13 => "receiver-not-ready retry counter exceeded",
        16 => "remote abort",
        20 => "response timeout",
        _ => "an error without a common name",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_and_protocols_go_together() {
        for verb in Verb::ALL {
            assert_eq!(Verb::of(verb.proto()), Some(verb));
            assert_eq!(Verb::numbered(verb.number()), Some(verb));
            assert!(verb.proto().is_rdma());
        }
        assert_eq!(Verb::numbered(3), None);
        let rdma = Proto::ALL.into_iter().filter(|proto| proto.is_rdma());
        assert_eq!(rdma.count(), Verb::ALL.len());
    }

    #[test]
    fn what_an_adapter_says_is_an_error_with_its_name() {
        let error = Verb::Read.error(LinkError::Status(12), "10.9.0.1:7777", 120);
        let text = error.to_string();
        assert!(text.contains("after 120 round trips"), "{text}");
        assert!(text.contains("retry counter exceeded"), "{text}");
    }
}
