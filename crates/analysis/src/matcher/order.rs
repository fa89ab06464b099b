//! Restores the order of time in a stream that is nearly in order.

use std::collections::VecDeque;

use taillab_model::{Event, Monotonic, Nanos};

/// An iterator that gives the events of another one in order of time, where none
/// stands further than `slack` from its place.
///
/// A probe takes an event's time before it writes the event, so an interrupt in
/// between makes two events of one CPU swap, and a merge of the CPUs' streams keeps
/// that. Events of the same time keep their order.
pub struct InOrder<I> {
    source: I,
    /// Sorted by time.
    held: VecDeque<Event>,
    slack: Nanos,
    newest: Option<Monotonic>,
    given: Option<Monotonic>,
    late: u64,
}

impl<I: Iterator<Item = Event>> InOrder<I> {
    /// Puts `source` in order, holding back the events of the last `slack`.
    pub fn new(source: I, slack: Nanos) -> Self {
        Self {
            source,
            held: VecDeque::new(),
            slack,
            newest: None,
            given: None,
            late: 0,
        }
    }

    /// Events so far that came later than the slack allows, and stayed out of order.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Inserts from the back: a stream in order costs one comparison an event.
    fn hold(&mut self, event: Event) {
        self.newest = self.newest.max(Some(event.at));
        let mut place = self.held.len();
        while place > 0 && self.held[place - 1].at > event.at {
            place -= 1;
        }
        if place == self.held.len() {
            self.held.push_back(event);
        } else {
            self.held.insert(place, event);
        }
    }

    fn give(&mut self) -> Option<Event> {
        let event = self.held.pop_front()?;
        if self.given > Some(event.at) {
            self.late += 1;
        } else {
            self.given = Some(event.at);
        }
        Some(event)
    }
}

impl<I: Iterator<Item = Event>> Iterator for InOrder<I> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let (Some(first), Some(newest)) = (self.held.front(), self.newest)
                && newest.saturating_since(first.at) > self.slack
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
