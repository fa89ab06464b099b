//! One event in 16 bytes, as the probe's rings, memory and files hold it.

use std::fmt;

use crate::{
    AddressPart, Asleep, Event, EventKind, Interrupt, Monotonic, Nanos, PacketId, RequestKey,
    SendLimit, Tid,
};

/// Bits of the first word that hold the time: 3.3 days of recording.
pub(super) const TIME_BITS: u32 = 48;
pub(super) const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// Where the kind begins, above eight bits whose meaning depends on it.
pub(super) const KIND_SHIFT: u32 = 56;

/// The kinds on the wire; the eBPF programs use the same numbers.
pub(super) mod kind {
    pub(crate) const PACKET_IN: u8 = 1;
    pub(crate) const ENQUEUED: u8 = 2;
    pub(crate) const READ_RETURNED: u8 = 3;
    pub(crate) const WRITE_CALLED: u8 = 4;
    pub(crate) const PACKET_OUT: u8 = 5;
    pub(crate) const SLEPT: u8 = 6;
    pub(crate) const PREEMPTED: u8 = 7;
    pub(crate) const SEGMENT_IN: u8 = 8;
    pub(crate) const SEGMENT_QUEUED: u8 = 9;
    pub(crate) const SEGMENT_READ: u8 = 10;
    pub(crate) const SEGMENT_OUT: u8 = 11;
    pub(crate) const WOKEN: u8 = 12;
    pub(crate) const MIGRATED: u8 = 13;
    pub(crate) const INTERRUPT: u8 = 14;
    pub(crate) const SOFTIRQ: u8 = 15;
    pub(crate) const IDLE_LEFT: u8 = 16;
    pub(crate) const PAGE_FAULT: u8 = 17;
    pub(crate) const LOCK_TAKEN: u8 = 18;
    pub(crate) const FREQUENCY: u8 = 19;
    pub(crate) const RETRANSMITTED: u8 = 20;
    pub(crate) const STOLEN: u8 = 21;
    pub(crate) const STALLED: u8 = 22;
    pub(crate) const THROTTLED: u8 = 23;
    pub(crate) const PAYLOAD: u8 = 24;
    /// Made by the reader of a damaged file.
    pub(crate) const UNREADABLE: u8 = 25;
    pub(crate) const SEGMENT_WRITTEN: u8 = 26;
    pub(crate) const MAJOR_FAULT: u8 = 27;
    pub(crate) const STORAGE_WAITED: u8 = 28;
    pub(crate) const SLICE: u8 = 29;
    pub(crate) const CAME_ON: u8 = 30;
    pub(crate) const DEVICE_QUEUE: u8 = 31;
    /// All of an address of IPv4, then the three parts of one of IPv6.
    pub(crate) const ANNOUNCED: u8 = 32;
    pub(crate) const ANNOUNCED_1: u8 = 33;
    pub(crate) const ANNOUNCED_2: u8 = 34;
    pub(crate) const ANNOUNCED_3: u8 = 35;
    pub(crate) const UPSTREAM_ANSWERED: u8 = 36;
    pub(crate) const LAST: u8 = UPSTREAM_ANSWERED;
    /// The last one that version 1 of the format has.
    pub(crate) const LAST_OF_VERSION_1: u8 = DEVICE_QUEUE;
}

/// Bits of a thread id: the kernel's `PID_MAX_LIMIT` is 2^22.
const TID_BITS: u32 = 22;
const TID_MASK: u32 = (1 << TID_BITS) - 1;
/// The top bit of the first value: `push` of a `SegmentIn`, `resent` of a `SegmentOut`, `left` of a
/// `DeviceQueue`; of a `WriteCalled`, it makes a `ReadByOther`.
const TOP: u32 = 1 << 31;
/// The bit below it: `more` of a `SegmentOut`.
const SECOND: u32 = 1 << 30;
/// The next two: the `limit` of a `SegmentOut`.
const BY_CONGESTION_WINDOW: u32 = 1 << 29;
const BY_CLIENT_WINDOW: u32 = 1 << 28;

