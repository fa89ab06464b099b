//! A histogram of times that is fast to fill: the bin follows from the bits of a double.
//!
//! The bins are linear below 1 µs (1 ns wide) and log-linear above. The bin of an observation x is given by
//! the exponent and the ten leading fraction bits of x + 1024 ns: one addition and one shift. A bin is at
//! most 0.2 % wide, so its middle is within 0.1 % of every observation in it.

use taillab_queueing::isa::{Isa, multiversion};

/// Added to every observation; the bins are linear up to here.
const BIAS_NS: f64 = 1024.0;
/// The number of fraction bits that do not matter for the bin.
const SHIFT: u32 = 42;
const FIRST: u64 = BIAS_NS.to_bits() >> SHIFT;
/// Bins up to 2⁶⁴ ns, 584 years: no result holds more. Longer observations count in the last bin, which has no value.
const BINS: usize = 54 * 1024;
const LIMIT_NS: f64 = 18_446_744_073_709_551_616.0 - 4096.0;

/// Observations exactly at the origin (requests that did not wait) are counted separately, spread over
/// this many slots, so that a count does not depend on the one before.
const ORIGIN_SLOTS: usize = 8;

/// The lower edge of a bin.
fn edge_ns(bin: usize) -> f64 {
    f64::from_bits((bin as u64 + FIRST) << SHIFT) - BIAS_NS
}

/// Whether a bin holds observations of any length beyond its lower edge.
const fn is_last(bin: usize) -> bool {
    bin + 1 >= BINS
}

fn bin_of(x_ns: f64) -> usize {
    (((x_ns.min(LIMIT_NS) + BIAS_NS).to_bits() >> SHIFT) - FIRST) as usize
}

/// Counts of observations; times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Where the bins begin: at 0, or at a constant service time.
    origin_ns: f64,
    at_origin: u64,
    /// Up to the largest bin in use.
    bins: Vec<u64>,
    count: u64,
    sum_ns: f64,
    sum_of_squares: f64,
    min_ns: f64,
    max_ns: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            origin_ns: 0.0,
            at_origin: 0,
            bins: Vec::new(),
            count: 0,
            sum_ns: 0.0,
            sum_of_squares: 0.0,
            min_ns: f64::INFINITY,
            max_ns: 0.0,
        }
    }
}

impl Histogram {
    /// Adds one observation. (The kernels use a faster way.)
    pub fn record(&mut self, x_ns: f64) {
        let from_origin = (x_ns - self.origin_ns).max(0.0);
        if from_origin == 0.0 {
            self.at_origin += 1;
        } else {
            let bin = bin_of(from_origin);
            if self.bins.len() <= bin {
                self.bins.resize(bin + 1, 0);
            }
            self.bins[bin] += 1;
        }
        self.count += 1;
        self.sum_ns += x_ns;
        self.sum_of_squares += x_ns * x_ns;
        self.min_ns = self.min_ns.min(x_ns);
        self.max_ns = self.max_ns.max(x_ns);
    }

    /// Adds all observations of `other`.
    ///
    /// # Panics
    /// If the two have different origins (debug builds only).
    pub fn merge(&mut self, other: &Self) {
        if self.count == 0 {
            self.origin_ns = other.origin_ns;
        }
        debug_assert!(other.count == 0 || self.origin_ns == other.origin_ns);
        if self.bins.len() < other.bins.len() {
            self.bins.resize(other.bins.len(), 0);
        }
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            *mine += theirs;
        }
        self.at_origin += other.at_origin;
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.sum_of_squares += other.sum_of_squares;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The same observations, each larger by `by_ns`. This is exact, whatever the bins.
    #[must_use]
    pub fn shifted(&self, by_ns: f64) -> Self {
        let n = self.count as f64;
        Self {
            origin_ns: self.origin_ns + by_ns,
            sum_ns: self.sum_ns + n * by_ns,
            sum_of_squares: self.sum_of_squares + by_ns * (2.0 * self.sum_ns + n * by_ns),
            min_ns: self.min_ns + by_ns,
            max_ns: if self.count == 0 {
                0.0
            } else {
                self.max_ns + by_ns
            },
            ..self.clone()
        }
    }

