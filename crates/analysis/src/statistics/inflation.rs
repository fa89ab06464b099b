//! How much correlation widens a quantile's interval.
//!
//! The share of observations at or below a threshold is a mean of indicators, and the
//! variance of a mean of correlated observations is larger than that of independent
//! ones by the factor Σ over all lags of their autocorrelation. It is estimated from the
//! means of batches: batches that are long against the correlation are independent of
//! each other, and the variance of their means shows the factor. Three things are done
//! about its known weaknesses:
//!
//! - Overlapping batches (Meketon and Schmeiser 1984) use each observation in many
//!   batches, which lowers the estimate's own variance by a third.
//! - Batches that are too short see too little. As the estimate grows with the batch
//!   length ℓ like 1 − a/ℓ where the lags beyond ℓ still correlate, two lengths give the
//!   limit: 2·V(ℓ) − V(ℓ/3), the lugsail estimate (Vats and Flegal 2022). The larger of that
//!   and of a batch of twice the length is taken.
//! - Far out in the tail few clusters of slow requests are left to estimate from, and a
//!   sample that happens to show small ones would look good enough for a percentile that
//!   it does not support. Therefore the factor at one percentile is at least half of that
//!   at the one before, ten times more frequent: over autoregressive series, waiting times
//!   and stalls it falls by less than that.
//!
//! What this achieves, and where it fails, is in the test `coverage`.

use taillab_model::Nanos;

/// The normal distribution's 97.5 % point, for intervals of 95 %.
pub const SCORE_Z: f64 = 1.959_963_984_540_054;

/// Fewer observations than this are not enough to see a correlation in.
const MIN_SERIES: usize = 200;

/// Batches in the series at the three lengths. Few, so that they are long; more than a
/// dozen, so that their variance can be told.
const LONG: usize = 16;
const MIDDLE: usize = 32;
const SHORT: usize = 3 * MIDDLE;

/// Batches start at the bounds of this many equal cells: one pass over the series
/// then serves every length and threshold.
const CELLS: usize = 10 * SHORT;

/// (t₄₆ ÷ z)²: 32 overlapping batches estimate the variance with 1.5 × 31 degrees of
/// freedom, so the interval takes Student's t and not the normal's z.
const STUDENT: f64 = 1.054_7;

/// The factor (≥ 1) by which correlation multiplies the variance of the share of
/// observations at or below each of `thresholds` (the sample's ascending percentiles),
/// in a series in order of time. 1 for a series too short to tell.
pub fn variance_inflation(series: &[Nanos], thresholds: &[Nanos]) -> Vec<f64> {
    let mut inflation = Inflation::new(series.len(), thresholds.to_vec());
    inflation.extend(series);
    inflation.factors()
}

/// [`variance_inflation`] of a series that comes bit by bit, and whose length and percentiles
/// are known before.
#[derive(Clone, Debug)]
pub struct Inflation {
    n: usize,
    thresholds: Vec<Nanos>,
    /// For each threshold, the observations at or below it before each cell's begin.
    counts: Vec<Vec<u64>>,
    so_far: Vec<u64>,
    seen: usize,
    /// Cells that have begun.
    cells: usize,
}

impl Inflation {
    /// Of `n` observations.
    pub fn new(n: usize, thresholds: Vec<Nanos>) -> Self {
        Self {
            n,
            counts: vec![Vec::with_capacity(CELLS + 1); thresholds.len()],
            so_far: vec![0; thresholds.len()],
            thresholds,
            seen: 0,
            cells: 0,
        }
    }

    /// Takes the next observations.
    pub fn extend(&mut self, mut series: &[Nanos]) {
        while !series.is_empty() && self.seen < self.n {
            self.begin_cells();
            let end = begin(self.cells, self.n);
            let (now, later) = series.split_at(series.len().min(end - self.seen));
            for (so_far, threshold) in self.so_far.iter_mut().zip(&self.thresholds) {
                *so_far += now.iter().filter(|&x| x <= threshold).count() as u64;
            }
            self.seen += now.len();
            series = later;
        }
    }

