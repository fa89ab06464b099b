//! The composition of the excess: by cause, by culprit, and in each band of the tail.
//!
//! If everything was recorded in slices, only the sample is summed. The bands are still those of all
//! requests, and counts and lengths are scaled up to all.
//!
//! The accounts of the ledger are summed as they come, by the histogram cell of the sojourn; nothing
//! is kept of a single request. The bands are found at the end. They begin with a cell, so within 0.2 %
//! of the percentile. A request without an answer ranks above all others, as in the percentiles, and is in
//! no band.
//!
//! Shares have intervals from a jackknife over time: the measurement is cut into equal blocks
//! (except for the last), and each is left out once. The spread of the results says how far
//! another measurement of the same length would be off (Efron and Stein 1981; blocks because
//! neighbours in time are correlated). The interval is ± t times the standard error, with one
//! degree of freedom less than there are blocks. If everything was recorded in slices, a block
//! is a slice, or several: what happens within a slice is correlated. Where t has an interval, theirs are wider by what
//! that can change ([`ExcessRange`]).

mod excess_range;

use std::collections::HashMap;
use std::ops::Range;

use taillab_model::explanation::{Band, BandPart, Cause, CauseShare, Culprit, LongEvents, Share};
use taillab_model::histogram::cell;
use taillab_model::interval::share_of_sums;
use taillab_model::{Monotonic, Nanos, quantile_rank};

use crate::coarsening::{Coarsen, Coarsening};
use crate::id_map::{IdMap, grow_to};
use crate::ledger::{Entry, EventLengths, GroupKey, Label, Labels, Ledger};
use crate::stages::{BAND_SHARE, cells_around};

pub(crate) use self::excess_range::ExcessRange;
use self::excess_range::Margin;

/// Where the bands begin; the last one ends with the slowest request.
pub const BANDS: [f64; 4] = [0.0, 0.9, 0.99, 0.999];

/// The percentiles around which the excess is summed, too.
pub const AROUND: [f64; 3] = [0.5, 0.99, 0.999];

/// log2 of the number of cells for each doubling of the sojourn: a cell is at most 0.2 % wide.
const BITS: u32 = 9;

/// The initial length of a block of time; with slices, each slice gets a block of this length.
const BLOCK_NS: u64 = 1_000;

/// The largest number of blocks of time; the smallest is half of it, or the number of slices.
const BLOCKS: usize = 64;

/// The largest number of culprits that are listed.
const MAX_CULPRITS: usize = 60;

const CAUSES: usize = Cause::ALL.len();

/// Accounts that are added together. Adding mostly waits for memory, and in a batch these waits overlap.
const BATCH: usize = 1_024;

/// The band that begins at p99.
const ABOVE_P99: usize = 2;

/// Excess by block of time: of all requests, and of those above p99.
type ExcessByBlock = Vec<[u64; 2]>;

/// Sums over the requests whose sojourns lie in one cell of a histogram.
#[derive(Clone, Copy, Debug, Default)]
struct CellSums {
    requests: u64,
    sojourn_ns: u64,
    ideal_ns: u64,
    gain_ns: u64,
    reaches_beyond: u64,
}

impl CellSums {
    fn add(&mut self, new: Self) {
        self.requests += new.requests;
        self.sojourn_ns += new.sojourn_ns;
        self.ideal_ns += new.ideal_ns;
        self.gain_ns += new.gain_ns;
        self.reaches_beyond += new.reaches_beyond;
    }
}

/// Excess by the cell of the sojourn and the group, in a block of time.
#[derive(Clone, Debug, Default)]
struct BlockSums(IdMap<u64, u64>);

impl BlockSums {
    fn add_one(&mut self, key: u64, ns: u64) {
        *self.0.entry(key).or_default() += ns;
    }
}

impl Coarsen for BlockSums {
    fn add(&mut self, next: Self) {
        next.0
            .into_iter()
            .for_each(|(key, ns)| self.add_one(key, ns));
    }
}

/// The first groups, up to this number, have a plain table in the latest block.
const FIRST_GROUPS: usize = 32;

/// The latest block's sums of the first groups, by cell: most of what is added, without a map.
#[derive(Clone, Debug, Default)]
struct LatestBlock {
    /// The time that the block covers.
    time: Range<u64>,
    cells: Vec<[u64; FIRST_GROUPS]>,
}

impl LatestBlock {
    /// The sums of a cell, if this is the block in which `at_ns` lies.
    #[inline]
    fn sums(&mut self, at_ns: u64, cell: usize) -> Option<&mut [u64; FIRST_GROUPS]> {
        if !self.time.contains(&at_ns) {
            return None;
        }
        Some(grow_to(&mut self.cells, cell))
    }

