//! One kernel event as the probe records it and the matcher reads it.

use std::net::{IpAddr, SocketAddr};

use crate::{AddressPart, Monotonic, Nanos};

/// A kernel thread id, unique on the host (the kernel's `pid`).
pub type Tid = u32;

/// What TCP waits for that has more of a stream to send (RFC 5681, section 2; RFC 9293, section 3.8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendLimit {
    /// Room in the window that the client announces: it has not read what came.
    ClientWindow,
    /// Room in the congestion window: as much was on its way as that allows.
    CongestionWindow,
}

/// What happened, with the data that the matcher needs to join it to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// From now on, a number of a connection is that of this client. Once its parts have come, it is known; the event
    /// of another CPU can come up to a microsecond before them.
    Announced {
        /// The number, as [`RequestKey::connection`].
        connection: u32,
        /// The address and port of its client, or a part of them.
        part: AddressPart,
    },
    /// T1: the driver handed a request's packet to the stack.
    PacketIn {
        /// Identity of the packet buffer, valid until it is recycled.
        packet: PacketId,
        /// Whose request it is.
        key: RequestKey,
    },
    /// T2: the transport queued the packet at the server's socket.
    Enqueued {
        /// Identity of the packet buffer, as at its last `PacketIn`.
        packet: PacketId,
    },
    /// A slice begins or ends: a stretch in which everything is recorded. Outside of slices, if
    /// there are any, only T1 and T6 are.
    Slice {
        /// True: from now on everything is recorded. False: no longer.
        begins: bool,
    },
    /// A thread came onto a CPU of the generator; nothing else is recorded of that CPU's threads.
    CameOn {
        /// The thread; 0 is the idle one.
        tid: Tid,
    },
    /// T4: a read of the server's thread returned a request.
    ReadReturned {
        /// The reading thread.
        tid: Tid,
        /// What the call returned, in bytes (for a multi-message call: messages).
        returned: u32,
    },
    /// A thread of another process, which shares the server's port, read from a socket.
    ReadByOther {
        /// The reading thread.
        tid: Tid,
        /// Whose stream it is; the position is not known (0). All 0 for datagrams.
        key: RequestKey,
    },
    /// T5: the server's thread called a write. For a stream, only where it is not known which one.
    WriteCalled {
        /// The writing thread.
        tid: Tid,
    },
    /// T6: the driver took the response, or it was handed down to a [queue](Self::DeviceQueue).
    PacketOut {
        /// The thread that was current; the writer, except when the send was deferred.
        tid: Tid,
        /// Whose response it is.
        key: RequestKey,
    },
    /// T1 of a stream: the driver handed a segment of a connection to the stack.
    SegmentIn {
        /// Whose stream it is, and where the segment ends.
        key: RequestKey,
        /// How many bytes of the stream it carries; 0 where the client opens the connection,
        /// and `key` says where its stream begins.
        bytes: u32,
        /// The sender pushed it (PSH): a write of the client ends here.
        push: bool,
    },
    /// T2 of a stream: the transport queued data in order at the server's socket.
    SegmentQueued {
        /// Whose stream it is, and the end of what has been queued so far.
        key: RequestKey,
    },
    /// T4 of a stream: a read of the server's thread returned data.
    SegmentRead {
        /// The reading thread.
        tid: Tid,
        /// Whose stream it is, and the end of what has been read so far.
        key: RequestKey,
        /// The lowest ten bits of the number of bytes that the call returned.
        bytes_mod_1024: u16,
    },
    /// T5 of a stream: the server's thread called a write to a connection.
    SegmentWritten {
        /// The writing thread.
        tid: Tid,
        /// Whose stream it is, and the end of what the server had read by then.
        key: RequestKey,
    },
    /// T6 of a stream: the driver took a segment of a response, or it was handed down to a
    /// [queue](Self::DeviceQueue).
    SegmentOut {
        /// The thread that was current; the writer, except when the send was deferred.
        tid: Tid,
        /// Whose stream it is, and the end of what the server had read by then.
        key: RequestKey,
        /// The server had already written more of the stream, which has yet to leave.
        more: bool,
        /// It begins before the end of what has been sent: it is sent again.
        resent: bool,
        /// What TCP had waited for before it; `None` also in recordings that do not say.
        limit: Option<SendLimit>,
    },
    /// A packet of a response passes a device's queue, in which it may wait.
    DeviceQueue {
        /// Whose response it is.
        key: RequestKey,
        /// The packet's number, of 31 bits, among those of its client that are on their way.
        number: u32,
        /// True: the driver took it, which is T6. False: it was handed down to the queue; the
        /// `PacketOut` or `SegmentOut` of the same time says what it is.
        left: bool,
    },
    /// A CPU of the server changed from one thread to another.
    Switched {
        /// The thread that left the CPU (0: idle).
        prev: Tid,
        /// The thread that came onto it (0: idle).
        next: Tid,
        /// `prev` was preempted: it could have gone on, and does not sleep.
        preempted: bool,
        /// How `prev` sleeps; `None` when it was preempted, is not the server's, or where
        /// that is not recorded.
        asleep: Option<Asleep>,
    },
    /// A thread of the server is being woken, on the CPU of its waker.
    Woken {
        /// Who is woken.
        tid: Tid,
        /// Who was current there; an interrupt or a softirq may have run on top of it.
        by: Tid,
    },
    /// A thread of the server will continue on another CPU.
    Migrated {
        /// Who.
        tid: Tid,
        /// Where to.
        to: u16,
    },
    /// An interrupt's handler has run on this CPU until now.
    Interrupt {
        /// Which interrupt.
        interrupt: Interrupt,
        /// For how long, everything on top of it included.
        lasted: Nanos,
    },
    /// A softirq has run on this CPU until now, in its own time or in `ksoftirqd`.
    Softirq {
        /// Which of the kernel's softirqs (`NET_RX` is 3).
        vector: u8,
        /// For how long, interrupts on top of it included.
        lasted: Nanos,
    },
    /// The CPU was idle in a power state until now.
    IdleLeft {
        /// The state's index, 0 the shallowest.
        state: u8,
        /// For how long.
        lasted: Nanos,
    },
    /// A thread of the server begins to handle a page fault of its own.
    PageFault {
        /// Who.
        tid: Tid,
        /// It wanted to write.
        write: bool,
    },
    /// A thread of the server has just finished handling its last page fault, and had to wait for
    /// what it touched to be read from storage.
    MajorFault {
        /// Who.
        tid: Tid,
    },
    /// A thread of the server has waited for storage until now, in a read or a write.
    StorageWaited {
        /// Who.
        tid: Tid,
        /// In which system call (x86-64 number below 1,023).
        call: u16,
        /// How long, since it first asked for something.
        waited: Nanos,
    },
    /// The first data of another server's answer is at a socket of the server; the event is on the CPU that received it.
    UpstreamAnswered {
        /// Who asked.
        tid: Tid,
        /// Who answers: [`UpstreamServer::number`](crate::UpstreamServer::number), below 1,024.
        server: u16,
        /// How long after the question was written.
        waited: Nanos,
    },
    /// A thread of the server has waited for a lock of the kernel until now.
    LockTaken {
        /// Who.
        tid: Tid,
        /// The kernel's `LCB_F_*` flags: 1 spinning, 2 reading, 4 writing, 8 real-time,
        /// 16 per-CPU, 32 mutex.
        flags: u8,
        /// For how long.
        waited: Nanos,
    },
    /// A CPU has another frequency from now on.
    Frequency {
        /// In kilohertz.
        khz: u32,
    },
    /// TCP of the server sends a segment again.
    Retransmitted {
        /// Whose; the position is not known (0).
        key: RequestKey,
    },
    /// The hypervisor says that it took this CPU away, at some time since the last such event.
    Stolen {
        /// For how long, in all.
        lasted: Nanos,
    },
    /// A thread that only looks at the clock could not do so on this CPU until now.
    Stalled {
        /// For how long.
        lasted: Nanos,
    },
    /// The server's cgroup was held back because it had used up its CPU quota, at some time since
    /// the last such event.
    Throttled {
        /// For how long, summed over its CPUs.
        lasted: Nanos,
    },
    /// What was recorded of this CPU until now cannot be read: this part of the file is damaged.
    Unreadable {
        /// For how long.
        lasted: Nanos,
    },
    /// Bytes of a stream as the packet of the last `SegmentIn` or `SegmentOut` on this CPU
    /// carries them; only where requests are identified by their content.
    Payload {
        /// The bytes; those at and after `len` are 0.
        bytes: [u8; 8],
        /// How many bytes there are, 1 to 8. With 0, `bytes` is instead the packet's extent: how many
        /// bytes of the stream the packet carries (four bytes, little-endian), and the sequence number
        /// of the first of them (likewise), which for a response counts from the beginning of the
        /// server's stream. The extent comes before the content.
        len: u8,
        /// The packet is a response.
        response: bool,
    },
}

