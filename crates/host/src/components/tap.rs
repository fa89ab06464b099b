//! A frame from a program through the kernel to a device and back: a packet socket sends it to a
//! TAP device, whose file a program reads and writes back, and the socket receives it.
//!
//! The device lives in a network namespace of its own, which the kernel removes with its last thread.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use taillab_model::Nanos;

use super::bounds::Bounds;
use super::error::ComponentError;
use super::frames::{
    Buffer, non_blocking, open_socket, raw_socket, receive, refused, round_trips, write,
};
use crate::cpus::{self, CpuSet};
use crate::netns::NetNamespace;
use crate::syscall::{answer, interface_request};

/// Who sends the frame back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflector {
    /// The thread that sent it.
    SameThread,
    /// A thread that spins on this CPU.
    OtherCpu(u32),
}

const NAME: &str = "tap";
/// A frame that has not reached the device by then is lost.
const LOST: Duration = Duration::from_secs(1);

/// Round trips of a frame of 60 bytes, sent on CPU `here`.
///
/// # Errors
/// [`ComponentError`]: no privilege for a namespace or a device.
pub fn tap_round_trips(
    here: u32,
    reflector: Reflector,
    bounds: Bounds<'_>,
) -> Result<Vec<Nanos>, ComponentError> {
    let namespace = NetNamespace::new()?;
    namespace.run(|| {
        cpus::pin_current_thread(&CpuSet::single(here))?;
        let tap = open_tap()?;
        let socket = open_socket(NAME)?;
        match reflector {
            Reflector::SameThread => round_trips(&socket, bounds, |buffer| {
                let sent = Instant::now();
                while sent.elapsed() <= LOST {
                    if let Some(n) = receive(&tap, buffer)? {
                        return write(&tap, &buffer[..n]);
                    }
                }
                Ok(())
            }),
            Reflector::OtherCpu(there) => {
                let stop = AtomicBool::new(false);
                thread::scope(|scope| {
                    let other = scope.spawn(|| reflect(&tap, there, &stop));
                    // without it no frame comes back; its own error is returned below
                    let is_there = |_: &mut Buffer| match other.is_finished() {
                        true => Err(refused("send a frame back")(
                            io::ErrorKind::BrokenPipe.into(),
                        )),
                        false => Ok(()),
                    };
                    let taken = round_trips(&socket, bounds, is_there);
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
    let mut request = interface_request(NAME).map_err(refused("name a TAP device"))?;
    request.ifr_ifru.ifru_flags = IFF_TAP_NO_PI;
    // SAFETY: the kernel reads and writes one `struct ifreq`.
    let made = unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETIFF, &raw mut request) };
    answer(made).map_err(refused("make a TAP device"))?;
    let socket = raw_socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: as above.
    let brought = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    answer(brought).map_err(refused("bring the TAP device up"))?;
    non_blocking(&tap)?;
    Ok(tap)
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
