//! Where a server listens, and its listening sockets.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen,
    socket_with, sockopt,
};

use super::ServeError;

/// Connections that may wait to be accepted; the kernel limits it to net.core.somaxconn.
const BACKLOG: i32 = 65_535;
/// Receive buffer of each UDP socket, large so that a pause of the server drops no request.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Where a server listens: `127.0.0.1:7777`, `[::1]:7777`, a port alone (on loopback), or
/// `unix:/run/echo.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listen {
    /// An address and a port; port 0 lets the kernel choose.
    Inet(SocketAddr),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

/// The text is not a place to listen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` does not say where to listen: write an address and a port such as 127.0.0.1:7777 or [::1]:7777, a port for loopback, or unix:/path"
)]
pub struct BadListen(String);

impl Listen {
    /// A free port of 127.0.0.1.
    pub fn loopback() -> Self {
        Self::Inet(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
    }

    /// The address and the port, unless it is a Unix socket.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Inet(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Whether only this host can reach it.
    pub fn is_local(&self) -> bool {
        self.socket_address()
            .is_none_or(|address| address.ip().is_loopback())
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Listen {
    type Err = BadListen;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let bad = || BadListen(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let path = (!path.is_empty()).then(|| Self::Unix(path.into()));
            return path.ok_or_else(bad);
        }
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        if let Some(port) = text.strip_prefix("localhost:").or(Some(text))
            // a number may have a sign, a port has none
            && !port.starts_with('+')
            && let Ok(port) = port.parse()
        {
            return Ok(Self::Inet(SocketAddr::new(loopback, port)));
        }
        text.parse().map(Self::Inet).map_err(|_| bad())
    }
}

/// A listening stream socket, which never blocks.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) at: Listen,
    /// Removes the Unix socket's path when dropped.
    pub(super) path: Option<SocketPath>,
}

/// Opens the listening socket of a stream server in the calling thread's namespace.
pub(super) fn stream(at: &Listen) -> Result<Listener, ServeError> {
    match at {
        Listen::Inet(address) => {
            let refused = |errno| refusal(*address, errno);
            let socket = socket(*address, SocketType::STREAM, SocketFlags::NONBLOCK)?;
            // a restarted server need not wait for the old connections' TIME_WAIT
            sockopt::set_socket_reuseaddr(&socket, true).map_err(refused)?;
            bind(&socket, address).map_err(refused)?;
            listen(&socket, BACKLOG).map_err(refused)?;
            Ok(Listener {
                at: Listen::Inet(bound(&socket, *address)?),
                socket,
                path: None,
            })
        }
        Listen::Unix(path) => unix(path).map(|(socket, guard)| Listener {
            socket,
            at: at.clone(),
            path: Some(guard),
        }),
    }
}

/// Opens UDP sockets on one address: one, or several with `SO_REUSEPORT`.
pub(super) fn datagram(
    address: SocketAddr,
    sockets: usize,
    reuseport: bool,
) -> Result<(Vec<OwnedFd>, SocketAddr), ServeError> {
    let open = |address: SocketAddr, shared: bool| {
        let refused = |errno| refusal(address, errno);
        let socket = socket(address, SocketType::DGRAM, SocketFlags::empty())?;
        if shared {
            sockopt::set_socket_reuseport(&socket, true).map_err(refused)?;
        }
        bind(&socket, &address).map_err(refused)?;
        // Without the privilege the kernel caps the size at net.core.rmem_max.
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES).map_err(refused)?;
        }
        let bound = bound(&socket, address)?;
        Ok::<_, ServeError>((socket, bound))
    };
    // First without SO_REUSEPORT: with it, the port of another server of the same user would
    // be shared with that server without an error.
    let (alone, mut bound) = open(address, false)?;
    if !reuseport {
        return Ok((vec![alone], bound));
    }
    drop(alone);
    let mut all = Vec::with_capacity(sockets);
    for _ in 0..sockets {
        let (socket, at) = open(bound, true)?;
        all.push(socket);
        bound = at;
    }
    Ok((all, bound))
}

