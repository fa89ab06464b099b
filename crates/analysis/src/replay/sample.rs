//! Chooses which part of a recording is replayed: all of it, or stretches of time at equal distances.

use std::sync::Arc;

use taillab_model::{Monotonic, Nanos, RecordingContext};

use super::cores::Cores;
use super::observed::{Observed, UNCOUNTED};
use crate::coarsening::{Coarsen, Coarsening};
use crate::matched::Matched;
use crate::slices::{Slices, TAIL};
use crate::spans::{Spans, earlier};
use crate::speed::{Paces, Speed};
use crate::timeline::{Stretches, Timeline};
use crate::window::Window;

/// The approximate maximum number of requests that are replayed.
const MAX_REPLAYED: usize = 1_000_000;

/// The number of blocks of time for the intervals, if the recording is a single window.
const BLOCKS: usize = 32;

/// The maximum number of blocks of time, if the recording has several windows.
const MOST_BLOCKS: usize = 64;

/// The maximum number of requests in each of those: [`MAX_REPLAYED`] ÷ 2 in all, because blocks that are
/// joined later also take memory.
const OF_BLOCK: usize = MAX_REPLAYED / 2 / MOST_BLOCKS;

/// This share of a stretch is replayed only for the state of the queue, if there is a gap before it.
const LEAD_IN: f64 = 1.0 / 16.0;

/// The requests that are replayed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Their places in the order of T1, each with its block of time or [`UNCOUNTED`].
    pub(super) chosen: Vec<(u32, u8)>,
    pub(super) blocks: usize,
    /// They are those of slices.
    pub(super) in_slices: bool,
    /// The number of all requests of the measurement.
    pub(super) measured: u64,
    /// When the server's CPUs were slower than usual.
    pub(super) speed: Speed,
}

impl Sample {
    /// Of a whole recording.
    pub(super) fn of(matched: &Matched, measure_from: Monotonic) -> Self {
        let measured = |place: usize| matched.is_measured(place, measure_from);
        let n = matched.requests.len();
        let Some(first) = (0..n).find(|&place| measured(place)) else {
            return Self::default();
        };
        let count = matched.measured_places(measure_from).count();
        let t1_ns = |place: usize| matched.requests.t1(place).nanos_since_boot();
        let begin_ns = t1_ns(first);
        let length = t1_ns(n - 1) + 1 - begin_ns.min(t1_ns(n - 1));
        let block_ns = (length as f64 / BLOCKS as f64).max(1.0);
        let part = MAX_REPLAYED as f64 / count as f64;
        let all = part >= 1.0;
        let mut chosen = Vec::with_capacity(n.min(MAX_REPLAYED * 11 / 10));
        for place in if all { 0 } else { first }..n {
            let into = t1_ns(place).saturating_sub(begin_ns) as f64 / block_ns;
            let block = (into as usize).min(BLOCKS - 1);
            let within = into - block as f64;
            if !all && within >= part {
                continue;
            }
            let lead_in = !all && within < part * LEAD_IN;
            let counted = measured(place) && !lead_in;
            let block = if counted { block as u8 } else { UNCOUNTED };
            chosen.push((place as u32, block));
        }
        Self {
            chosen,
            blocks: BLOCKS,
            in_slices: false,
            measured: count as u64,
            speed: Speed::of(matched, &Paces::usual(matched)),
        }
    }
}

/// Chooses what is replayed, window by window. A single window is replayed as a whole; of several
/// windows, only the first part of each of many equal stretches of time; of slices, their first parts.
pub(crate) struct Sampler {
    measure_from: Monotonic,
    /// The first window, until a second one follows.
    only: Option<Arc<Window>>,
    /// Used from the second window on.
    stretches: Option<SampledStretches>,
}

impl Sampler {
    /// The measurement begins at `measure_from`.
    pub(crate) const fn new(measure_from: Monotonic) -> Self {
        Self {
            measure_from,
            only: None,
            stretches: None,
        }
    }

    /// Takes the next window.
    pub(crate) fn add(&mut self, window: &Arc<Window>) {
        match (&mut self.stretches, self.only.take()) {
            (Some(stretches), _) => stretches.add(window),
            (none, None) if window.matched.slices.are_used() => {
                let stretches = none.insert(SampledStretches::new(self.measure_from));
                stretches.add(window);
            }
            (None, None) => self.only = Some(Arc::clone(window)),
            (none, Some(first)) => {
                let stretches = none.insert(SampledStretches::new(self.measure_from));
                stretches.add(&first);
                stretches.add(window);
            }
        }
    }

    /// The queue that is replayed.
    pub(crate) fn finish(self, context: &RecordingContext) -> Observed {
        if let Some(window) = self.only {
            let cores = Cores::new(&window.timeline, context);
            return Observed::build(&window.matched, &cores, context, self.measure_from);
        }
        let Some(stretches) = self.stretches else {
            return Observed::default();
        };
        let (requests, lines, sample) = stretches.finish();
        let cores = Cores::new(&lines, context);
        Observed::of_sample(&requests, &cores, context, &sample)
    }
}

/// The first requests of each of many equal stretches of time, or of slices.
struct SampledStretches {
    measure_from: Monotonic,
    from: Option<Monotonic>,
    cells: Coarsening<SampledStretch>,
    measured: u64,
    /// The parts of the recording that are cut.
    cut: Spans,
    slices: Slices,
    /// The pace of work in the first window, with which all are compared.
    usual: Option<Paces>,
    speed: Speed,
}

