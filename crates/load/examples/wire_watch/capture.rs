//! Packets of one port on one device, with the kernel's timestamps.
//!
//! A ring shared with the kernel (`PACKET_RX_RING`, Documentation/networking/packet_mmap.rst)
//! receives them: this program wakes once for each block instead of for each packet, so that it
//! disturbs the traffic as little as possible.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// TCP or UDP, by their numbers in the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Layer4 {
    Tcp = 6,
    Udp = 17,
}

/// One packet with payload to the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// `CLOCK_REALTIME` nanoseconds when the device passed it on.
    pub(crate) at_ns: u64,
    pub(crate) source_port: u16,
    /// With TCP, the sequence number of the first byte: the same one again is a retransmission.
    pub(crate) sequence: u32,
}

const BLOCK_BYTES: usize = 1 << 18;
const BLOCKS: usize = 64;
/// After this time the kernel returns a block that is not full.
const BLOCK_TIMEOUT_MS: u32 = 20;
/// Network and transport headers, options included.
const SNAP_BYTES: u32 = 128;

/// A packet socket with its ring.
pub(crate) struct Capture {
    socket: OwnedFd,
    ring: *const u8,
    next: usize,
    loopback: bool,
    layer4: Layer4,
}

impl Capture {
    /// Begins to watch `device` (its name in the calling thread's network namespace).
    pub(crate) fn open(device: &str, port: u16, layer4: Layer4) -> io::Result<Self> {
        let name = CString::new(device)?;
        // SAFETY: a NUL-terminated string that lives through the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no pointers. Protocol 0: nothing arrives before the bind below.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0) })?;
        // SAFETY: a fresh descriptor that nobody else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        // with this, the kernel stamps every packet as soon as a device passes it on; otherwise
        // only when the packet reaches this socket
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
        attach_filter(&socket, port, layer4)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (BLOCK_BYTES * BLOCKS / 2048) as u32,
            tp_retire_blk_tov: BLOCK_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a fresh mapping of exactly the ring's size at an address of the
        // kernel's choice; it is unmapped in drop.
        let ring = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BLOCK_BYTES * BLOCKS,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let capture = Self {
            socket,
            ring: ring.cast(),
            next: 0,
            loopback: device == "lo",
            layer4,
        };
        // SAFETY: all bytes zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        // SAFETY: the address lives through the call and its size is given.
        check(unsafe {
            libc::bind(
                capture.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        })?;
        Ok(capture)
    }

    /// Collects packets for this time.
    pub(crate) fn collect(&mut self, length: Duration) -> Vec<Packet> {
        let mut packets = Vec::with_capacity(1 << 20);
        let end = Instant::now() + length;
        loop {
            while self.take_block(&mut packets) {}
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                break;
            };
            let mut poll = libc::pollfd {
                fd: self.socket.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let wait_ms = left.as_millis().min(50) as i32 + 1;
            // SAFETY: one entry, which lives through the call. An error (a signal)
            // only means another turn.
            unsafe { libc::poll(&raw mut poll, 1, wait_ms) };
        }
        packets
    }

    /// Packets lost because the ring was full.
    pub(crate) fn dropped(&self) -> io::Result<u32> {
        // SAFETY: all bytes zero is a valid value.
        let mut stats: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&stats) as libc::socklen_t;
        // SAFETY: both live through the call and the length is that of `stats`.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        })?;
        Ok(stats.tp_drops)
    }