    /// Goes on with the block in which `at_ns` lies, and makes it if there is none.
    fn move_to(&mut self, at_ns: u64, blocks: &mut Coarsening<BlockSums>) {
        self.give_to(blocks);
        let (_, end) = blocks.cell(at_ns);
        self.time = end.saturating_sub(blocks.width())..end;
    }

    /// Adds the sums to their block.
    fn give_to(&mut self, blocks: &mut Coarsening<BlockSums>) {
        if self.cells.is_empty() {
            return;
        }
        // neighbours may have been joined meanwhile
        let (block, _) = blocks.cell(self.time.start);
        for (cell, sums) in self.cells.drain(..).enumerate() {
            let sums = sums.into_iter().enumerate().filter(|(_, ns)| *ns > 0);
            sums.for_each(|(group, ns)| block.add_one(key(cell, group as u32), ns));
        }
    }
}

const fn key(cell: usize, group: u32) -> u64 {
    (cell as u64) << 32 | group as u64
}

const fn cell_and_group(key: u64) -> (usize, usize) {
    ((key >> 32) as usize, key as u32 as usize)
}

/// Collects the composition while accounts come.
#[derive(Clone, Debug)]
pub struct Composition {
    from: Monotonic,
    groups: Vec<(Cause, GroupKey)>,
    group_of: Vec<u32>,
    numbers: HashMap<(Cause, GroupKey), u32>,
    /// Requests added so far; below, those with any excess of a group, and of a cause.
    added: u64,
    of_groups: Vec<GroupExcess>,
    of_causes: [u64; CAUSES],
    cells: Vec<CellSums>,
    /// Requests outside of the sample, by cell.
    others: Vec<u64>,
    blocks: Coarsening<BlockSums>,
    /// Sums of the latest block that are not in it yet.
    latest: LatestBlock,
    /// Requests still to be added: T1 since `from`, the cell, the number of parts of their excess, the sums.
    new_requests: Vec<(u64, usize, usize, CellSums)>,
    /// The parts of their excess, request after request: the group, and nanoseconds.
    new_excess: Vec<(u32, u64)>,
}

/// Requests with any excess of a group.
#[derive(Clone, Copy, Debug)]
struct GroupExcess {
    cause: Cause,
    requests: u64,
    /// The number of the last such request.
    last: u64,
}

impl Composition {
    /// An empty composition of a measurement that begins at `from`.
    pub fn new(from: Monotonic) -> Self {
        Self {
            from,
            groups: Vec::new(),
            group_of: Vec::new(),
            numbers: HashMap::new(),
            added: 0,
            of_groups: Vec::new(),
            of_causes: [0; CAUSES],
            cells: Vec::new(),
            others: Vec::new(),
            blocks: Coarsening::new(BLOCK_NS, BLOCKS),
            latest: LatestBlock::default(),
            new_requests: Vec::new(),
            new_excess: Vec::new(),
        }
    }

    /// Adds the account of a request that arrived at `t1`.
    pub fn add(&mut self, t1: Monotonic, entry: &Entry<'_>, labels: &Labels) {
        let cell = cell(entry.sojourn_ns, BITS);
        if !entry.asked {
            *grow_to(&mut self.others, cell) += 1;
            return;
        }
        let sums = CellSums {
            requests: 1,
            sojourn_ns: entry.sojourn_ns,
            ideal_ns: entry.ideal_ns,
            gain_ns: entry.gain_ns,
            reaches_beyond: (entry.left_late || entry.carried_over).into(),
        };
        let at_ns = match entry.slice {
            Some(slice) => u64::from(slice) * BLOCK_NS,
            None => t1.saturating_since(self.from).get(),
        };
        self.added += 1;
        let parts = entry.excess.len();
        self.new_requests.push((at_ns, cell, parts, sums));
        let mut causes = 0_u32;
        for &(label, ns) in entry.excess {
            let group = self.group(label, labels);
            self.new_excess.push((group, ns));
            let of_group = &mut self.of_groups[group as usize];
            // threads of one name are one group
            if of_group.last != self.added {
                of_group.last = self.added;
                of_group.requests += 1;
                causes |= 1 << of_group.cause as u32;
            }
        }
        while causes != 0 {
            self.of_causes[causes.trailing_zeros() as usize] += 1;
            causes &= causes - 1;
        }
        if self.new_requests.len() == BATCH {
            self.add_new();
        }
    }

