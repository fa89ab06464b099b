//! Kernel events as recorded: 16 bytes each, one stream for each CPU, merged by time.
//!
//! The same 16 bytes are the probe's wire format and what a run keeps in memory, so that
//! nothing is converted between the kernel and the matcher. A file holds them compressed:
//! [`RecordingWriter`] writes it while events come, [`RecordingReader`] gives them back in
//! order of time, both in bounded memory; [`Recording`] is all of it in memory.
//!
//! This module needs neither the kernel nor the probe.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Event, Monotonic};
use merge::{Merge, Stream};

mod blocks;
mod columns;
mod context;
mod damage;
mod format;
mod merge;
mod old;
mod packed;
mod reader;
mod sink;
mod writer;

pub use context::{InterruptName, RecordingContext, ThreadName};
pub use damage::{Damage, Gap, RecordingError};
pub use packed::{PackedEvent, RecordedEvent};
pub use reader::{Recorded, RecordingReader};
pub use sink::{EventOrder, EventSink};
pub use writer::RecordingWriter;

/// The version that [`Recording::write`] and [`RecordingWriter`] write; all versions up to
/// it are read.
pub const VERSION: u32 = 4;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LostEvents {
    /// No room was left in the kernel's ring.
    pub ring_full: u64,
    /// The kernel skipped a program because it interrupted itself.
    pub recursion: u64,
    /// The server's packets whose headers lay where the probe cannot read them.
    pub unreadable: u64,
    /// They were recorded, in a part of the file that is damaged.
    pub damaged: u64,
}

impl LostEvents {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.ring_full + self.recursion + self.unreadable + self.damaged
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

    /// Adds events in any order, each where its time belongs: behind those of its CPU at
    /// the same time.
    ///
    /// One before the recording's base counts as at the base.
    pub fn insert(&mut self, events: impl IntoIterator<Item = Event>) {
        let mut by_cpu: BTreeMap<u16, Vec<PackedEvent>> = BTreeMap::new();
        for event in events {
            let packed = PackedEvent::new(event.at.saturating_since(self.base), event.kind);
            by_cpu.entry(event.cpu).or_default().push(packed);
        }
        for (cpu, mut events) in by_cpu {
            events.sort_by_key(|event| event.since_base());
            match self.streams.iter_mut().find(|stream| stream.cpu == cpu) {
                Some(stream) => stream.insert(events),
                None => {
                    let index = self.streams.partition_point(|stream| stream.cpu < cpu);
                    let stream = CpuStream::new(cpu, vec![Box::new(events)]);
                    self.streams.insert(index, stream);
                }
            }
        }
    }

    /// The events of all CPUs in order of time.
    ///
    /// Events at the same time come in the order of [`Recording::streams`], those of
    /// one CPU in the order in which they stand there.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        let of = |stream: &CpuStream| (stream.cpu, stream.len());
        let totals = self.streams.iter().map(of).collect();
        let cursors = self.streams.iter().map(|stream| {
            let chunks = stream.chunks.iter();
            Cursor::new(chunks)
        });
        Merged::new(self.base, totals, cursors.collect())
    }

    /// As [`Recording::events`], giving the memory of each chunk back as soon as its last
    /// event is out.
    pub fn into_events(self) -> Events {
        let of = |stream: &CpuStream| (stream.cpu, stream.len());
        let totals = self.streams.iter().map(of).collect();
        let streams = self.streams.into_iter();
        let cursors = streams.map(|stream| Cursor::new(stream.chunks.into_iter()));
        Events(Merged::new(self.base, totals, cursors.collect()))
    }
}

impl CpuStream {
    /// Adds events in order of time, making the chunks anew that they come into.
    fn insert(&mut self, events: Vec<PackedEvent>) {
        let mut events = events.into_iter().peekable();
        for chunk in &mut self.chunks {
            let old = (**chunk).as_ref();
            let Some(last) = old.last().map(|event| event.since_base()) else {
                continue;
            };
            if events.peek().is_none_or(|event| event.since_base() >= last) {
                continue;
            }
            let mut new = Vec::with_capacity(old.len() + 1);
            for &event in old {
                let before = |new: &PackedEvent| new.since_base() < event.since_base();
                while let Some(earlier) = events.next_if(before) {
                    new.push(earlier);
                }
                new.push(event);
            }
            *chunk = Box::new(new);
        }
        let rest: Vec<PackedEvent> = events.collect();
        if !rest.is_empty() {
            self.chunks.push(Box::new(rest));
        }
    }
}

/// The events of a [`Recording`] in order of time: see [`Recording::into_events`].
pub struct Events(Merged<Cursor<Chunk, std::vec::IntoIter<Chunk>>>);

impl Events {
    #[inline]
    fn next_recorded(&mut self) -> Option<RecordedEvent> {
        self.0.next_recorded()
    }
}

impl Iterator for Events {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events to come", self.0.remaining)
    }
}

/// Streams in memory as one.
struct Merged<S> {
    base: Monotonic,
    cpus: Vec<u16>,
    merge: Merge<S>,
    remaining: u64,
}

impl<S: Stream> Merged<S> {
    /// Of streams with these CPUs and numbers of events.
    fn new(base: Monotonic, totals: Vec<(u16, u64)>, streams: Vec<S>) -> Self {
        Self {
            base,
            remaining: totals.iter().map(|&(_, events)| events).sum(),
            cpus: totals.into_iter().map(|(cpu, _)| cpu).collect(),
            merge: Merge::new(streams),
        }
    }

    #[inline]
    fn next_recorded(&mut self) -> Option<RecordedEvent> {
        let (event, index) = self.merge.next_before(u64::MAX)?;
        self.remaining -= 1;
        Some(RecordedEvent::new(event, self.base, self.cpus[index]))
    }
}

impl<S: Stream> Iterator for Merged<S> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        self.next_recorded().map(Event::from)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.remaining) {
            Ok(n) => (n, Some(n)),
            Err(_) => (usize::MAX, None),
        }
    }
}

/// A chunk, owned or borrowed.
trait Slice {
    fn slice(&self) -> &[PackedEvent];
}

impl Slice for Chunk {
    #[inline]
    fn slice(&self) -> &[PackedEvent] {
        (**self).as_ref()
    }
}

impl Slice for &Chunk {
    #[inline]
    fn slice(&self) -> &[PackedEvent] {
        (***self).as_ref()
    }
}

/// A stream that is being read; holds only the chunks that are not read yet.
struct Cursor<C, I> {
    chunk: Option<C>,
    rest: I,
    next: usize,
}

impl<C, I: Iterator<Item = C>> Cursor<C, I> {
    fn new(mut rest: I) -> Self {
        Self {
            chunk: rest.next(),
            rest,
            next: 0,
        }
    }
}

impl<C: Slice, I: Iterator<Item = C>> Stream for Cursor<C, I> {
    /// The next event; drops the chunks that are read to their end.
    #[inline]
    fn peek(&mut self) -> Option<PackedEvent> {
        loop {
            let chunk = self.chunk.as_ref()?;
            if let Some(&event) = chunk.slice().get(self.next) {
                return Some(event);
            }
            self.chunk = self.rest.next();
            self.next = 0;
        }
    }

    #[inline]
    fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests;