    /// The number of observations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of observations exactly at the origin: of waiting times, the requests that did not wait.
    pub fn count_at_origin(&self) -> u64 {
        self.at_origin
    }

    /// The smallest observation, exactly.
    pub fn min_ns(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// The largest observation, exactly.
    pub fn max_ns(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// The arithmetic mean, from the exact sum.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns / self.count as f64)
    }

    /// The mean of the squares, from the exact sum.
    pub fn mean_of_squares(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_of_squares / self.count as f64)
    }

    /// The number of observations above `x_ns`, which are assumed to be evenly spread within a bin.
    pub fn count_above(&self, x_ns: f64) -> f64 {
        let from_origin = x_ns - self.origin_ns;
        if from_origin < 0.0 {
            return self.count as f64;
        }
        if x_ns >= self.max_ns {
            return 0.0;
        }
        let bin = bin_of(from_origin);
        let above: u64 = self.bins.iter().skip(bin + 1).sum();
        let here = self.bins.get(bin).copied().unwrap_or(0) as f64;
        let (low, high) = (edge_ns(bin), edge_ns(bin + 1));
        above as f64 + here * ((high - from_origin) / (high - low)).clamp(0.0, 1.0)
    }

    /// The smallest value that a share `q` of the observations does not exceed; infinite if it is longer than the
    /// histogram can tell (2⁶⁴ ns), `None` if the histogram is empty or `q` is not in [0, 1].
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        if self.count == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let want = q * self.count as f64;
        let mut below = self.at_origin as f64;
        if below >= want && self.at_origin > 0 {
            return Some(self.origin_ns);
        }
        for (bin, &here) in self.bins.iter().enumerate() {
            let here = here as f64;
            if here > 0.0 && below + here >= want {
                if is_last(bin) {
                    return Some(f64::INFINITY);
                }
                let (low, high) = (edge_ns(bin), edge_ns(bin + 1));
                let x = low + (high - low) * ((want - below) / here).max(0.0);
                return Some((self.origin_ns + x).clamp(self.min_ns, self.max_ns));
            }
            below += here;
        }
        Some(self.max_ns)
    }

    /// The bins in use, as (lower edge, upper edge, count). The observations exactly at the origin come
    /// first, with equal edges.
    pub fn bins(&self) -> impl Iterator<Item = (f64, f64, u64)> + '_ {
        let origin = self.origin_ns;
        let atom = (self.at_origin > 0).then_some((origin, origin, self.at_origin));
        let rest = self.bins.iter().enumerate().filter(|(_, n)| **n > 0);
        atom.into_iter()
            .chain(rest.map(move |(i, n)| (origin + edge_ns(i), origin + edge_ns(i + 1), *n)))
    }

    /// The complementary distribution as points (x in ns, share above x), one for each bin in use.
    pub fn ccdf(&self) -> Vec<(f64, f64)> {
        let mut above = self.count;
        self.bins()
            .map(|(_, high, n)| {
                above -= n;
                (high.min(self.max_ns), above as f64 / self.count as f64)
            })
            .collect()
    }
}

/// A histogram that a kernel fills, with counters small enough for the cache.
pub(crate) struct Tally {
    /// The first slots count the observations at the origin. A 16-bit index needs no bounds check.
    counters: Box<[u32; 1 << 16]>,
    since_fold: u64,
    total: Histogram,
    sums: Sums,
    slots: Vec<u16>,
}

#[derive(Clone)]
#[repr(align(64))]
struct Sums {
    sum: [f64; 8],
    squares: [f64; 8],
    min: [f64; 8],
    max: [f64; 8],
}