/// `Switched`: bits of the extra byte. The sleep is known; signals do not end it; a signal or a debugger has
/// stopped the thread.
const SLEEP_KNOWN: u8 = 1;
const UNINTERRUPTIBLE: u8 = 2;
const STOPPED: u8 = 4;
/// `Switched`: the value above `prev` that means no system call (a page fault).
const NO_CALL: u32 = 1023;
/// `Payload`: the extra byte is the length, with this bit for a response.
const RESPONSE: u8 = 0x80;

/// Interrupts without a device's number: the value is this plus the place of the vector.
const ARCHITECTURE: u32 = 1 << 31;

/// One event without its CPU, in 16 bytes.
///
/// The first word is the kind (8 bits, of which the highest is 0), an extra byte (8) and the
/// time (48 bits of nanoseconds since the recording's base); the second holds two values of
/// 32 bits, the first one in its low half. A connection's number has 24 bits: the highest 8 (`high`) are in the extra
/// byte, the others (`low`) in the second value.
///
/// | kind | event | extra | first value | second value |
/// |---|---|---|---|---|
/// | 1 | `PacketIn` | high | packet | low << 16 \| request id |
/// | 2 | `Enqueued` | | packet | 0 |
/// | 3 | `ReadReturned` | | thread | returned |
/// | 4 | `WriteCalled` | | thread | 0 |
/// | 4 | `ReadByOther` | high | 1 << 31 \| thread | low << 16 |
/// | 5 | `PacketOut` | high | thread | low << 16 \| request id |
/// | 6 | `Switched`, `prev` slept | known 1, uninterruptible 2, stopped 4 | call << 22 \| prev | next |
/// | 7 | `Switched`, `prev` preempted | | prev | next |
/// | 8 | `SegmentIn` | high | push << 31 \| bytes | low << 16 \| end |
/// | 9 | `SegmentQueued` | high | 0 | low << 16 \| end |
/// | 10 | `SegmentRead` | high | bytes modulo 1024 << 22 \| thread | low << 16 \| end |
/// | 11 | `SegmentOut` | high | resent << 31 \| more << 30 \| limit << 28 \| thread | low << 16 \| end |
/// | 12 | `Woken` | | thread | waker |
/// | 13 | `Migrated` | | thread | CPU |
/// | 14 | `Interrupt` | | number, or 1 << 31 \| place | lasted |
/// | 15 | `Softirq` | vector | 0 | lasted |
/// | 16 | `IdleLeft` | state | 0 | lasted |
/// | 17 | `PageFault` | write | thread | 0 |
/// | 18 | `LockTaken` | flags | thread | waited |
/// | 19 | `Frequency` | | kHz | 0 |
/// | 20 | `Retransmitted` | high | 0 | low << 16 |
/// | 21, 22, 23 | `Stolen`, `Stalled`, `Throttled` | | 0 | lasted |
/// | 24 | `Payload` | response << 7 \| length | bytes 0 to 3 | bytes 4 to 7 |
/// | 26 | `SegmentWritten` | high | thread | low << 16 \| end |
/// | 27 | `MajorFault` | | thread | 0 |
/// | 28 | `StorageWaited` | | call << 22 \| thread | waited |
/// | 29 | `Slice` | begins | 0 | 0 |
/// | 30 | `CameOn` | | thread | 0 |
/// | 31 | `DeviceQueue` | high | left << 31 \| number | low << 16 \| request id, or 0 |
/// | 32 | `Announced`, IPv4 | high | address | low << 16 \| port |
/// | 33, 34, 35 | `Announced`, parts of IPv6 | high | bytes 2 to 5 | low << 16 \| bytes 0 and 1 |
/// | 36 | `UpstreamAnswered` | | server << 22 \| thread | waited |
///
/// Lengths are nanoseconds in 32 bits; a longer one is cut to 4.29 s.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct PackedEvent {
    head: u64,
    values: u64,
}

impl PackedEvent {
    /// Packs an event. A time is cut to its low 48 bits, a connection's number to 24, a segment's length to 31, and a
    /// thread next to other bits to 22; a length of time that does not fit 32 bits becomes the longest that does.
    pub fn new(since_base: Nanos, kind: EventKind) -> Self {
        let (kind, extra, a, b) = pack(kind);
        Self {
            head: u64::from(kind) << KIND_SHIFT
                | u64::from(extra) << TIME_BITS
                | since_base.get() & TIME_MASK,
            values: u64::from(b) << 32 | u64::from(a),
        }
    }

