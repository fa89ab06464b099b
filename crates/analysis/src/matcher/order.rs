//! Restores the order of time in a stream that is nearly in order.

use taillab_model::{Event, Monotonic, Nanos, RecordedEvent};

/// Something that happened at an instant.
pub trait Timed {
    /// When it happened, on the monotonic clock.
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

/// An iterator that returns the events of another iterator in time order, provided that none is
/// further than `slack` from its place.
///
/// A probe takes an event's time before it writes the event, so an interrupt in between can swap
/// two events of one CPU, and merging the CPUs' streams does not undo that. Events with the same
/// time keep their order.
///
/// Events that come in order are read many at a time; reading ahead does not change the result.
pub struct InOrder<I: Iterator> {
    source: I,
    /// Sorted by time.
    held: Vec<I::Item>,
    /// How many of `held` have been returned.
    given: usize,
    /// How many of `held` may be returned.
    ready: usize,
    /// An event that was read and is older than the last one in `held`.
    stray: Option<I::Item>,
    slack: Nanos,
    /// The latest time of an event that was returned.
    last_given: Monotonic,
    late: u64,
}

/// How many events are read at a time.
const READ_ON: usize = 1_024;

impl<I: Iterator<Item: Timed + Copy>> InOrder<I> {
    /// Puts `source` in order, holding back the events of the last `slack`.
    pub fn new(source: I, slack: Nanos) -> Self {
        Self {
            source,
            held: Vec::new(),
            given: 0,
            ready: 0,
            stray: None,
            slack,
            last_given: Monotonic::from_nanos_since_boot(0),
            late: 0,
        }
    }

    /// How many events so far came later than the slack allows. They stay out of order.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Reads on until some events can be returned, or until the source ends.
    #[inline(never)]
    fn read_on(&mut self) {
        if let Some(last) = self.ready.checked_sub(1) {
            self.last_given = self.last_given.max(self.held[last].at());
        }
        self.held.drain(..self.given);
        (self.given, self.ready) = (0, 0);
        while self.ready == 0 {
            if let Some(stray) = self.stray.take() {
                self.insert(stray);
            }
            let enough = self.held.len() + READ_ON;
            while self.stray.is_none() && self.held.len() < enough {
                let Some(event) = self.source.next() else {
                    self.ready = self.held.len();
                    return;
                };
                match self.held.last() {
                    Some(last) if event.at() < last.at() => self.stray = Some(event),
                    _ => self.held.push(event),
                }
            }
            // read one at a time, these would have been returned before the stray was read
            let newest = self.held.last().map(Timed::at);
            let goes = |event: &I::Item| {
                newest.is_some_and(|newest| newest.saturating_since(event.at()) > self.slack)
            };
            self.ready = self.held.partition_point(goes);
        }
    }

    fn insert(&mut self, stray: I::Item) {
        self.late += u64::from(stray.at() < self.last_given);
        let place = self.held.partition_point(|other| other.at() <= stray.at());
        self.held.insert(place, stray);
    }
}

impl<I: Iterator<Item: Timed + Copy>> Iterator for InOrder<I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        if self.given == self.ready {
            self.read_on();
        }
        let event = *self.held[..self.ready].get(self.given)?;
        self.given += 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Numbered(u64, usize);

    impl Timed for Numbered {
        fn at(&self) -> Monotonic {
            Monotonic::from_nanos_since_boot(self.0)
        }
    }

    /// The reference implementation, which reads one event at a time.
    fn plainly(source: &[Numbered], slack: u64) -> (Vec<Numbered>, u64) {
        let mut held: VecDeque<Numbered> = VecDeque::new();
        let (mut given, mut late, mut newest) = (Vec::new(), 0, 0);
        let mut last_given = 0;
        let mut give = |event: Numbered| {
            late += u64::from(event.0 < last_given);
            last_given = last_given.max(event.0);
            given.push(event);
        };
        for event in source {
            while let Some(first) = held.pop_front_if(|first| newest > first.0 + slack) {
                give(first);
            }
            newest = newest.max(event.0);
            held.insert(held.partition_point(|other| other.0 <= event.0), *event);
        }
        held.into_iter().for_each(&mut give);
        (given, late)
    }

    proptest! {
        #[test]
        fn reading_on_changes_nothing(
            steps in prop::collection::vec((0_u64..20, prop::option::weighted(0.02, 0_u64..400)), 0..3_000),
            slack in 0_u64..200,
        ) {
            let mut now = 1_000;
            let events = steps.iter().enumerate().map(|(number, (gap, back))| {
                now += gap;
                Numbered(now - back.unwrap_or(0), number)
            });
            let events: Vec<Numbered> = events.collect();
            let mut in_order = InOrder::new(events.iter().copied(), Nanos::new(slack));
            let given: Vec<Numbered> = in_order.by_ref().collect();
            prop_assert_eq!((given, in_order.late()), plainly(&events, slack));
        }
    }
}
