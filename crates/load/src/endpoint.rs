//! Where a server listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a server listens, with the kind of its socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A UDP port.
    Udp(SocketAddr),
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// The option that makes memcached listen there, for error messages; empty if a TCP port or a
    /// Unix path does not look like memcached's.
    pub(crate) fn memcached_hint(&self) -> String {
        /// The default port, from memcached's documentation.
        const USUAL_PORT: u16 = 11211;
        match self {
            Self::Tcp(address) if address.port() != USUAL_PORT => String::new(),
            Self::Unix(path) if !path.to_string_lossy().contains("memcached") => String::new(),
            Self::Udp(address) => format!(" (memcached: -U {})", address.port()),
            Self::Tcp(address) => format!(" (memcached: -p {})", address.port()),
            Self::Unix(path) => format!(" (memcached: -s {})", path.display()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "{address} (UDP)"),
            Self::Tcp(address) => write!(f, "{address} (TCP)"),
            Self::Unix(path) => write!(f, "Unix socket {}", path.display()),
        }
    }
}