    /// The event in these two words, or `None` where the kind is unknown.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Option<Self> {
        let kind = (words[0] >> KIND_SHIFT) as u8;
        if kind < kind::PACKET_IN || kind > kind::LAST {
            return None;
        }
        Some(Self {
            head: words[0],
            values: words[1],
        })
    }

    /// The two words.
    pub const fn words(self) -> [u64; 2] {
        [self.head, self.values]
    }

    /// When it happened, since the recording's base.
    #[inline]
    pub const fn since_base(self) -> Nanos {
        Nanos::new(self.head & TIME_MASK)
    }

    /// Whether it announces a connection, which is decided faster than what [`Self::kind`] is.
    #[inline]
    pub const fn is_announcement(&self) -> bool {
        let kind = (self.head >> KIND_SHIFT) as u8;
        kind >= kind::ANNOUNCED && kind <= kind::ANNOUNCED_3
    }

    /// What happened.
    // not inlined: its parts would be written one by one and immediately copied as a whole, which has to
    // wait for all these writes
    #[inline(never)]
    pub const fn kind(self) -> EventKind {
        let (a, b) = (self.values as u32, (self.values >> 32) as u32);
        let extra = (self.head >> TIME_BITS) as u8;
        let key = unpack_key(extra, b);
        match (self.head >> KIND_SHIFT) as u8 {
            kind::PACKET_IN => EventKind::PacketIn {
                packet: PacketId(a),
                key,
            },
            kind::ENQUEUED => EventKind::Enqueued {
                packet: PacketId(a),
            },
            kind::SLICE => EventKind::Slice { begins: extra != 0 },
            kind::CAME_ON => EventKind::CameOn { tid: a },
            kind::READ_RETURNED => EventKind::ReadReturned {
                tid: a,
                returned: b,
            },
            kind::WRITE_CALLED if a & TOP != 0 => EventKind::ReadByOther {
                tid: a & TID_MASK,
                key,
            },
            kind::WRITE_CALLED => EventKind::WriteCalled { tid: a },
            kind::PACKET_OUT => EventKind::PacketOut { tid: a, key },
            kind::SEGMENT_IN => EventKind::SegmentIn {
                key,
                bytes: a & !TOP,
                push: a & TOP != 0,
            },
            kind::SEGMENT_QUEUED => EventKind::SegmentQueued { key },
            kind::SEGMENT_READ => EventKind::SegmentRead {
                tid: a & TID_MASK,
                key,
                bytes_mod_1024: (a >> TID_BITS) as u16,
            },
            kind::SEGMENT_WRITTEN => EventKind::SegmentWritten { tid: a, key },
            kind::SEGMENT_OUT => EventKind::SegmentOut {
                tid: a & TID_MASK,
                key,
                more: a & SECOND != 0,
                resent: a & TOP != 0,
                limit: unpack_limit(a),
            },
            kind::DEVICE_QUEUE => EventKind::DeviceQueue {
                key,
                number: a & !TOP,
                left: a & TOP != 0,
            },
            announced @ (kind::ANNOUNCED
            | kind::ANNOUNCED_1
            | kind::ANNOUNCED_2
            | kind::ANNOUNCED_3) => {
                let bits = (key.id as u64) << 32 | a as u64;
                EventKind::Announced {
                    connection: key.connection,
                    part: match announced {
                        kind::ANNOUNCED => AddressPart::v4(bits),
                        part => AddressPart::v6(part - kind::ANNOUNCED_1, bits),
                    },
                }
            }
            kind::PAYLOAD => EventKind::Payload {
                bytes: self.values.to_le_bytes(),
                len: extra & !RESPONSE,
                response: extra & RESPONSE != 0,
            },
            kind::PREEMPTED => EventKind::Switched {
                prev: a & TID_MASK,
                next: b,
                preempted: true,
                asleep: None,
            },
            kind::SLEPT => EventKind::Switched {
                prev: a & TID_MASK,
                next: b,
                preempted: false,
                asleep: unpack_sleep(extra, a >> TID_BITS),
            },
            kind => disturbance(kind, extra, a, b),
        }
    }

    /// The whole event, on the CPU of its stream.
    #[inline]
    pub fn on_cpu(self, base: Monotonic, cpu: u16) -> Event {
        Event::from(RecordedEvent::new(self, base, cpu))
    }
}

