//! Chooses which part of a recording is replayed: all of it, or stretches of time at equal distances.

use std::ops::Range;
use std::sync::Arc;

use taillab_model::{Monotonic, Nanos, RecordingContext};

use super::cores::Cores;
use super::observed::{Observed, UNCOUNTED};
use crate::coarsening::{Coarsen, Coarsening};
use crate::matched::Matched;
use crate::slices::{Slices, TAIL};
use crate::spans::earlier;
use crate::speed::{Paces, Speed};
use crate::timeline::{Stretches, Timeline};
use crate::window::Window;

/// The approximate maximum number of requests that are replayed.
const MAX_REPLAYED: usize = 1_000_000;

/// The number of blocks of time for the intervals, if the recording is a single window.
const BLOCKS: usize = 32;

/// The maximum number of stretches, if such a recording is not replayed as a whole: so many that a spell of
/// half a second in a minute is not missed.
const MOST_CHOSEN: usize = 256;

/// The maximum number of blocks of time, if the recording has several windows.
const MOST_BLOCKS: usize = 64;

/// The maximum number of stretches of such a recording.
const MOST_STRETCHES: usize = 2 * MOST_BLOCKS;

/// The maximum number of requests in each of those: [`MAX_REPLAYED`] ÷ 2 in all, because stretches that
/// are joined later also take memory.
const OF_STRETCH: usize = MAX_REPLAYED / 2 / MOST_STRETCHES;

/// This share of a stretch is replayed only for the state of the queue, if there is a gap before it.
const LEAD_IN: f64 = 1.0 / 8.0;

/// In a single window, at most this fraction (1 ÷ n) of a stretch is replayed before it for that.
const MOST_LEAD_IN: usize = 4;

/// What is left out between two stretches of a single window is at least this fraction (1 ÷ n) of it.
const LEAST_GAP: f64 = 500.0;

/// The requests that are replayed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Their places in the order of T1, each with its block of time or [`UNCOUNTED`].
    pub(super) chosen: Vec<(u32, u8)>,
    /// T1 of the first request of each stretch after which others are left out.
    pub(super) begins: Vec<Monotonic>,
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
        Self::of_at_most(MAX_REPLAYED, matched, measure_from)
    }

    fn of_at_most(most: usize, matched: &Matched, measure_from: Monotonic) -> Self {
        let measured = |place: usize| matched.is_measured(place, measure_from);
        let n = matched.requests.len();
        let Some(first) = (0..n).find(|&place| measured(place)) else {
            return Self::default();
        };
        let count = matched.measured_places(measure_from).count();
        let t1_ns = |place: usize| matched.requests.t1(place).nanos_since_boot();
        let begin_ns = t1_ns(first);
        let length = (t1_ns(n - 1) + 1 - begin_ns.min(t1_ns(n - 1))) as f64;
        let block = |place: usize| {
            let into = t1_ns(place).saturating_sub(begin_ns) as f64 / length;
            ((into * BLOCKS as f64) as usize).min(BLOCKS - 1) as u8
        };
        let mut sample = Self {
            blocks: BLOCKS,
            measured: count as u64,
            speed: Speed::of(matched, &Paces::usual(matched)),
            ..Self::default()
        };
        let mut choose = |places: Range<usize>, counts: bool| {
            sample.chosen.extend(places.map(|place| {
                let counted = counts && measured(place);
                (place as u32, if counted { block(place) } else { UNCOUNTED })
            }));
        };
        let part = most as f64 / count as f64;
        if part >= 1.0 {
            choose(0..n, true);
            return sample;
        }
        let stretches = ((LEAST_GAP * (1.0 - part)) as usize).clamp(1, MOST_CHOSEN);
        let place_at = |stretches_passed: f64| {
            let into = stretches_passed / stretches as f64 * length;
            let at_ns = begin_ns + into as u64;
            (matched.requests).first_from(Monotonic::from_nanos_since_boot(at_ns))
        };
        let mut chosen_to = 0;
        for number in 0..stretches {
            let from = place_at(number as f64);
            let to = place_at(number as f64 + part);
            let room = (from - chosen_to).min((to - from) / MOST_LEAD_IN);
            let lead_in = last_empty(matched, from - room, from);
            if lead_in < to {
                sample.begins.push(matched.requests.t1(lead_in));
            }
            choose(lead_in..from, false);
            choose(from..to, true);
            chosen_to = to;
        }
        sample
    }
}

/// The last place up to `to` at which the server was empty when the request came in, as far as the requests
/// since `from` show; `from` if it never was.
fn last_empty(matched: &Matched, from: usize, to: usize) -> usize {
    let requests = &matched.requests;
    let (mut found, mut busy_to) = (from, None);
    for place in from..(to + 1).min(requests.len()) {
        if busy_to.is_some_and(|end| end <= requests.t1(place)) {
            found = place;
        }
        busy_to = busy_to.max(Some(requests.t6(place)));
    }
    found
}

