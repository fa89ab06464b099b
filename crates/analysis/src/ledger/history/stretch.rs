//! The sums by label of a stretch of runs that moves with the requests.

use std::ops::Range;

use super::runs::Runs;
use crate::ledger::label::Label;

/// A stretch whose ends move further than this is summed anew.
const FAR: usize = 64;

/// The length of a label in some runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) label: Label,
    first: u32,
    pub(super) ns: u64,
}

impl Sum {
    /// The first run with this label.
    pub(super) const fn first(&self) -> usize {
        self.first as usize
    }
}

/// Sums in the order of their first runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Summed {
    sums: Vec<Sum>,
    /// By label: its place in the list and one, or zero.
    places: Vec<u32>,
}

impl Summed {
    pub(super) fn sums(&self) -> &[Sum] {
        &self.sums
    }

    pub(super) fn clear(&mut self) {
        for sum in self.sums.drain(..) {
            self.places[sum.label as usize] = 0;
        }
    }

    /// Adds a length; of a new label, `first` is behind those of all others.
    pub(super) fn add(&mut self, label: Label, ns: u64, first: usize) {
        let place = label as usize;
        if place >= self.places.len() {
            self.places.resize(place + 1, 0);
        }
        match self.places[place].checked_sub(1) {
            Some(place) => self.sums[place as usize].ns += ns,
            None => {
                let first = first as u32;
                self.sums.push(Sum { label, first, ns });
                self.places[place] = self.sums.len() as u32;
            }
        }
    }
}

/// See the module. Of requests that are answered in the order in which they came, each has a
/// stretch that begins and ends a little later than that of the one before.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Stretch {
    /// Of the runs, and which of them.
    generation: Option<u64>,
    runs: Range<usize>,
    /// The lengths by label; those that are there, in the order of their first runs.
    ns: Vec<u64>,
    labels: Vec<(usize, Label)>,
}

impl Stretch {
    /// The sums, in the order in which labels first come.
    pub(super) fn sums(&self) -> impl Iterator<Item = (Label, u64)> {
        let labels = self.labels.iter();
        labels.map(|&(_, label)| (label, self.ns[label as usize]))
    }

    /// Becomes the sums of these runs; there are some.
    pub(super) fn move_to(&mut self, runs: &Runs, to: Range<usize>) {
        let begin = self.runs.start.abs_diff(to.start);
        let is_near = begin + self.runs.end.abs_diff(to.end) <= FAR;
        let overlaps = self.runs.start < to.end && to.start < self.runs.end;
        if self.generation != Some(runs.generation()) || !is_near || !overlaps {
            return self.begin(runs, to);
        }
        // it grows before it shrinks, so that it never is empty
        for place in self.runs.end..to.end {
            let (label, ns) = runs.run(place);
            if *self.of(label) == 0 {
                self.labels.push((place, label));
            }
            *self.of(label) += ns;
        }
        for place in (to.start..self.runs.start).rev() {
            let (label, ns) = runs.run(place);
            if *self.of(label) > 0 {
                self.remove(label);
            }
            self.labels.insert(0, (place, label));
            *self.of(label) += ns;
        }
        for place in self.runs.start..to.start {
            let (label, ns) = runs.run(place);
            self.remove(label);
            *self.of(label) -= ns;
            if *self.of(label) > 0 {
                let next = (runs.next_of_label(place), label);
                let behind = self.labels.partition_point(|other| *other < next);
                self.labels.insert(behind, next);
            }
        }
        for place in to.end..self.runs.end {
            let (label, ns) = runs.run(place);
            *self.of(label) -= ns;
            if *self.of(label) == 0 {
                self.remove(label);
            }
        }
        self.runs = to;
    }

    /// Sums these runs, block by block.
    fn begin(&mut self, runs: &Runs, of: Range<usize>) {
        for (_, label) in self.labels.drain(..) {
            self.ns[label as usize] = 0;
        }
        let mut place = of.start;
        while place < of.end {
            place += runs.block_from(place, of.end, |label, ns, first| {
                if *self.of(label) == 0 {
                    self.labels.push((first, label));
                }
                *self.of(label) += ns;
            });
        }
        self.generation = Some(runs.generation());
        self.runs = of;
    }

    #[inline]
    fn of(&mut self, label: Label) -> &mut u64 {
        let place = label as usize;
        if place >= self.ns.len() {
            self.ns.resize(place + 1, 0);
        }
        &mut self.ns[place]
    }

    fn remove(&mut self, label: Label) {
        // most often it is the first
        if let Some(place) = self.labels.iter().position(|other| other.1 == label) {
            self.labels.remove(place);
        }
    }
}
