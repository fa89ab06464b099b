//! The delay history: all time in which work was held up, end to end, with labels.
//!
//! Time in which work proceeds, and time without work, is left out. Each CPU has a history. A worker shares
//! the history of its CPU while it runs there or waits for it; in between, it adds its own pieces (sleeps
//! during a request). So the delays of a request are the stretch between two positions in its worker's
//! history. Summing them by label takes time logarithmic in the length of the stretch ([`Runs`]).

mod runs;
mod stretch;
mod summed;

use std::collections::VecDeque;
use std::ops::Range;

use super::label::Label;
use crate::id_map::grow_to;
use runs::Runs;
use stretch::Stretch;

/// The largest number of pieces in a worker's history; beyond it, the older half is dropped.
const MAX_PIECES: usize = 1 << 20;

/// A place in a history.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    /// Nanoseconds of delay before it.
    pub(super) delay_ns: u64,
    /// Nanoseconds of receive softirqs within ρ before it, which are not delays.
    pub(super) received_ns: u64,
}

impl Position {
    fn plus(self, more: Self) -> Self {
        Self {
            delay_ns: self.delay_ns + more.delay_ns,
            received_ns: self.received_ns + more.received_ns,
        }
    }

    /// What lies between `earlier` and here.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            delay_ns: self.delay_ns - earlier.delay_ns,
            received_ns: self.received_ns - earlier.received_ns,
        }
    }
}

/// The delay history of a CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuHistory {
    delays: Runs,
    received_ns: u64,
}

impl CpuHistory {
    /// Where it ends now.
    pub(super) const fn end(&self) -> Position {
        Position {
            delay_ns: self.delays.end(),
            received_ns: self.received_ns,
        }
    }

    pub(super) fn push(&mut self, label: Label, length_ns: u64) {
        self.delays.push(label, length_ns);
    }

    /// Counts a receive softirq within ρ.
    pub(super) const fn received(&mut self, length_ns: u64) {
        self.received_ns += length_ns;
    }

    /// Drops everything before its end.
    pub(super) fn clear(&mut self) {
        self.delays.clear();
    }

    /// How much of what lies between two positions is kept.
    pub(super) fn kept_ns(&self, from: u64, to: u64) -> u64 {
        let (from, to) = self.delays.kept(from, to);
        to - from
    }

    /// Calls `visit` for each delay between two positions that is still kept; returns their sum.
    pub(super) fn visit(&self, from: u64, to: u64, visit: impl FnMut(Label, u64)) -> u64 {
        self.delays.visit(from, to, visit)
    }

    /// Like [`Self::visit`], but delays with the same label may be joined, at the place of the first.
    /// `stretch` caches the stretch of the previous call.
    pub(super) fn sum(
        &self,
        from: u64,
        to: u64,
        stretch: &mut Stretch,
        add: impl FnMut(Label, u64),
    ) -> u64 {
        stretch.sum(&self.delays, from, to, add)
    }
}

/// The stretches of the histories that were asked for last.
#[derive(Debug, Default)]
pub(super) struct Stretches {
    of_cpus: Vec<Stretch>,
    of_workers: Vec<Stretch>,
}

impl Stretches {
    pub(super) fn of_cpu(&mut self, k: usize) -> &mut Stretch {
        grow_to(&mut self.of_cpus, k)
    }

    fn of_worker(&mut self, w: usize) -> &mut Stretch {
        grow_to(&mut self.of_workers, w)
    }
}

/// Where a piece of a worker's history comes from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// The worker itself was off its CPU, for this reason.
    Own(Label),
    /// The history of a CPU (its index), from this delay on.
    Cpu(usize, u64),
}

#[derive(Clone, Copy, Debug)]
struct HistoryPiece {
    /// The delay at which it begins.
    begin: u64,
    origin: Origin,
}

/// In the runs of a worker's ended pieces: a delay whose label is no longer known. All labels come after it.
const FORGOTTEN: Label = 0;

/// Gives the delays of ended pieces to `give`, except for those that are forgotten, which it adds up.
fn known(forgotten: &mut u64, give: &mut impl FnMut(Label, u64)) -> impl FnMut(Label, u64) {
    |label, ns| match label {
        FORGOTTEN => *forgotten += ns,
        label => give(label - 1, ns),
    }
}