/// The first requests of a stretch of time, with their timeline.
#[derive(Default)]
struct SampledStretch {
    requests: Matched,
    lines: Stretches,
}

impl Coarsen for SampledStretch {
    /// Adds requests up to the maximum number.
    fn add(&mut self, next: Self) {
        let spare = OF_BLOCK.saturating_sub(self.requests.requests.len());
        let more = next.requests.requests.len().min(spare);
        if more > 0 {
            for place in 0..more {
                self.requests.push_from(&next.requests, place);
            }
            let lines = next.lines.finish();
            self.lines.add(&lines, lines.from(), lines.to());
        }
    }
}

impl SampledStretches {
    /// The measurement begins at `measure_from`.
    fn new(measure_from: Monotonic) -> Self {
        Self {
            measure_from,
            from: None,
            cells: Coarsening::new(1, MOST_BLOCKS),
            measured: 0,
            cut: Spans::default(),
            slices: Slices::default(),
            usual: None,
            speed: Speed::default(),
        }
    }

    /// Keeps the part of the next window that may be replayed.
    fn add(&mut self, window: &Window) {
        let matched = &window.matched;
        self.cut.append(&matched.cut);
        let n = matched.requests.len();
        let mut places = matched.measured_places(self.measure_from);
        let Some(first) = places.next() else {
            return;
        };
        self.measured += 1 + places.count() as u64;
        let usual = self.usual.get_or_insert_with(|| Paces::usual(matched));
        self.speed.append(&Speed::of(matched, usual));
        if matched.slices.are_used() {
            return self.add_slices(window);
        }
        let t1 = |place: usize| matched.requests.t1(place);
        let from = match self.from {
            Some(from) => from,
            None => {
                let length = t1(n - 1).saturating_since(t1(first)).get();
                self.cells = Coarsening::new(length / MOST_BLOCKS as u64 + 1, MOST_BLOCKS);
                *self.from.insert(t1(first))
            }
        };
        let mut place = first;
        while place < n {
            let (cell, end) = self.cells.cell(t1(place).saturating_since(from).get());
            let end = matched
                .requests
                .first_from(from + Nanos::new(end))
                .max(place + 1);
            let spare = OF_BLOCK.saturating_sub(cell.requests.requests.len());
            let last = end.min(place + spare);
            if place < last {
                cell.keep(window, place, last);
            }
            place = end;
        }
    }

    /// Keeps the slices of a window, each in a stretch of its own. Requests that came in before a
    /// slice is sampled bring the queue into its state.
    fn add_slices(&mut self, window: &Window) {
        let matched = &window.matched;
        self.slices.append(&matched.slices);
        for (number, slice) in matched.slices.numbered() {
            let first = matched.requests.first_from(slice.from);
            let end = matched.requests.first_from(earlier(slice.to, TAIL));
            let (cell, _) = self.cells.cell(number.into());
            let spare = OF_BLOCK.saturating_sub(cell.requests.requests.len());
            let last = end.min(first + spare);
            if first < last {
                cell.keep(window, first, last);
            }
        }
    }

    /// The requests that are replayed, their timeline, and which of them count.
    fn finish(self) -> (Matched, Timeline, Sample) {
        let (mut requests, mut lines) = (Matched::default(), Stretches::default());
        let cells = self.cells.into_cells().into_iter();
        let cells: Vec<SampledStretch> = cells
            .filter(|cell| !cell.requests.requests.is_empty())
            .collect();
        let mut sample = Sample {
            blocks: cells.len(),
            in_slices: self.slices.are_used(),
            measured: self.measured,
            speed: self.speed,
            ..Sample::default()
        };
        let sliced = sample.in_slices;
        let mut follows = sliced;
        for (block, cell) in cells.into_iter().enumerate() {
            let n = cell.requests.requests.len();
            // after a stretch that is kept as a whole, the queue is already in its state
            let lead_in = if follows { 0.0 } else { n as f64 * LEAD_IN } as usize;
            follows = sliced || n < OF_BLOCK;
            for place in 0..n {
                let t1 = cell.requests.requests.t1(place);
                let counted = place >= lead_in
                    && cell.requests.is_measured(place, self.measure_from)
                    && (!sliced || self.slices.sampling(t1).is_some())
                    && !self.cut.contain(t1);
                let block = if counted { block as u8 } else { UNCOUNTED };
                sample.chosen.push((requests.requests.len() as u32, block));
                requests.push_from(&cell.requests, place);
            }
            let own = cell.lines.finish();
            lines.add(&own, own.from(), own.to());
        }
        (requests, lines.finish(), sample)
    }
}

impl SampledStretch {
    /// Keeps the requests from place `first` up to `end`; they must follow those already kept.
    fn keep(&mut self, window: &Window, first: usize, end: usize) {
        let (matched, known) = (&window.matched, window.timeline.to());
        let mut done = matched.requests.t6(first);
        for place in first..end {
            done = done.max(matched.requests.t6(place));
            self.requests.push_from(matched, place);
        }
        let goes_on = end == matched.requests.len();
        let upto = if goes_on { done.max(window.upto) } else { done };
        let upto = (upto.min(known) + Nanos::from_millis(1)).min(known);
        self.lines
            .add(&window.timeline, matched.requests.t1(first), upto);
    }
}
