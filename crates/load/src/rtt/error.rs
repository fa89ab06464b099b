//! Why round trips cannot be measured.

use std::io;

use taillab_model::Nanos;

use super::kinds::{Mode, Proto};
use crate::error::LoadError;

/// Why round trips cannot be measured, or why a measurement ended. Each text names the cause and
/// the remedy.
#[derive(Debug, thiserror::Error)]
pub enum RttError {
    /// A connection cannot be made.
    #[error(transparent)]
    Connect(#[from] LoadError),
    /// The server's end of a connection is gone.
    #[error("{server} ended the connection after {answered} round trips: find out why it stopped")]
    PeerGone {
        /// The server's name.
        server: String,
        /// Round trips on this connection before that.
        answered: u64,
    },
    /// Nothing listens at the port.
    #[error("nothing listens at {server}: start an echo server there")]
    Refused {
        /// The server's name.
        server: String,
    },
    /// The network carries no messages to the server, or no longer does.
    #[error(
        "{server} cannot be reached ({source}): check that its host runs, the route to it, and \
         that no firewall is in the way"
    )]
    Unreachable {
        /// The server's name.
        server: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The server does not answer, or has stopped answering.
    #[error(
        "no answer from {server} within {waited} to {lost} messages in a row: check that it \
         echoes, and that no firewall is in the way"
    )]
    Silent {
        /// The server's name.
        server: String,
        /// The wait for the last answer.
        waited: Nanos,
        /// Messages lost in a row.
        lost: u64,
    },
    /// The RDMA connection is broken.
    #[error(
        "RDMA to {server} failed after {answered} round trips ({status}): check that it runs and that its link is up (`rdma link`)"
    )]
    Verbs {
        /// The server's name.
        server: String,
        /// Round trips on this connection before that.
        answered: u64,
        /// The adapter's status, in words.
        status: &'static str,
    },
    /// The server does not set up an RDMA connection.
    #[error(
        "{server} does not set up an RDMA connection ({why}): start `taillab rtt --serve` of the same version there"
    )]
    Handshake {
        /// The server's name.
        server: String,
        /// Its reason, or what it did instead.
        why: String,
    },
    /// The answers are not an echo.
    #[error(
        "{foreign} of the messages from {server} were not echoes: it is not an echo server, or does \
         not echo messages of {size} bytes"
    )]
    NoEcho {
        /// The server's name.
        server: String,
        /// Messages that were not answers.
        foreign: u64,
        /// Bytes of a message.
        size: usize,
    },
    /// The message does not fit the path in one packet.
    #[error(
        "a message of {size} bytes is larger than the path to {server} allows{}: use at most \
         that, or raise the link's MTU",
        .most.map(|most| format!(" ({most} bytes)")).unwrap_or_default()
    )]
    TooLarge {
        /// Bytes of a message.
        size: usize,
        /// The server's name.
        server: String,
        /// The largest message that fits, if the kernel says so.
        most: Option<usize>,
    },
    /// The kernel refuses busy polling.
    #[error(
        "the kernel does not permit this process to busy-poll sockets ({source}): run as root, \
         give it CAP_NET_ADMIN, or set `sysctl net.core.busy_read={microseconds}`"
    )]
    BusyPoll {
        /// The kernel's error.
        source: io::Error,
        /// The requested poll time.
        microseconds: u32,
    },
    /// The kernel refuses io_uring.
    #[error(
        "io_uring cannot be used ({source}): check that the kernel is Linux 6.0 or later, `sysctl \
         kernel.io_uring_disabled`, and whether a container's seccomp profile forbids it"
    )]
    IoUring {
        /// The kernel's error.
        source: io::Error,
    },
    /// The protocol does not support the mode.
    #[error("{proto} has no mode {mode}: {instead}")]
    Mode {
        /// The protocol.
        proto: Proto,
        /// The mode asked for.
        mode: Mode,
        /// The modes that it has, in words.
        instead: String,
    },
    /// The protocol cannot carry messages of this size.
    #[error("{proto} carries messages of {min} to {max} bytes, not of {size}")]
    Size {
        /// The protocol.
        proto: Proto,
        /// Bytes asked for.
        size: usize,
        /// Fewest bytes.
        min: usize,
        /// Most bytes.
        max: usize,
    },
    /// The protocol is not available here.
    #[error("{proto} cannot be measured here: {why}")]
    Unavailable {
        /// The protocol.
        proto: Proto,
        /// What is missing, and what helps.
        why: String,
    },
    /// The built-in echo server cannot be started.
    #[error("the echo server cannot be started: {0}")]
    Server(String),
    /// A system call failed unexpectedly.
    #[error("{call} failed: {source}; run again, and report this if it persists")]
    Kernel {
        /// The call.
        call: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A client thread cannot be started or prepared.
    #[error("a client thread cannot be set up: {0}; use other CPUs")]
    Thread(String),
}
