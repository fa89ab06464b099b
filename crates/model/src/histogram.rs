//! A histogram of lengths of time whose cells widen with the value, so that its memory is bounded.

use crate::distribution::Extremes;
use crate::{Distribution, Lacking, Nanos};

/// log2 of the number of cells that a [`Histogram`] has for each doubling of the value.
pub const HISTOGRAM_BITS: u32 = 10;

/// The largest relative error of a value that a [`Histogram`] gives back: half a cell.
pub const HISTOGRAM_ERROR: f64 = 1.0 / (1 << (HISTOGRAM_BITS + 1)) as f64;

/// The cell of a value, where each doubling has 2^`bits` cells. Values below 2^(`bits` + 1) have a
/// cell each.
#[inline]
pub const fn cell(value: u64, bits: u32) -> usize {
    let octave = (63 - (value | 1).leading_zeros()).saturating_sub(bits);
    ((octave as usize) << bits) + (value >> octave) as usize
}

/// The least value of a cell, and how many values it holds.
pub const fn cell_of(cell: usize, bits: u32) -> (u64, u64) {
    let octave = (cell >> bits).saturating_sub(1);
    (((cell - (octave << bits)) as u64) << octave, 1 << octave)
}

/// How often each length occurred, to 0.05 %; count, mean, minimum and maximum are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    least: Nanos,
    greatest: Nanos,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Vec::new(),
            count: 0,
            sum_ns: 0,
            least: Nanos::MAX,
            greatest: Nanos::ZERO,
        }
    }
}

impl Histogram {
    /// Counts one length.
    #[inline]
    pub fn record(&mut self, length: Nanos) {
        self.record_all(&[length]);
    }

    /// Counts these lengths.
    #[inline]
    pub fn record_all(&mut self, lengths: &[Nanos]) {
        let (mut least, mut greatest, mut sum_ns) = (self.least, self.greatest, self.sum_ns);
        for &length in lengths {
            let cell = cell(length.get(), HISTOGRAM_BITS);
            if cell >= self.counts.len() {
                self.counts.resize(cell + 1, 0);
            }
            self.counts[cell] += 1;
            sum_ns += u128::from(length.get());
            least = least.min(length);
            greatest = greatest.max(length);
        }
        self.count += lengths.len() as u64;
        (self.least, self.greatest, self.sum_ns) = (least, greatest, sum_ns);
    }

    /// Counts a length `times` times.
    pub fn record_times(&mut self, length: Nanos, times: u64) {
        if times == 0 {
            return;
        }
        let cell = cell(length.get(), HISTOGRAM_BITS);
        if cell >= self.counts.len() {
            self.counts.resize(cell + 1, 0);
        }
        self.counts[cell] += times;
        self.count += times;
        self.sum_ns += u128::from(length.get()) * u128::from(times);
        self.least = self.least.min(length);
        self.greatest = self.greatest.max(length);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        let cells = self.counts.len().max(other.counts.len());
        self.counts.resize(cells, 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
    }

    /// How many were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The smallest length; `None` when it is empty.
    pub fn least(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.least)
    }

    /// The largest length; `None` when it is empty.
    pub fn greatest(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.greatest)
    }

    /// The values in order, for look-ups by rank.
    pub fn ranked(&self) -> Ranked {
        let mut ranked = Ranked::default();
        let mut below = 0;
        let occupied = self.counts.iter().enumerate();
        for (cell, &count) in occupied.filter(|(_, count)| **count > 0) {
            below += count;
            let (from, width) = cell_of(cell, HISTOGRAM_BITS);
            let within = |ns: u64| Nanos::new(ns).clamp(self.least, self.greatest);
            ranked.cells.push(RankedCell {
                below,
                from: within(from),
                middle: within(from + width / 2),
                to: within(from + (width - 1)),
            });
        }
        ranked
    }

    /// The distribution; `inflation` as in [`Distribution::from_sorted_correlated`].
    pub fn distribution(&self, inflation: impl Fn(f64) -> f64) -> Distribution {
        self.distribution_censored(Lacking::default(), inflation)
    }

    /// The distribution of these, where others are lacking ([`Distribution::from_sorted_censored`]).
    pub fn distribution_censored(
        &self,
        lacking: Lacking,
        inflation: impl Fn(f64) -> f64,
    ) -> Distribution {
        let ranked = self.ranked();
        let mean = (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64);
        let extremes = Extremes {
            min: self.least(),
            max: self.greatest(),
        };
        let count = (self.count, lacking);
        Distribution::from_ranks(count, mean, extremes, inflation, |rank| {
            ranked.at(rank).map_or(Nanos::ZERO, |cell| cell.middle)
        })
    }
}