/// An [`Event`] as it was recorded: whole words, which are cheaper to move and to store than the
/// enum. It is decoded where it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    at: Monotonic,
    what: PackedEvent,
    cpu: u16,
}

impl RecordedEvent {
    #[inline]
    pub(super) fn new(what: PackedEvent, base: Monotonic, cpu: u16) -> Self {
        Self {
            at: base + what.since_base(),
            what,
            cpu,
        }
    }

    /// When it happened.
    #[inline]
    pub const fn at(&self) -> Monotonic {
        self.at
    }

    /// The event without its CPU.
    #[inline]
    pub(super) const fn packed(&self) -> PackedEvent {
        self.what
    }

    /// The CPU that it happened on.
    #[inline]
    pub(super) const fn cpu(&self) -> u16 {
        self.cpu
    }

    /// Whether the reader of a damaged file inserted it, in place of events that are gone.
    #[inline]
    pub(super) const fn is_of_reader(&self) -> bool {
        (self.what.head >> KIND_SHIFT) as u8 == kind::UNREADABLE
    }
}

impl From<RecordedEvent> for Event {
    #[inline]
    fn from(recorded: RecordedEvent) -> Self {
        Self {
            at: recorded.at,
            cpu: recorded.cpu,
            kind: recorded.what.kind(),
        }
    }
}

impl fmt::Debug for PackedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.since_base(), self.kind())
    }
}

/// Events of a CPU or a thread that are not stamps of a request.
// inlined, so that it is one table with `PackedEvent::kind`
#[inline(always)]
const fn disturbance(kind: u8, extra: u8, a: u32, b: u32) -> EventKind {
    let lasted = Nanos::new(b as u64);
    match kind {
        kind::WOKEN => EventKind::Woken { tid: a, by: b },
        kind::MIGRATED => EventKind::Migrated {
            tid: a,
            to: b as u16,
        },
        kind::INTERRUPT => EventKind::Interrupt {
            interrupt: unpack_interrupt(a),
            lasted,
        },
        kind::SOFTIRQ => EventKind::Softirq {
            vector: extra,
            lasted,
        },
        kind::IDLE_LEFT => EventKind::IdleLeft {
            state: extra,
            lasted,
        },
        kind::PAGE_FAULT => EventKind::PageFault {
            tid: a,
            write: extra != 0,
        },
        kind::MAJOR_FAULT => EventKind::MajorFault { tid: a },
        kind::STORAGE_WAITED => EventKind::StorageWaited {
            tid: a & TID_MASK,
            call: (a >> TID_BITS) as u16,
            waited: lasted,
        },
        kind::UPSTREAM_ANSWERED => EventKind::UpstreamAnswered {
            tid: a & TID_MASK,
            server: (a >> TID_BITS) as u16,
            waited: lasted,
        },
        kind::LOCK_TAKEN => EventKind::LockTaken {
            tid: a,
            flags: extra,
            waited: lasted,
        },
        kind::FREQUENCY => EventKind::Frequency { khz: a },
        kind::RETRANSMITTED => EventKind::Retransmitted {
            key: unpack_key(extra, b),
        },
        kind::STOLEN => EventKind::Stolen { lasted },
        kind::STALLED => EventKind::Stalled { lasted },
        kind::THROTTLED => EventKind::Throttled { lasted },
        // both constructors of an event accept only the kinds named here
        _ => EventKind::Unreadable { lasted },
    }
}

