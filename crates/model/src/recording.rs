//! Kernel events as recorded: 16 bytes each, one stream for each CPU, merged by time.
//!
//! The same bytes are the probe's wire format, what a run keeps in memory and
//! what a recorded stream holds on disk, so that nothing is converted between the
//! kernel and the matcher. This module needs neither the kernel nor the probe.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;

use crate::{Event, EventKind, Monotonic, PacketId, RequestKey, Tid};

mod file;

pub use file::{RecordingError, VERSION};

/// Bits of the first word that hold the time: 2.28 years of uptime.
const TIME_BITS: u32 = 56;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// The kinds on the wire; the eBPF programs use the same numbers.
mod kind {
    pub(super) const PACKET_IN: u8 = 1;
    pub(super) const ENQUEUED: u8 = 2;
    pub(super) const READ_RETURNED: u8 = 3;
    pub(super) const WRITE_CALLED: u8 = 4;
    pub(super) const PACKET_OUT: u8 = 5;
    pub(super) const SLEPT: u8 = 6;
    pub(super) const PREEMPTED: u8 = 7;
    pub(super) const SEGMENT_IN: u8 = 8;
    pub(super) const SEGMENT_QUEUED: u8 = 9;
    pub(super) const SEGMENT_READ: u8 = 10;
    pub(super) const SEGMENT_OUT: u8 = 11;
}

/// Bits of a thread id: the kernel's `PID_MAX_LIMIT` is 2^22.
const TID_BITS: u32 = 22;
const TID_MASK: u32 = (1 << TID_BITS) - 1;
/// The top bit of the first value: `push` of a `SegmentIn`, `resent` of a `SegmentOut`.
const TOP: u32 = 1 << 31;
/// The bit below it: `more` of a `SegmentOut`.
const SECOND: u32 = 1 << 30;

/// One event without its CPU, in 16 bytes.
///
/// The first word is the kind (8 bits) and the time (56 bits of nanoseconds since
/// boot), the second holds two values of 32 bits, the first one in its low half:
///
/// | kind | event | first value | second value |
/// |---|---|---|---|
/// | 1 | `PacketIn` | packet | port << 16 \| request id |
/// | 2 | `Enqueued` | packet | 0 |
/// | 3 | `ReadReturned` | thread | returned |
/// | 4 | `WriteCalled` | thread | 0 |
/// | 5 | `PacketOut` | thread | port << 16 \| request id |
/// | 6 | `Switched`, `prev` slept | prev | next |
/// | 7 | `Switched`, `prev` preempted | prev | next |
/// | 8 | `SegmentIn` | push << 31 \| bytes | port << 16 \| end |
/// | 9 | `SegmentQueued` | 0 | port << 16 \| end |
/// | 10 | `SegmentRead` | bytes modulo 1024 << 22 \| thread | port << 16 \| end |
/// | 11 | `SegmentOut` | resent << 31 \| more << 30 \| thread | port << 16 \| end |
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct PackedEvent {
    head: u64,
    values: u64,
}

impl PackedEvent {
    /// Packs an event; a time beyond 56 bits is cut to 56 bits, a segment's length to 31,
    /// and the thread of a stream's event to 22.
    pub fn new(at: Monotonic, kind: EventKind) -> Self {
        let (kind, a, b) = match kind {
            EventKind::PacketIn { packet, key } => (kind::PACKET_IN, packet.0, pack_key(key)),
            EventKind::Enqueued { packet } => (kind::ENQUEUED, packet.0, 0),
            EventKind::ReadReturned { tid, returned } => (kind::READ_RETURNED, tid, returned),
            EventKind::WriteCalled { tid } => (kind::WRITE_CALLED, tid, 0),
            EventKind::PacketOut { tid, key } => (kind::PACKET_OUT, tid, pack_key(key)),
            EventKind::Switched {
                prev,
                next,
                preempted: false,
            } => (kind::SLEPT, prev, next),
            EventKind::Switched {
                prev,
                next,
                preempted: true,
            } => (kind::PREEMPTED, prev, next),
            EventKind::SegmentIn { key, bytes, push } => {
                let a = u32::from(push) << 31 | bytes & !TOP;
                (kind::SEGMENT_IN, a, pack_key(key))
            }
            EventKind::SegmentQueued { key } => (kind::SEGMENT_QUEUED, 0, pack_key(key)),
            EventKind::SegmentRead {
                tid,
                key,
                bytes_mod_1024,
            } => {
                let a = u32::from(bytes_mod_1024) << TID_BITS | tid & TID_MASK;
                (kind::SEGMENT_READ, a, pack_key(key))
            }
            EventKind::SegmentOut {
                tid,
                key,
                more,
                resent,
            } => {
                let a = u32::from(resent) << 31 | u32::from(more) << 30 | tid & TID_MASK;
                (kind::SEGMENT_OUT, a, pack_key(key))
            }
        };
        Self {
            head: u64::from(kind) << TIME_BITS | at.nanos_since_boot() & TIME_MASK,
            values: u64::from(b) << 32 | u64::from(a),
        }
    }

