//! A server of datagrams behind a tap device, which hands packets to the stack as drivers of
//! NICs do, and a client that writes whole Ethernet frames.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use taillab_probe::{ProbeSpec, ServerProcesses, Transport};

use super::{CLIENT, DeviceId, Namespace, SERVER, SERVER_PORT, device, ip, spec};

/// The port that the frames come from.
pub(crate) const CLIENT_PORT: u16 = 40_001;

/// How a driver hands packets over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// By `netif_receive_skb`.
    Direct,
    /// By `napi_gro_receive`.
    Gro,
    /// By `napi_gro_frags`.
    GroFrags,
}

/// linux/if_tun.h
const TUNSETIFF: u64 = 0x4004_54ca;
const IFF_TAP: u16 = 0x0002;
const IFF_NAPI: u16 = 0x0010;
const IFF_NAPI_FRAGS: u16 = 0x0020;
const IFF_NO_PI: u16 = 0x1000;

/// `struct ifreq` with flags.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    unused: [u8; 22],
}

/// The server, the device and the client's end of it.
pub(crate) struct TapBed {
    pub(crate) spec: ProbeSpec,
    pub(crate) device: DeviceId,
    pub(crate) server_tid: u32,
    /// Whether its frames have a VLAN's tag, of no VLAN but with a priority: any kernel takes those.
    pub(crate) tagged: bool,
    tap: File,
    hardware_address: [u8; 6],
    _server: Namespace,
}

impl TapBed {
    pub(crate) fn new(driver: Driver) -> Self {
        let server = Namespace::new();
        let (tap, device, hardware_address) = server.run(move || {
            let tap = open(driver);
            ip(&format!("address add {SERVER}/24 dev tap"));
            ip("link set tap up");
            ip(&format!(
                "neighbour add {CLIENT} lladdr 02:00:00:00:00:02 dev tap nud permanent"
            ));
            (tap, device("tap"), hardware_address())
        });
        let (ready, tid) = std::sync::mpsc::channel();
        server.run(move || {
            let socket = UdpSocket::bind((SERVER, SERVER_PORT)).expect("the port is free");
            socket
                .set_read_timeout(Some(Duration::from_millis(50)))
                .expect("a time-out can be set");
            std::thread::spawn(move || {
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                ready.send(tid).expect("the creator waits");
                let mut buffer = [0; 2048];
                loop {
                    match socket.recv_from(&mut buffer) {
                        // an empty datagram ends it
                        Ok((0, _)) => break,
                        Ok((_, from)) => _ = socket.send_to(&buffer[..2], from),
                        Err(timeout) if timeout.kind() == ErrorKind::WouldBlock => {}
                        Err(_) => break,
                    }
                }
            });
        });
        Self {
            spec: spec(
                device,
                Transport::Udp,
                ServerProcesses::These(vec![std::process::id()]),
            ),
            device,
            tagged: false,
            server_tid: tid.recv().expect("the server's thread runs"),
            tap,
            hardware_address,
            _server: server,
        }
    }

    /// One request, of two bytes, and its response.
    pub(crate) fn round_trip(&mut self, request: &[u8; 2]) {
        let frame = self.frame(request);
        self.tap.write_all(&frame).expect("the device is up");
        let mut answer = [0; 2048];
        loop {
            let n = self.tap.read(&mut answer).expect("the device is up");
            // the kernel also sends IPv6 packets of its own
            if n >= 44 && answer[12..14] == [8, 0] && answer[36..38] == CLIENT_PORT.to_be_bytes() {
                assert_eq!(&answer[42..44], request);
                return;
            }
        }
    }

    /// Ethernet, IPv4 and UDP around a payload.
    fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.hardware_address.to_vec();
        frame.extend([2, 0, 0, 0, 0, 2]);
        if self.tagged {
            frame.extend([0x81, 0, 0x60, 0]);
        }
        frame.extend([8, 0]);
        let length = |headers: usize| ((headers + payload.len()) as u16).to_be_bytes();
        let mut header = vec![0x45, 0];
        header.extend(length(28));
        header.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        header.extend(CLIENT.octets());
        header.extend(SERVER.octets());
        // RFC 1071
        let words = header.chunks(2);
        let sum: u32 = words
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(header);
        frame.extend(CLIENT_PORT.to_be_bytes());
        frame.extend(SERVER_PORT.to_be_bytes());
        frame.extend(length(8));
        // no checksum
        frame.extend([0, 0]);
        frame.extend(payload);
        frame
    }
}

impl Drop for TapBed {
    fn drop(&mut self) {
        let frame = self.frame(&[]);
        let _ = self.tap.write_all(&frame);
    }
}

fn open(driver: Driver) -> File {
    if !std::path::Path::new("/dev/net/tun").exists() {
        // it may be a module that nobody has needed so far
        let _ = std::process::Command::new("modprobe").arg("tun").status();
    }
    let tap = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .expect("the kernel has CONFIG_TUN, or its module is loaded");
    let flags = match driver {
        Driver::Direct => 0,
        Driver::Gro => IFF_NAPI,
        Driver::GroFrags => IFF_NAPI | IFF_NAPI_FRAGS,
    };
    let mut request = Request {
        name: [0; 16],
        flags: IFF_TAP | IFF_NO_PI | flags,
        unused: [0; 22],
    };
    request.name[..3].copy_from_slice(b"tap");
    // SAFETY: the request is as large as the kernel's ifreq, which this call reads and writes.
    let done = unsafe { ioctl(tap.as_raw_fd(), TUNSETIFF, &raw mut request) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    tap
}

unsafe extern "C" {
    fn ioctl(fd: i32, request: u64, ...) -> i32;
}

/// linux/sockios.h, linux/ethtool.h
const SIOCETHTOOL: u64 = 0x8946;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_SFLAGS: u32 = 0x26;

/// `struct ifreq` with a pointer.
#[repr(C)]
struct PointerRequest {
    name: [u8; 16],
    data: *mut [u32; 2],
    unused: [u8; 16],
}

/// Lets this device of the calling thread's namespace receive through GRO.
pub(crate) fn switch_gro_on(name: &str) {
    set(name, ETHTOOL_SGRO, 1);
}

/// Stops this device from sending packets that must be segmented.
pub(crate) fn switch_segmentation_off(name: &str) {
    set(name, ETHTOOL_STSO, 0);
}

/// Lets the kernel, and not this device, write the tags of VLANs into packets and take them out.
pub(crate) fn switch_tags_off(name: &str) {
    set(name, ETHTOOL_SFLAGS, 0);
}

fn set(name: &str, what: u32, to: u32) {
    let mut value = [what, to];
    let mut request = PointerRequest {
        name: [0; 16],
        data: &raw mut value,
        unused: [0; 16],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // SAFETY: the request is as large as the kernel's ifreq, and points to a value as large
    // as its ethtool_value, which lives on.
    let done = unsafe { ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn hardware_address() -> [u8; 6] {
    let text = std::process::Command::new("ip")
        .args(["-o", "link", "show", "tap"])
        .output()
        .expect("iproute2 is installed");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let mut words = text.split_whitespace();
    let address = words
        .by_ref()
        .skip_while(|word| *word != "link/ether")
        .nth(1)
        .expect("a tap device has an address");
    let bytes: Vec<u8> = address
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"))
        .collect();
    bytes.try_into().expect("six bytes")
}
