//! Labelled lengths end to end, and their sums by label between any two positions.
//!
//! A request that waits behind sixteen thousand others has all their delays in its account, and so has the
//! next one. Walking them for each request would cost time in proportion to the queue. So runs are summed
//! in blocks of [`FAN_OUT`], these in larger blocks of [`FAN_OUT`], and so on. The sums between two
//! positions then take only a few blocks of each size.

use std::collections::VecDeque;
use std::ops::Range;

use super::summed::{RunSums, Sum};
use crate::id_map::IdMap;
use crate::ledger::label::Label;

/// Runs in a block, and blocks in the next larger one.
const FAN_OUT: usize = 8;

/// The largest number of runs; beyond it, the older half is dropped. Delays that old are inherited only
/// in an endless overload.
const MAX_RUNS: usize = 1 << 20;

/// A search first looks at this many runs one by one: the last ones, or those around a guess.
const NEAR: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Run {
    /// The position at which it ends.
    end: u64,
    label: Label,
    /// The distance, in runs, to the next one with the same label; 0 while there is none.
    next: u32,
}

/// The blocks of one size: the sums in each, in the order in which labels first come.
#[derive(Clone, Debug, Default)]
struct Blocks {
    /// Where the sums of each block end.
    ends: Vec<usize>,
    /// `first` counts from the block's first run.
    sums: Vec<Sum>,
}

impl Blocks {
    fn sums(&self, block: usize) -> &[Sum] {
        let begin = block.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.sums[begin..self.ends[block]]
    }

    fn push(&mut self, sums: &[Sum]) {
        self.sums.extend_from_slice(sums);
        self.ends.push(self.sums.len());
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.sums.clear();
    }
}

/// The last run of each label, and the generation in which that is its place. The first labels are in a list. With a
/// place there for each of thousands, the histories of as many workers would fill the memory.
#[derive(Clone, Debug, Default)]
struct LastRuns {
    first: Vec<(u64, usize)>,
    others: IdMap<(u64, usize)>,
}

impl LastRuns {
    /// So many labels are in the list.
    const FIRST: Label = 128;
    /// There is none.
    const NONE: (u64, usize) = (u64::MAX, 0);

    #[inline]
    fn of(&mut self, label: Label) -> &mut (u64, usize) {
        if label >= Self::FIRST {
            return self.others.entry(label).or_insert(Self::NONE);
        }
        let place = label as usize;
        if place >= self.first.len() {
            self.first.resize(place + 1, Self::NONE);
        }
        &mut self.first[place]
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut (u64, usize)> {
        self.first.iter_mut().chain(self.others.values_mut())
    }
}

/// Labelled lengths end to end, and their sums in blocks; see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    runs: VecDeque<Run>,
    /// Where the first run begins, and where the last one ends.
    begin: u64,
    end: u64,
    /// Changes whenever the places of the runs change.
    generation: u64,
    /// The last run of each label, and the generation in which that is its place.
    last: LastRuns,
    /// Whole blocks, the smallest first. The last run is in none of them, since it may still grow.
    blocks: Vec<Blocks>,
    /// Memory in which a block is summed.
    block: RunSums,
}

impl Runs {
    /// Where the last run ends.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Appends a length.
    #[inline]
    pub(super) fn push(&mut self, label: Label, length: u64) {
        if length == 0 {
            return;
        }
        self.end += length;
        match self.runs.back_mut() {
            Some(last) if last.label == label => last.end = self.end,
            _ => self.push_run(label),
        }
    }

    fn push_run(&mut self, label: Label) {
        let runs = self.runs.len();
        if runs.is_multiple_of(FAN_OUT) && runs > 0 {
            self.end_block();
        }
        let place = self.runs.len();
        let (generation, before) = self.last.of(label);
        if *generation == self.generation {
            self.runs[*before].next = (place - *before) as u32;
        }
        (*generation, *before) = (self.generation, place);
        let end = self.end;
        self.runs.push_back(Run {
            end,
            label,
            next: 0,
        });
    }

    /// Forgets all runs; the next one begins at `begin`.
    pub(super) fn begin_at(&mut self, begin: u64) {
        self.end = begin;
        self.clear();
    }