impl EventKind {
    /// Whether it is recorded all the time, even where everything else is recorded in slices only.
    pub const fn is_always_recorded(&self) -> bool {
        matches!(
            self,
            Self::Announced { .. }
                | Self::PacketIn { .. }
                | Self::PacketOut { .. }
                | Self::SegmentIn { .. }
                | Self::SegmentOut { .. }
                | Self::DeviceQueue { .. }
                | Self::ReadByOther { .. }
                | Self::Payload { .. }
                | Self::Slice { .. }
                | Self::Stolen { .. }
                | Self::Stalled { .. }
                | Self::Throttled { .. }
                | Self::Unreadable { .. }
        )
    }

    /// How long it lasted, for kinds that are recorded at their end and only in slices (where there
    /// are any); 0 for all others.
    pub const fn lasted(&self) -> Nanos {
        match self {
            Self::Interrupt { lasted, .. }
            | Self::Softirq { lasted, .. }
            | Self::IdleLeft { lasted, .. } => *lasted,
            Self::StorageWaited { waited, .. }
            | Self::LockTaken { waited, .. }
            | Self::UpstreamAnswered { waited, .. } => *waited,
            _ => Nanos::ZERO,
        }
    }
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asleep {
    /// In which system call (x86-64 number below 1,023); `None` in a page fault.
    pub call: Option<u16>,
    /// Signals do not wake it (`D` in ps): usually storage.
    pub uninterruptible: bool,
    /// A signal or a debugger has stopped it (`T` or `t` in ps).
    pub stopped: bool,
}

/// An interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Interrupt {
    /// Of a device, by its number in `/proc/interrupts`.
    Device(u32),
    /// The CPU's own timer.
    LocalTimer,
    /// Another CPU asks to reschedule.
    Reschedule,
    /// Another CPU wants a function called.
    CallFunction,
    /// Work that the kernel put off to an interrupt.
    IrqWork,
    /// Anything else: thermal, deferred error, non-maskable.
    Other,
}

