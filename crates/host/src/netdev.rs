//! The interrupt moderation of a network device's receive contexts (NAPI), which only generic netlink
//! shows (family `netdev`, kernel `Documentation/netlink/specs/netdev.yaml`).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const DEVICE: u16 = 1;
const ID: u16 = 2;
const SUSPEND_TIMEOUT: u16 = 7;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;

/// A receive context of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Napi {
    /// Its number.
    pub(crate) id: u32,
    /// For how long its interrupts stay off while a server polls it; `None` where the kernel has no such
    /// time.
    pub(crate) suspend_timeout_ns: Option<u64>,
}

/// The receive contexts of a device of the thread's network namespace; none while it is down.
pub(crate) fn napis(device: &str) -> io::Result<Vec<Napi>> {
    let mut kernel = Kernel::new()?;
    let index = name_to_index(&kernel.socket, device)?;
    let device = [(DEVICE, index.to_ne_bytes().to_vec())];
    let answers = kernel.ask(DUMP, NAPI_GET, &device)?;
    Ok(answers.iter().filter_map(|answer| napi(answer)).collect())
}

/// Sets for how long the interrupts of a receive context stay off while a server polls it.
pub(crate) fn set_suspend_timeout(id: u32, timeout_ns: u64) -> io::Result<()> {
    let wanted = [
        (ID, id.to_ne_bytes().to_vec()),
        (SUSPEND_TIMEOUT, timeout_ns.to_ne_bytes().to_vec()),
    ];
    Kernel::new()?.ask(ACKNOWLEDGE, NAPI_SET, &wanted).map(drop)
}

fn napi(answer: &[u8]) -> Option<Napi> {
    // after the command and its version
    let attributes = attributes(answer.get(4..)?);
    let of = |kind: u16| {
        let found = attributes.iter().find(|(known, _)| *known == kind)?;
        number(found.1)
    };
    Some(Napi {
        id: u32::try_from(of(ID)?).ok()?,
        suspend_timeout_ns: of(SUSPEND_TIMEOUT),
    })
}

/// A netlink `uint`: four bytes, or eight where the value needs them.
fn number(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// A generic netlink socket.
struct Kernel {
    socket: OwnedFd,
    /// The id of the family `netdev`; until it is known, that of the control family.
    family: u16,
}

impl Kernel {
    fn new() -> io::Result<Self> {
        let kind = Some(netlink::GENERIC);
        let socket = socket(AddressFamily::NETLINK, SocketType::RAW, kind)?;
        // it answers at once or never
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
        let mut kernel = Self {
            socket,
            family: CONTROL,
        };
        let name = [(FAMILY_NAME, b"netdev\0".to_vec())];
        let answers = kernel.ask(ACKNOWLEDGE, GET_FAMILY, &name)?;
        let id = answers.iter().find_map(|answer| {
            let attributes = attributes(answer.get(4..)?);
            let (_, id) = attributes
                .into_iter()
                .find(|(kind, _)| *kind == FAMILY_ID)?;
            Some(u16::from_ne_bytes(id.try_into().ok()?))
        });
        kernel.family = id.ok_or(Errno::NOENT)?;
        Ok(kernel)
    }

    /// Sends a command and returns the bodies of the answers.
    fn ask(
        &mut self,
        flags: u16,
        command: u8,
        attributes: &[(u16, Vec<u8>)],
    ) -> io::Result<Vec<Vec<u8>>> {
        let request = message(self.family, REQUEST | flags, command, attributes);
        send(&self.socket, &request, SendFlags::empty())?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let (length, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            for (kind, body) in messages(&buffer[..length]) {
                match kind {
                    // an error of 0 acknowledges
                    ERROR | DONE => {
                        let code = body.get(..4).and_then(|code| code.try_into().ok());
                        return match code.map_or(0, i32::from_ne_bytes) {
                            0 => Ok(answers),
                            code => Err(io::Error::from_raw_os_error(-code)),
                        };
                    }
                    _ => answers.push(body.to_vec()),
                }
            }
        }
    }
}

/// A command of generic netlink with its attributes.
fn message(family: u16, flags: u16, command: u8, attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![command, 1, 0, 0];
    for (kind, value) in attributes {
        let length = 4 + value.len() as u16;
        body.extend(length.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let length = 16 + body.len() as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // sequence number and port id, which one request at a time does not need
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The type and the body of each message.
pub(crate) fn messages(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some(header) = bytes.first_chunk::<16>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(body) = bytes.get(16..length) else {
            break;
        };
        found.push((kind, body));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// The type and the value of each attribute.
pub(crate) fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some(header) = bytes.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        // the upper bits say whether it is nested, and in which byte order
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let Some(value) = bytes.get(4..length) else {
            break;
        };
        found.push((kind, value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let sent = [
            (ID, 513_u32.to_ne_bytes().to_vec()),
            (SUSPEND_TIMEOUT, 20_000_000_u64.to_ne_bytes().to_vec()),
            (FAMILY_NAME, b"odd".to_vec()),
        ];
        let two = [message(7, REQUEST, NAPI_GET, &sent), message(8, 0, 0, &[])].concat();
        let read = messages(&two);
        assert_eq!(
            read.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
            [7, 8]
        );
        let napi = napi(read[0].1);
        let wanted = Napi {
            id: 513,
            suspend_timeout_ns: Some(20_000_000),
        };
        assert_eq!(napi, Some(wanted));
        // what is cut off is not read
        for length in 0..two.len() {
            assert!(messages(&two[..length]).len() < 2);
        }
        assert!(attributes(&[200, 0, 1, 0, 5]).is_empty());
    }

    /// The loopback has no receive contexts; a kernel before 6.6 does not know the family.
    #[test]
    fn the_kernel_answers_for_the_loopback() {
        match napis("lo") {
            Ok(found) => assert_eq!(found, []),
            Err(error) => assert!(
                [Some(libc::ENOENT), Some(libc::EOPNOTSUPP)].contains(&error.raw_os_error()),
                "{error}"
            ),
        }
        let missing = napis("no-such-device").unwrap_err().raw_os_error();
        assert!([Some(libc::ENODEV), Some(libc::ENOENT)].contains(&missing));
    }
}