    fn begin_cells(&mut self) {
        while self.cells < CELLS && begin(self.cells, self.n) <= self.seen {
            for (counts, so_far) in self.counts.iter_mut().zip(&self.so_far) {
                counts.push(*so_far);
            }
            self.cells += 1;
        }
    }

    /// The factors for the thresholds.
    pub fn factors(mut self) -> Vec<f64> {
        if self.n < MIN_SERIES {
            return vec![1.0; self.thresholds.len()];
        }
        self.begin_cells();
        let n = self.n;
        let mut at_least = 1.0;
        let ends = self.counts.into_iter().zip(self.so_far);
        ends.map(|(mut counts, all)| {
            counts.resize(CELLS + 1, all);
            let middle = batch_variance(&counts, n, MIDDLE);
            let short = batch_variance(&counts, n, SHORT);
            let limit = (2.0 * middle - short).max(middle);
            let long = batch_variance(&counts, n, LONG);
            let factor = (limit.max(long) * STUDENT).max(at_least);
            at_least = (factor / 2.0).max(1.0);
            factor
        })
        .collect()
    }
}

/// Where cell `cell` begins in a series of `n`.
const fn begin(cell: usize, n: usize) -> usize {
    (cell as u128 * n as u128 / CELLS as u128) as usize
}

/// Variance of the mean of a batch of n ÷ `batches` neighbouring indicators, over all
/// batches that begin with a cell, against the variance of independent ones.
fn batch_variance(counts: &[u64], n: usize, batches: usize) -> f64 {
    let share = counts[CELLS] as f64 / n as f64;
    let independent = share * (1.0 - share);
    if independent == 0.0 {
        return 1.0;
    }
    let cells = CELLS / batches;
    let mut sum = 0.0;
    for first in 0..=CELLS - cells {
        let length = begin(first + cells, n) - begin(first, n);
        let below = counts[first + cells] - counts[first];
        let deviation = below as f64 - share * length as f64;
        sum += deviation * deviation;
    }
    let mean_square = sum / (CELLS - cells + 1) as f64;
    // The share itself is from the same series: unbiased for independent observations.
    let correction = batches as f64 / (batches as f64 - 1.0);
    mean_square / (n as f64 / batches as f64) * correction / independent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cover_the_series_whatever_its_length() {
        for n in [200, 959, 960, 961, 12_345] {
            assert_eq!((begin(0, n), begin(CELLS, n)), (0, n));
            let series: Vec<Nanos> = (0..n as u64).map(|i| Nanos::new(i % 10)).collect();
            let mut inflation = Inflation::new(n, vec![Nanos::new(4)]);
            for some in series.chunks(7) {
                inflation.extend(some);
            }
            for (cell, count) in inflation.counts[0].iter().enumerate() {
                let before = series[..begin(cell, n)].iter();
                assert_eq!(*count, before.filter(|x| x.get() <= 4).count() as u64);
            }
            assert_eq!(
                inflation.factors(),
                variance_inflation(&series, &[Nanos::new(4)])
            );
        }
    }

    #[test]
    fn a_threshold_that_all_or_none_pass_has_no_variance_to_inflate() {
        let series: Vec<Nanos> = (0..1_000).map(|i| Nanos::new(5 + i % 3)).collect();
        let at = |threshold| variance_inflation(&series, &[Nanos::new(threshold)])[0];
        assert!((at(100) - STUDENT).abs() < 1e-9);
        assert!((at(1) - STUDENT).abs() < 1e-9);
    }

    #[test]
    fn runs_of_equal_length_inflate_by_about_that_length() {
        // blocks of ten equal observations, low or high by a fixed pseudo-random sequence
        let mut state = 1_u64;
        let mut series = Vec::new();
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            series.extend([Nanos::new(state >> 63); 10]);
        }
        let factor = variance_inflation(&series, &[Nanos::ZERO])[0];
        assert!((6.0..16.0).contains(&factor), "{factor}");
    }
}