/// Kind, extra byte and the two values.
fn pack(kind: EventKind) -> (u8, u8, u32, u32) {
    let length = |lasted: Nanos| u32::try_from(lasted.get()).unwrap_or(u32::MAX);
    let of_key = |kind, a, key: RequestKey| {
        let (high, low) = pack_key(key);
        (kind, high, a, low)
    };
    match kind {
        EventKind::Announced { connection, part } => {
            let bits = part.bits();
            let id = (bits >> 32) as u16;
            let kind = match part {
                AddressPart::V4(_) => kind::ANNOUNCED,
                AddressPart::V6(part, _) => kind::ANNOUNCED_1 + part.min(2),
            };
            of_key(kind, bits as u32, RequestKey { connection, id })
        }
        EventKind::PacketIn { packet, key } => of_key(kind::PACKET_IN, packet.0, key),
        EventKind::Enqueued { packet } => (kind::ENQUEUED, 0, packet.0, 0),
        EventKind::Slice { begins } => (kind::SLICE, begins.into(), 0, 0),
        EventKind::CameOn { tid } => (kind::CAME_ON, 0, tid, 0),
        EventKind::ReadReturned { tid, returned } => (kind::READ_RETURNED, 0, tid, returned),
        EventKind::WriteCalled { tid } => (kind::WRITE_CALLED, 0, tid & !TOP, 0),
        EventKind::ReadByOther { tid, key } => {
            of_key(kind::WRITE_CALLED, TOP | tid & TID_MASK, key)
        }
        EventKind::PacketOut { tid, key } => of_key(kind::PACKET_OUT, tid, key),
        EventKind::Switched {
            prev,
            next,
            preempted,
            asleep,
        } => pack_switch(prev, next, preempted, asleep),
        EventKind::SegmentIn { key, bytes, push } => {
            of_key(kind::SEGMENT_IN, u32::from(push) << 31 | bytes & !TOP, key)
        }
        EventKind::SegmentQueued { key } => of_key(kind::SEGMENT_QUEUED, 0, key),
        EventKind::SegmentRead {
            tid,
            key,
            bytes_mod_1024,
        } => {
            let a = u32::from(bytes_mod_1024) << TID_BITS | tid & TID_MASK;
            of_key(kind::SEGMENT_READ, a, key)
        }
        EventKind::SegmentWritten { tid, key } => of_key(kind::SEGMENT_WRITTEN, tid, key),
        EventKind::SegmentOut {
            tid,
            key,
            more,
            resent,
            limit,
        } => {
            let flags = u32::from(resent) << 31 | u32::from(more) << 30 | pack_limit(limit);
            let a = flags | tid & TID_MASK;
            of_key(kind::SEGMENT_OUT, a, key)
        }
        EventKind::DeviceQueue { key, number, left } => of_key(
            kind::DEVICE_QUEUE,
            u32::from(left) << 31 | number & !TOP,
            key,
        ),
        EventKind::Woken { tid, by } => (kind::WOKEN, 0, tid, by),
        EventKind::Migrated { tid, to } => (kind::MIGRATED, 0, tid, to.into()),
        EventKind::Interrupt { interrupt, lasted } => (
            kind::INTERRUPT,
            0,
            pack_interrupt(interrupt),
            length(lasted),
        ),
        EventKind::Softirq { vector, lasted } => (kind::SOFTIRQ, vector, 0, length(lasted)),
        EventKind::IdleLeft { state, lasted } => (kind::IDLE_LEFT, state, 0, length(lasted)),
        EventKind::PageFault { tid, write } => (kind::PAGE_FAULT, write.into(), tid, 0),
        EventKind::MajorFault { tid } => (kind::MAJOR_FAULT, 0, tid, 0),
        EventKind::StorageWaited { tid, call, waited } => {
            let a = u32::from(call) << TID_BITS | tid & TID_MASK;
            (kind::STORAGE_WAITED, 0, a, length(waited))
        }
        EventKind::UpstreamAnswered {
            tid,
            server,
            waited,
        } => {
            let a = u32::from(server) << TID_BITS | tid & TID_MASK;
            (kind::UPSTREAM_ANSWERED, 0, a, length(waited))
        }
        EventKind::LockTaken { tid, flags, waited } => {
            (kind::LOCK_TAKEN, flags, tid, length(waited))
        }
        EventKind::Frequency { khz } => (kind::FREQUENCY, 0, khz, 0),
        EventKind::Retransmitted { key } => of_key(kind::RETRANSMITTED, 0, key),
        EventKind::Stolen { lasted } => (kind::STOLEN, 0, 0, length(lasted)),
        EventKind::Stalled { lasted } => (kind::STALLED, 0, 0, length(lasted)),
        EventKind::Throttled { lasted } => (kind::THROTTLED, 0, 0, length(lasted)),
        EventKind::Unreadable { lasted } => (kind::UNREADABLE, 0, 0, length(lasted)),
        EventKind::Payload {
            bytes,
            len,
            response,
        } => {
            let values = u64::from_le_bytes(bytes);
            let extra = u8::from(response) << 7 | len & !RESPONSE;
            (kind::PAYLOAD, extra, values as u32, (values >> 32) as u32)
        }
    }
}