impl Sums {
    const NONE: Self = Self {
        sum: [0.0; 8],
        squares: [0.0; 8],
        min: [f64::INFINITY; 8],
        max: [0.0; 8],
    };

    /// Adds up to eight observations, each to separate sums.
    #[inline(always)]
    fn add(&mut self, xs: &[f64]) {
        for (i, &x) in xs.iter().enumerate() {
            self.sum[i] += x;
            self.squares[i] += x * x;
            self.min[i] = if x < self.min[i] { x } else { self.min[i] };
            self.max[i] = if x > self.max[i] { x } else { self.max[i] };
        }
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            counters: vec![0; 1 << 16]
                .into_boxed_slice()
                .try_into()
                .unwrap_or_else(|_| unreachable!("the length is that of the array")),
            since_fold: 0,
            total: Histogram::default(),
            sums: Sums::NONE,
            slots: Vec::new(),
        }
    }

    /// Adds all observations; none may be negative.
    pub(crate) fn record_all(&mut self, isa: Isa, xs_ns: &[f64]) {
        if self.since_fold + xs_ns.len() as u64 > u64::from(u32::MAX) {
            self.fold();
        }
        self.since_fold += xs_ns.len() as u64;
        self.slots.resize(xs_ns.len(), 0);
        slots(isa, xs_ns, &mut self.slots);
        accumulate(isa, xs_ns, &mut self.sums);
        for &slot in &self.slots {
            self.counters[usize::from(slot)] += 1;
        }
    }

    /// Adds the small counters to the total.
    fn fold(&mut self) {
        let (origin, bins) = self.counters.split_at_mut(ORIGIN_SLOTS);
        self.total.at_origin += origin.iter().map(|n| u64::from(*n)).sum::<u64>();
        let used = bins.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
        if self.total.bins.len() < used {
            self.total.bins.resize(used, 0);
        }
        for (total, n) in self.total.bins.iter_mut().zip(bins.iter()) {
            *total += u64::from(*n);
        }
        self.counters.fill(0);
        self.total.count += self.since_fold;
        self.since_fold = 0;
    }

    /// All observations since the last call; the tally is empty afterwards.
    pub(crate) fn take(&mut self) -> Histogram {
        self.fold();
        let sums = std::mem::replace(&mut self.sums, Sums::NONE);
        let mut all = std::mem::take(&mut self.total);
        all.sum_ns = sums.sum.iter().sum();
        all.sum_of_squares = sums.squares.iter().sum();
        all.min_ns = sums.min.iter().copied().fold(f64::INFINITY, f64::min);
        all.max_ns = sums.max.iter().copied().fold(0.0, f64::max);
        all
    }
}

multiversion! {
    fn slots(xs_ns: &[f64], slots: &mut [u16]) {
        for (i, (slot, &x)) in slots.iter_mut().zip(xs_ns).enumerate() {
            let clipped = if x < LIMIT_NS { x } else { LIMIT_NS };
            let bin = ((clipped + BIAS_NS).to_bits() >> SHIFT) - (FIRST - ORIGIN_SLOTS as u64);
            *slot = if x == 0.0 { (i % ORIGIN_SLOTS) as u64 } else { bin } as u16;
        }
    }

    fn accumulate(xs_ns: &[f64], sums: &mut Sums) {
        let mut s = sums.clone();
        let mut rows = xs_ns.chunks_exact(8);
        for row in &mut rows {
            s.add(row);
        }
        s.add(rows.remainder());
        *sums = s;
    }
}

