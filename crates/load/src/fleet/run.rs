//! The records of all threads of a fleet, read as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::iter::Peekable;

use taillab_model::Monotonic;
use taillab_model::summary::{Closing, LoadErrors};

use crate::client::Habits;
use crate::engine::{CpuUse, Entry, LoadRun, StopReason};

/// The result of a fleet's run.
#[derive(Debug)]
pub struct FleetRun {
    /// Each thread's own run, thread 0's first.
    pub runs: Vec<LoadRun>,
    /// Why it ended early; `None` if it did not.
    pub stopped: Option<StopReason>,
}

impl FleetRun {
    /// When the schedules began.
    pub fn start(&self) -> Option<Monotonic> {
        self.runs.iter().map(|run| run.record.start()).min()
    }

    /// Requests of all threads, warm-up included, in order of their intended time.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        self.iter_with_threads().map(|(_, entry)| entry)
    }

    /// The same in order of their sends: while a thread is held up, others send what is due later.
    pub fn iter_as_sent(&self) -> impl Iterator<Item = Entry> {
        let parts = self.runs.iter().map(|run| run.record.iter_as_sent());
        Merged::new(parts, |entry: &Entry| entry.times.sent)
    }

    /// [`Self::iter`] with the number of each request's thread.
    pub fn iter_with_threads(&self) -> impl Iterator<Item = (usize, Entry)> {
        let runs = self.runs.iter().enumerate();
        let parts = runs.map(|(thread, run)| {
            let entries = run.record.iter();
            entries.map(move |entry| (thread, entry))
        });
        Merged::new(parts, |(_, entry): &(usize, Entry)| entry.times.intended)
    }

    /// The requests of the measurement, in order of their intended time.
    pub fn iter_measured(&self) -> impl Iterator<Item = Entry> {
        let parts = self.runs.iter().map(|run| run.record.iter_measured());
        Merged::new(parts, |entry: &Entry| entry.times.intended)
    }

    /// When the generator came to the requests of the measurement, in order.
    pub fn measured_turns(&self) -> impl Iterator<Item = Monotonic> {
        let parts = self.runs.iter().map(|run| run.record.measured_turns());
        Merged::new(parts, |&at: &Monotonic| at)
    }

    /// How the clients used their connections, and how many those were, all threads together.
    pub fn clients(&self) -> Option<(Habits, usize)> {
        let parts = self.runs.iter().map(|run| run.record.clients());
        parts.reduce(|(habits, all), (_, connections)| (habits, all + connections))
    }

    /// Who closes the connections, where each request has one of its own.
    pub fn closing(&self) -> Option<Closing> {
        self.runs.first()?.record.closing()
    }

    /// Whether requests of the warm-up were answered, and none of those that were sent later: the queue was longer
    /// than the measurement.
    pub fn is_answered_in_its_warm_up_alone(&self) -> bool {
        let is_answered = |entry: &Entry| entry.times.received.is_some();
        let mut entries = self.runs.iter().flat_map(|run| run.record.iter());
        !self.iter_measured().any(|entry| is_answered(&entry))
            && entries.any(|entry| is_answered(&entry))
    }

    /// Whether all requests were answered, those of the warm-up, too.
    pub fn is_answered(&self) -> bool {
        let mut entries = self.runs.iter().flat_map(|run| run.record.iter());
        entries.all(|entry| entry.times.received.is_some())
    }

    /// Makes the warm-up a part of the measurement.
    pub fn count_warm_up(&mut self) {
        for run in &mut self.runs {
            let more = run.record.count_warm_up();
            run.errors = [run.errors, more].into_iter().sum();
        }
    }

    /// The errors of the measurement, by kind.
    pub fn errors(&self) -> LoadErrors {
        self.runs.iter().map(|run| run.errors).sum()
    }

    /// Requests that were due and not yet sent when the time was up.
    pub fn unsent(&self) -> usize {
        self.runs.iter().map(|run| run.unsent).sum()
    }

    /// The CPU use of the client threads, summed.
    pub fn cpu(&self) -> CpuUse {
        self.runs.iter().map(|run| run.cpu).sum()
    }
}

/// Merges sorted sequences; equal items keep the order of their sequences.
struct Merged<I: Iterator, K, F> {
    parts: Vec<Peekable<I>>,
    /// The key of the next item of each sequence that has one, with the sequence's place.
    heads: BinaryHeap<Reverse<(K, usize)>>,
    key: F,
}

impl<I: Iterator, K: Ord, F: Fn(&I::Item) -> K> Merged<I, K, F> {
    fn new(parts: impl Iterator<Item = I>, key: F) -> Self {
        let mut parts: Vec<_> = parts.map(Iterator::peekable).collect();
        let heads = parts.iter_mut().enumerate();
        let heads = heads
            .filter_map(|(place, part)| Some(Reverse((key(part.peek()?), place))))
            .collect();
        Self { parts, heads, key }
    }
}