    /// The event in these two words, or `None` where the kind is unknown.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Option<Self> {
        let kind = (words[0] >> TIME_BITS) as u8;
        if kind < kind::PACKET_IN || kind > kind::SEGMENT_OUT {
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

    /// When it happened.
    #[inline]
    pub const fn at(self) -> Monotonic {
        Monotonic::from_nanos_since_boot(self.head & TIME_MASK)
    }

    /// What happened.
    pub const fn kind(self) -> EventKind {
        let (a, b) = (self.values as u32, (self.values >> 32) as u32);
        match (self.head >> TIME_BITS) as u8 {
            kind::PACKET_IN => EventKind::PacketIn {
                packet: PacketId(a),
                key: unpack_key(b),
            },
            kind::ENQUEUED => EventKind::Enqueued {
                packet: PacketId(a),
            },
            kind::READ_RETURNED => EventKind::ReadReturned {
                tid: a,
                returned: b,
            },
            kind::WRITE_CALLED => EventKind::WriteCalled { tid: a },
            kind::PACKET_OUT => EventKind::PacketOut {
                tid: a,
                key: unpack_key(b),
            },
            kind::SEGMENT_IN => EventKind::SegmentIn {
                key: unpack_key(b),
                bytes: a & !TOP,
                push: a & TOP != 0,
            },
            kind::SEGMENT_QUEUED => EventKind::SegmentQueued { key: unpack_key(b) },
            kind::SEGMENT_READ => EventKind::SegmentRead {
                tid: a & TID_MASK,
                key: unpack_key(b),
                bytes_mod_1024: (a >> TID_BITS) as u16,
            },
            kind::SEGMENT_OUT => EventKind::SegmentOut {
                tid: a & TID_MASK,
                key: unpack_key(b),
                more: a & SECOND != 0,
                resent: a & TOP != 0,
            },
            // both constructors let only the kinds named here through
            kind => EventKind::Switched {
                prev: a as Tid,
                next: b as Tid,
                preempted: kind == kind::PREEMPTED,
            },
        }
    }

    /// The whole event, on the CPU of its stream.
    pub const fn on_cpu(self, cpu: u16) -> Event {
        Event {
            at: self.at(),
            cpu,
            kind: self.kind(),
        }
    }
}

impl fmt::Debug for PackedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.at(), self.kind())
    }
}

const fn pack_key(key: RequestKey) -> u32 {
    (key.port as u32) << 16 | key.id as u32
}

const fn unpack_key(packed: u32) -> RequestKey {
    RequestKey {
        port: (packed >> 16) as u16,
        id: packed as u16,
    }
}

/// A run of events in memory of the recorder's choice, given back when it is dropped.
pub type Chunk = Box<dyn AsRef<[PackedEvent]> + Send + Sync>;

/// What one CPU recorded, in order of time.
pub struct CpuStream {
    cpu: u16,
    chunks: Vec<Chunk>,
}

impl CpuStream {
    /// A stream of chunks that together are in order of time.
    pub fn new(cpu: u16, chunks: Vec<Chunk>) -> Self {
        Self { cpu, chunks }
    }

    /// The CPU.
    pub fn cpu(&self) -> u16 {
        self.cpu
    }

    /// How many events there are.
    pub fn len(&self) -> u64 {
        self.slices().map(|events| events.len() as u64).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The events in order, in slices.
    pub fn slices(&self) -> impl Iterator<Item = &[PackedEvent]> {
        self.chunks.iter().map(|chunk| (**chunk).as_ref())
    }
}

impl fmt::Debug for CpuStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}: {} events", self.cpu, self.len())
    }
}