impl Extend<Nanos> for Histogram {
    fn extend<I: IntoIterator<Item = Nanos>>(&mut self, lengths: I) {
        for length in lengths {
            self.record(length);
        }
    }
}

/// A cell of a histogram, with the number of observations up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedCell {
    /// Observations in this cell and all before it.
    pub below: u64,
    /// No observation in the cell is smaller.
    pub from: Nanos,
    /// The value that is reported for all observations in the cell.
    pub middle: Nanos,
    /// No observation in the cell is larger.
    pub to: Nanos,
}

/// The cells of a histogram that hold anything, in order.
#[derive(Clone, Debug, Default)]
pub struct Ranked {
    cells: Vec<RankedCell>,
}

impl Ranked {
    /// The cell in which the observation of this rank (from 0) lies.
    pub fn at(&self, rank: u64) -> Option<RankedCell> {
        let place = self.cells.partition_point(|cell| cell.below <= rank);
        self.cells.get(place).copied()
    }

    /// Values in ascending order, each with how often it occurred.
    pub fn counts(&self) -> Vec<(Nanos, u64)> {
        let before = std::iter::once(0).chain(self.cells.iter().map(|cell| cell.below));
        let cells = self.cells.iter().zip(before);
        cells
            .map(|(cell, before)| (cell.middle, cell.below - before))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_follow_one_another_and_are_as_fine_as_said() {
        for bits in [7, HISTOGRAM_BITS] {
            let mut last = None;
            let large = [1 << 20, (1 << 20) + 1, u64::MAX / 2, u64::MAX];
            for value in (0..5_000).chain(large) {
                let cell = cell(value, bits);
                let (from, width) = cell_of(cell, bits);
                assert!(from <= value && value - from < width, "{value}");
                assert!(width == 1 || width <= from >> bits, "{value} {from}");
                assert!(last <= Some(cell));
                last = Some(cell);
            }
        }
    }

    #[test]
    fn what_two_have_counted_is_what_one_would_have() {
        let (mut one, mut other, mut all) = <(Histogram, Histogram, Histogram)>::default();
        for i in 0..2_000_u64 {
            let length = Nanos::new(i * i + 1);
            all.record(length);
            if i % 3 == 0 { &mut one } else { &mut other }.record(length);
        }
        let mut merged = one.clone();
        merged.merge(&other);
        assert_eq!(merged, all);
        merged.merge(&Histogram::default());
        assert_eq!(merged, all);
    }

    #[test]
    fn quantiles_are_those_of_the_sample_within_the_error() {
        let mut state = 1_u64;
        let mut sample: Vec<Nanos> = (0..50_000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                Nanos::new((state >> 40) * (state >> 60))
            })
            .collect();
        let mut histogram = Histogram::default();
        histogram.extend(sample.iter().copied());
        sample.sort_unstable();
        let exact = Distribution::from_sorted(&sample);
        let found = histogram.distribution(|_| 1.0);
        assert_eq!((found.count, found.mean), (exact.count, exact.mean));
        assert_eq!((found.min, found.max), (exact.min, exact.max));
        for (found, exact) in found.quantiles.iter().zip(&exact.quantiles) {
            assert_eq!(found.value.is_some(), exact.value.is_some());
            let ends = [
                (found.value, exact.value),
                (found.lo, exact.lo),
                (found.hi, exact.hi),
            ];
            for (found, exact) in ends.into_iter().filter_map(|(a, b)| a.zip(b)) {
                let off = (found.get() as f64 - exact.get() as f64).abs();
                assert!(
                    off <= HISTOGRAM_ERROR * exact.get() as f64,
                    "{found} {exact}"
                );
            }
        }
    }

    #[test]
    fn a_length_that_occurs_often_is_counted_at_once() {
        let mut one_by_one = Histogram::default();
        let mut at_once = Histogram::default();
        for (ns, times) in [(20, 3), (7, 0), (123_456, 2)] {
            one_by_one.extend((0..times).map(|_| Nanos::new(ns)));
            at_once.record_times(Nanos::new(ns), times);
        }
        assert_eq!(at_once, one_by_one);
    }

    #[test]
    fn nothing_has_no_quantile() {
        let empty = Histogram::default();
        assert_eq!(empty.distribution(|_| 1.0), Distribution::from_sorted(&[]));
        assert_eq!((empty.least(), empty.ranked().at(0)), (None, None));
    }
}
