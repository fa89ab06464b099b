//! The kernel's own stamps of what a socket sends and receives (`SO_TIMESTAMPING`,
//! Documentation/networking/timestamping.rst), converted to `CLOCK_MONOTONIC`.
//!
//! They say when the device got a datagram and when it delivered the answer, without the
//! generator's own delays: the time between a kernel stamp and the generator's clock reading
//! belongs to the client, not to the server. Only software stamps are used: those of a NIC follow
//! the NIC's clock, and turning them on changes the machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use taillab_model::{Monotonic, Nanos};

use crate::clock::{now, realtime_ns};
use crate::sockopt;

/// Which stamps the kernel should take. A stamp of a receipt costs about 100 ns, one of a send an
/// extra packet through the socket's error queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelStamps {
    /// When the device passed each answer to the stack.
    pub received: bool,
    /// When each request was passed to the device.
    pub sent: bool,
}

impl KernelStamps {
    /// No stamps.
    pub const NONE: Self = Self {
        received: false,
        sent: false,
    };

    /// Both stamps.
    pub const ALL: Self = Self {
        received: true,
        sent: true,
    };

    /// Whether the kernel should take any.
    pub fn any(self) -> bool {
        self.received || self.sent
    }
}

/// Turns the stamps of a socket on or off. Turning on those of sends restarts [`Sent::number`]
/// at 0.
///
/// # Errors
/// What the kernel says. A Unix socket accepts the option but gets no stamps.
pub fn enable(socket: impl AsFd, stamps: KernelStamps) -> io::Result<()> {
    let mut flags = 0;
    if stamps.received {
        flags |= libc::SOF_TIMESTAMPING_RX_SOFTWARE;
    }
    if stamps.sent {
        // the stamp alone, with a number, and not the whole packet back
        flags |= libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    }
    if stamps.any() {
        flags |= libc::SOF_TIMESTAMPING_SOFTWARE;
    }
    sockopt::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// Receives without waiting. Returns the length, and when the device delivered it (for a stream, the
/// last packet).
///
/// # Errors
/// As `recv`: `WouldBlock` when nothing has arrived.
pub fn recv(
    socket: impl AsFd,
    buffer: &mut [u8],
    bridge: &mut RealtimeBridge,
) -> io::Result<(usize, Option<Monotonic>)> {
    let mut message = MessageBuffer::new(buffer);
    let length = message.receive(&socket, libc::MSG_DONTWAIT)?;
    let at = message.controls().find_map(stamp);
    Ok((length, at.and_then(|ns| bridge.to_monotonic(ns))))
}

/// The kernel's stamp of a message sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number of the message on its socket, from 0; for a stream, the number of
    /// its last byte.
    pub number: u32,
    /// When it was passed to the device.
    pub at: Monotonic,
}

/// Takes one stamp from the socket's error queue, without waiting.
pub fn sent(socket: impl AsFd, bridge: &mut RealtimeBridge) -> Option<Sent> {
    // OPT_TSONLY: no payload
    let mut nothing = [0; 1];
    let mut message = MessageBuffer::new(&mut nothing);
    message
        .receive(&socket, libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE)
        .ok()?;
    let at = message.controls().find_map(stamp)?;
    let number = message.controls().find_map(number)?;
    Some(Sent {
        number,
        at: bridge.to_monotonic(at)?,
    })
}

/// Bytes for the control messages: a stamp (3 timespecs) and an extended error with an
/// address (16 + 28 bytes), each with its header, and room to spare.
const CONTROL_BYTES: usize = 256;

/// Aligned for a `cmsghdr`.
#[repr(C, align(8))]
struct Controls([u8; CONTROL_BYTES]);

/// A buffer for `recvmsg`.
struct MessageBuffer<'a> {
    buffer: &'a mut [u8],
    controls: Controls,
    /// Bytes of `controls` that the kernel wrote.
    written: usize,
}

impl<'a> MessageBuffer<'a> {
    fn new(buffer: &'a mut [u8]) -> Self {
        Self {
            buffer,
            // zeroes, since the kernel leaves out the padding between two messages
            controls: Controls([0; CONTROL_BYTES]),
            written: 0,
        }
    }