/// Chooses what is replayed, window by window. A single window is replayed as a whole, unless it is too long
/// ([`Sample::of`]); of several windows, the first part of each of many equal stretches of time; of slices,
/// their first parts.
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
        let is_first = self.only.is_none() && self.stretches.is_none();
        if is_first && !window.matched.slices.are_used() {
            self.only = Some(Arc::clone(window));
            return;
        }
        let from = self.measure_from;
        let stretches = (self.stretches).get_or_insert_with(|| SampledStretches::new(from));
        if let Some(first) = self.only.take() {
            stretches.add(&first);
        }
        stretches.add(window);
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
        let more = next.requests.requests.len().min(self.spare());
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
            cells: Coarsening::new(1, MOST_STRETCHES),
            measured: 0,
            slices: Slices::default(),
            usual: None,
            speed: Speed::default(),
        }
    }

    /// Keeps the part of the next window that may be replayed.
    fn add(&mut self, window: &Window) {
        let matched = &window.matched;
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
                self.cells = Coarsening::new(length / MOST_STRETCHES as u64 + 1, MOST_STRETCHES);
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
            let last = end.min(place + cell.spare());
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
            let last = end.min(first + cell.spare());
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
        let stretches = cells.len();
        let mut sample = Sample {
            blocks: stretches.min(MOST_BLOCKS),
            in_slices: self.slices.are_used(),
            measured: self.measured,
            speed: self.speed,
            ..Sample::default()
        };
        let sliced = sample.in_slices;
        let mut follows = sliced;
        for (number, cell) in cells.into_iter().enumerate() {
            let block = number * sample.blocks / stretches;
            let n = cell.requests.requests.len();
            if sliced || !follows {
                sample.begins.push(cell.requests.requests.t1(0));
            }
            // after a stretch that is kept as a whole, the queue is already in its state
            let lead_in = if follows { 0.0 } else { n as f64 * LEAD_IN } as usize;
            follows = sliced || n < OF_STRETCH;
            for place in 0..n {
                let t1 = cell.requests.requests.t1(place);
                let counted = place >= lead_in
                    && cell.requests.is_measured(place, self.measure_from)
                    && (!sliced || self.slices.sampling(t1).is_some());
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
    /// How many more requests it may keep.
    fn spare(&self) -> usize {
        OF_STRETCH.saturating_sub(self.requests.requests.len())
    }

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

#[cfg(test)]
mod tests {
    use taillab_model::{RequestKey, Stamps};

    use super::*;

    const NS: u64 = 100;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns)
    }

    /// One request every [`NS`] nanoseconds, of which number i leaves at `left_ns(i)`.
    fn requests(n: u64, left_ns: impl Fn(u64) -> u64) -> Matched {
        let mut matched = Matched::default();
        for i in 0..n {
            let stamps = Stamps::new(at(i * NS), [None; 4], at(left_ns(i)));
            matched.requests.push_stamps(stamps);
            matched.keys.push(RequestKey::hashed(0, 1, i as u16));
            matched.workers.push(1);
        }
        matched
    }

    #[test]
    fn a_spell_of_half_a_second_in_a_minute_is_replayed_in_its_share() {
        let (all, spell) = (120_000, 1_000);
        let matched = requests(all as u64, |i| i * NS + 10);
        let sample = Sample::of_at_most(all / 4, &matched, at(0));
        let mut spells = vec![0; all / spell];
        let mut blocks = [0; BLOCKS];
        for &(place, block) in &sample.chosen {
            // the server is always empty, so nothing leads in
            assert_ne!(block, UNCOUNTED, "{place}");
            spells[place as usize / spell] += 1;
            blocks[usize::from(block)] += 1;
        }
        let share = 200..=300;
        assert!(spells.iter().all(|n| share.contains(n)), "{spells:?}");
        let share = 900..=1_000;
        assert!(blocks.iter().all(|n| share.contains(n)), "{blocks:?}");
    }

    #[test]
    fn a_replay_begins_where_the_server_was_empty() {
        // only the first of each group finds it empty
        let group = 97;
        let matched = requests(400_000, |i| (i / group + 1) * group * NS - 1);
        let sample = Sample::of_at_most(100_000, &matched, at(0));
        assert_eq!(sample.begins.len(), MOST_CHOSEN);
        for begin in &sample.begins {
            assert_eq!(begin.nanos_since_boot() % (group * NS), 0);
        }
        let counted = sample
            .chosen
            .iter()
            .filter(|(_, block)| *block != UNCOUNTED);
        assert!((99_000..=101_000).contains(&counted.count()));
        assert!(sample.chosen.len() < 130_000);
        assert!(sample.chosen.is_sorted_by_key(|(place, _)| *place));
    }

    #[test]
    fn a_recording_that_is_not_too_long_is_replayed_as_a_whole() {
        let sample = Sample::of(&requests(1_000, |i| i * NS + 10), at(500 * NS));
        assert_eq!(sample.chosen.len(), 1_000);
        assert_eq!(sample.chosen[499], (499, UNCOUNTED));
        assert_eq!((sample.chosen[500].1, sample.chosen[999].1), (0, 31));
        assert!(sample.begins.is_empty());
    }
}