impl<I: Iterator, K: Ord, F: Fn(&I::Item) -> K> Iterator for Merged<I, K, F> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let mut head = self.heads.peek_mut()?;
        let part = &mut self.parts[head.0.1];
        let item = part.next();
        if let Some(next) = part.peek() {
            head.0.0 = (self.key)(next);
        } else {
            PeekMut::pop(head);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taillab_model::{Nanos, Operation, Outcome};

    use super::*;
    use crate::client::Keys;
    use crate::engine::Record;
    use crate::protocol::Planned;

    /// A thread's run of requests that were due and sent at these times.
    fn run(sends: &[(u64, u64)]) -> LoadRun {
        let due = sends.iter().map(|(due, _)| Nanos::new(*due)).collect();
        let plan = vec![Planned::new(Operation::Get, 0); sends.len()];
        let mut record = Record::new(usize::MAX, due, &plan, 0, Nanos::from_secs(1));
        for (k, (_, sent)) in sends.iter().enumerate() {
            record.send(k, Monotonic::from_nanos_since_boot(*sent));
        }
        record.finish(Keys::none());
        LoadRun {
            record,
            errors: LoadErrors::default(),
            stopped: None,
            unsent: 0,
            cpu: CpuUse::default(),
            waits: Vec::new(),
        }
    }

    #[test]
    fn a_request_without_its_response_leaves_a_load_unanswered() {
        let fleet = |runs| FleetRun {
            runs,
            stopped: None,
        };
        assert!(fleet(vec![run(&[])]).is_answered());
        assert!(!fleet(vec![run(&[]), run(&[(10, 50)])]).is_answered());
    }

    #[test]
    fn what_a_thread_sent_late_comes_after_what_others_sent_before() {
        let fleet = FleetRun {
            runs: vec![
                run(&[(10, 50), (20, 51)]),
                run(&[(15, 16), (40, 41), (60, 60)]),
            ],
            stopped: None,
        };
        let sent = |entry: Entry| entry.times.sent.nanos_since_boot();
        let as_sent: Vec<u64> = fleet.iter_as_sent().map(sent).collect();
        assert_eq!(as_sent, [16, 41, 50, 51, 60]);
        let as_due: Vec<u64> = fleet.iter().map(sent).collect();
        assert_eq!(as_due, [50, 16, 51, 41, 60]);
    }

    /// Of three requests, the last two belong to the measurement, and nobody answers them.
    #[test]
    fn where_only_the_warm_up_was_answered_it_can_be_measured() {
        let due = [10, 20, 30].map(Nanos::new).to_vec();
        let plan = vec![Planned::new(Operation::Get, 0); 3];
        let mut record = Record::new(usize::MAX, due, &plan, 1, Nanos::from_secs(1));
        let at = Monotonic::from_nanos_since_boot;
        for k in 0..3 {
            record.send(k, at(100 * (k as u64 + 1)));
        }
        let mut late = record.clone();
        record.answered(0, Outcome::Hit, at(150));
        late.answered(0, Outcome::Miss, at(150));
        late.answered(2, Outcome::Hit, at(350));
        let fleet = |mut record: Record| {
            record.finish(Keys::none());
            let errors = record.request_errors();
            let mut fleet = FleetRun {
                runs: vec![run(&[])],
                stopped: None,
            };
            (fleet.runs[0].record, fleet.runs[0].errors) = (record, errors);
            fleet
        };
        let mut late = fleet(late);
        assert!(!late.is_answered_in_its_warm_up_alone());
        assert_eq!((late.errors().misses, late.errors().timeouts), (0, 1));
        late.count_warm_up();
        assert_eq!((late.errors().misses, late.errors().timeouts), (1, 1));
        let mut early = fleet(record);
        assert!(early.is_answered_in_its_warm_up_alone());
        early.count_warm_up();
        assert_eq!(early.iter_measured().count(), 3);
        assert!(!early.is_answered_in_its_warm_up_alone());
    }

    proptest! {
        #[test]
        fn merging_sorts(mut parts in proptest::collection::vec(proptest::collection::vec(0_u32..50, 0..20), 0..6)) {
            for part in &mut parts {
                part.sort_unstable();
            }
            let merged: Vec<_> =
                Merged::new(parts.iter().map(|part| part.iter().copied()), |&n: &u32| n).collect();
            let mut plain = parts.concat();
            plain.sort_unstable();
            prop_assert_eq!(merged, plain);
        }
    }
}