    #[inline]
    fn receive(&mut self, socket: &impl AsFd, flags: libc::c_int) -> io::Result<usize> {
        let mut vector = libc::iovec {
            iov_base: self.buffer.as_mut_ptr().cast(),
            iov_len: self.buffer.len(),
        };
        // SAFETY: all bytes zero is a valid msghdr without any buffer.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = self.controls.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: every pointer in the header points to memory of the length given with it. That
        // memory outlives the call, and nothing else uses it meanwhile.
        let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        self.written = (header.msg_controllen as usize).min(CONTROL_BYTES);
        Ok(length as usize)
    }

    fn controls(&self) -> impl Iterator<Item = ControlMessage<'_>> {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        let mut rest = &self.controls.0[..self.written];
        std::iter::from_fn(move || {
            // the header's fields: a usize, then two ints
            let length = usize::from_ne_bytes(first(rest)?);
            let level = libc::c_int::from_ne_bytes(first(&rest[size_of::<usize>()..])?);
            let kind = libc::c_int::from_ne_bytes(first(&rest[size_of::<usize>() + 4..])?);
            let data = rest.get(HEADER..length)?;
            rest = rest
                .get(length.next_multiple_of(size_of::<usize>())..)
                .unwrap_or(&[]);
            Some(ControlMessage { level, kind, data })
        })
    }
}

/// What the kernel says of a packet beside its bytes (`cmsghdr`).
struct ControlMessage<'a> {
    level: libc::c_int,
    kind: libc::c_int,
    data: &'a [u8],
}

fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

/// The software stamp in a control message, in nanoseconds of `CLOCK_REALTIME`.
fn stamp(message: ControlMessage<'_>) -> Option<u64> {
    let ControlMessage { level, kind, data } = message;
    if (level, kind) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
        return None;
    }
    const WORD: usize = size_of::<libc::c_long>();
    let seconds = libc::c_long::from_ne_bytes(first(data)?);
    let nanos = libc::c_long::from_ne_bytes(first(data.get(WORD..)?)?);
    let ns = u64::try_from(seconds).ok()? * 1_000_000_000 + u64::try_from(nanos).ok()?;
    (ns > 0).then_some(ns)
}

