//! The sockets of a network namespace on which servers wait for clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use taillab_model::Transport;

use crate::process::numbers_in;
use crate::roots::Roots;

/// The files of `/proc/PID/net` that list the sockets of a transport, IPv4 and IPv6.
const fn tables(transport: Transport) -> [&'static str; 2] {
    match transport {
        Transport::Tcp => ["tcp", "tcp6"],
        Transport::Udp => ["udp", "udp6"],
    }
}

/// The state of a socket that waits for clients (`include/net/tcp_states.h`): TCP_LISTEN, and
/// TCP_CLOSE for a datagram socket without a peer.
const fn waiting_state(transport: Transport) -> u8 {
    match transport {
        Transport::Tcp => 0x0a,
        Transport::Udp => 0x07,
    }
}

/// A port on which a server waits for clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The port.
    pub port: u16,
    /// What carries the requests.
    pub transport: Transport,
    /// The addresses, IPv4 before IPv6; the unspecified address means all of them.
    pub addresses: Vec<IpAddr>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} over {}", self.port, self.transport)
    }
}

/// A socket that waits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WaitingSocket {
    pub(super) transport: Transport,
    pub(super) port: u16,
    pub(super) address: IpAddr,
    pub(super) inode: u64,
}

/// All waiting sockets of the network namespace of a process; none where its tables
/// cannot be read.
pub(super) fn waiting(roots: &Roots, pid: u32) -> Vec<WaitingSocket> {
    let of = |transport: Transport| {
        let lines = lines(roots, pid, transport);
        lines
            .into_iter()
            .filter_map(move |line| line.waiting(transport))
    };
    Transport::ALL.into_iter().flat_map(of).collect()
}

/// Whether a datagram socket on this port is connected to one peer, in the network namespace
/// of a process.
pub(super) fn has_connected(roots: &Roots, pid: u32, port: u16) -> bool {
    let lines = lines(roots, pid, Transport::Udp);
    lines
        .iter()
        .any(|line| line.port == port && line.peer_port != 0)
}

/// What `/proc/net/tcp` and its like (proc_pid_net(5)) say of a socket.
pub(super) struct SocketLine {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) peer_address: IpAddr,
    pub(super) peer_port: u16,
    state: u8,
    /// 0 for a connection that no process has open any more.
    pub(super) inode: u64,
}

/// All sockets of the network namespace of a process; none where its tables cannot be read.
pub(super) fn lines(roots: &Roots, pid: u32, transport: Transport) -> Vec<SocketLine> {
    let net = roots.proc.join(pid.to_string()).join("net");
    let tables = tables(transport).into_iter();
    // a kernel without IPv6 has no such file
    let texts = tables.filter_map(|table| fs::read_to_string(net.join(table)).ok());
    texts
        .flat_map(|text| {
            let lines = text.lines().skip(1);
            lines.filter_map(SocketLine::parse).collect::<Vec<_>>()
        })
        .collect()
}

impl SocketLine {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (address, port) = endpoint(fields.next()?)?;
        let (peer_address, peer_port) = endpoint(fields.next()?)?;
        let state = u8::from_str_radix(fields.next()?, 16).ok()?;
        // queues, timer, retransmits, user, time-out, inode
        let inode = fields.nth(5)?.parse().ok()?;
        Some(Self {
            address,
            port,
            peer_address,
            peer_port,
            state,
            inode,
        })
    }

    /// Whether it is a TCP connection that exists, or that is being made: TCP_ESTABLISHED, TCP_SYN_SENT.
    pub(super) const fn is_connected(&self) -> bool {
        matches!(self.state, 0x01 | 0x02)
    }

    pub(super) fn waiting(&self, transport: Transport) -> Option<WaitingSocket> {
        let waits = self.state == waiting_state(transport) && self.peer_port == 0;
        (waits && self.port != 0).then_some(WaitingSocket {
            transport,
            port: self.port,
            address: self.address,
            inode: self.inode,
        })
    }
}

/// `0100007F:1F90`: 32-bit words of the address as this machine reads them, and the port.
fn endpoint(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = [0_u8; 16];
    if !address.is_ascii() || !matches!(address.len(), 8 | 32) {
        return None;
    }
    for (word, place) in (0..address.len()).step_by(8).zip(bytes.chunks_exact_mut(4)) {
        let value = u32::from_str_radix(&address[word..word + 8], 16).ok()?;
        place.copy_from_slice(&value.to_ne_bytes());
    }
    let address = match address.len() {
        8 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        _ => IpAddr::from(Ipv6Addr::from(bytes)).to_canonical(),
    };
    Some((address, port))
}