/// Events that should be in a recording and are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostEvents {
    /// No room was left in the kernel's ring.
    pub ring_full: u64,
    /// The kernel skipped a program because it interrupted itself.
    pub recursion: u64,
    /// The server's packets whose headers lay where the probe cannot read them.
    pub unreadable: u64,
}

impl LostEvents {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.ring_full + self.recursion + self.unreadable
    }
}

/// All events of a run, as recorded.
#[derive(Debug, Default)]
pub struct Recording {
    /// One stream for each CPU that recorded anything.
    pub streams: Vec<CpuStream>,
    /// What is missing.
    pub lost: LostEvents,
}

impl Recording {
    /// A recording of these events in any order; those of one CPU at the same time
    /// keep their order.
    pub fn from_events(events: impl IntoIterator<Item = Event>, lost: LostEvents) -> Self {
        let mut by_cpu: BTreeMap<u16, Vec<PackedEvent>> = BTreeMap::new();
        for event in events {
            let packed = PackedEvent::new(event.at, event.kind);
            by_cpu.entry(event.cpu).or_default().push(packed);
        }
        let stream = |(cpu, mut events): (u16, Vec<PackedEvent>)| {
            events.sort_by_key(|event| event.at());
            CpuStream::new(cpu, vec![Box::new(events)])
        };
        Self {
            streams: by_cpu.into_iter().map(stream).collect(),
            lost,
        }
    }

    /// How many events there are.
    pub fn len(&self) -> u64 {
        self.streams.iter().map(CpuStream::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The events of all CPUs in order of time, giving the memory of each chunk back
    /// as soon as its last event is out.
    ///
    /// Events at the same time come in the order of [`Recording::streams`], those of
    /// one CPU in the order in which they stand there.
    pub fn into_events(self) -> Events {
        let mut remaining = self.len();
        if self.streams.is_empty() {
            remaining = 0;
        }
        let mut streams: Vec<Cursor> = self.streams.into_iter().map(Cursor::new).collect();
        let waiting = streams
            .iter_mut()
            .enumerate()
            .filter_map(|(index, stream)| Some(Reverse((stream.peek()?.at(), index))))
            .collect();
        Events {
            streams,
            waiting,
            current: None,
            remaining,
        }
    }
}

/// The events of a [`Recording`] in order of time: see [`Recording::into_events`].
pub struct Events {
    streams: Vec<Cursor>,
    /// The next time of each stream that is neither at its end nor the current one.
    waiting: BinaryHeap<Reverse<(Monotonic, usize)>>,
    /// The stream that is read until another one's next event is earlier.
    current: Option<usize>,
    remaining: u64,
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if let Some(index) = self.current {
            let stream = &mut self.streams[index];
            match stream.peek() {
                Some(event) => {
                    let turn = (event.at(), index);
                    if self
                        .waiting
                        .peek()
                        .is_none_or(|&Reverse(other)| turn < other)
                    {
                        stream.next += 1;
                        self.remaining -= 1;
                        return Some(event.on_cpu(stream.cpu));
                    }
                    self.waiting.push(Reverse(turn));
                }
                None => self.current = None,
            }
        }
        let Reverse((_, index)) = self.waiting.pop()?;
        self.current = Some(index);
        let stream = &mut self.streams[index];
        let event = stream.peek()?;
        stream.next += 1;
        self.remaining -= 1;
        Some(event.on_cpu(stream.cpu))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.remaining) {
            Ok(n) => (n, Some(n)),
            Err(_) => (usize::MAX, None),
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events to come", self.remaining)
    }
}

/// A stream that is being read; owns only the chunks that are not read yet.
struct Cursor {
    cpu: u16,
    chunk: Option<Chunk>,
    rest: std::vec::IntoIter<Chunk>,
    next: usize,
}

impl Cursor {
    fn new(stream: CpuStream) -> Self {
        let mut rest = stream.chunks.into_iter();
        Self {
            cpu: stream.cpu,
            chunk: rest.next(),
            rest,
            next: 0,
        }
    }

    /// The next event; drops the chunks that are read to their end.
    #[inline]
    fn peek(&mut self) -> Option<PackedEvent> {
        loop {
            let chunk = self.chunk.as_ref()?;
            if let Some(&event) = (**chunk).as_ref().get(self.next) {
                return Some(event);
            }
            self.chunk = self.rest.next();
            self.next = 0;
        }
    }
}

#[cfg(test)]
mod tests;