/// The message's number in an extended error that is a stamp (`sock_extended_err`:
/// errno, origin, type, code, padding, info, data).
fn number(message: ControlMessage<'_>) -> Option<u32> {
    let ControlMessage { level, kind, data } = message;
    let of_ip = matches!(
        (level, kind),
        (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
    );
    const ORIGIN_TIMESTAMPING: u8 = 4;
    if !of_ip || *data.get(4)? != ORIGIN_TIMESTAMPING {
        return None;
    }
    Some(u32::from_ne_bytes(first(data.get(12..)?)?))
}

/// How long the difference of the two clocks is used before it is measured again. A
/// clock that is being slewed moves by at most 500 ppm, so by 50 ns in this time.
const DIFFERENCE_HOLDS: Nanos = Nanos::from_micros(100);

/// A stamp further in the past than this cannot be right: the clock was set in between.
const PLAUSIBLE: Nanos = Nanos::from_secs(10);

/// Converts times of `CLOCK_REALTIME`, which the kernel's stamps use, to
/// `CLOCK_MONOTONIC`.
///
/// Both clocks run from one counter, but the difference changes when the clock is set.
/// It is measured by reading one clock between two readings of the other; the error is
/// at most half the time between those two, about 20 ns.
#[derive(Clone, Debug, Default)]
pub struct RealtimeBridge {
    /// Realtime minus monotonic.
    difference_ns: i64,
    measured: Option<Monotonic>,
}

impl RealtimeBridge {
    /// The same instant on `CLOCK_MONOTONIC`; `None` when it lies in the future or far
    /// in the past, because the clock was set in between.
    pub fn to_monotonic(&mut self, realtime_ns: u64) -> Option<Monotonic> {
        let mut at = now();
        if self
            .measured
            .is_none_or(|then| at.saturating_since(then) > DIFFERENCE_HOLDS)
        {
            at = self.measure();
        }
        let ns = (realtime_ns as i64).checked_sub(self.difference_ns)?;
        let stamp = Monotonic::from_nanos_since_boot(u64::try_from(ns).ok()?);
        // 1 µs: the bridge's own error
        let plausible =
            stamp <= at + Nanos::from_micros(1) && at.saturating_since(stamp) < PLAUSIBLE;
        plausible.then_some(stamp)
    }

    /// Takes the narrowest of three brackets.
    fn measure(&mut self) -> Monotonic {
        let mut narrowest = u64::MAX;
        let mut before = now();
        for _ in 0..3 {
            let realtime = realtime_ns();
            let after = now();
            let width = after.saturating_since(before).get();
            if width < narrowest {
                narrowest = width;
                let middle = before.nanos_since_boot() + width / 2;
                self.difference_ns = realtime as i64 - middle as i64;
            }
            before = after;
        }
        self.measured = Some(before);
        before
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::fake::until;

    fn pair() -> (UdpSocket, UdpSocket) {
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        (a, b)
    }

    #[test]
    fn stamps_lie_between_the_clock_readings_around_them() {
        let (a, b) = pair();
        enable(&a, KernelStamps::ALL).unwrap();
        enable(&b, KernelStamps::ALL).unwrap();
        let mut bridge = RealtimeBridge::default();
        let mut buffer = [0; 64];
        let mut number = 0;
        let mut complete = 0;
        while complete < 5 {
            let before = now();
            a.send(b"hello").unwrap();
            let (length, received) = until(|| recv(&b, &mut buffer, &mut bridge).ok());
            let left = until(|| sent(&a, &mut bridge));
            let after = now() + Nanos::from_micros(1);
            assert_eq!(&buffer[..length], b"hello");
            assert_eq!(left.number, number);
            assert!(before <= left.at + Nanos::from_micros(1));
            number += 1;
            // the kernel begins to stamp receipts a moment after the first socket asked
            // for it
            assert!(number < 100_000, "{complete} receipts have a stamp");
            let Some(received) = received else { continue };
            assert!(left.at <= received + Nanos::from_micros(1) && received <= after);
            complete += 1;
        }
        assert_eq!(sent(&a, &mut bridge), None);
        let nothing = recv(&b, &mut buffer, &mut bridge).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn turning_the_stamps_on_again_begins_the_count_anew() {
        let (a, _b) = pair();
        let mut bridge = RealtimeBridge::default();
        for _ in 0..2 {
            enable(&a, KernelStamps::NONE).unwrap();
            enable(&a, KernelStamps::ALL).unwrap();
            a.send(b"x").unwrap();
            a.send(b"x").unwrap();
            let numbers = [0, 1].map(|_| until(|| sent(&a, &mut bridge)).number);
            assert_eq!(numbers, [0, 1]);
        }
    }

    #[test]
    fn without_stamps_there_is_none() {
        let (a, b) = pair();
        a.send(b"x").unwrap();
        let mut bridge = RealtimeBridge::default();
        let (_, received) = until(|| recv(&b, &mut [0; 8], &mut bridge).ok());
        assert_eq!((received, sent(&a, &mut bridge)), (None, None));
    }

    #[test]
    fn the_bridge_follows_the_present_and_refuses_another_age() {
        let mut bridge = RealtimeBridge::default();
        for _ in 0..1000 {
            let before = now();
            let crossed = bridge.to_monotonic(realtime_ns()).unwrap();
            let after = now();
            // The error of a bracket is half of the time between two readings. A preemption can
            // make one of three brackets long, but hardly all three.
            assert!(crossed + Nanos::from_millis(1) >= before);
            assert!(crossed <= after + Nanos::from_millis(1));
        }
        assert_eq!(bridge.to_monotonic(0), None);
        assert_eq!(bridge.to_monotonic(realtime_ns() + 3_600_000_000_000), None);
    }
}