const _: () = assert!(BINS + ORIGIN_SLOTS <= 1 << 16);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(isa: Isa, xs: &[f64]) -> Histogram {
        let mut tally = Tally::new();
        for part in xs.chunks(100) {
            tally.record_all(isa, part);
        }
        tally.take()
    }

    proptest! {
        /// The fast way, the slow way and merged parts agree, on every instruction set.
        #[test]
        fn all_ways_of_filling_agree(xs in prop::collection::vec(0.0..1e15_f64, 1..500)) {
            // spread over all magnitudes, with zeros
            let xs: Vec<f64> = xs.iter().map(|x| (x.sqrt().sqrt() - 100.0).max(0.0).powi(3).floor()).collect();
            let mut one_by_one = Histogram::default();
            for &x in &xs {
                one_by_one.record(x);
            }
            for isa in Isa::available() {
                let fast = filled(isa, &xs);
                prop_assert_eq!(&fast.bins, &one_by_one.bins);
                prop_assert_eq!(fast.at_origin, one_by_one.at_origin);
                prop_assert_eq!((fast.min_ns, fast.max_ns, fast.count), (one_by_one.min_ns, one_by_one.max_ns, one_by_one.count));
                let (a, b) = xs.split_at(xs.len() / 3);
                let mut merged = filled(isa, a);
                merged.merge(&filled(isa, b));
                prop_assert_eq!(&merged.bins, &fast.bins);
                prop_assert_eq!(merged.count, fast.count);
            }
        }

        /// Every quantile is within 0.2 % or 1 ns of the sorted sample's.
        #[test]
        fn quantiles_are_near_the_sample(xs in prop::collection::vec(0.0..1e9_f64, 1..300), q in 0.0..1.0_f64) {
            let mut sorted = xs.clone();
            sorted.sort_by(f64::total_cmp);
            let h = filled(Isa::detect(), &xs);
            let rank = ((q * xs.len() as f64).ceil() as usize).clamp(1, xs.len());
            let want = sorted[rank - 1];
            let got = h.quantile_ns(q).unwrap();
            prop_assert!((got - want).abs() <= (0.002 * want).max(1.0), "{} for {}", got, want);
        }
    }

    #[test]
    fn shifting_keeps_every_statistic() {
        let h = filled(Isa::detect(), &[0.0, 0.0, 10.0, 2_000.0]);
        let s = h.shifted(50_000.0);
        assert_eq!(s.quantile_ns(0.5), Some(50_000.0));
        assert_eq!(s.mean_ns(), Some(50_502.5));
        assert_eq!((s.min_ns(), s.max_ns()), (Some(50_000.0), Some(52_000.0)));
        assert_eq!(s.count_above(49_999.0), 4.0);
        assert_eq!(s.count_above(50_000.0), 2.0);
        let squares = [50_000.0_f64, 50_000.0, 50_010.0, 52_000.0];
        let want = squares.iter().map(|x| x * x).sum::<f64>() / 4.0;
        assert!((s.mean_of_squares().unwrap() / want - 1.0).abs() < 1e-12);
    }

    #[test]
    fn values_beyond_the_last_bin_count_but_are_no_number() {
        for isa in Isa::available() {
            let h = filled(isa, &[1e20, 5.0]);
            assert_eq!(h.count(), 2);
            assert_eq!(h.max_ns(), Some(1e20));
            assert_eq!(h.count_above(10.0), 1.0);
            assert_eq!(h.quantile_ns(0.9), Some(f64::INFINITY));
            assert!(h.quantile_ns(0.5).is_some_and(|x| x < 10.0));
        }
    }

    /// Five hours, a day, a year, four hundred years.
    #[test]
    fn hours_and_years_keep_their_value() {
        for isa in Isa::available() {
            for x in [1.8e13, 8.64e13, 3.15e16, 1.26e19] {
                let found = filled(isa, &[x, x, x * 1.3]).quantile_ns(0.3).unwrap();
                assert!((found / x - 1.0).abs() < 0.002, "{found} for {x}");
            }
        }
    }

    #[test]
    fn an_empty_histogram_has_no_numbers() {
        let h = Histogram::default();
        assert_eq!(
            (h.quantile_ns(0.5), h.mean_ns(), h.max_ns()),
            (None, None, None)
        );
        assert_eq!(h.count_above(0.0), 0.0);
    }
}