    fn add_new(&mut self) {
        let mut excess = self.new_excess.iter();
        for (at_ns, cell, parts, new) in self.new_requests.drain(..) {
            if at_ns >= self.latest.time.end {
                self.latest.move_to(at_ns, &mut self.blocks);
            } else if at_ns < self.latest.time.start {
                // the block must exist, even without any excess
                self.blocks.cell(at_ns);
            }
            grow_to(&mut self.cells, cell).add(new);
            let mut sums = self.latest.sums(at_ns, cell);
            for &(group, ns) in excess.by_ref().take(parts) {
                let sums = sums.as_mut();
                match sums.and_then(|sums| sums.get_mut(group as usize)) {
                    Some(sum) => *sum += ns,
                    None => self.blocks.cell(at_ns).0.add_one(key(cell, group), ns),
                }
            }
        }
        self.new_excess.clear();
    }

    fn group(&mut self, label: Label, labels: &Labels) -> u32 {
        while self.group_of.len() <= label as usize {
            let key = labels.group(self.group_of.len() as Label);
            let next = self.groups.len() as u32;
            let number = *self.numbers.entry(key.clone()).or_insert(next);
            if number == next {
                self.of_groups.push(GroupExcess {
                    cause: key.0,
                    requests: 0,
                    last: 0,
                });
                self.groups.push(key);
            }
            self.group_of.push(number);
        }
        self.group_of[label as usize]
    }

    /// The requests in each cell, including those outside of the sample.
    fn counts(&self) -> Vec<u64> {
        let cells = 0..self.cells.len().max(self.others.len());
        let count = |cell: usize| {
            let summed = self.cells.get(cell).map_or(0, |cell| cell.requests);
            summed + self.others.get(cell).copied().unwrap_or(0)
        };
        cells.map(count).collect()
    }

    /// The result, after the last account; `unanswered` is the number of requests that nobody answered.
    pub fn finish(mut self, unanswered: u64) -> Composed {
        self.add_new();
        self.latest.give_to(&mut self.blocks);
        let counts = self.counts();
        let thresholds = thresholds(&counts, unanswered);
        let band_of = |cell: usize| thresholds.iter().rposition(|&from| cell >= from);
        let blocks = self.blocks.cells().len();
        let (all, others) = (counts.iter().sum::<u64>(), self.others.iter().sum::<u64>());
        let mut bands = vec![BandSums::none(blocks); BANDS.len()];
        let mut around = RequestsAround::of(&counts, unanswered, blocks);
        for (cell, count) in counts.into_iter().enumerate() {
            let sums = self.cells.get(cell).copied().unwrap_or_default();
            bands[band_of(cell).unwrap_or(0)].add(count, sums);
            around.add(cell, |band| band.add(count, sums));
        }
        let mut culprits: Vec<ExcessByBlock> = vec![vec![[0; 2]; blocks]; self.groups.len()];
        let mut causes: Vec<ExcessByBlock> = vec![vec![[0; 2]; blocks]; CAUSES];
        for (block, sums) in self.blocks.into_cells().into_iter().enumerate() {
            for (key, ns) in sums.0 {
                let (cell, group) = cell_and_group(key);
                let band = band_of(cell).unwrap_or(0);
                let cause = self.groups[group].0 as usize;
                let above_p99 = if band >= ABOVE_P99 { ns } else { 0 };
                for sums in [&mut culprits[group], &mut causes[cause]] {
                    sums[block][0] += ns;
                    sums[block][1] += above_p99;
                }
                bands[band].excess_ns[block][cause] += ns;
                around.add(cell, |band| band.excess_ns[block][cause] += ns);
            }
        }
        Composed {
            weight: all as f64 / (all - others).max(1) as f64,
            groups: self.groups,
            group_of: self.group_of,
            of_groups: self.of_groups.iter().map(|of| of.requests).collect(),
            of_causes: self.of_causes,
            culprits,
            causes,
            bands,
            around,
            thresholds,
            by_t: [Margin::default(); 2],
        }
    }
}

/// The cells in which the bands begin; behind the last one if no request of the band was answered.
fn thresholds(counts: &[u64], unanswered: u64) -> [usize; 4] {
    let n = counts.iter().sum::<u64>() + unanswered;
    BANDS.map(|q| {
        let rank = quantile_rank(n, q);
        let mut below = 0;
        let found = counts.iter().position(|count| {
            below += count;
            below > rank
        });
        found.unwrap_or(counts.len())
    })
}

/// The requests around each of [`AROUND`], as far as there are any.
#[derive(Clone, Debug)]
struct RequestsAround(Vec<(f64, Range<usize>, BandSums)>);