    /// Forgets all runs.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.runs.len() > FAN_OUT {
            self.blocks.iter_mut().for_each(Blocks::clear);
        }
        self.runs.clear();
        self.begin = self.end;
        self.generation += 1;
    }

    /// Sums the last runs, which are now a whole block.
    fn end_block(&mut self) {
        if self.runs.len() >= MAX_RUNS {
            return self.forget_half();
        }
        self.sum_block(self.runs.len() / FAN_OUT - 1);
    }

    /// Sums this block of runs, and the larger ones that end with it.
    fn sum_block(&mut self, mut number: usize) {
        let mut smaller_runs = 1;
        for size in 0.. {
            if self.blocks.len() == size {
                self.blocks.push(Blocks::default());
            }
            self.block.clear();
            for within in 0..FAN_OUT {
                let (place, first) = (number * FAN_OUT + within, within * smaller_runs);
                match size.checked_sub(1) {
                    None => {
                        let (label, length) = self.run(place);
                        self.block.add(label, length, first);
                    }
                    Some(smaller) => {
                        for sum in self.blocks[smaller].sums(place) {
                            self.block.add(sum.label, sum.ns, first + sum.first());
                        }
                    }
                }
            }
            self.blocks[size].push(self.block.sums());
            if !(number + 1).is_multiple_of(FAN_OUT) {
                return;
            }
            number /= FAN_OUT;
            smaller_runs *= FAN_OUT;
        }
    }

    fn forget_half(&mut self) {
        let forgotten = self.runs.len() / 2;
        let last = self.runs.drain(..forgotten).next_back();
        self.begin = last.map_or(self.begin, |run| run.end);
        self.blocks.iter_mut().for_each(Blocks::clear);
        for number in 0..self.runs.len() / FAN_OUT {
            self.sum_block(number);
        }
        let before = self.generation;
        self.generation += 1;
        for (generation, place) in self.last.iter_mut() {
            if *generation == before && *place >= forgotten {
                (*generation, *place) = (self.generation, *place - forgotten);
            }
        }
    }

    /// Where a run begins.
    fn begin_of(&self, place: usize) -> u64 {
        place
            .checked_sub(1)
            .map_or(self.begin, |before| self.runs[before].end)
    }

    /// The label of a run, and where it begins and ends.
    pub(super) fn span(&self, place: usize) -> (Label, u64, u64) {
        let run = self.runs[place];
        (run.label, self.begin_of(place), run.end)
    }

    /// The label of a run and its length.
    pub(super) fn run(&self, place: usize) -> (Label, u64) {
        let (label, begin, end) = self.span(place);
        (label, end - begin)
    }

    /// The place of the next run with the label of this one, which must exist.
    pub(super) fn next_of_label(&self, place: usize) -> usize {
        place + self.runs[place].next as usize
    }

    /// The part of a stretch that is still kept.
    pub(super) fn kept(&self, from: u64, to: u64) -> (u64, u64) {
        let from = from.max(self.begin);
        (from, to.min(self.end).max(from))
    }

    /// Calls `visit` for each run between two positions that is still kept; returns their total length.
    pub(super) fn visit(&self, from: u64, to: u64, mut visit: impl FnMut(Label, u64)) -> u64 {
        let (from, to) = self.kept(from, to);
        let mut at = from;
        let first = self.runs.partition_point(|run| run.end <= from);
        for run in self.runs.range(first..) {
            if at >= to {
                break;
            }
            let end = run.end.min(to);
            visit(run.label, end - at);
            at = end;
        }
        to - from
    }

    /// The places of the runs in which a stretch begins and ends. The whole stretch must still be stored;
    /// `guess` is where these places probably are.
    pub(super) fn places(&self, from: u64, to: u64, guess: &Range<usize>) -> (usize, usize) {
        let first = self.first_behind(guess.start, |end| end <= from);
        let last = match to == self.end {
            true => self.runs.len() - 1,
            false => self.first_behind(guess.end, |end| end < to),
        };
        (first, last)
    }

    /// The place of the first run for whose end `is_before` is false. Without a queue it is one of the
    /// last.
    #[inline]
    fn first_behind(&self, guess: usize, is_before: impl Fn(u64) -> bool) -> usize {
        let before = |place: usize| is_before(self.runs[place].end);
        let mut place = self.runs.len();
        let near = place.saturating_sub(NEAR);
        if near == 0 || before(near) {
            while place > near && !before(place - 1) {
                place -= 1;
            }
            return place;
        }
        place = guess.min(near);
        for _ in 0..NEAR {
            match before(place) {
                true => place += 1,
                false if place == 0 || before(place - 1) => return place,
                false => place -= 1,
            }
        }
        self.runs.partition_point(|run| is_before(run.end))
    }

    /// Calls `add` with the sums of the largest block that begins with the run at `first` and ends before
    /// the one at `last`; returns the number of runs in it.
    pub(super) fn block_from(
        &self,
        first: usize,
        last: usize,
        mut add: impl FnMut(Label, u64, usize),
    ) -> usize {
        let (mut runs, mut found) = (1, None);
        for blocks in &self.blocks {
            let larger = runs * FAN_OUT;
            if !first.is_multiple_of(larger) || first + larger > last {
                break;
            }
            runs = larger;
            found = Some(blocks);
        }
        match found {
            Some(blocks) => {
                for sum in blocks.sums(first / runs) {
                    add(sum.label, sum.ns, first + sum.first());
                }
            }
            None => {
                let (label, length) = self.run(first);
                add(label, length, first);
            }
        }
        runs
    }
}