fn socket(
    address: SocketAddr,
    kind: SocketType,
    flags: SocketFlags,
) -> Result<OwnedFd, ServeError> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    socket_with(family, kind, flags | SocketFlags::CLOEXEC, None)
        .map_err(|errno| refusal(address, errno))
}

fn bound(socket: &OwnedFd, wanted: SocketAddr) -> Result<SocketAddr, ServeError> {
    getsockname(socket)
        .and_then(SocketAddr::try_from)
        .map_err(|errno| refusal(wanted, errno))
}

fn refusal(address: SocketAddr, errno: Errno) -> ServeError {
    match errno {
        Errno::ADDRINUSE => ServeError::InUse { address },
        Errno::ACCESS => ServeError::Privilege { address },
        Errno::ADDRNOTAVAIL => ServeError::NotHere { address },
        _ => ServeError::Socket {
            address,
            source: errno.into(),
        },
    }
}

/// The path of a Unix socket of this server; dropping it removes the path if it is still the same
/// file.
#[derive(Debug)]
pub(super) struct SocketPath {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // it may have been removed meanwhile
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|at| (at.dev(), at.ino()))
}

fn unix(path: &Path) -> Result<(OwnedFd, SocketPath), ServeError> {
    let failed = |source: io::Error| ServeError::Unix {
        path: path.to_owned(),
        source,
    };
    let address = SocketAddrUnix::new(path).map_err(|e| failed(e.into()))?;
    clear(path, &address)?;
    let socket = unix_socket().map_err(|e| failed(e.into()))?;
    // The path gets the mode of the socket's own inode (unix_bind_bsd). So it is never open to
    // other users, not even for a moment, and the process's umask need not change.
    fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|e| failed(e.into()))?;
    bind(&socket, &address).map_err(|errno| match errno {
        Errno::ADDRINUSE => ServeError::UnixInUse {
            path: path.to_owned(),
        },
        _ => failed(errno.into()),
    })?;
    let guard = SocketPath {
        path: path.to_owned(),
        identity: identity(path).map_err(failed)?,
    };
    listen(&socket, BACKLOG).map_err(|e| failed(e.into()))?;
    Ok((socket, guard))
}

/// A stream socket that never blocks.
fn unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes the Unix socket at `path` if no process listens on it, and nothing else.
fn clear(path: &Path, address: &SocketAddrUnix) -> Result<(), ServeError> {
    let Ok(there) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !there.file_type().is_socket() {
        return Err(ServeError::NotASocket {
            path: path.to_owned(),
        });
    }
    match unix_socket().and_then(|socket| connect(&socket, address)) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(|source| ServeError::Unix {
            path: path.to_owned(),
            source,
        }),
        // also if this process may not connect to it, or its queue of connections is full
        _ => Err(ServeError::UnixInUse {
            path: path.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_written_back() {
        for (text, written) in [
            ("127.0.0.1:7777", "127.0.0.1:7777"),
            ("[::1]:7777", "[::1]:7777"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("7777", "127.0.0.1:7777"),
            ("localhost:7777", "127.0.0.1:7777"),
            ("unix:/run/echo.sock", "unix:/run/echo.sock"),
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), written);
        }
        for wrong in [
            "",
            "unix:",
            "127.0.0.1",
            "::1:7777:",
            "77777",
            "host:x",
            "+7777",
            "localhost:+7777",
        ] {
            let error = wrong.parse::<Listen>().unwrap_err().to_string();
            assert!(error.contains("unix:/path"), "{error}");
        }
    }

    #[test]
    fn only_loopback_and_paths_are_local() {
        let local = |text: &str| text.parse::<Listen>().unwrap().is_local();
        assert!(local("7777") && local("[::1]:1") && local("unix:/x"));
        assert!(!local("0.0.0.0:7777") && !local("[::]:7777") && !local("10.0.0.1:1"));
    }
}