impl RequestsAround {
    fn of(counts: &[u64], unanswered: u64, blocks: usize) -> Self {
        let known = |q: f64| {
            let cells = cells_around(counts, unanswered, q)?;
            Some((q, cells, BandSums::none(blocks)))
        };
        Self(AROUND.into_iter().filter_map(known).collect())
    }

    /// Calls `add` for each percentile around which this cell lies.
    fn add(&mut self, cell: usize, mut add: impl FnMut(&mut BandSums)) {
        let all = self.0.iter_mut();
        let with = all.filter(|(_, cells, _)| cells.contains(&cell));
        with.for_each(|(.., sums)| add(sums));
    }
}

/// Sums over the requests of one band of the tail.
#[derive(Clone, Debug)]
struct BandSums {
    /// Including those outside of the sample.
    requests: u64,
    sums: CellSums,
    /// By block of time and cause.
    excess_ns: Vec<[u64; CAUSES]>,
    by_t: Margin,
}

impl BandSums {
    fn none(blocks: usize) -> Self {
        Self {
            requests: 0,
            sums: CellSums::default(),
            excess_ns: vec![[0; CAUSES]; blocks],
            by_t: Margin::default(),
        }
    }

    /// Adds a cell with this number of requests.
    fn add(&mut self, requests: u64, sums: CellSums) {
        self.requests += requests;
        self.sums.add(sums);
    }
}

/// The composition of all accounts.
#[derive(Clone, Debug)]
pub struct Composed {
    /// How many requests each request of the sample represents.
    weight: f64,
    groups: Vec<(Cause, GroupKey)>,
    group_of: Vec<u32>,
    of_groups: Vec<u64>,
    of_causes: [u64; CAUSES],
    culprits: Vec<ExcessByBlock>,
    causes: Vec<ExcessByBlock>,
    bands: Vec<BandSums>,
    around: RequestsAround,
    /// The cells in which the bands begin.
    thresholds: [usize; BANDS.len()],
    /// How far t moves the excess of all requests, and of those above p99.
    by_t: [Margin; 2],
}

impl Composed {
    /// Makes the intervals of all shares so wide that they hold for each t of t's interval.
    #[must_use]
    pub(crate) fn widened(mut self, range: &ExcessRange) -> Self {
        let upto = |place: usize| self.thresholds.get(place).copied().unwrap_or(usize::MAX);
        for (place, band) in self.bands.iter_mut().enumerate() {
            band.by_t = range.margin(self.thresholds[place]..upto(place + 1));
        }
        for (_, cells, sums) in &mut self.around.0 {
            sums.by_t = range.margin(cells.clone());
        }
        self.by_t = [0, self.thresholds[ABOVE_P99]].map(|from| range.margin(from..usize::MAX));
        self
    }

    /// First the causes as wholes, then their culprits; both with the largest first. The ledger saw one
    /// `one_in`-th of the time.
    pub fn shares(&self, ledger: &Ledger, one_in: f64) -> Vec<CauseShare> {
        let whole = |cause: Cause| {
            let requests = self.of_causes[cause as usize];
            let of = |label: Label| ledger.labels.cause(label) == cause;
            let sums = &self.causes[cause as usize];
            (requests > 0).then(|| self.share((cause, None), requests, sums, (ledger, one_in), of))
        };
        let mut wholes: Vec<CauseShare> = Cause::ALL.into_iter().filter_map(whole).collect();
        let of_culprit = |(group, sums): (usize, &ExcessByBlock)| {
            let (cause, requests) = (self.groups[group].0, self.of_groups[group]);
            let of = |label: Label| self.group_of.get(label as usize) == Some(&(group as u32));
            let culprit = (requests > 0)
                .then(|| self.culprit(group, ledger))
                .flatten()?;
            Some(self.share((cause, Some(culprit)), requests, sums, (ledger, one_in), of))
        };
        let culprits = self.culprits.iter().enumerate();
        let mut culprits: Vec<CauseShare> = culprits.filter_map(of_culprit).collect();
        let largest_first = |shares: &mut Vec<CauseShare>| {
            shares.sort_by_key(|share| std::cmp::Reverse(share.excess_ns));
        };
        largest_first(&mut wholes);
        largest_first(&mut culprits);
        culprits.truncate(MAX_CULPRITS);
        wholes.extend(culprits);
        wholes
    }

    /// Of the sample's requests above p99, the share that left after the end of their slice, or may have
    /// inherited delays from before it.
    pub(crate) fn beyond_slice(&self) -> f64 {
        let tail = self.bands[ABOVE_P99..].iter();
        let (late, all) = tail.fold((0, 0), |(late, all), band| {
            (late + band.sums.reaches_beyond, all + band.sums.requests)
        });
        late as f64 / all.max(1) as f64
    }

