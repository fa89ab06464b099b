//! Collects gaps and events, and charges the gaps in order of time.

use std::collections::{BTreeMap, VecDeque};

use taillab_model::{Event, Histogram, Monotonic, Nanos, Tid};

use super::cause::GapCause;
use super::gap::{Gap, IpiSent};
use super::pieces::{Pieces, Sends};
use super::summary::CpuSum;
use crate::spans::earlier;

/// The probe's clock and the counter differ by at most this.
const SLACK: Nanos = Nanos::new(250);

/// A rest of up to this many times the median is charged to the recorded cause.
const WAY: u64 = 4;
/// A rest of up to this length is always charged to it.
const LEAST_WAY: Nanos = Nanos::from_micros(1);
/// The length of the way is known after this many gaps.
const LEARNT: u64 = 20;

/// Options of the analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapOptions {
    /// This kernel runs in a virtual machine.
    pub virtual_machine: bool,
    /// Width of a window of the account over time.
    pub window: Nanos,
}

/// Gaps of several loops at once, and their causes so far.
#[derive(Debug)]
pub struct GapAnalysis {
    options: GapOptions,
    began: Monotonic,
    cpus: BTreeMap<u16, Cpu>,
}

/// One CPU with its loop.
#[derive(Debug)]
struct Cpu {
    tid: Tid,
    events: VecDeque<Event>,
    gaps: VecDeque<Gap>,
    sends: Sends,
    /// The rests of the gaps, by the kind of the cause with the largest part.
    rests: BTreeMap<u8, Rests>,
    sum: CpuSum,
}

impl GapAnalysis {
    /// An analysis of these loops, each given as its CPU and its thread; windows are counted from `began`.
    pub fn new(
        options: GapOptions,
        began: Monotonic,
        loops: impl IntoIterator<Item = (u16, Tid)>,
    ) -> Self {
        let mut analysis = Self {
            options,
            began,
            cpus: BTreeMap::new(),
        };
        for (cpu, tid) in loops {
            analysis.add_loop(cpu, tid);
        }
        analysis
    }

    /// Adds a loop; what its CPU did before is unknown.
    pub fn add_loop(&mut self, cpu: u16, tid: Tid) {
        let state = Cpu {
            tid,
            events: VecDeque::new(),
            gaps: VecDeque::new(),
            sends: Sends::default(),
            rests: BTreeMap::new(),
            sum: CpuSum::new(self.options.window),
        };
        self.cpus.insert(cpu, state);
    }

    /// Takes an event; those of one CPU come in order of time.
    pub fn event(&mut self, event: Event) {
        if let Some(cpu) = self.cpus.get_mut(&event.cpu) {
            cpu.events.push_back(event);
        }
    }

    /// Takes a gap; those of one CPU come in order of time.
    pub fn gap(&mut self, gap: Gap) {
        if let Some(cpu) = self.cpus.get_mut(&gap.cpu) {
            cpu.gaps.push_back(gap);
        }
    }

    /// Takes an interrupt that one CPU sent to another; in order of time for each target.
    pub fn ipi(&mut self, sent: IpiSent) {
        if let Some(cpu) = self.cpus.get_mut(&sent.to) {
            cpu.sends.push(sent);
        }
    }

    /// Handles everything before `before`. All gaps, events and interrupts until then must have been added.
    pub fn settle(&mut self, before: Monotonic) {
        for cpu in self.cpus.values_mut() {
            while let Some(gap) = cpu.gaps.front().copied()
                && gap.to + SLACK < before
            {
                cpu.gaps.pop_front();
                cpu.explain(gap, &self.options, self.began);
            }
            let next = cpu.gaps.front().map_or(before, |gap| gap.from.min(before));
            cpu.skip_to(earlier(next, SLACK));
        }
    }

    /// Handles what is left, and returns the account of each CPU.
    pub fn finish(mut self) -> BTreeMap<u16, CpuSum> {
        self.settle(Monotonic::MAX);
        let cpus = self.cpus.into_iter();
        cpus.map(|(number, cpu)| (number, cpu.sum)).collect()
    }
}

impl Cpu {
    /// Drops the events before this instant.
    fn skip_to(&mut self, at: Monotonic) {
        while self.events.front().is_some_and(|event| event.at < at) {
            self.events.pop_front();
        }
    }

    fn explain(&mut self, gap: Gap, options: &GapOptions, began: Monotonic) {
        self.skip_to(earlier(gap.from, SLACK));
        let inside = (self.events.iter())
            .take_while(|event| event.at <= gap.to + SLACK)
            .count();
        let events: Vec<Event> = self.events.drain(..inside).collect();
        let mut pieces = Pieces::new(gap, self.tid);
        for event in &events {
            pieces.take(event, &self.sends);
        }
        let (mut parts, rest) = pieces.finish();
        self.share_rest(&mut parts, rest, options);
        self.sum.add(gap, &parts, began);
    }

    /// Gives the rest of a gap to its causes.
    fn share_rest(
        &mut self,
        parts: &mut BTreeMap<GapCause, Nanos>,
        rest: Nanos,
        options: &GapOptions,
    ) {
        let most = parts.iter().max_by_key(|(_, part)| **part);
        let Some(main) = most.map(|(cause, _)| *cause) else {
            parts.insert(GapCause::outside(options.virtual_machine, true), rest);
            return;
        };
        let learnt = self.rests.entry(main.kind() as u8).or_default();
        let way = learnt.way();
        learnt.all.record(rest);
        let own = rest.min(way);
        *parts.entry(main).or_default() += own;
        let beyond = rest - own;
        if beyond > Nanos::ZERO {
            let outside = GapCause::outside(options.virtual_machine, false);
            *parts.entry(outside).or_default() += beyond;
        }
    }
}

/// The rests of the gaps of one kind.
#[derive(Debug)]
struct Rests {
    all: Histogram,
    /// The longest rest that is charged to the recorded cause.
    way: Nanos,
    /// It is renewed when there are this many: to find the median, all cells are read.
    renewed_at: u64,
}

impl Default for Rests {
    fn default() -> Self {
        Self {
            all: Histogram::default(),
            way: Nanos::MAX,
            renewed_at: LEARNT,
        }
    }
}

impl Rests {
    fn way(&mut self) -> Nanos {
        let count = self.all.count();
        if count >= self.renewed_at {
            let middle = self.all.ranked().at(count / 2);
            let median = middle.map_or(Nanos::ZERO, |cell| cell.middle);
            self.way = (median * WAY).max(LEAST_WAY);
            self.renewed_at = count + (count / 16).max(1);
        }
        self.way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_follows_the_median_of_the_rests() {
        let mut rests = Rests::default();
        let mut record = |times: usize, us: u64| {
            for _ in 0..times {
                rests.way();
                rests.all.record(Nanos::from_micros(us));
            }
            rests.way()
        };
        assert_eq!(record(19, 10), Nanos::MAX);
        let near = |way: Nanos, us: u64| {
            let ns = way.get() as f64;
            assert!((ns / (us * 1_000) as f64 - 1.0).abs() < 0.001, "{ns}");
        };
        near(record(1_000, 10), 40);
        near(record(900, 100), 40);
        near(record(400, 100), 400);
    }
}