fn pack_switch(
    prev: Tid,
    next: Tid,
    preempted: bool,
    asleep: Option<Asleep>,
) -> (u8, u8, u32, u32) {
    let prev = prev & TID_MASK;
    match (preempted, asleep) {
        (true, _) => (kind::PREEMPTED, 0, prev, next),
        (false, None) => (kind::SLEPT, 0, prev, next),
        (false, Some(asleep)) => {
            let call = asleep
                .call
                .map_or(NO_CALL, |call| u32::from(call).min(NO_CALL));
            let signals = if asleep.uninterruptible {
                UNINTERRUPTIBLE
            } else {
                0
            };
            let stopped = if asleep.stopped { STOPPED } else { 0 };
            (
                kind::SLEPT,
                SLEEP_KNOWN | signals | stopped,
                call << TID_BITS | prev,
                next,
            )
        }
    }
}

const fn unpack_sleep(extra: u8, call: u32) -> Option<Asleep> {
    if extra & SLEEP_KNOWN == 0 {
        return None;
    }
    Some(Asleep {
        call: if call == NO_CALL {
            None
        } else {
            Some(call as u16)
        },
        uninterruptible: extra & UNINTERRUPTIBLE != 0,
        stopped: extra & STOPPED != 0,
    })
}

/// The place of each interrupt of the architecture; the eBPF programs use the same places.
const fn pack_limit(limit: Option<SendLimit>) -> u32 {
    match limit {
        None => 0,
        Some(SendLimit::ClientWindow) => BY_CLIENT_WINDOW,
        Some(SendLimit::CongestionWindow) => BY_CONGESTION_WINDOW,
    }
}

const fn unpack_limit(value: u32) -> Option<SendLimit> {
    match (value & BY_CLIENT_WINDOW, value & BY_CONGESTION_WINDOW) {
        (0, 0) => None,
        (0, _) => Some(SendLimit::CongestionWindow),
        _ => Some(SendLimit::ClientWindow),
    }
}

const fn pack_interrupt(interrupt: Interrupt) -> u32 {
    match interrupt {
        Interrupt::Device(number) => number & !ARCHITECTURE,
        Interrupt::LocalTimer => ARCHITECTURE,
        Interrupt::Reschedule => ARCHITECTURE | 1,
        Interrupt::CallFunction => ARCHITECTURE | 2,
        Interrupt::IrqWork => ARCHITECTURE | 3,
        Interrupt::Other => ARCHITECTURE | 4,
    }
}

const fn unpack_interrupt(value: u32) -> Interrupt {
    if value & ARCHITECTURE == 0 {
        return Interrupt::Device(value);
    }
    match value & !ARCHITECTURE {
        0 => Interrupt::LocalTimer,
        1 => Interrupt::Reschedule,
        2 => Interrupt::CallFunction,
        3 => Interrupt::IrqWork,
        _ => Interrupt::Other,
    }
}

/// The highest 8 bits of the connection's number; the others, and the id.
const fn pack_key(key: RequestKey) -> (u8, u32) {
    (
        (key.connection >> 16) as u8,
        key.connection << 16 | key.id as u32,
    )
}

const fn unpack_key(high: u8, low: u32) -> RequestKey {
    RequestKey {
        connection: (high as u32) << 16 | low >> 16,
        id: low as u16,
    }
}