/// The delay history of a worker, while it has requests.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerHistory {
    /// The CPU whose history the worker shares now, and the position in it at which that began.
    attached: Option<(usize, Position)>,
    /// Its position, without what the CPU has added since the worker was attached to it.
    base: Position,
    /// In order of time; only the last one may still grow.
    pieces: VecDeque<HistoryPiece>,
    /// The delays of all pieces before the last.
    ended: Runs,
}

impl WorkerHistory {
    /// The CPU that the worker is on or waits for.
    pub(super) fn attached(&self) -> Option<usize> {
        self.attached.map(|(k, _)| k)
    }

    /// Where it ends now.
    pub(super) fn end(&self, cpus: &[CpuHistory]) -> Position {
        match self.attached {
            Some((k, since)) => self.base.plus(cpus[k].end().since(since)),
            None => self.base,
        }
    }

    pub(super) fn attach(&mut self, k: usize, cpus: &[CpuHistory]) {
        self.detach(cpus);
        let now = cpus[k].end();
        self.attached = Some((k, now));
        self.begin(Origin::Cpu(k, now.delay_ns), cpus);
    }

    pub(super) fn detach(&mut self, cpus: &[CpuHistory]) {
        self.base = self.end(cpus);
        self.attached = None;
    }

    /// Begins a piece at its present end, which comes from `origin`.
    fn begin(&mut self, origin: Origin, cpus: &[CpuHistory]) {
        let begin = self.base.delay_ns;
        match self.pieces.back_mut() {
            Some(last) if last.begin == begin => last.origin = origin,
            Some(&mut last) => {
                self.end_piece(last, begin, cpus);
                self.pieces.push_back(HistoryPiece { begin, origin });
            }
            None => {
                self.ended.begin_at(begin);
                self.pieces.push_back(HistoryPiece { begin, origin });
            }
        }
        if self.pieces.len() > MAX_PIECES {
            self.pieces.drain(..MAX_PIECES / 2);
        }
    }

    /// Ends a piece, which does not grow any more.
    fn end_piece(&mut self, piece: HistoryPiece, end: u64, cpus: &[CpuHistory]) {
        let HistoryPiece { begin, origin } = piece;
        match origin {
            Origin::Own(label) => self.ended.push(label + 1, end - begin),
            Origin::Cpu(k, at) => {
                let (ended, to) = (&mut self.ended, at + (end - begin));
                // only the oldest delays have been dropped
                let forgotten = end - begin - cpus[k].kept_ns(at, to);
                ended.push(FORGOTTEN, forgotten);
                cpus[k].sum(at, to, &mut Stretch::default(), |label, ns| {
                    ended.push(label + 1, ns);
                });
            }
        }
    }

    /// Adds a delay of the worker itself, which must not be attached to a CPU.
    pub(super) fn held_up(&mut self, label: Label, ns: u64, cpus: &[CpuHistory]) {
        let last = self.pieces.back().map(|piece| piece.origin);
        if !matches!(last, Some(Origin::Own(l)) if l == label) {
            self.begin(Origin::Own(label), cpus);
        }
        self.base.delay_ns += ns;
    }

    /// Drops everything before its present end.
    pub(super) fn clear(&mut self, cpus: &[CpuHistory]) {
        self.pieces.clear();
        if let Some((k, _)) = self.attached {
            self.attach(k, cpus);
        }
    }

    /// Drops everything before its present end. It must not be read again before it is cleared or
    /// attached.
    pub(super) fn forget(&mut self) {
        self.pieces.clear();
    }

    /// Calls `visit` for each delay between two of its positions; returns their sum.
    pub(super) fn visit(
        &self,
        cpus: &[CpuHistory],
        from: u64,
        to: u64,
        visit: &mut impl FnMut(Label, u64),
    ) -> u64 {
        let mut given = 0;
        for place in self.piece_at(from)..self.pieces.len() {
            let HistoryPiece { begin, origin } = self.pieces[place];
            if begin >= to {
                break;
            }
            let (lo, hi) = (begin.max(from), self.end_of(place).min(to));
            if lo >= hi {
                continue;
            }
            given += match origin {
                Origin::Own(label) => {
                    visit(label, hi - lo);
                    hi - lo
                }
                _ if self.is_only_ended(place, cpus, lo..hi) => {
                    let mut forgotten = 0;
                    let all = (self.ended).visit(lo, hi, known(&mut forgotten, visit));
                    all - forgotten
                }
                Origin::Cpu(k, at) => {
                    let (lo, hi) = (at + (lo - begin), at + (hi - begin));
                    cpus[k].visit(lo, hi, &mut *visit)
                }
            };
        }
        given
    }

