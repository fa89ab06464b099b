//! Kernel events as recorded: 16 bytes each, one stream for each CPU, merged by time.
//!
//! The same 16 bytes are the probe's wire format and what a run keeps in memory, so that
//! nothing is converted between the kernel and the matcher. A file holds them in compressed blocks, each
//! of one CPU, so that damage costs only the events of the damaged block:
//! [`RecordingWriter`] writes it while events come, [`RecordingReader`] gives them back in
//! order of time, both in bounded memory; [`Recording`] is all of it in memory. What a recording
//! holds besides its events (names of threads and interrupts, t, workers, hooks, the servers that the server asks) is its [`RecordingContext`].
//!
//! This module needs neither the kernel nor the probe.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Event, Monotonic};
use merge::{Merge, Stream};

mod blocks;
mod columns;
mod context;
mod cut;
mod damage;
mod format;
mod merge;
mod packed;
mod queue;
mod reader;
mod sink;
mod version;
mod writer;

pub use context::{InterruptName, RecordingContext, ThreadName, UpstreamServer};
pub use cut::{Cut, CutReason};
pub use damage::{Damage, Gap, RecordingError};
pub use packed::{PackedEvent, RecordedEvent};
pub use reader::{Recorded, RecordingReader};
pub use sink::{EventOrder, EventSink};
use version::Version;
pub use writer::RecordingWriter;

/// The version of the file format that is written; earlier ones are read as well, others are refused.
const VERSION: u32 = 2;

/// A run of events in memory that the recorder allocated; freed with its last reference.
pub type Chunk = Arc<dyn AsRef<[PackedEvent]> + Send + Sync>;

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

    fn len(&self) -> u64 {
        self.slices().map(|events| events.len() as u64).sum()
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
    /// No room was left in the kernel's ring, or in the probe's table of waits for locks.
    pub ring_full: u64,
    /// The kernel skipped a program because it interrupted itself.
    pub recursion: u64,
    /// The server's packets whose headers were where the probe cannot read them.
    pub unreadable: u64,
    /// Recorded events that are in a damaged part of the file.
    pub damaged: u64,
}

impl LostEvents {
    /// Events lost for any reason; at most `u64::MAX`.
    pub const fn total(&self) -> u64 {
        // a file may claim anything
        (self.ring_full.saturating_add(self.recursion))
            .saturating_add(self.unreadable)
            .saturating_add(self.damaged)
    }

    /// The larger number for each reason.
    fn max(self, other: Self) -> Self {
        Self {
            ring_full: self.ring_full.max(other.ring_full),
            recursion: self.recursion.max(other.recursion),
            unreadable: self.unreadable.max(other.unreadable),
            damaged: self.damaged.max(other.damaged),
        }
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
    /// What is known besides the events.
    pub context: RecordingContext,
}

impl Default for Recording {
    /// An empty recording whose base is the machine's boot.
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
    /// How many events there are.
    pub fn len(&self) -> u64 {
        self.streams.iter().map(CpuStream::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds events in any order, each at the place of its time, after events of its CPU with the
    /// same time.
    ///
    /// An event before the recording's base counts as at the base.
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
                    let stream = CpuStream::new(cpu, vec![Arc::new(events)]);
                    self.streams.insert(index, stream);
                }
            }
        }
    }

    /// The events of all CPUs in order of time.
    ///
    /// Events at the same time come in the order of [`Recording::streams`], those of one CPU in
    /// the order of its stream.
    pub fn events(&self) -> Events {
        Events::new(
            self.base,
            self.streams
                .iter()
                .map(|stream| (stream.cpu, stream.chunks.clone())),
        )
    }

    /// As [`Recording::events`], freeing the memory of each chunk as soon as its last event is
    /// out.
    pub fn into_events(self) -> Events {
        Events::new(
            self.base,
            self.streams
                .into_iter()
                .map(|stream| (stream.cpu, stream.chunks)),
        )
    }
}

impl CpuStream {
    /// Adds events in order of time, and rebuilds the chunks that they fall into.
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
            *chunk = Arc::new(new);
        }
        let rest: Vec<PackedEvent> = events.collect();
        if !rest.is_empty() {
            self.chunks.push(Arc::new(rest));
        }
    }
}

/// The events of a [`Recording`] in order of time: see [`Recording::into_events`].
pub struct Events {
    base: Monotonic,
    /// The CPU of each merged stream.
    cpus: Vec<u16>,
    merge: Merge<Cursor>,
    remaining: u64,
}

impl Events {
    fn new(base: Monotonic, streams: impl Iterator<Item = (u16, Vec<Chunk>)>) -> Self {
        let (cpus, chunks): (Vec<u16>, Vec<Vec<Chunk>>) = streams.unzip();
        let lens = chunks
            .iter()
            .flatten()
            .map(|chunk| (**chunk).as_ref().len() as u64);
        Self {
            base,
            cpus,
            remaining: lens.sum(),
            merge: Merge::new(chunks.into_iter().map(Cursor::new).collect()),
        }
    }

    /// The next event and its CPU.
    #[inline]
    fn next_packed(&mut self) -> Option<(PackedEvent, u16)> {
        let (event, index) = self.merge.next_before(u64::MAX)?;
        self.remaining -= 1;
        Some((event, self.cpus[index]))
    }
}

impl Iterator for Events {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        let (event, cpu) = self.next_packed()?;
        Some(event.on_cpu(self.base, cpu))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.remaining) {
            Ok(n) => (n, Some(n)),
            Err(_) => (usize::MAX, None),
        }
    }
}

/// A stream that is being read; holds only the chunks that are not read yet.
struct Cursor {
    chunk: Option<Chunk>,
    rest: std::vec::IntoIter<Chunk>,
    next: usize,
}

impl Cursor {
    fn new(chunks: Vec<Chunk>) -> Self {
        let mut rest = chunks.into_iter();
        Self {
            chunk: rest.next(),
            rest,
            next: 0,
        }
    }
}

impl Stream for Cursor {
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

    #[inline]
    fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests;
