//! The delay history: every nanosecond in which work was held up, end to end, with its label.
//!
//! Time in which work went on, and time without work, is not in it. A CPU has a history; that
//! of a worker is its CPU's while the worker is on that CPU or waits for it, with pieces of its
//! own in between (asleep in the middle of a request). So the delays of any request are the
//! stretch between two positions in its worker's history.

use std::collections::VecDeque;

use super::label::Label;

/// A history is cut at its old end when it has more runs than this: nobody inherits from that
/// long ago except in an overload without end.
const MAX_RUNS: usize = 1 << 20;

/// A place in a history.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    /// Nanoseconds of delay before it.
    pub(super) delay_ns: u64,
    /// Nanoseconds of receive softirqs within ρ before it, which are no delays.
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

#[derive(Clone, Copy, Debug)]
struct Run {
    /// The delay at which it ends.
    end: u64,
    label: Label,
}

/// The delay history of a CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuHistory {
    runs: VecDeque<Run>,
    /// Where the first run begins.
    begin: u64,
    end: Position,
}

impl CpuHistory {
    /// Where it ends now.
    pub(super) const fn end(&self) -> Position {
        self.end
    }

    pub(super) fn push(&mut self, label: Label, length_ns: u64) {
        if length_ns == 0 {
            return;
        }
        self.end.delay_ns += length_ns;
        let end = self.end.delay_ns;
        match self.runs.back_mut() {
            Some(last) if last.label == label => last.end = end,
            _ => self.runs.push_back(Run { end, label }),
        }
        if self.runs.len() > MAX_RUNS {
            let cut = self.runs.drain(..MAX_RUNS / 2).next_back();
            self.begin = cut.map_or(self.begin, |run| run.end);
        }
    }

    /// Counts a receive softirq within ρ.
    pub(super) const fn received(&mut self, length_ns: u64) {
        self.end.received_ns += length_ns;
    }

    /// Nobody will ask for anything before its end.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.begin = self.end.delay_ns;
    }

    /// Gives the labelled lengths between two delays to `visit`, as far as they are kept;
    /// returns how much that was.
    pub(super) fn visit(&self, from: u64, to: u64, mut visit: impl FnMut(Label, u64)) -> u64 {
        let (from, to) = (from.max(self.begin), to.min(self.end.delay_ns));
        let mut at = from;
        let mut place = self.runs.partition_point(|run| run.end <= from);
        while at < to
            && let Some(run) = self.runs.get(place)
        {
            let end = run.end.min(to);
            visit(run.label, end - at);
            at = end;
            place += 1;
        }
        at.saturating_sub(from)
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

/// The delay history of a worker, while it has requests.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerHistory {
    /// The CPU whose history is the worker's now, and the position at which it became so.
    attached: Option<(usize, Position)>,
    /// Its position, without what the CPU it is attached to has added.
    base: Position,
    /// Each with the delay at which it begins.
    pieces: VecDeque<(u64, Origin)>,
}

impl WorkerHistory {
    /// The CPU that the worker is on or waits for.
    pub(super) fn attached(&self) -> Option<usize> {
        self.attached.map(|(k, _)| k)
    }

    /// Where it ends now.
    pub(super) fn end(&self, cpus: &[CpuHistory]) -> Position {
        match self.attached {
            Some((k, since)) => self.base.plus(cpus[k].end.since(since)),
            None => self.base,
        }
    }

    pub(super) fn attach(&mut self, k: usize, cpus: &[CpuHistory]) {
        self.detach(cpus);
        let now = cpus[k].end;
        self.attached = Some((k, now));
        self.begin(Origin::Cpu(k, now.delay_ns));
    }

    pub(super) fn detach(&mut self, cpus: &[CpuHistory]) {
        self.base = self.end(cpus);
        self.attached = None;
    }

    /// From its present end on, it comes from `source`.
    fn begin(&mut self, source: Origin) {
        let at = self.base.delay_ns;
        match self.pieces.back_mut() {
            Some(last) if last.0 == at => last.1 = source,
            _ => self.pieces.push_back((at, source)),
        }
    }

    /// The worker, which is not attached, was held up by its own `label`.
    pub(super) fn held_up(&mut self, label: Label, ns: u64) {
        let same = matches!(self.pieces.back(), Some((_, Origin::Own(l))) if *l == label);
        if !same {
            self.begin(Origin::Own(label));
        }
        self.base.delay_ns += ns;
    }

    /// Nobody will ask for what lies before its present end.
    pub(super) fn clear(&mut self, cpus: &[CpuHistory]) {
        self.pieces.clear();
        if let Some((k, _)) = self.attached {
            self.attach(k, cpus);
        }
    }

    /// Gives the labelled delays between two of its positions to `visit`, and whether the worker
    /// itself was off its CPU; returns how much that was.
    pub(super) fn visit(
        &self,
        cpus: &[CpuHistory],
        from: u64,
        to: u64,
        visit: &mut impl FnMut(Label, u64, bool),
    ) -> u64 {
        let mut given = 0;
        let first = self.pieces.partition_point(|piece| piece.0 <= from);
        for place in first.saturating_sub(1)..self.pieces.len() {
            let (begin, source) = self.pieces[place];
            if begin >= to {
                break;
            }
            let end = self.pieces.get(place + 1).map_or(u64::MAX, |next| next.0);
            let (lo, hi) = (begin.max(from), end.min(to));
            if lo >= hi {
                continue;
            }
            given += match source {
                Origin::Own(label) => {
                    visit(label, hi - lo, true);
                    hi - lo
                }
                Origin::Cpu(k, at) => {
                    let (lo, hi) = (at + (lo - begin), at + (hi - begin));
                    cpus[k].visit(lo, hi, |label, ns| visit(label, ns, false))
                }
            };
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_cut_is_not_given() {
        let mut history = CpuHistory::default();
        history.push(1, 10);
        history.clear();
        history.push(2, 5);
        let mut seen = Vec::new();
        assert_eq!(history.visit(3, 14, |label, ns| seen.push((label, ns))), 4);
        assert_eq!(seen, [(2, 4)]);
    }

    proptest! {
        #[test]
        fn a_stretch_is_what_was_pushed_there(
            pushes in prop::collection::vec((0_u32..3, 0_u64..20), 0..60),
            a in 0_u64..700,
            b in 0_u64..700,
        ) {
            let mut history = CpuHistory::default();
            let mut plain = Vec::new();
            for &(label, ns) in &pushes {
                history.push(label, ns);
                plain.extend(std::iter::repeat_n(label, ns as usize));
            }
            prop_assert_eq!(history.end().delay_ns, plain.len() as u64);
            let mut seen = Vec::new();
            let given = history.visit(a, b, |label, ns| {
                seen.extend(std::iter::repeat_n(label, ns as usize));
            });
            let to = (b as usize).min(plain.len());
            let expected = &plain[(a as usize).min(to)..to];
            prop_assert_eq!(given, expected.len() as u64);
            prop_assert_eq!(&seen[..], expected);
        }
    }
}