    /// Whether the CPU of a piece before the last has dropped some of this stretch: the worker has moved, and
    /// the CPU had nothing more to do for the server. The sums of the ended pieces still have it.
    fn is_only_ended(&self, place: usize, cpus: &[CpuHistory], positions: Range<u64>) -> bool {
        let (from, to) = (positions.start, positions.end);
        let HistoryPiece { begin, origin } = self.pieces[place];
        let Origin::Cpu(k, at) = origin else {
            return false;
        };
        let (from, to) = (at + (from - begin), at + (to - begin));
        place + 1 < self.pieces.len() && cpus[k].kept_ns(from, to) < to - from
    }

    /// Like [`Self::visit`], but delays with the same label may be joined, at the place of the first. `w` is
    /// the worker's index; `stretches` caches the stretches of previous calls.
    pub(super) fn sum(
        &self,
        w: usize,
        cpus: &[CpuHistory],
        positions: Range<u64>,
        stretches: &mut Stretches,
        add: &mut impl FnMut(Label, u64),
    ) -> u64 {
        let (from, to) = (positions.start, positions.end);
        if from >= to || self.pieces.is_empty() {
            return 0;
        }
        let first = self.piece_at(from);
        let after = match self.pieces.back() {
            Some(last) if last.begin < to => self.pieces.len(),
            _ => self.pieces.partition_point(|piece| piece.begin < to),
        };
        let Some(last) = after.checked_sub(1) else {
            return 0;
        };
        let mut given = self.sum_of_piece(w, first, cpus, from..to, stretches, add);
        if last > first {
            let (from, upto) = (self.pieces[first + 1].begin, self.pieces[last].begin);
            given += self.sum_of_ended(from..upto, stretches.of_worker(w), add);
            given += self.sum_of_piece(w, last, cpus, upto..to, stretches, add);
        }
        given
    }

    /// Of pieces before the last.
    fn sum_of_ended(
        &self,
        positions: Range<u64>,
        stretch: &mut Stretch,
        add: &mut impl FnMut(Label, u64),
    ) -> u64 {
        let mut forgotten = 0;
        let Range { start, end } = positions;
        let all = stretch.sum(&self.ended, start, end, known(&mut forgotten, add));
        all - forgotten
    }

    fn sum_of_piece(
        &self,
        w: usize,
        place: usize,
        cpus: &[CpuHistory],
        positions: Range<u64>,
        stretches: &mut Stretches,
        add: &mut impl FnMut(Label, u64),
    ) -> u64 {
        let HistoryPiece { begin, origin } = self.pieces[place];
        let from = positions.start.max(begin);
        let to = positions.end.min(self.end_of(place));
        if from >= to {
            return 0;
        }
        match origin {
            Origin::Own(label) => {
                add(label, to - from);
                to - from
            }
            _ if self.is_only_ended(place, cpus, from..to) => {
                self.sum_of_ended(from..to, stretches.of_worker(w), add)
            }
            Origin::Cpu(k, at) => {
                let (from, to) = (at + (from - begin), at + (to - begin));
                let stretch = stretches.of_cpu(k);
                cpus[k].sum(from, to, stretch, add)
            }
        }
    }

    /// The place of the piece in which `at` lies, or of the first one if that begins later.
    fn piece_at(&self, at: u64) -> usize {
        if self.pieces.len() <= 1 {
            return 0;
        }
        let behind = self.pieces.partition_point(|piece| piece.begin <= at);
        behind.saturating_sub(1)
    }

    /// Where a piece ends; the last one has no end yet.
    fn end_of(&self, place: usize) -> u64 {
        let next = self.pieces.get(place + 1);
        next.map_or(u64::MAX, |next| next.begin)
    }
}

#[cfg(test)]
mod tests;
