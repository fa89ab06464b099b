//! Our own frames between a packet socket and a peer that returns them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use taillab_model::Nanos;

use super::bounds::Bounds;
use super::error::ComponentError;
use crate::syscall::{answer, descriptor};

/// EtherType for local experiments (IEEE 802, `ETH_P_802_EX1`).
const ETHER_TYPE: u16 = 0x88b5;
/// Bytes of the shortest Ethernet frame, without its checksum.
const FRAME: usize = 60;
/// A frame that has not come back by then is lost.
const LOST: Duration = Duration::from_secs(1);

/// Room for whatever a device receives.
pub(super) type Buffer = [u8; 2_048];

pub(super) fn refused(doing: &'static str) -> impl Fn(io::Error) -> ComponentError {
    move |source| ComponentError::Refused {
        doing,
        source,
        remedy: "run as root on a kernel with CONFIG_TUN and CONFIG_PACKET (`modprobe tun`)",
    }
}

pub(super) fn raw_socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, ComponentError> {
    // SAFETY: it takes numbers only.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    answer(fd).map(descriptor).map_err(refused("open a socket"))
}

/// A packet socket for our frames on a device of the thread's network namespace.
pub(super) fn open_socket(device: &str) -> Result<File, ComponentError> {
    let protocol = ETHER_TYPE.to_be();
    let socket = raw_socket(libc::AF_PACKET, libc::SOCK_RAW, protocol.into())?;
    let index = name_to_index(&socket, device);
    let index = index.map_err(|error| refused("find the device")(error.into()))?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: index.cast_signed(),
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
    answer(bound).map_err(refused("bind a packet socket to the device"))?;
    let socket = File::from(socket);
    non_blocking(&socket)?;
    Ok(socket)
}

pub(super) fn non_blocking(file: &File) -> Result<(), ComponentError> {
    rustix::fs::fcntl_setfl(file, rustix::fs::OFlags::NONBLOCK)
        .map_err(|error| refused("make a descriptor non-blocking")(error.into()))
}

/// A broadcast frame that carries its number.
pub(super) fn frame(number: u64) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The length of one of our frames, without waiting; `None` for anything else, since the kernel sends
/// IPv6 frames of its own.
pub(super) fn receive(
    mut from: &File,
    buffer: &mut Buffer,
) -> Result<Option<usize>, ComponentError> {
    match from.read(buffer) {
        Ok(n) if n >= 22 && buffer[12..14] == ETHER_TYPE.to_be_bytes() => Ok(Some(n)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(refused("receive a frame")(error)),
    }
}

pub(super) fn write(mut to: &File, frame: &[u8]) -> Result<(), ComponentError> {
    to.write_all(frame).map_err(refused("send a frame"))
}

/// Round trips of our frame. Another program sends it back, or `in_between` does.
pub(super) fn round_trips(
    socket: &File,
    bounds: Bounds<'_>,
    mut in_between: impl FnMut(&mut Buffer) -> Result<(), ComponentError>,
) -> Result<Vec<Nanos>, ComponentError> {
    let mut buffer = [0; 2_048];
    bounds.samples(|number| {
        let sent = Instant::now();
        write(socket, &frame(number))?;
        in_between(&mut buffer)?;
        while sent.elapsed() <= LOST {
            if receive(socket, &mut buffer)?.is_some() && buffer[14..22] == number.to_be_bytes() {
                return Ok(Some(Nanos::new(sent.elapsed().as_nanos() as u64)));
            }
        }
        Ok(None)
    })
}
