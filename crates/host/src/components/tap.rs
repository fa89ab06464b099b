//! A frame from a program through the kernel to a device and back: a packet socket sends it to a
//! TAP device, whose file a program reads and writes back, and the socket receives it.
//!
//! The device lives in a network namespace of its own, which goes with its last thread.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use taillab_model::Nanos;

use super::error::ComponentError;
use crate::cpus::{self, CpuSet};
use crate::netns::NetNamespace;

/// Who sends the frame back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflector {
    /// The thread that sent it.
    SameThread,
    /// A thread that spins on this CPU.
    OtherCpu(u32),
}

/// Local experiments (IEEE 802, `ETH_P_802_EX1`).
const ETHER_TYPE: u16 = 0x88b5;
/// The shortest frame without its checksum.
const FRAME: usize = 60;

/// Round trips of a frame of 60 bytes, sent on CPU `here`; at most `most`, for at most `length`.
///
/// # Errors
/// [`ComponentError`]: no privilege for a namespace or a device.
pub fn tap_round_trips(
    here: u32,
    reflector: Reflector,
    most: usize,
    length: Duration,
) -> Result<Vec<Nanos>, ComponentError> {
    let namespace = NetNamespace::new()?;
    namespace.run(|| {
        cpus::pin_current_thread(&CpuSet::single(here))?;
        let tap = open_tap()?;
        let socket = open_socket()?;
        match reflector {
            Reflector::SameThread => send_and_reflect(&tap, &socket, most, length),
            Reflector::OtherCpu(there) => {
                let stop = AtomicBool::new(false);
                thread::scope(|scope| {
                    let other = scope.spawn(|| reflect(&tap, there, &stop));
                    let taken = send(&socket, most, length);
                    stop.store(true, Ordering::Relaxed);
                    match other.join() {
                        Ok(reflected) => reflected?,
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                    taken
                })
            }
        }
    })?
}

fn refused(doing: &'static str) -> impl Fn(io::Error) -> ComponentError {
    move |source| ComponentError::Refused {
        doing,
        source,
        remedy: "run as root on a kernel with CONFIG_TUN and CONFIG_PACKET (`modprobe tun`)",
    }
}

/// `struct ifreq` with flags or an index.
#[repr(C)]
#[derive(Default)]
struct Request {
    name: [u8; 16],
    flags: i16,
    unused: [u8; 22],
}

const NAME: &[u8] = b"tap";

fn request(flags: i16) -> Request {
    let mut request = Request {
        flags,
        ..Request::default()
    };
    request.name[..NAME.len()].copy_from_slice(NAME);
    request
}

/// Makes the device, without addresses, and brings it up.
fn open_tap() -> Result<File, ComponentError> {
    /// linux/if_tun.h
    const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
    const IFF_TAP_NO_PI: i16 = 0x0002 | 0x1000;
    let tap = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .map_err(refused("open /dev/net/tun"))?;
    let mut wanted = request(IFF_TAP_NO_PI);
    // SAFETY: the kernel reads and writes one `struct ifreq`, which `wanted` is as large as.
    let made = unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETIFF, &raw mut wanted) };
    succeeded(made).map_err(refused("make a TAP device"))?;
    let socket = raw_socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut up = request((libc::IFF_UP | libc::IFF_RUNNING) as i16);
    // SAFETY: as above.
    let brought = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut up) };
    succeeded(brought).map_err(refused("bring the TAP device up"))?;
    non_blocking(&tap)?;
    Ok(tap)
}

