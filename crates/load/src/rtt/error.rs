//! What ends a measurement of round trips.

use std::io;

use taillab_model::Nanos;

use super::kinds::{Mode, Proto};
use crate::endpoint::Endpoint;
use crate::error::LoadError;

/// Why round trips cannot be measured, or no further. Each text names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum RttError {
    /// A connection cannot be made.
    #[error(transparent)]
    Connect(#[from] LoadError),
    /// The server's end of a connection is gone.
    #[error("{server} ended the connection after {answered} round trips: find out why it stopped")]
    PeerGone {
        /// Who.
        server: String,
        /// Round trips before, on this connection.
        answered: u64,
    },
    /// Nobody listens any more.
    #[error("nothing listens at {server}: start an echo server there")]
    Refused {
        /// Where.
        server: String,
    },
    /// No answer at all, or none any more.
    #[error(
        "no answer from {server} within {waited} to {lost} messages in a row: check that it \
         echoes, and that no firewall is in the way"
    )]
    Silent {
        /// Who.
        server: String,
        /// How long the last of them was waited for.
        waited: Nanos,
        /// How many.
        lost: u64,
    },
    /// The connection of RDMA is broken.
    #[error(
        "RDMA to {server} failed after {answered} round trips ({status}): see whether it runs and its link is up (`rdma link`)"
    )]
    Verbs {
        /// Who.
        server: String,
        /// Round trips before, on this connection.
        answered: u64,
        /// What the adapter said.
        status: &'static str,
    },
    /// Nobody there who sets up RDMA.
    #[error(
        "{server} sets up no RDMA connection ({why}): start `taillab rtt --serve` there, with the same version"
    )]
    Handshake {
        /// Who.
        server: String,
        /// What it said or did.
        why: String,
    },
    /// What answers does not echo.
    #[error(
        "{server} did not send back the message that it was sent, {foreign} times: it is not an \
         echo server, or not for messages of {size} bytes"
    )]
    NoEcho {
        /// Who.
        server: String,
        /// Messages that were no answers.
        foreign: u64,
        /// Bytes of a message.
        size: usize,
    },
    /// A message that does not go through in one piece.
    #[error(
        "a message of {size} bytes is larger than the path to {server} allows{}: use at most \
         that, or raise the link's MTU",
        .most.map(|most| format!(" ({most} bytes)")).unwrap_or_default()
    )]
    TooLarge {
        /// Bytes of a message.
        size: usize,
        /// To whom.
        server: String,
        /// What the path carries, where the kernel says so.
        most: Option<usize>,
    },
    /// The kernel refuses busy polling.
    #[error(
        "the kernel does not permit this process to busy-poll sockets ({source}): run as root, \
         give it CAP_NET_ADMIN, or set `sysctl net.core.busy_read={microseconds}`"
    )]
    BusyPoll {
        /// What it said.
        source: io::Error,
        /// How long was asked for.
        microseconds: u32,
    },
    /// The kernel has no io_uring for us.
    #[error(
        "io_uring cannot be used ({source}): see `sysctl kernel.io_uring_disabled`, and whether \
         a container's seccomp profile forbids it"
    )]
    IoUring {
        /// What it said.
        source: io::Error,
    },
    /// Protocol and mode do not go together.
    #[error("{proto} has no mode {mode}: {instead}")]
    Mode {
        /// The protocol.
        proto: Proto,
        /// The mode asked for.
        mode: Mode,
        /// Those that there are.
        instead: String,
    },
    /// A size that the protocol does not carry.
    #[error("{proto} carries messages of {min} to {max} bytes, not of {size}")]
    Size {
        /// The protocol.
        proto: Proto,
        /// Bytes asked for.
        size: usize,
        /// Fewest.
        min: usize,
        /// Most.
        max: usize,
    },
    /// The protocol cannot be had here.
    #[error("{proto} cannot be measured here: {why}")]
    Unavailable {
        /// The protocol.
        proto: Proto,
        /// What is missing, and what helps.
        why: String,
    },
    /// The server of ours cannot be started.
    #[error("the echo server cannot be started: {0}")]
    Server(String),
    /// A system call that should not fail.
    #[error("{call} failed: {source}; run again, and report this if it persists")]
    Kernel {
        /// The call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread of the client cannot be made or prepared.
    #[error("a client thread cannot be set up: {0}; use other CPUs")]
    Thread(String),
}

/// The place in the words of an error.
pub(crate) fn place(endpoint: &Endpoint) -> String {
    endpoint.to_string()
}
