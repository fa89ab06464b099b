//! The handshake of the two ends over TCP before the first message.
//!
//! The client sends its verb and the address of its queue pair. The server answers with the address
//! of its own, or with the reason why there is none. Then the TCP connection is silent until one end
//! closes it, which tells the other one that it is gone. Numbers are in network byte order.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use taillab_model::text::plain;

use super::Verb;
use super::link::Address;

/// How a client's message begins, and a server's; the last byte is the version.
const CLIENT: [u8; 8] = *b"tlrdmaC1";
const SERVER: [u8; 8] = *b"tlrdmaS1";
/// Bytes of an address, and of a client's message.
const ADDRESS: usize = 4 + 4 + 16 + 2 + 1 + 4 + 8;
const HELLO: usize = 8 + 1 + 4 + ADDRESS;
/// The longest wait for a message from the other end, which opens its adapter first: on a busy machine that can
/// take seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The longest refusal that is read.
const LONGEST_REFUSAL: u16 = 1024;

/// A client's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) verb: Verb,
    /// Bytes of a message.
    pub(super) size: u32,
    pub(super) address: Address,
}

/// The other end speaks another protocol.
fn foreign() -> io::Error {
    io::Error::other("it does not speak taillab's RDMA protocol")
}

/// Why there is no connection.
pub(super) fn in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        ErrorKind::WouldBlock => format!("it was silent for {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    }
}

fn written(address: &Address) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    bytes[..4].copy_from_slice(&address.number.to_be_bytes());
    bytes[4..8].copy_from_slice(&address.packet.to_be_bytes());
    bytes[8..24].copy_from_slice(&address.gid.octets());
    bytes[24..26].copy_from_slice(&address.lid.to_be_bytes());
    bytes[26] = address.mtu;
    bytes[27..31].copy_from_slice(&address.key.to_be_bytes());
    bytes[31..].copy_from_slice(&address.memory.to_be_bytes());
    bytes
}

fn read(bytes: &[u8; ADDRESS]) -> Address {
    Address {
        number: u32::from_be_bytes(part(bytes, 0)),
        packet: u32::from_be_bytes(part(bytes, 4)),
        gid: Ipv6Addr::from(part::<16>(bytes, 8)),
        lid: u16::from_be_bytes(part(bytes, 24)),
        mtu: bytes[26],
        key: u32::from_be_bytes(part(bytes, 27)),
        memory: u64::from_be_bytes(part(bytes, 31)),
    }
}

/// `N` bytes, beginning at `from`.
fn part<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[from + i])
}

