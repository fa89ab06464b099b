//! Where events go as they are recorded.

use std::collections::VecDeque;
use std::io;

use super::PackedEvent;
use super::merge::{Merge, Stream};
use crate::{Event, Monotonic, Nanos};

/// Takes events as they are drained from a probe.
pub trait EventSink {
    /// Takes events of one CPU, in order of time except for a few that the event of an interrupt
    /// overtook.
    ///
    /// # Errors
    /// When they cannot be written.
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()>;

    /// Says that all events before this time, which counts from the recording's base, have been
    /// taken.
    ///
    /// An earlier event that still comes is kept, but is written too late.
    ///
    /// # Errors
    /// When they cannot be written.
    fn settle(&mut self, before: Nanos) -> io::Result<()>;
}

/// Both sinks get everything.
impl<A: EventSink, B: EventSink> EventSink for (A, B) {
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
        self.0.take(cpu, events)?;
        self.1.take(cpu, events)
    }

    fn settle(&mut self, before: Nanos) -> io::Result<()> {
        self.0.settle(before)?;
        self.1.settle(before)
    }
}

/// Takes everything and keeps nothing.
impl EventSink for () {
    fn take(&mut self, _cpu: u16, _events: &[PackedEvent]) -> io::Result<()> {
        Ok(())
    }

    fn settle(&mut self, _before: Nanos) -> io::Result<()> {
        Ok(())
    }
}

/// Appends events to those of their CPU, of which a few may be later than some of the new ones.
pub(super) fn push_in_order(events: &mut Vec<PackedEvent>, new: &[PackedEvent]) {
    let at = |event: &PackedEvent| event.since_base();
    let follows = match (events.last(), new.first()) {
        (Some(last), Some(first)) => at(last) <= at(first),
        _ => true,
    };
    if follows && new.is_sorted_by_key(at) {
        events.extend_from_slice(new);
        return;
    }
    for &event in new {
        let later = events.iter().rev();
        let later = later.take_while(|other| at(other) > at(&event));
        let index = events.len() - later.count();
        events.insert(index, event);
    }
}

/// Puts events of several CPUs into order of time while they come.
///
/// It holds the events that are not settled, and the settled ones that have not been asked for.
pub struct EventOrder {
    base: Monotonic,
    merge: Merge<EventQueue>,
    settled: Nanos,
    /// Events came since the last one was asked for.
    came: bool,
}

impl EventOrder {
    /// An empty queue for events whose times count from `base`.
    pub fn new(base: Monotonic) -> Self {
        Self {
            base,
            merge: Merge::new(Vec::new()),
            settled: Nanos::ZERO,
            came: false,
        }
    }

    /// The next event, if it is settled that no earlier one will come.
    #[inline]
    pub fn next_settled(&mut self) -> Option<Event> {
        // once for all CPUs, since it looks at each of them
        if std::mem::take(&mut self.came) {
            self.merge.look_again();
        }
        let (event, cpu) = self.merge.next_before(self.settled.get())?;
        // the index is the CPU's number
        Some(event.on_cpu(self.base, cpu as u16))
    }
}

impl EventSink for EventOrder {
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
        let index = usize::from(cpu);
        let queues = self.merge.streams_mut();
        if queues.len() <= index {
            queues.resize_with(index + 1, EventQueue::default);
        }
        for &event in events {
            queues[index].push(event);
        }
        self.came = true;
        Ok(())
    }

    fn settle(&mut self, before: Nanos) -> io::Result<()> {
        self.settled = self.settled.max(before);
        Ok(())
    }
}

/// The events of one CPU, in order of time.
#[derive(Default)]
struct EventQueue(VecDeque<PackedEvent>);

impl EventQueue {
    fn push(&mut self, event: PackedEvent) {
        let later = self.0.iter().rev();
        let later = later.take_while(|other| other.since_base() > event.since_base());
        let index = self.0.len() - later.count();
        self.0.insert(index, event);
    }
}

impl Stream for EventQueue {
    #[inline]
    fn peek(&mut self) -> Option<PackedEvent> {
        self.0.front().copied()
    }

    #[inline]
    fn advance(&mut self) {
        self.0.pop_front();
    }
}
