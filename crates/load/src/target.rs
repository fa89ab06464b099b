//! The target of a load as text: `memcached+udp://127.0.0.1:11211`.
//!
//! Pure: nothing is resolved or opened here.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::protocol::{Ask, PROTOCOLS, Protocol};

/// The longest path that fits a Unix socket's address (`sun_path` without its final zero byte).
pub const MAX_UNIX_PATH_BYTES: usize = 107;

/// A server: its protocol and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The protocol that it speaks, in one dialect.
    pub protocol: &'static Protocol,
    /// Where it listens.
    pub place: Place,
    /// The path with its query, beginning with `/`; empty for a protocol without [`Ask::Path`].
    pub path: String,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A UDP port.
    Udp(HostPort),
    /// A TCP port.
    Tcp(HostPort),
    /// A stream socket in the file system.
    Unix(PathBuf),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Name or address.
    pub host: Host,
    /// Never 0.
    pub port: u16,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name that must still be resolved; also an address with its zone, `fe80::1%eth0`, whose interface must.
    Name(String),
}

/// The transport that a scheme names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
    Unix,
}

/// Why a text is not a target. Each message says what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text has no scheme.
    #[error("`{0}` does not say what the server speaks: write e.g. memcached+udp://{0} or http://{0}/ ({schemes})", schemes = Target::schemes())]
    NoScheme(String),
    /// The scheme is unknown.
    #[error("`{0}` is not a scheme; choose one of {schemes}", schemes = Target::schemes())]
    UnknownScheme(String),
    /// This protocol does not run over that transport.
    #[error("{protocol} does not run over {transport}; use {instead}")]
    Transport {
        /// The protocol.
        protocol: &'static str,
        /// The transport asked for.
        transport: &'static str,
        /// The transports of the protocol.
        instead: &'static str,
    },
    /// A part between the scheme and the host, or after the port, that has no meaning.
    #[error("`{0}` has no meaning here; write scheme://host:port{path}", path = .1)]
    Superfluous(String, &'static str),
    /// There is no host.
    #[error("`{0}` names no host; write e.g. 127.0.0.1:{1}")]
    NoHost(String, u16),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}` is not a port; it must be a number from 1 to 65535")]
    Port(String),
    /// The host is neither a name nor an address.
    #[error(
        "`{0}` is neither a host name nor an address; an IPv6 address needs brackets, e.g. [::1]:11211"
    )]
    Host(String),
    /// The path of a Unix socket is missing or unusable.
    #[error(
        "`{0}` is not a path for a Unix socket: write e.g. {1}:/run/server.sock, at most \
         {MAX_UNIX_PATH_BYTES} bytes"
    )]
    UnixPath(String, String),
    /// The path has bytes that a request line cannot contain.
    #[error(
        "`{0}` is not a valid request path: it must begin with `/` and have only visible ASCII \
         characters (write %20 for a space)"
    )]
    RequestPath(String),
    /// The protocol has no such dialect.
    #[error("only memcached has dialects: use memcached+tcp, memcached+udp or memcached+unix")]
    NoDialect,
}

impl Target {
    /// The schemes, for help and for error messages.
    pub fn schemes() -> String {
        let mut all = Vec::new();
        let mut before = "";
        for protocol in &PROTOCOLS {
            let scheme = protocol.scheme;
            let further_dialect = protocol.name == before;
            before = protocol.name;
            all.push(match protocol.over_udp() {
                true => format!("{scheme}+tcp"),
                false => scheme.to_owned(),
            });
            if !further_dialect {
                all.extend(protocol.over_udp().then(|| format!("{scheme}+udp")));
                all.push(format!("{scheme}+unix"));
            }
        }
        all.join(", ")
    }

    /// The same server with another dialect of its protocol, e.g. `binary`.
    ///
    /// # Errors
    /// [`TargetError::NoDialect`] when the protocol has no such dialect.
    pub fn with_dialect(mut self, dialect: &str) -> Result<Self, TargetError> {
        let protocol = self.protocol.in_dialect(dialect);
        self.protocol = protocol.ok_or(TargetError::NoDialect)?;
        Ok(self)
    }
}

/// The part of a target before the colon.
#[derive(Clone, Copy)]
struct Scheme {
    protocol: &'static Protocol,
    transport: Transport,
}

impl Scheme {
    fn read(text: &str) -> Result<Self, TargetError> {
        let unknown = || TargetError::UnknownScheme(text.to_owned());
        let lower = text.to_ascii_lowercase();
        let (name, transport) = lower.split_once('+').unwrap_or((&lower, "tcp"));
        let protocol = Protocol::of_scheme(name).ok_or_else(unknown)?;
        let transport = match transport {
            "udp" => Transport::Udp,
            "tcp" => Transport::Tcp,
            "unix" => Transport::Unix,
            _ => return Err(unknown()),
        };
        if transport == Transport::Udp && !protocol.over_udp() {
            return Err(TargetError::Transport {
                protocol: protocol.scheme,
                transport: "UDP",
                instead: "+tcp or +unix",
            });
        }
        Ok(Self {
            protocol,
            transport,
        })
    }

    /// Whether its targets have a path.
    fn has_path(self) -> bool {
        self.protocol.asks(Ask::Path)
    }

    /// The target at this place, with its path.
    fn target(self, place: Place, path: &str) -> Result<Target, TargetError> {
        Ok(Target {
            protocol: self.protocol,
            place,
            path: match self.has_path() {
                true => request_path(path)?,
                false => String::new(),
            },
        })
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let (scheme, rest) = text
            .split_once(':')
            // `localhost:11211` has a colon and no scheme
            .filter(|(scheme, rest)| {
                rest.starts_with('/') || (scheme.contains('+') && !rest.is_empty())
            })
            .ok_or_else(|| TargetError::NoScheme(text.to_owned()))?;
        let scheme = Scheme::read(scheme)?;
        match scheme.transport {
            Transport::Unix => unix(scheme, rest),
            Transport::Tcp | Transport::Udp => network(scheme, rest),
        }
    }
}

/// `/run/server.sock` or `///run/server.sock`; if the protocol has paths, `:/path` may follow.
fn unix(scheme: Scheme, rest: &str) -> Result<Target, TargetError> {
    let bad = |path: &str| {
        TargetError::UnixPath(path.to_owned(), format!("{}+unix", scheme.protocol.scheme))
    };
    // the path may follow an empty authority: any number of slashes counts as one
    let inner = rest.trim_start_matches('/');
    let path = &rest[(rest.len() - inner.len()).saturating_sub(1)..];
    let (path, asked) = match path.split_once(':') {
        Some((path, asked)) if scheme.has_path() => (path, asked),
        _ => (path, "/"),
    };
    let fits = path.len() <= MAX_UNIX_PATH_BYTES && path.len() > 1;
    if !path.starts_with('/') || !fits || path.contains('\0') || path.ends_with('/') {
        return Err(bad(path));
    }
    scheme.target(Place::Unix(PathBuf::from(path)), asked)
}

