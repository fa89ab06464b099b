//! From the name of a host to the address that answers.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

/// How long each of several addresses of a name may take to accept.
const ACCEPT_WITHIN: Duration = Duration::from_secs(2);
/// How long the host of each may take to say that nobody listens there.
const REFUSE_WITHIN: Duration = Duration::from_millis(100);

/// All addresses of a host, each once and at least one; in words why there is none. A link-local address has its
/// zone behind it: `fe80::1%eth0`.
pub fn of_host(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = (host, port).to_socket_addrs();
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found.map_err(|error| reason(&error))? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    match addresses.is_empty() {
        true => Err("it has no address".to_owned()),
        false => Ok(addresses),
    }
}

/// The first of several addresses that accepts a connection, or else the first. A single one is not tried: the
/// client does that, and reports its refusal.
pub fn accepting(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let accepts =
        |address: &&SocketAddr| TcpStream::connect_timeout(address, ACCEPT_WITHIN).is_ok();
    first(addresses.iter(), accepts)
}

/// The first of several addresses, IPv4 before IPv6, whose host does not refuse a datagram, or else the first.
/// Nothing accepts one, so a host that says nothing may be right.
pub fn taking_datagrams(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let (v4, v6): (Vec<_>, Vec<_>) = addresses.iter().partition(|address| address.is_ipv4());
    first(v4.into_iter().chain(v6), |address| !is_refused(address))
}

fn first<'a>(
    addresses: impl Iterator<Item = &'a SocketAddr> + Clone,
    is_right: impl Fn(&&'a SocketAddr) -> bool,
) -> Option<SocketAddr> {
    let only = addresses.clone().nth(1).is_none();
    let right = match only {
        true => None,
        false => addresses.clone().find(is_right),
    };
    right.or_else(|| addresses.clone().next()).copied()
}

/// Whether a datagram without content cannot be sent there, or comes back as refused.
fn is_refused(address: &SocketAddr) -> bool {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let asked = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(address)?;
        socket.set_read_timeout(Some(REFUSE_WITHIN))?;
        socket.send(&[])?;
        socket.recv(&mut [0]).map(drop)
    });
    let silence = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
    asked.is_err_and(|error| !silence.contains(&error.kind()))
}

/// What the resolver said, without the library's own words before it.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.rsplit(": ").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A host with two addresses, of which only the second has the server.
    #[test]
    fn an_address_where_nobody_listens_is_passed_over() {
        let loopback = |host: u8, port| SocketAddr::from(([127, 0, 0, host], port));
        let listening = TcpListener::bind(loopback(2, 0)).unwrap();
        let server = listening.local_addr().unwrap();
        let nobody = loopback(3, server.port());
        assert_eq!(accepting(&[nobody, server]), Some(server));
        assert_eq!(accepting(&[nobody]), Some(nobody));
        let udp = UdpSocket::bind(loopback(2, 0)).unwrap();
        let server = udp.local_addr().unwrap();
        let nobody = loopback(3, server.port());
        assert_eq!(taking_datagrams(&[nobody, server]), Some(server));
        assert_eq!(taking_datagrams(&[nobody]), Some(nobody));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, server.port()));
        assert_eq!(taking_datagrams(&[v6, server]), Some(server));
        assert_eq!(accepting(&[]), None);
    }

    #[test]
    fn an_address_keeps_its_zone() {
        let addresses = of_host("fe80::1%lo", 7).unwrap();
        let [SocketAddr::V6(address)] = addresses[..] else {
            panic!("{addresses:?}");
        };
        assert_eq!((address.port(), address.scope_id()), (7, 1));
        assert!(of_host("fe80::1%no-such-interface", 7).is_err());
    }
}