/// An [`EventKind`] with its time and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened, by the host's monotonic clock.
    pub at: Monotonic,
    /// The CPU that it happened on.
    pub cpu: u16,
    /// What happened.
    pub kind: EventKind,
}

/// Identity of a kernel packet buffer: bits 6 to 37 of its distance from a fixed address.
///
/// Buffers are at least 64-byte aligned, so two live buffers within 256 GiB of
/// each other differ. Addresses are reused as soon as a buffer is freed: an id
/// names a packet only from its `PacketIn` to the next `PacketIn` with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketId(pub u32);

/// Whose request a packet carries: on which connection, and which of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    /// The number of its connection or, over UDP, of its client: 24 bits. [`EventKind::Announced`] says whose it is.
    ///
    /// The lowest [`PLACE_BITS`] are a place in the probe's table, the bits above count how often that place was
    /// given away: a number comes again when its place has been given away 64 times. A client that uses one port for
    /// connections to two addresses of the server at once has one number. In a recording of version 1 it is
    /// the client's [`address_hash`] and its port, see [`RequestKey::hashed`].
    pub connection: u32,
    /// Over UDP the protocol's request id (the first two bytes of the payload, as in
    /// memcached's frame header). Over TCP the low 16 bits of the sequence number just
    /// after the request's last byte. Both wrap at 65,536.
    pub id: u16,
}

