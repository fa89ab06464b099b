//! Sums by label over a stretch of runs. The stretch slides along with the requests, so its sums usually
//! differ little from those of the previous request.

use std::ops::Range;

use super::runs::Runs;
use crate::id_map::grow_to;
use crate::ledger::label::Label;

/// Up to this many runs are added one by one.
const FEW: usize = 8;

/// A stretch whose two ends together move by more runs than this is summed from scratch.
const FAR: usize = 64;

/// The sums of one stretch; see the module. If requests are answered in the order of arrival, the stretch
/// of each begins and ends a little later than that of the one before.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Stretch {
    /// The generation of the runs, and which of the runs are summed.
    generation: Option<u64>,
    runs: Range<usize>,
    /// The lengths by label; and the labels that are there with their first runs, in the order of these
    /// runs.
    ns: Vec<u64>,
    labels: Vec<(usize, Label)>,
}

impl Stretch {
    /// Calls `add` with the sums of those `runs` between two positions that are still kept. A label may
    /// come several times; labels come in the order of their first runs. Returns the total length. `self`
    /// must be new, or have been used last for the same `runs`.
    pub(super) fn sum(
        &mut self,
        runs: &Runs,
        from: u64,
        to: u64,
        mut add: impl FnMut(Label, u64),
    ) -> u64 {
        let (from, to) = runs.kept(from, to);
        if from == to {
            return 0;
        }
        let guess = self.runs.start.saturating_sub(1)..self.runs.end;
        let (first, last) = runs.places(from, to, &guess);
        let mut run = |place: usize| {
            let (label, begin, end) = runs.span(place);
            add(label, end.min(to) - begin.max(from));
        };
        run(first);
        if last - first <= FEW {
            (first + 1..last).for_each(&mut run);
        } else {
            self.move_to(runs, first + 1..last);
            self.sums().for_each(|(label, ns)| add(label, ns));
        }
        if last > first {
            let (label, begin, end) = runs.span(last);
            add(label, end.min(to) - begin);
        }
        to - from
    }

    /// The sums, in the order in which labels first come.
    fn sums(&self) -> impl Iterator<Item = (Label, u64)> {
        let labels = self.labels.iter();
        labels.map(|&(_, label)| (label, self.ns[label as usize]))
    }

    /// Moves to these runs, of which there is at least one, and updates the sums.
    fn move_to(&mut self, runs: &Runs, to: Range<usize>) {
        let begin = self.runs.start.abs_diff(to.start);
        let is_near = begin + self.runs.end.abs_diff(to.end) <= FAR;
        let overlaps = self.runs.start < to.end && to.start < self.runs.end;
        if self.generation != Some(runs.generation()) || !is_near || !overlaps {
            return self.begin(runs, to);
        }
        // it grows before it shrinks, so that it is never empty
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
        grow_to(&mut self.ns, label as usize)
    }

    fn remove(&mut self, label: Label) {
        // usually it is the first
        if let Some(place) = self.labels.iter().position(|other| other.1 == label) {
            self.labels.remove(place);
        }
    }
}