/// The client's side: sends its message and returns the address of the server's queue pair.
pub(super) fn ask(mut control: &TcpStream, hello: &Hello) -> io::Result<Address> {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(&CLIENT);
    bytes[8] = hello.verb.number();
    bytes[9..13].copy_from_slice(&hello.size.to_be_bytes());
    bytes[13..].copy_from_slice(&written(&hello.address));
    control.set_read_timeout(Some(PATIENCE))?;
    control.write_all(&bytes)?;
    let mut head = [0; 9];
    control.read_exact(&mut head)?;
    if head[..8] != SERVER {
        return Err(foreign());
    }
    if head[8] == 0 {
        let mut address = [0; ADDRESS];
        control.read_exact(&mut address)?;
        return Ok(read(&address));
    }
    let mut length = [0; 2];
    control.read_exact(&mut length)?;
    let length = u16::from_be_bytes(length).min(LONGEST_REFUSAL);
    let mut text = vec![0; usize::from(length)];
    control.read_exact(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    Err(io::Error::other(plain(&text)))
}

/// Whether [`hear`] would return at once: the client's whole message is there, or the client has gone.
pub(super) fn has_spoken(control: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(control, &mut [0_u8; HELLO][..], flags) {
        Ok((length, _)) => length == HELLO || length == 0,
        Err(why) => !matches!(why, Errno::AGAIN | Errno::INTR),
    }
}

/// The server's side: reads the client's message.
pub(super) fn hear(mut control: &TcpStream) -> io::Result<Hello> {
    control.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = [0; HELLO];
    control.read_exact(&mut bytes)?;
    let verb = Verb::numbered(bytes[8]);
    match verb {
        Some(verb) if bytes[..8] == CLIENT => Ok(Hello {
            verb,
            size: u32::from_be_bytes(part(&bytes, 9)),
            address: read(&part(&bytes, 13)),
        }),
        _ => Err(foreign()),
    }
}

/// The server's answer.
pub(super) fn answer(mut control: &TcpStream, address: Result<&Address, &str>) -> io::Result<()> {
    let mut bytes = SERVER.to_vec();
    match address {
        Ok(address) => {
            bytes.push(0);
            bytes.extend(written(address));
        }
        Err(why) => {
            let text = &why.as_bytes()[..why.len().min(usize::from(LONGEST_REFUSAL))];
            bytes.push(1);
            bytes.extend((text.len() as u16).to_be_bytes());
            bytes.extend(text);
        }
    }
    control.write_all(&bytes)
}

/// Whether the other end has closed the connection; otherwise it stays silent.
pub(super) fn is_gone(control: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let found = recv(control, &mut [0_u8; 1][..], flags);
    !matches!(found, Err(Errno::AGAIN | Errno::INTR))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn address(number: u32) -> Address {
        Address {
            number,
            packet: 0x00AB_CDEF,
            gid: Ipv6Addr::new(0, 0, 0, 0, 0, 0xFFFF, 0x0A09, 1),
            lid: 0x1234,
            mtu: 3,
            key: 0xDEAD_BEEF,
            memory: 0x7FFF_0123_4567_89AB,
        }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn both_ends_learn_of_each_other() {
        for verb in Verb::ALL {
            let (client, server) = pair();
            let hello = Hello {
                verb,
                size: 1 << 20,
                address: address(17),
            };
            thread::scope(|scope| {
                let asked = scope.spawn(|| ask(&client, &hello).unwrap());
                assert_eq!(hear(&server).unwrap(), hello);
                answer(&server, Ok(&address(99))).unwrap();
                assert_eq!(asked.join().unwrap(), address(99));
            });
            assert!(!is_gone(&client));
            drop(server);
            // the end of the connection comes after the close
            while !is_gone(&client) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn a_client_has_spoken_with_the_last_byte_of_its_message_or_its_end() {
        let until = |server: &TcpStream| {
            while !has_spoken(server) {
                thread::sleep(Duration::from_millis(1));
            }
        };
        let (mut client, server) = pair();
        assert!(!has_spoken(&server));
        client.write_all(&[0; HELLO - 1]).unwrap();
        assert!(!has_spoken(&server));
        client.write_all(&[0]).unwrap();
        until(&server);
        let (client, server) = pair();
        drop(client);
        until(&server);
    }

    #[test]
    fn who_speaks_something_else_and_who_refuses_are_told_apart() {
        let hello = Hello {
            verb: Verb::Send,
            size: 64,
            address: address(17),
        };
        // an echo server sends back what it gets
        let (client, mut server) = pair();
        thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&client, &hello));
            let mut bytes = [0; HELLO];
            server.read_exact(&mut bytes).unwrap();
            server.write_all(&bytes).unwrap();
            let error = asked.join().unwrap().unwrap_err();
            assert!(error.to_string().contains("does not speak"), "{error}");
        });
        let (client, server) = pair();
        thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&client, &hello));
            hear(&server).unwrap();
            answer(&server, Err("there is no RDMA device")).unwrap();
            let error = asked.join().unwrap().unwrap_err();
            assert_eq!(error.to_string(), "there is no RDMA device");
        });
        let (client, server) = pair();
        thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&client, &hello));
            hear(&server).unwrap();
            drop(server);
            let error = asked.join().unwrap().unwrap_err();
            assert_eq!(in_words(&error), "it closed the connection");
        });
        let (mut client, server) = pair();
        client.write_all(&[b'G'; HELLO]).unwrap();
        let error = hear(&server).unwrap_err().to_string();
        assert!(error.contains("does not speak"), "{error}");
    }
}
