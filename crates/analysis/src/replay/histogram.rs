//! Sojourns of one replay, counted by block of time.

use taillab_model::histogram::{cell, cell_of};
use taillab_model::{Nanos, quantile_rank};

/// log2 of the number of bins for each doubling: a bin is at most 0.8 % wide.
const FINE: u32 = 7;

/// Up to 2⁴⁰ ns (18 minutes); longer times are counted in the last bin, which has no value.
const BINS: usize = ((40 - FINE as usize) + 1) << FINE;

/// Sojourns by block of time, in bins whose width grows with the value.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockHistogram {
    /// By block, then by bin.
    counts: Vec<u32>,
}

impl BlockHistogram {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            counts: vec![0; BINS * blocks],
        }
    }

    /// The number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.counts.len() / BINS
    }

    #[inline]
    pub(crate) fn add(&mut self, block: usize, sojourn_ns: u64) {
        self.counts[block * BINS + bin(sojourn_ns)] += 1;
    }

    /// Adds a block with these sojourns.
    pub(crate) fn push_block(&mut self, sojourns: impl IntoIterator<Item = Nanos>) {
        let block = self.blocks();
        self.counts.resize(self.counts.len() + BINS, 0);
        for sojourn in sojourns {
            self.add(block, sojourn.get());
        }
    }

    /// The counts of a sample in which block b occurs `times[b]` times.
    pub(crate) fn weighted(&self, times: &[u32]) -> Counts {
        let mut sums = vec![0_u64; BINS];
        for (counts, times) in self.counts.chunks_exact(BINS).zip(times) {
            if *times == 0 {
                continue;
            }
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += u64::from(*count) * u64::from(*times);
            }
        }
        Counts(sums)
    }

    /// By block, how many values are above the bin of this one, how many are in it or above, and how many there are.
    pub(crate) fn beyond(&self, ns: f64) -> Vec<[u64; 3]> {
        let sum = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).sum();
        let own = bin(ns as u64);
        (self.counts.chunks_exact(BINS))
            .map(|counts| [sum(&counts[own + 1..]), sum(&counts[own..]), sum(counts)])
            .collect()
    }

    /// Cumulative counts, for the quantiles of many samples of these blocks.
    pub(crate) fn cumulative(&self) -> Cumulative {
        let blocks = self.blocks();
        let mut sums = vec![0; blocks];
        let mut up_to = Vec::with_capacity(BINS * blocks);
        for bin in 0..BINS {
            for (block, sum) in sums.iter_mut().enumerate() {
                *sum += self.counts[block * BINS + bin];
            }
            up_to.extend_from_slice(&sums);
        }
        Cumulative { up_to, blocks }
    }

    /// The counts of all blocks.
    pub(crate) fn all(&self) -> Counts {
        self.weighted(&vec![1; self.blocks()])
    }
}

/// Cumulative counts by bin and block. The bin of a quantile is found by binary search; [`Counts`] adds up
/// all bins of all blocks.
pub(crate) struct Cumulative {
    /// By bin, then by block.
    up_to: Vec<u32>,
    blocks: usize,
}

impl Cumulative {
    /// The values up to a bin in a sample that has block b `times[b]` times.
    fn up_to(&self, bin: usize, times: &[u32]) -> u64 {
        let counts = &self.up_to[bin * self.blocks..(bin + 1) * self.blocks];
        let each = counts.iter().zip(times);
        each.map(|(count, times)| u64::from(*count) * u64::from(*times))
            .sum()
    }

    /// The quantile of such a sample: that of [`BlockHistogram::weighted`].
    pub(crate) fn quantile_ns(&self, times: &[u32], q: f64) -> Option<f64> {
        quantile_of(|bin| self.up_to(bin, times), q)
    }

    /// The same of such a sample and one of another histogram together.
    pub(crate) fn quantile_with_ns(
        &self,
        times: &[u32],
        (other, other_times): (&Self, &[u32]),
        q: f64,
    ) -> Option<f64> {
        quantile_of(
            |bin| self.up_to(bin, times) + other.up_to(bin, other_times),
            q,
        )
    }
}

/// The quantile, from how many values there are up to each bin.
fn quantile_of(up_to: impl Fn(usize) -> u64, q: f64) -> Option<f64> {
    let total = up_to(BINS - 1);
    let rank = (quantile_rank(total, q) + 1) as f64;
    let (mut from, mut to) = (0, BINS);
    while from < to {
        let middle = from.midpoint(to);
        match up_to(middle) as f64 >= rank {
            true => to = middle,
            false => from = middle + 1,
        }
    }
    if is_last(from) {
        return None;
    }
    let before = from.checked_sub(1).map_or(0, &up_to);
    let (low, high) = edges(from);
    let into = (rank - before as f64) / (up_to(from) - before) as f64;
    Some(low + (high - low) * into)
}

/// The number of values in each bin.
#[derive(Clone, Debug)]
pub(crate) struct Counts(Vec<u64>);

