//! The delay tape: every nanosecond in which work was held up, end to end, with its label.
//!
//! A CPU has one tape, and the tape of a worker is the CPU's while the worker is on it or
//! waits for it, with pieces of its own in between (asleep in the middle of a request).
//! Time in which work went on, and time without work, is not on the tape. So the delays
//! of any request are the stretch of tape between two positions.

use std::collections::VecDeque;

use super::label::Label;

/// A tape is cut at its old end when it has more runs than this: nobody inherits from so
/// long ago but in an overload without end.
const MAX_RUNS: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Run {
    /// The position at which it ends.
    end: u64,
    label: Label,
}

/// A tape of labelled delays; positions count nanoseconds of delay.
#[derive(Clone, Debug, Default)]
pub(super) struct Tape {
    runs: VecDeque<Run>,
    /// Where the first run begins.
    begin: u64,
    end: u64,
}

impl Tape {
    /// The position at its end.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn push(&mut self, label: Label, length_ns: u64) {
        if length_ns == 0 {
            return;
        }
        self.end += length_ns;
        match self.runs.back_mut() {
            Some(last) if last.label == label => last.end = self.end,
            _ => self.runs.push_back(Run {
                end: self.end,
                label,
            }),
        }
        if self.runs.len() > MAX_RUNS {
            let cut = self.runs.drain(..MAX_RUNS / 2).next_back();
            self.begin = cut.map_or(self.begin, |run| run.end);
        }
    }

    /// Nobody will ask for anything before its end.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.begin = self.end;
    }

    /// Gives the labelled lengths between two positions to `visit`, as far as they are kept;
    /// how much was given.
    pub(super) fn visit(&self, from: u64, to: u64, mut visit: impl FnMut(Label, u64)) -> u64 {
        let (from, to) = (from.max(self.begin), to.min(self.end));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_cut_is_not_given() {
        let mut tape = Tape::default();
        tape.push(1, 10);
        tape.clear();
        tape.push(2, 5);
        let mut seen = Vec::new();
        assert_eq!(tape.visit(3, 14, |label, ns| seen.push((label, ns))), 4);
        assert_eq!(seen, [(2, 4)]);
    }

    proptest! {
        #[test]
        fn a_stretch_is_what_was_pushed_there(
            pushes in prop::collection::vec((0_u32..3, 0_u64..20), 0..60),
            a in 0_u64..700,
            b in 0_u64..700,
        ) {
            let mut tape = Tape::default();
            let mut plain = Vec::new();
            for &(label, ns) in &pushes {
                tape.push(label, ns);
                plain.extend(std::iter::repeat_n(label, ns as usize));
            }
            prop_assert_eq!(tape.end(), plain.len() as u64);
            let mut seen = Vec::new();
            let given = tape.visit(a, b, |label, ns| {
                seen.extend(std::iter::repeat_n(label, ns as usize));
            });
            let to = (b as usize).min(plain.len());
            let expected = &plain[(a as usize).min(to)..to];
            prop_assert_eq!(given, expected.len() as u64);
            prop_assert_eq!(&seen[..], expected);
        }
    }
}
