//! Why a server cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use taillab_queueing::service::ServiceError;

use super::Architecture;

/// Why a server cannot start. Each text says what to do.
///
/// An error of one client ends that client's connection, not the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No worker, or too many.
    #[error("the number of workers must be between 1 and {max}, not {workers}")]
    Workers {
        /// The number asked for.
        workers: usize,
        /// The largest number.
        max: usize,
    },
    /// Messages too small for the id that they carry, or too large for the transport.
    #[error("{what} must be between {min} and {max} bytes with {architecture}, not {bytes}")]
    Size {
        /// `requests` or `responses`.
        what: &'static str,
        /// Size asked for.
        bytes: usize,
        /// Smallest size.
        min: usize,
        /// Largest size.
        max: usize,
        /// The architecture that has these limits.
        architecture: Architecture,
    },
    /// A Unix socket for a UDP server.
    #[error(
        "{0} serves UDP and cannot listen on a Unix socket: give an address and a port, or choose null-rpc, epoll-shared or epoll-per-worker"
    )]
    UnixDatagram(Architecture),
    /// Uneven assignment of connections in an architecture that assigns none.
    #[error(
        "{0} assigns no connections to workers, so it cannot do so unevenly: choose epoll-per-worker"
    )]
    Skew(Architecture),
    /// Answers in two pieces from a server that writes each at once.
    #[error(
        "{0} writes each answer at once: for answers in two pieces, choose epoll-shared or epoll-per-worker"
    )]
    InPieces(Architecture),
    /// Busy polling in the architecture with a thread for each connection.
    #[error("null-rpc blocks in read by definition and cannot spin: choose epoll-per-worker")]
    BusyNullRpc,
    /// Another socket has the port.
    #[error(
        "{address} is in use by another socket: stop its owner (see `ss -tulpn`) or listen on another port"
    )]
    InUse {
        /// The address wanted.
        address: SocketAddr,
    },
    /// A port that needs a privilege.
    #[error(
        "port {} needs root or CAP_NET_BIND_SERVICE: listen on a port from 1024 on (or lower net.ipv4.ip_unprivileged_port_start)",
        address.port()
    )]
    Privilege {
        /// The address wanted.
        address: SocketAddr,
    },
    /// No interface has the address.
    #[error(
        "no interface of this host (or of this network namespace) has the address {}: see `ip address`, or listen on 127.0.0.1, [::1] or 0.0.0.0",
        address.ip()
    )]
    NotHere {
        /// The address wanted.
        address: SocketAddr,
    },
    /// Another server listens on the Unix socket.
    #[error("another server listens on {}: stop it or choose another path", path.display())]
    UnixInUse {
        /// The path wanted.
        path: PathBuf,
    },
    /// Another file has the socket's path.
    #[error("{} exists and is not a socket: choose another path or move it away", path.display())]
    NotASocket {
        /// The path wanted.
        path: PathBuf,
    },
    /// The Unix socket cannot be made.
    #[error(
        "cannot make the Unix socket {}: {source}; choose a path of at most 107 bytes in a directory that you may write to",
        path.display()
    )]
    Unix {
        /// The path wanted.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The socket cannot be made, for another reason.
    #[error("cannot listen on {address}: {source}; check the address")]
    Socket {
        /// The address wanted.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread or what it needs cannot be made.
    #[error(
        "cannot start the server's threads: {call} failed: {source}; use fewer workers, or raise the limits on processes and files (ulimit -u, ulimit -n)"
    )]
    Start {
        /// What failed.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The caller's preparation of a thread failed.
    #[error("{0}")]
    Prepare(String),
    /// The service times cannot be drawn.
    #[error(transparent)]
    Service(#[from] ServiceError),
}