fn raw_socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, ComponentError> {
    // SAFETY: it takes numbers only.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    succeeded(fd).map_err(refused("open a socket"))?;
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A packet socket for our frames on the device.
fn open_socket() -> Result<File, ComponentError> {
    let protocol = ETHER_TYPE.to_be();
    let socket = raw_socket(libc::AF_PACKET, libc::SOCK_RAW, protocol.into())?;
    let mut index = request(0);
    // SAFETY: the kernel reads and writes one `struct ifreq`, which `index` is as large as.
    let found = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut index) };
    succeeded(found).map_err(refused("find the TAP device"))?;
    // its four bytes begin where the flags do
    let [low, high] = index.flags.to_ne_bytes();
    let ifindex = i32::from_ne_bytes([low, high, index.unused[0], index.unused[1]]);
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: ifindex,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the kernel reads `address`, whose size it is told.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    succeeded(bound).map_err(refused("bind a packet socket to the TAP device"))?;
    let socket = File::from(socket);
    non_blocking(&socket)?;
    Ok(socket)
}

fn non_blocking(file: &File) -> Result<(), ComponentError> {
    rustix::fs::fcntl_setfl(file, rustix::fs::OFlags::NONBLOCK)
        .map_err(|error| refused("make a descriptor non-blocking")(error.into()))
}

fn succeeded(answer: i32) -> io::Result<()> {
    match answer {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A broadcast with the number of its turn.
fn frame(turn: u64) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    frame[14..22].copy_from_slice(&turn.to_be_bytes());
    frame
}

/// One of our frames, without waiting; the kernel has things of its own to say, in IPv6.
fn receive(mut from: &File, buffer: &mut [u8; 2_048]) -> Result<Option<usize>, ComponentError> {
    match from.read(buffer) {
        Ok(n) if n >= 22 && buffer[12..14] == ETHER_TYPE.to_be_bytes() => Ok(Some(n)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(refused("receive a frame")(error)),
    }
}

fn write(mut to: &File, frame: &[u8]) -> Result<(), ComponentError> {
    to.write_all(frame).map_err(refused("send a frame"))
}

fn send_and_reflect(
    tap: &File,
    socket: &File,
    most: usize,
    length: Duration,
) -> Result<Vec<Nanos>, ComponentError> {
    round_trips(most, length, |turn, buffer| {
        write(socket, &frame(turn))?;
        let sent = Instant::now();
        loop {
            if let Some(n) = receive(tap, buffer)? {
                write(tap, &buffer[..n])?;
                break;
            }
            if sent.elapsed() > length {
                return Ok(());
            }
        }
        wait_for(socket, turn, buffer, length)
    })
}

fn send(socket: &File, most: usize, length: Duration) -> Result<Vec<Nanos>, ComponentError> {
    round_trips(most, length, |turn, buffer| {
        write(socket, &frame(turn))?;
        wait_for(socket, turn, buffer, length)
    })
}

/// Until the frame of this turn is back, or the whole time is over.
fn wait_for(
    socket: &File,
    turn: u64,
    buffer: &mut [u8; 2_048],
    length: Duration,
) -> Result<(), ComponentError> {
    let began = Instant::now();
    while began.elapsed() <= length {
        if receive(socket, buffer)?.is_some() && buffer[14..22] == turn.to_be_bytes() {
            break;
        }
    }
    Ok(())
}

fn round_trips(
    most: usize,
    length: Duration,
    mut one: impl FnMut(u64, &mut [u8; 2_048]) -> Result<(), ComponentError>,
) -> Result<Vec<Nanos>, ComponentError> {
    let mut buffer = [0; 2_048];
    let mut taken = Vec::with_capacity(most);
    let end = Instant::now() + length;
    for turn in 1..=most as u64 {
        let began = Instant::now();
        if began > end {
            break;
        }
        one(turn, &mut buffer)?;
        taken.push(Nanos::new(began.elapsed().as_nanos() as u64));
    }
    Ok(taken)
}

fn reflect(tap: &File, cpu: u32, stop: &AtomicBool) -> Result<(), ComponentError> {
    cpus::pin_current_thread(&CpuSet::single(cpu))?;
    let mut buffer = [0; 2_048];
    while !stop.load(Ordering::Relaxed) {
        if let Some(n) = receive(tap, &mut buffer)? {
            write(tap, &buffer[..n])?;
        }
    }
    Ok(())
}
