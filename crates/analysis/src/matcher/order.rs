//! Restores the order of time in a stream that is nearly in order.

use std::collections::VecDeque;

use taillab_model::{Event, Monotonic, Nanos, RecordedEvent};

/// Something that happened at an instant.
pub trait Timed {
    /// When.
    fn at(&self) -> Monotonic;
}

impl Timed for Event {
    #[inline]
    fn at(&self) -> Monotonic {
        self.at
    }
}

impl Timed for RecordedEvent {
    #[inline]
    fn at(&self) -> Monotonic {
        self.at()
    }
}

/// An iterator that gives the events of another one in order of time, where none
/// stands further than `slack` from its place.
///
/// A probe takes an event's time before it writes the event, so an interrupt in
/// between makes two events of one CPU swap, and a merge of the CPUs' streams keeps
/// that. Events of the same time keep their order.
pub struct InOrder<I: Iterator> {
    source: I,
    /// Sorted by time.
    held: VecDeque<I::Item>,
    slack: Nanos,
    newest: Monotonic,
    given: Monotonic,
    late: u64,
}

impl<I: Iterator<Item: Timed>> InOrder<I> {
    /// Puts `source` in order, holding back the events of the last `slack`.
    pub fn new(source: I, slack: Nanos) -> Self {
        Self {
            source,
            held: VecDeque::new(),
            slack,
            newest: Monotonic::from_nanos_since_boot(0),
            given: Monotonic::from_nanos_since_boot(0),
            late: 0,
        }
    }

    /// Events so far that came later than the slack allows, and stayed out of order.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Inserts from the back: a stream in order costs one comparison an event.
    fn hold(&mut self, event: I::Item) {
        let at = event.at();
        self.newest = self.newest.max(at);
        if self.held.back().is_none_or(|last| last.at() <= at) {
            self.held.push_back(event);
            return;
        }
        let place = self.held.iter().rposition(|other| other.at() <= at);
        self.held
            .insert(place.map_or(0, |before| before + 1), event);
    }

    fn give(&mut self) -> Option<I::Item> {
        let event = self.held.pop_front()?;
        self.late += u64::from(event.at() < self.given);
        self.given = self.given.max(event.at());
        Some(event)
    }
}

impl<I: Iterator<Item: Timed>> Iterator for InOrder<I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        loop {
            if let Some(first) = self.held.front()
                && self.newest.saturating_since(first.at()) > self.slack
            {
                return self.give();
            }
            match self.source.next() {
                Some(event) => self.hold(event),
                None => return self.give(),
            }
        }
    }
}