impl Counts {
    /// The number of values.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The quantile to the precision of the bins, 0.8 %; `None` of nothing, or if it is longer than they reach.
    pub(crate) fn quantile_ns(&self, q: f64) -> Option<f64> {
        let total = self.total();
        let rank = (quantile_rank(total, q) + 1) as f64;
        let mut before = 0_u64;
        for (bin, &count) in self.0.iter().enumerate() {
            if is_last(bin) {
                break;
            }
            if count > 0 && (before + count) as f64 >= rank {
                let (low, high) = edges(bin);
                let into = (rank - before as f64) / count as f64;
                return Some(low + (high - low) * into);
            }
            before += count;
        }
        None
    }

    /// Several such quantiles.
    pub(crate) fn quantiles_ns(&self, quantiles: &[f64]) -> Vec<Option<f64>> {
        quantiles.iter().map(|q| self.quantile_ns(*q)).collect()
    }

    /// About `points` points (x, share at least x), evenly spaced in the logarithm of the share.
    pub(crate) fn ccdf(&self, points: usize) -> Vec<(Nanos, f64)> {
        let total = self.total();
        let step = (total.max(2) as f64).ln() / points.max(1) as f64;
        let mut curve: Vec<(Nanos, f64)> = Vec::new();
        let mut next = 0.0;
        let mut above = total;
        for (bin, &count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let share = above as f64 / total as f64;
            if -share.ln() >= next || above == count {
                curve.push((Nanos::new(edges(bin).0 as u64), share));
                next = -share.ln() + step;
            }
            above -= count;
        }
        curve
    }
}

/// Whether a bin holds times of any length beyond its lower edge.
const fn is_last(bin: usize) -> bool {
    bin + 1 >= BINS
}

fn bin(ns: u64) -> usize {
    cell(ns, FINE).min(BINS - 1)
}

fn edges(bin: usize) -> (f64, f64) {
    let (low, width) = cell_of(bin, FINE);
    (low as f64, (low + width) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_lies_in_its_bin_and_bins_are_narrow(ns in 0_u64..1 << 40) {
            let (low, high) = edges(bin(ns));
            prop_assert!(low <= ns as f64 && (ns as f64) < high);
            prop_assert!(high - low <= 1.0 + 0.008 * low);
        }

        #[test]
        fn quantiles_agree_with_the_sorted_sample(
            values in prop::collection::vec(0_u64..1 << 30, 1..500),
            q in 0.0_f64..1.0,
        ) {
            let mut histogram = BlockHistogram::new(3);
            for (i, value) in values.iter().enumerate() {
                histogram.add(i % 3, *value);
            }
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = (q * sorted.len() as f64).ceil().max(1.0) as usize;
            let exact = sorted[rank - 1] as f64;
            let got = histogram.all().quantile_ns(q).unwrap();
            prop_assert!((got - exact).abs() <= 1.0 + 0.008 * exact, "{got} {exact}");
        }

        #[test]
        fn samples_of_blocks_have_the_quantiles_of_their_counts(
            values in prop::collection::vec((0_usize..4, 0_u64..1 << 42), 0..300),
            times in prop::collection::vec(0_u32..4, 4),
            q in 0.0_f64..1.0,
        ) {
            let (mut some, mut others) = (BlockHistogram::new(4), BlockHistogram::new(4));
            let mut all = BlockHistogram::new(8);
            for (i, (block, value)) in values.iter().enumerate() {
                [&mut some, &mut others][i % 2].add(*block, *value);
                all.add(*block + i % 2 * 4, *value);
            }
            let (sample, both) = (some.weighted(&times), [&times[..], &times[..]].concat());
            let (fast, others) = (some.cumulative(), others.cumulative());
            prop_assert_eq!(fast.quantile_ns(&times, q), sample.quantile_ns(q));
            let together = fast.quantile_with_ns(&times, (&others, &times), q);
            prop_assert_eq!(together, all.weighted(&both).quantile_ns(q));
        }
    }

    #[test]
    fn nothing_has_no_quantile_and_no_curve() {
        let counts = BlockHistogram::new(1).all();
        assert_eq!(counts.quantile_ns(0.5), None);
        assert!(counts.ccdf(10).is_empty());
    }

    /// Three of four times are a second, one is an hour.
    #[test]
    fn a_time_beyond_the_bins_is_no_number() {
        let mut histogram = BlockHistogram::new(1);
        for seconds in [1, 1, 1, 3_600] {
            histogram.add(0, seconds * 1_000_000_000);
        }
        let all = histogram.all();
        let second = all.quantile_ns(0.5).unwrap();
        assert!((second / 1e9 - 1.0).abs() < 0.01, "{second}");
        assert_eq!(all.quantile_ns(0.99), None);
        assert_eq!(histogram.cumulative().quantile_ns(&[1], 0.99), None);
    }

    #[test]
    fn the_curve_runs_from_all_to_the_slowest() {
        let mut histogram = BlockHistogram::new(1);
        for value in 1..=10_000 {
            histogram.add(0, value);
        }
        let curve = histogram.all().ccdf(50);
        assert_eq!(curve[0], (Nanos::new(1), 1.0));
        let (last, share) = curve[curve.len() - 1];
        assert!(last.get() > 9_900 && share < 0.01, "{last} {share}");
        assert!(curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1));
    }
}