    /// Reads the next block if the kernel has returned it.
    fn take_block(&mut self, packets: &mut Vec<Packet>) -> bool {
        // SAFETY: `next` is below BLOCKS, so this is a block of the mapping. A block
        // begins with version, offset of the private part, status, number of packets,
        // offset of the first packet (struct tpacket_block_desc), each 32 bits.
        let (block, status) = unsafe {
            let block = self.ring.add(self.next * BLOCK_BYTES);
            (block, AtomicU32::from_ptr(block.add(8).cast_mut().cast()))
        };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the kernel has given the whole block to us until we give it back.
        let block = unsafe { std::slice::from_raw_parts(block, BLOCK_BYTES) };
        let mut at = u32_at(block, 16) as usize;
        for _ in 0..u32_at(block, 12) {
            let Some(packet) = block.get(at..) else { break };
            packets.extend(self.read(packet));
            at += u32_at(packet, 0) as usize;
        }
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % BLOCKS;
        true
    }

    /// One packet (struct tpacket3_hdr, sockaddr_ll, packet from its network header).
    fn read(&self, packet: &[u8]) -> Option<Packet> {
        const ADDRESS: usize = 48;
        // over loopback each packet is seen twice, going out and coming in
        let outgoing = packet[ADDRESS + 10] == libc::PACKET_OUTGOING;
        if self.loopback && outgoing {
            return None;
        }
        let network = usize::from(u16::from_ne_bytes([packet[26], packet[27]]));
        let kept = u32_at(packet, 12) as usize;
        let (source_port, sequence, payload) =
            headers(packet.get(network..network + kept)?, self.layer4)?;
        (payload > 0).then(|| Packet {
            at_ns: u64::from(u32_at(packet, 4)) * 1_000_000_000 + u64::from(u32_at(packet, 8)),
            source_port,
            sequence,
        })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`, which nobody uses any more.
        unsafe { libc::munmap(self.ring.cast_mut().cast(), BLOCK_BYTES * BLOCKS) };
    }
}

/// Source port, TCP sequence number, bytes of payload.
fn headers(ip: &[u8], layer4: Layer4) -> Option<(u16, u32, usize)> {
    let u16_at = |at: usize| Some(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?]));
    let (transport, length) = if ip.first()? >> 4 == 4 {
        let header = usize::from(ip[0] & 15) * 4;
        (header, usize::from(u16_at(2)?).checked_sub(header)?)
    } else {
        (40, usize::from(u16_at(4)?))
    };
    let (header, sequence) = match layer4 {
        Layer4::Udp => (8, 0),
        Layer4::Tcp => {
            let high = u32::from(u16_at(transport + 4)?);
            let sequence = high << 16 | u32::from(u16_at(transport + 6)?);
            (usize::from(ip.get(transport + 12)? >> 4) * 4, sequence)
        }
    };
    Some((u16_at(transport)?, sequence, length.saturating_sub(header)))
}

/// Lets only packets of the protocol to the port through (classic BPF, offsets from
/// the network header).
fn attach_filter(socket: &OwnedFd, port: u16, layer4: Layer4) -> io::Result<()> {
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load_byte, load_half) = (0x30, 0x28);
    let (and, equal, any_bit) = (0x54, 0x15, 0x45);
    let (header_length, load_half_at_x, give) = (0xb1, 0x48, 0x06);
    let (protocol, port) = (u32::from(layer4 as u8), u32::from(port));
    let mut program = [
        op(load_byte, 0, 0, 0),
        op(and, 0, 0, 0xf0),
        op(equal, 0, 7, 0x40),
        // IPv4: protocol, not a later fragment, port
        op(load_byte, 0, 0, 9),
        op(equal, 0, 10, protocol),
        op(load_half, 0, 0, 6),
        op(any_bit, 8, 0, 0x1fff),
        op(header_length, 0, 0, 0),
        op(load_half_at_x, 0, 0, 2),
        op(equal, 4, 5, port),
        // IPv6 without extension headers
        op(load_byte, 0, 0, 6),
        op(equal, 0, 3, protocol),
        op(load_half, 0, 0, 42),
        op(equal, 0, 1, port),
        op(give, 0, 0, SNAP_BYTES),
        op(give, 0, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn set<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value lives through the call and its size is given; each caller
    // passes the type that the option takes.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(|_| ())
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}