/// The inodes of all sockets that a process has open.
///
/// # Errors
/// The kernel's answer, mostly `PermissionDenied`.
pub(super) fn held_by(roots: &Roots, pid: u32) -> io::Result<BTreeSet<u64>> {
    let folder = roots.proc.join(pid.to_string()).join("fd");
    let mut inodes = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        // descriptors come and go while we look
        let Ok(target) = entry.and_then(|entry| fs::read_link(entry.path())) else {
            continue;
        };
        inodes.extend(numbered(&target, "socket"));
    }
    Ok(inodes)
}

/// The inode of the network namespace of a process.
pub(super) fn namespace_of(roots: &Roots, pid: u32) -> Option<u64> {
    let link = roots.proc.join(pid.to_string()).join("ns/net");
    numbered(&fs::read_link(link).ok()?, "net")
}

/// `socket:[123]` as 123.
fn numbered(link: &Path, kind: &str) -> Option<u64> {
    let text = link.to_str()?.strip_prefix(kind)?;
    let number = text.strip_prefix(":[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// The paths of the Unix sockets among those `held` by a process on which it listens.
pub(super) fn unix_listeners(roots: &Roots, pid: u32, held: &BTreeSet<u64>) -> Vec<String> {
    /// `__SO_ACCEPTCON`: it listens.
    const LISTENS: u32 = 0x1_0000;
    let table = roots.proc.join(pid.to_string()).join("net/unix");
    let text = fs::read(table).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut paths: Vec<String> = text
        .lines()
        .skip(1)
        .filter_map(|line| {
            // number, references, protocol, flags, type, state, inode, path
            let mut fields = line.split_ascii_whitespace().skip(3);
            let flags = u32::from_str_radix(fields.next()?, 16).ok()?;
            let inode: u64 = fields.nth(2)?.parse().ok()?;
            let path = fields.next().unwrap_or("without a name");
            (flags & LISTENS != 0 && held.contains(&inode)).then(|| path.to_owned())
        })
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// One process of each network namespace, by the namespace's inode.
pub(super) fn namespaces(roots: &Roots) -> BTreeMap<u64, u32> {
    let mut first = BTreeMap::new();
    for pid in numbers_in(&roots.proc) {
        if let Some(namespace) = namespace_of(roots, pid) {
            first.entry(namespace).or_insert(pid);
        }
    }
    first
}

/// The processes that have one of these sockets open, in ascending order.
///
/// Processes whose descriptors cannot be read are left out.
pub(super) fn holders(roots: &Roots, inodes: &BTreeSet<u64>) -> Vec<u32> {
    let holds = |pid: &u32| {
        held_by(roots, *pid).is_ok_and(|held| held.intersection(inodes).next().is_some())
    };
    numbers_in(&roots.proc).into_iter().filter(holds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_told_from_connections() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
                    1000        0 33417 1 0000000000000000 100 0 0 10 0";
        let parse =
            |line, transport| SocketLine::parse(line).and_then(|line| line.waiting(transport));
        let waiting = parse(line, Transport::Tcp).unwrap();
        assert_eq!((waiting.port, waiting.inode), (8080, 33417));
        assert_eq!(waiting.address, IpAddr::from([127, 0, 0, 1]));
        let connected = line
            .replace(" 0A ", " 01 ")
            .replace("00000000:0000 ", "0200007F:ABCD ");
        assert_eq!(parse(&connected, Transport::Tcp), None);
        assert_eq!(parse(line, Transport::Udp), None);
        assert_eq!(parse("garbage", Transport::Tcp), None);
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let (address, port) = endpoint("00000000000000000000000001000000:0050").unwrap();
        assert_eq!((address, port), (Ipv6Addr::LOCALHOST.into(), 80));
        let (address, _) = endpoint("0000000000000000FFFF00000100007F:0050").unwrap();
        assert_eq!(address, IpAddr::from([127, 0, 0, 1]));
        for wrong in ["", ":", "01:0050", "0100007F", "0100007F:XYZ", "éééé:1"] {
            assert_eq!(endpoint(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn links_name_their_inode() {
        assert_eq!(numbered(Path::new("socket:[77]"), "socket"), Some(77));
        assert_eq!(numbered(Path::new("pipe:[77]"), "socket"), None);
        assert_eq!(numbered(Path::new("socket:[x]"), "socket"), None);
    }
}
