//! Kernel events as recorded: 16 bytes each, one stream for each CPU, merged by time.
//!
//! The same bytes are the probe's wire format, what a run keeps in memory and
//! what a recorded stream holds on disk, so that nothing is converted between the
//! kernel and the matcher. This module needs neither the kernel nor the probe.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;

use crate::{Event, Monotonic, Nanos};

mod context;
mod file;
mod packed;

pub use context::{InterruptName, RecordingContext, ThreadName};
pub use file::{RecordingError, VERSION};
pub use packed::PackedEvent;

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
#[derive(Debug)]
pub struct Recording {
    /// What the events' times count from.
    pub base: Monotonic,
    /// One stream for each CPU that recorded anything.
    pub streams: Vec<CpuStream>,
    /// What is missing.
    pub lost: LostEvents,
    /// What is known beside the events.
    pub context: RecordingContext,
}

impl Default for Recording {
    /// Of nothing, at the machine's boot.
    fn default() -> Self {
        Self {
            base: Monotonic::from_nanos_since_boot(0),
            streams: Vec::new(),
            lost: LostEvents::default(),
            context: RecordingContext::default(),
        }
    }
}

impl Recording {
    /// A recording of these events in any order; those of one CPU at the same time
    /// keep their order.
    pub fn from_events(events: impl IntoIterator<Item = Event>, lost: LostEvents) -> Self {
        let events: Vec<Event> = events.into_iter().collect();
        let mut by_cpu: BTreeMap<u16, Vec<PackedEvent>> = BTreeMap::new();
        let base = events.iter().map(|event| event.at).min();
        let base = base.unwrap_or(Monotonic::from_nanos_since_boot(0));
        for event in events {
            let packed = PackedEvent::new(event.at.saturating_since(base), event.kind);
            by_cpu.entry(event.cpu).or_default().push(packed);
        }
        let stream = |(cpu, mut events): (u16, Vec<PackedEvent>)| {
            events.sort_by_key(|event| event.since_base());
            CpuStream::new(cpu, vec![Box::new(events)])
        };
        Self {
            base,
            streams: by_cpu.into_iter().map(stream).collect(),
            lost,
            context: RecordingContext::default(),
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
            .filter_map(|(index, stream)| Some(Reverse((stream.peek()?.since_base(), index))))
            .collect();
        Events {
            base: self.base,
            streams,
            waiting,
            current: None,
            remaining,
        }
    }
}

/// The events of a [`Recording`] in order of time: see [`Recording::into_events`].
pub struct Events {
    base: Monotonic,
    streams: Vec<Cursor>,
    /// The next time of each stream that is neither at its end nor the current one.
    waiting: BinaryHeap<Reverse<(Nanos, usize)>>,
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
                    let turn = (event.since_base(), index);
                    if self
                        .waiting
                        .peek()
                        .is_none_or(|&Reverse(other)| turn < other)
                    {
                        stream.next += 1;
                        self.remaining -= 1;
                        return Some(event.on_cpu(self.base, stream.cpu));
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
        Some(event.on_cpu(self.base, stream.cpu))
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
