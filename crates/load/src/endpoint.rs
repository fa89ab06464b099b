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
    /// The option that makes memcached listen there, for error messages; empty if the port or the
    /// path does not look like memcached's.
    pub(crate) fn memcached_hint(&self) -> String {
        /// The default port, from memcached's documentation.
        const USUAL_PORT: u16 = 11211;
        match self {
            Self::Udp(address) | Self::Tcp(address) if address.port() != USUAL_PORT => {
                String::new()
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcached_is_named_where_it_would_listen() {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        for (endpoint, hint) in [
            (Endpoint::Udp(at(11211)), " (memcached: -U 11211)"),
            (Endpoint::Tcp(at(11211)), " (memcached: -p 11211)"),
            (
                Endpoint::Unix("/run/memcached.sock".into()),
                " (memcached: -s /run/memcached.sock)",
            ),
            // an echo server, and others
            (Endpoint::Udp(at(7)), ""),
            (Endpoint::Tcp(at(7)), ""),
            (Endpoint::Unix("/run/echo.sock".into()), ""),
        ] {
            assert_eq!(endpoint.memcached_hint(), hint, "{endpoint}");
        }
    }
}