/// `//host:port`, perhaps followed by a path.
fn network(scheme: Scheme, rest: &str) -> Result<Target, TargetError> {
    let wanted = if scheme.has_path() { "/path" } else { "" };
    let default_port = scheme.protocol.default_port;
    let rest = rest
        .strip_prefix("//")
        .ok_or_else(|| TargetError::NoHost(rest.to_owned(), default_port))?;
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    if let Some((user, _)) = authority.split_once('@') {
        return Err(TargetError::Superfluous(format!("{user}@"), wanted));
    }
    if !scheme.has_path() && !path.is_empty() && path != "/" {
        return Err(TargetError::Superfluous(path.to_owned(), wanted));
    }
    let at = host_port(authority, default_port)?;
    let place = match scheme.transport {
        Transport::Udp => Place::Udp(at),
        Transport::Tcp | Transport::Unix => Place::Tcp(at),
    };
    scheme.target(place, path)
}

/// The path as it goes into the request line, without a fragment.
fn request_path(path: &str) -> Result<String, TargetError> {
    let path = path.split('#').next().unwrap_or_default();
    let path = match path.chars().next() {
        None => "/".to_owned(),
        Some('?') => format!("/{path}"),
        _ => path.to_owned(),
    };
    if path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(path)
    } else {
        Err(TargetError::RequestPath(path))
    }
}

fn host_port(text: &str, default_port: u16) -> Result<HostPort, TargetError> {
    let bad_host = || TargetError::Host(text.to_owned());
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, after) = rest.split_once(']').ok_or_else(bad_host)?;
        let host = match address.split_once('%') {
            None => Host::Address(IpAddr::V6(address.parse().map_err(|_| bad_host())?)),
            Some((link_local, zone)) if is_zone(zone) && link_local.parse::<Ipv6Addr>().is_ok() => {
                Host::Name(address.to_owned())
            }
            Some(_) => return Err(bad_host()),
        };
        let port = match after {
            "" => None,
            _ => Some(after.strip_prefix(':').ok_or_else(bad_host)?),
        };
        (host, port)
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        if port.is_some_and(|port| port.contains(':')) {
            return Err(bad_host());
        }
        if host.is_empty() {
            return Err(TargetError::NoHost(text.to_owned(), default_port));
        }
        let host = match host.parse::<IpAddr>() {
            Ok(address) => Host::Address(address),
            Err(_) if is_name(host) => Host::Name(host.to_owned()),
            Err(_) => return Err(bad_host()),
        };
        (host, port)
    };
    let port = match port {
        None => default_port,
        Some(text) => text
            .parse()
            .ok()
            .filter(|port| *port > 0 && text.bytes().all(|b| b.is_ascii_digit()))
            .ok_or_else(|| TargetError::Port(text.to_owned()))?,
    };
    Ok(HostPort { host, port })
}

/// Whether it can be the zone of a link-local address: the name or the number of an interface.
fn is_zone(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Whether it can be a host name. A name whose last label is a number is a mistyped
/// address (WHATWG URL, "ends in a number").
fn is_name(text: &str) -> bool {
    let labels = text.strip_suffix('.').unwrap_or(text);
    let good = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let last = labels.rsplit('.').next().unwrap_or_default();
    labels.len() <= 253 && labels.split('.').all(good) && !last.bytes().all(|b| b.is_ascii_digit())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(address) if address.contains('%') => write!(f, "[{address}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Target {
    /// The text that parses to this target, always with the port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.protocol.scheme)?;
        f.write_str(match self.place {
            Place::Udp(_) => "+udp",
            Place::Unix(_) => "+unix",
            Place::Tcp(_) if self.protocol.over_udp() => "+tcp",
            // without datagrams a scheme alone means TCP
            Place::Tcp(_) => "",
        })?;
        match &self.place {
            Place::Udp(at) | Place::Tcp(at) => write!(f, "://{at}")?,
            Place::Unix(path) => write!(f, ":{}", path.display())?,
        }
        match &self.place {
            Place::Unix(_) if !self.path.is_empty() => write!(f, ":{}", self.path),
            _ => f.write_str(&self.path),
        }
    }
}

#[cfg(test)]
mod tests;
