//! The records of all threads of a fleet, read as one.

use taillab_model::Monotonic;
use taillab_model::summary::LoadErrors;

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
        let parts = self.runs.iter().map(|run| run.record.iter());
        Merged::new(parts, |entry: &Entry| entry.times.intended)
    }

    /// The requests of the measurement, in order of their intended time.
    pub fn iter_measured(&self) -> impl Iterator<Item = Entry> {
        let parts = self.runs.iter().map(|run| run.record.iter_measured());
        Merged::new(parts, |entry: &Entry| entry.times.intended)
    }

    /// When the requests of the measurement were sent, in order.
    pub fn measured_sends(&self) -> impl Iterator<Item = Monotonic> {
        let parts = self.runs.iter().map(|run| run.record.measured_sends());
        Merged::new(parts, |&at: &Monotonic| at)
    }

    /// The errors of the measurement, by kind.
    pub fn errors(&self) -> LoadErrors {
        self.runs.iter().map(|run| run.errors).sum()
    }

    /// The CPU use of the client threads, summed.
    pub fn cpu(&self) -> CpuUse {
        self.runs.iter().map(|run| run.cpu).sum()
    }
}

/// Merges sorted sequences; equal items keep the order of their sequences.
struct Merged<I: Iterator, F> {
    parts: Vec<std::iter::Peekable<I>>,
    key: F,
}

impl<I: Iterator, F> Merged<I, F> {
    fn new(parts: impl Iterator<Item = I>, key: F) -> Self {
        Self {
            parts: parts.map(Iterator::peekable).collect(),
            key,
        }
    }
}

impl<I: Iterator, K: Ord, F: Fn(&I::Item) -> K> Iterator for Merged<I, F> {
    type Item = I::Item;

    // For the few threads there are, checking each is faster than a heap.
    fn next(&mut self) -> Option<I::Item> {
        let key = &self.key;
        let first = self
            .parts
            .iter_mut()
            .enumerate()
            .filter_map(|(at, part)| Some((key(part.peek()?), at)))
            .min()?;
        self.parts[first.1].next()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
