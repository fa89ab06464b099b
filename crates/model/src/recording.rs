//! Kernel events as recorded: 16 bytes each, one stream for each CPU, merged by time.
//!
//! The same 16 bytes are the probe's wire format. A recording holds them in compressed blocks, each of one CPU, so that
//! damage costs only the events of the damaged block: [`RecordingWriter`] writes it while events come,
//! [`RecordingReader`] gives them back in order of time, both in bounded memory. [`Recording`] is a short one, unpacked
//! in memory. What a recording holds besides its events (names of threads and interrupts, t, workers, hooks, the servers
//! that the server asks) is its [`RecordingContext`].
//!
//! This module needs neither the kernel nor the probe.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Event, Monotonic, Nanos};
use merge::{Merge, Stream};
use sink::push_in_order;

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

/// What one CPU recorded, in order of time.
#[derive(Clone)]
pub struct CpuStream {
    cpu: u16,
    events: Arc<Vec<PackedEvent>>,
}

impl CpuStream {
    /// A stream of these events, which are in order of time.
    pub fn new(cpu: u16, events: Vec<PackedEvent>) -> Self {
        let events = Arc::new(events);
        Self { cpu, events }
    }

    /// The CPU.
    pub fn cpu(&self) -> u16 {
        self.cpu
    }

    /// Its events, in order of time.
    pub fn events(&self) -> &[PackedEvent] {
        &self.events
    }
}

impl fmt::Debug for CpuStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}: {} events", self.cpu, self.events.len())
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

/// All events of a short measurement, unpacked in memory.
#[derive(Debug)]
pub struct Recording {
    /// What the events' times count from.
    pub base: Monotonic,
    /// One stream for each CPU that recorded anything, in order of their numbers.
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
        let lens = (self.streams.iter()).map(|stream| stream.events.len() as u64);
        lens.sum()
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
        for (cpu, new) in by_cpu {
            let events = self.events_of(cpu);
            events.extend(new);
            // stable, and quick where most of it is in order
            events.sort_by_key(|event| event.since_base());
        }
    }

    fn events_of(&mut self, cpu: u16) -> &mut Vec<PackedEvent> {
        let index = self.streams.partition_point(|stream| stream.cpu < cpu);
        if (self.streams.get(index)).is_none_or(|stream| stream.cpu != cpu) {
            self.streams.insert(index, CpuStream::new(cpu, Vec::new()));
        }
        Arc::make_mut(&mut self.streams[index].events)
    }

    /// The events of all CPUs in order of time.
    ///
    /// Events at the same time come in the order of [`Recording::streams`], those of one CPU in
    /// the order of its stream.
    pub fn events(&self) -> Events {
        Events::new(self.base, self.streams.iter().cloned())
    }

    /// As [`Recording::events`], for a recording that is not needed any more.
    pub fn into_events(self) -> Events {
        Events::new(self.base, self.streams.into_iter())
    }
}

impl EventSink for Recording {
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
        push_in_order(self.events_of(cpu), events);
        Ok(())
    }

    fn settle(&mut self, _before: Nanos) -> io::Result<()> {
        Ok(())
    }
}

/// The events of a [`Recording`] in order of time.
pub struct Events {
    base: Monotonic,
    /// The CPU of each merged stream.
    cpus: Vec<u16>,
    merge: Merge<Cursor>,
    remaining: u64,
}

impl Events {
    fn new(base: Monotonic, streams: impl Iterator<Item = CpuStream>) -> Self {
        let cursor = |stream: CpuStream| {
            let events = stream.events;
            (stream.cpu, Cursor { events, next: 0 })
        };
        let (cpus, cursors): (Vec<u16>, Vec<Cursor>) = streams.map(cursor).unzip();
        let lens = cursors.iter().map(|cursor| cursor.events.len() as u64);
        Self {
            base,
            cpus,
            remaining: lens.sum(),
            merge: Merge::new(cursors),
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

/// A stream that is being read.
struct Cursor {
    events: Arc<Vec<PackedEvent>>,
    next: usize,
}

impl Stream for Cursor {
    #[inline]
    fn peek(&mut self) -> Option<PackedEvent> {
        self.events.get(self.next).copied()
    }

    #[inline]
    fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests;