    /// The name of a group; without a thread id if it has several threads.
    fn culprit(&self, group: usize, ledger: &Ledger) -> Option<Culprit> {
        let is = |label: &Label| self.group_of[*label as usize] == group as u32;
        let mut labels = (0..self.group_of.len() as Label).filter(is);
        let first = labels.next()?;
        match labels.next() {
            Some(_) => ledger.labels.culprit_of_group(first),
            None => ledger.labels.culprit(first),
        }
    }

    fn share(
        &self,
        (cause, culprit): (Cause, Option<Culprit>),
        requests: u64,
        sums: &ExcessByBlock,
        (ledger, one_in): (&Ledger, f64),
        of: impl Fn(Label) -> bool,
    ) -> CauseShare {
        let labels = (0..ledger.labels.len() as Label).filter(|&label| of(label));
        let mut lengths = EventLengths::default();
        labels.for_each(|label| lengths.merge(&ledger.events[label as usize]));
        let excess_ns: u64 = sums.iter().map(|block| block[0]).sum();
        let scaled = |sum: u64, by: f64| (sum as f64 * by).round() as u64;
        let (requests, excess_ns) = (
            scaled(requests, self.weight),
            scaled(excess_ns, self.weight),
        );
        // the sample leaves out the edges of the slices, the ledger does not
        let events = scaled(lengths.count(), one_in);
        CauseShare {
            cause,
            culprit,
            share: self.ratio(sums, 0),
            excess_share_above_p99: self.ratio(sums, 1),
            excess_ns: Nanos::new(excess_ns),
            requests,
            events,
            mean_event_ns: lengths.mean_ns(),
            median_event_ns: lengths.median(),
            longest_event_ns: lengths.longest(),
            long_events: lengths.long().map(|long| LongEvents {
                events: scaled(long.events, one_in),
                ..long
            }),
            requests_per_event: match events {
                0 => 0.0,
                events => requests as f64 / events as f64,
            },
        }
    }

    /// The share of all excess, with its interval.
    fn ratio(&self, of: &ExcessByBlock, which: usize) -> Share {
        let pair = |(block, part): (usize, &[u64; 2])| {
            let all: u64 = self.causes.iter().map(|sums| sums[block][which]).sum();
            (part[which] as f64, all as f64)
        };
        let pairs: Vec<(f64, f64)> = of.iter().enumerate().map(pair).collect();
        self.by_t[which].widen(share_of_sums(&pairs))
    }

    /// The bands that have requests.
    pub fn bands(&self) -> Vec<Band> {
        let with = self.bands.iter().enumerate();
        with.filter(|(_, band)| band.sums.requests > 0)
            .map(|(place, sums)| {
                let to = BANDS.get(place + 1).copied().unwrap_or(1.0);
                band([BANDS[place], to], sums)
            })
            .collect()
    }

    /// The requests around each of [`AROUND`], as far as there are any.
    pub fn around(&self) -> Vec<Band> {
        let known = self.around.0.iter();
        known
            .filter(|(.., sums)| sums.sums.requests > 0)
            .map(|(q, _, sums)| {
                let half = BAND_SHARE * (1.0 - q);
                band([q - half, q + half], sums)
            })
            .collect()
    }
}

fn band([from_q, to_q]: [f64; 2], of: &BandSums) -> Band {
    let BandSums {
        requests,
        sums,
        excess_ns,
        by_t,
    } = of;
    let n = sums.requests as f64;
    let mut parts = Vec::new();
    for cause in Cause::ALL {
        let total: u64 = excess_ns.iter().map(|b| b[cause as usize]).sum();
        let mut mean_excess_ns = total as f64 / n;
        if cause == Cause::Service {
            // less the time by which requests were faster than their ideal
            mean_excess_ns -= sums.gain_ns as f64 / n;
        }
        if mean_excess_ns == 0.0 {
            continue;
        }
        let pair = |block: &[u64; CAUSES]| {
            let all: u64 = block.iter().sum();
            (block[cause as usize] as f64, all as f64)
        };
        let pairs: Vec<(f64, f64)> = excess_ns.iter().map(pair).collect();
        parts.push(BandPart {
            cause,
            mean_excess_ns,
            share: by_t.widen(share_of_sums(&pairs)),
        });
    }
    parts.sort_by(|a, b| b.mean_excess_ns.total_cmp(&a.mean_excess_ns));
    Band {
        from_q,
        to_q,
        requests: *requests,
        mean_sojourn_ns: sums.sojourn_ns as f64 / n,
        mean_ideal_ns: sums.ideal_ns as f64 / n,
        parts,
    }
}

#[cfg(test)]
mod tests;
