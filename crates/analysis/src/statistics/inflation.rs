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
//! - Far out in the tail there are few clusters of slow requests to estimate from. A sample in which they
//!   happen to be small would seem to support a percentile that it does not support. Therefore the factor at
//!   one percentile is at least half of the factor at the previous percentile, which is ten times more
//!   frequent: in autoregressive series, waiting times and stalls it decreases by less than that.
//!
//! What this achieves, and where it fails, is in the test `coverage`.

use taillab_model::{Nanos, REPORTED_QUANTILES, quantile_ranks};

/// The normal distribution's 97.5 % point, for intervals of 95 %.
pub const SCORE_Z: f64 = 1.959_963_984_540_054;

/// Fewer observations than this are not enough to see a correlation in.
const MIN_SERIES: usize = 200;

/// Batches in the series at the three lengths. They are few, so that they are long, and more than a
/// dozen, so that their variance can be estimated.
const LONG: usize = 16;
const MIDDLE: usize = 32;
const SHORT: usize = 3 * MIDDLE;

/// Batches start at the bounds of this many equal cells: one pass over the series
/// then serves every length and threshold.
pub(super) const CELLS: usize = 10 * SHORT;

/// (t₄₆ ÷ z)²: 32 overlapping batches estimate the variance with 1.5 × 31 degrees of
/// freedom, so the interval takes Student's t and not the normal's z.
const STUDENT: f64 = 1.054_7;

/// The factor (≥ 1) by which correlation multiplies the variance of the share of
/// observations at or below each of `thresholds` (the sample's ascending percentiles),
/// in a series in order of time. 1 for a series that is too short to estimate it.
pub fn variance_inflation(series: &[Nanos], thresholds: &[Nanos]) -> Vec<f64> {
    let n = series.len();
    let counts = |threshold: &Nanos| {
        let mut below = 0;
        let mut counts = Vec::with_capacity(CELLS + 1);
        for cell in 0..CELLS {
            counts.push(below);
            let now = &series[begin(cell, n)..begin(cell + 1, n)];
            below += now.iter().filter(|&x| x <= threshold).count() as u64;
        }
        counts.push(below);
        counts
    };
    inflation_of_counts(n, thresholds.iter().map(counts))
}

/// The variance inflation at each reported quantile that the same number of independent observations would
/// support.
pub(super) fn inflation_at_quantiles(series: &[Nanos], sorted: &[Nanos]) -> Vec<(f64, f64)> {
    let n = sorted.len() as u64;
    let (quantiles, thresholds): (Vec<f64>, Vec<Nanos>) = REPORTED_QUANTILES
        .iter()
        .filter_map(|&q| Some((q, sorted[quantile_ranks(n, q, 1.0)?.value as usize])))
        .unzip();
    let factors = variance_inflation(series, &thresholds);
    quantiles.into_iter().zip(factors).collect()
}

/// [`variance_inflation`] of `n` observations. For each threshold, `counts` has the number of
/// observations at or below it before each of [`CELLS`] equal cells, and at the end.
pub(super) fn inflation_of_counts(n: usize, counts: impl Iterator<Item = Vec<u64>>) -> Vec<f64> {
    if n < MIN_SERIES {
        return counts.map(|_| 1.0).collect();
    }
    let mut at_least = 1.0;
    let factors = counts.map(|counts| {
        let middle = batch_variance(&counts, n, MIDDLE);
        let short = batch_variance(&counts, n, SHORT);
        let limit = (2.0 * middle - short).max(middle);
        let long = batch_variance(&counts, n, LONG);
        let factor = (limit.max(long) * STUDENT).max(at_least);
        at_least = (factor / 2.0).max(1.0);
        factor
    });
    factors.collect()
}

/// Where cell `cell` begins in a series of `n`.
pub(super) const fn begin(cell: usize, n: usize) -> usize {
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
    // for an unbiased result with independent observations, since the share is from the same series
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
            assert!((0..CELLS).all(|cell| begin(cell, n) <= begin(cell + 1, n)));
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