/// Bits of a connection's number that are its place in the probe's table.
pub const PLACE_BITS: u32 = 18;

impl RequestKey {
    /// A key of a recording of version 1, which has no numbers of connections: address << 16 | port takes their place.
    pub const fn hashed(address: u8, port: u16, id: u16) -> Self {
        Self {
            connection: (address as u32) << 16 | port as u32,
            id,
        }
    }
}

/// What a client knows of a request that it sent: its own port, and which of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SentKey {
    /// The client's port.
    pub port: u16,
    /// As [`RequestKey::id`].
    pub id: u16,
}

/// Who is at the other end of a connection, as far as a recording says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// Its address and port. One of IPv4 that was mapped into IPv6 is of IPv4.
    At(SocketAddr),
    /// As a recording of version 1 has it.
    Hashed {
        /// The [`address_hash`] of its address.
        address: u8,
        /// Its port.
        port: u16,
    },
}

impl Peer {
    /// What the number of a connection says in a recording of version 1: see [`RequestKey::hashed`].
    pub const fn of_hashed(connection: u32) -> Self {
        Self::Hashed {
            address: (connection >> 16) as u8,
            port: connection as u16,
        }
    }

    /// Its port.
    pub const fn port(self) -> u16 {
        match self {
            Self::At(address) => address.port(),
            Self::Hashed { port, .. } => port,
        }
    }

    /// Its address; `None` in a recording of version 1.
    pub const fn address(self) -> Option<IpAddr> {
        match self {
            Self::At(address) => Some(address.ip()),
            Self::Hashed { .. } => None,
        }
    }

    /// The [`address_hash`] of its address.
    pub fn hash(self) -> u8 {
        match self {
            Self::At(address) => address_hash(address.ip()),
            Self::Hashed { address, .. } => address,
        }
    }
}

/// An 8-bit hash of a client's address; neighbouring addresses differ.
///
/// An IPv4 address mapped into IPv6 counts as that IPv4 address, any other IPv6 address as the
/// exclusive or of its four words, in network order. The hash is the highest byte of this word times
/// 2³² ÷ φ (Knuth, The Art of Computer Programming, volume 3, 6.4). Recordings of version 1 have it in place of the
/// address.
pub fn address_hash(address: IpAddr) -> u8 {
    let word = match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            (bits >> 96) as u32 ^ (bits >> 64) as u32 ^ (bits >> 32) as u32 ^ bits as u32
        }
    };
    (word.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::net::Ipv6Addr;

    #[test]
    fn neighbouring_addresses_differ() {
        let network: HashSet<u8> = (0..=255)
            .map(|host| address_hash(IpAddr::from([10, 1, 2, host])))
            .collect();
        assert!(network.len() > 200, "{}", network.len());
    }

    #[test]
    fn a_mapped_address_is_the_one_that_it_stands_for() {
        let v4 = IpAddr::from([192, 0, 2, 7]);
        let IpAddr::V4(plain) = v4 else {
            unreachable!()
        };
        assert_eq!(
            address_hash(IpAddr::V6(plain.to_ipv6_mapped())),
            address_hash(v4)
        );
        assert_ne!(
            address_hash(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            address_hash(IpAddr::V6(Ipv6Addr::UNSPECIFIED))
        );
    }
}
