//! Whether packets can wait in a queue before the driver of a network device takes them (its queueing discipline,
//! which `tc qdisc show` names).

use std::io;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};

use crate::netdev::{attributes, messages};
use crate::netns::NetNamespace;

// linux/rtnetlink.h, linux/netlink.h, linux/if_link.h
const GET_LINK: u16 = 18;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const REQUEST_DUMP: u16 = 0x301;
const QDISC: u16 = 6;
/// Bytes of a link's fixed part (`struct ifinfomsg`).
const LINK_BYTES: usize = 16;

impl NetNamespace {
    /// Whether one of its devices has a queue, which may hold packets back before the driver takes them. A device
    /// that only passes packets on (`noqueue`: loopback, veth, bridges) has none. Also true where the kernel does
    /// not say.
    pub fn has_queues(&self) -> bool {
        let disciplines = self.run(disciplines);
        !matches!(disciplines, Ok(Ok(names)) if names.iter().all(|name| is_none(name)))
    }
}

/// Whether a discipline lets packets pass at once; `noop` is that of a device that is down.
fn is_none(discipline: &str) -> bool {
    matches!(discipline, "noqueue" | "noop")
}

/// The discipline of each device of the thread's network namespace.
fn disciplines() -> io::Result<Vec<String>> {
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    // it answers at once or never
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut names = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let read = messages(&buffer[..length]);
        if read.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        for (kind, body) in read {
            match kind {
                DONE => return Ok(names),
                ERROR => return Err(io::ErrorKind::Unsupported.into()),
                _ => names.extend(body.get(LINK_BYTES..).and_then(discipline)),
            }
        }
    }
}

/// Asks for all links.
fn request() -> Vec<u8> {
    let mut request = (16 + LINK_BYTES as u32).to_ne_bytes().to_vec();
    request.extend(GET_LINK.to_ne_bytes());
    request.extend(REQUEST_DUMP.to_ne_bytes());
    request.resize(16 + LINK_BYTES, 0);
    request
}

/// The discipline among a link's attributes.
fn discipline(link: &[u8]) -> Option<String> {
    let found = attributes(link)
        .into_iter()
        .find(|(kind, _)| *kind == QDISC);
    let (_, name) = found?;
    let name = name.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_a_discipline_that_holds_nothing_back() {
        let names = disciplines().expect("every kernel answers this");
        let loopback = names.iter().filter(|name| is_none(name));
        assert!(loopback.count() >= 1, "{names:?}");
        assert!(!is_none("fq") && !is_none("pfifo_fast") && !is_none("mq"));
    }
}
