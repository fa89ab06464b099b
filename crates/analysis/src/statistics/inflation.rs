//! How much correlation widens a quantile's interval.
//!
//! The share of observations at or below a threshold is a mean of indicators, and the
//! variance of a mean of correlated observations is larger than that of independent
//! ones by the factor Σ over all lags of their autocorrelation. It is estimated from the
//! means of batches: batches that are long compared with the correlation are independent of
//! each other, and the variance of their means shows the factor. Four things are done
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
//!   one percentile is at least half of the factor at the previous percentile, above which there are five to
//!   ten times as many requests: in autoregressive series, waiting times and stalls it decreases by less.
//! - A capacity that drifts over seconds correlates for longer than any queue. Longer batches see it,
//!   but are few, and would make all intervals wider. Therefore they are used only where the series
//!   itself [drifts](drifts).
//!
//! What this achieves, and where it fails, is in the tests `coverage` and `drift`.

use taillab_model::{Nanos, REPORTED_QUANTILES, quantile_ranks};

/// Fewer observations than this are not enough to show a correlation.
const MIN_SERIES: usize = 200;

/// Batches in the series at the three lengths. They are few, so that they are long, and more than a
/// dozen, so that their variance can be estimated.
const LONG: usize = 16;
const MIDDLE: usize = 32;
const SHORT: usize = 3 * MIDDLE;

/// Batches start at the bounds of this many equal cells: one pass over the series
/// then serves every length and threshold.
pub(super) const CELLS: usize = 10 * SHORT;

/// If the capacity drifts, the variance is taken from this many batches that do not overlap. They are so
/// long that even a drift that correlates over a tenth of the run leaves little correlation between them.
const QUARTERS: usize = 4;

/// (t₃ ÷ z)²: four batches have three degrees of freedom.
const STUDENT_OF_QUARTERS: f64 = 2.636;

/// (t₄₆ ÷ z)²: 32 overlapping batches estimate the variance with 1.5 × 31 degrees of
/// freedom, so the interval takes Student's t and not the normal's z.
const STUDENT: f64 = 1.054_7;

/// The factor (≥ 1) by which correlation multiplies the variance of the share of
/// observations at or below each threshold, in a series in order of time. `levels` are quantiles of the
/// sample with their thresholds, ascending. 1 for a series that is too short to estimate it.
pub fn variance_inflation(series: &[Nanos], levels: &[(f64, Nanos)]) -> Vec<f64> {
    let n = series.len();
    let counts = |&(q, threshold): &(f64, Nanos)| {
        let mut below = 0;
        let mut counts = Vec::with_capacity(CELLS + 1);
        for cell in 0..CELLS {
            counts.push(below);
            let now = &series[begin(cell, n)..begin(cell + 1, n)];
            below += now.iter().filter(|&&x| x <= threshold).count() as u64;
        }
        counts.push(below);
        (q, counts)
    };
    inflation_of_counts(n, &levels.iter().map(counts).collect::<Vec<_>>())
}

/// The variance inflation at each reported quantile that the same number of independent observations would
/// support.
pub(super) fn inflation_at_quantiles(series: &[Nanos], sorted: &[Nanos]) -> Vec<(f64, f64)> {
    let n = sorted.len() as u64;
    let levels: Vec<(f64, Nanos)> = REPORTED_QUANTILES
        .iter()
        .filter_map(|&q| Some((q, sorted[quantile_ranks(n, q, 1.0)?.value as usize])))
        .collect();
    let factors = variance_inflation(series, &levels);
    levels.iter().map(|(q, _)| *q).zip(factors).collect()
}

/// [`variance_inflation`] of `n` observations. For each quantile, there is the number of
/// observations at or below its threshold before each of [`CELLS`] equal cells, and at the end.
pub(super) fn inflation_of_counts(n: usize, levels: &[(f64, Vec<u64>)]) -> Vec<f64> {
    if n < MIN_SERIES {
        return vec![1.0; levels.len()];
    }
    let drifts = drifts(n, levels);
    let (mut at_least, mut at_least_drifting) = (1.0, 1.0);
    let factors = levels.iter().map(|(q, counts)| {
        let middle = batch_variance(counts, n, MIDDLE);
        let short = batch_variance(counts, n, SHORT);
        let limit = (2.0 * middle - short).max(middle);
        let long = batch_variance(counts, n, LONG);
        let factor = (limit.max(long) * STUDENT).max(at_least);
        at_least = (factor / 2.0).max(1.0);
        if !drifts {
            return factor;
        }
        let quarters = separate_batch_variance(counts, n, QUARTERS) * STUDENT_OF_QUARTERS;
        let drifting = quarters.max(factor).max(at_least_drifting);
        at_least_drifting = drifting / 2.0;
        at_most_open(drifting, factor, n as f64 * (1.0 - q))
    });
    factors.collect()
}

/// A drift makes the interval of a percentile wider, at most until it has no upper end; a percentile that
/// the sample supports without the drift keeps its value. `above` is the number of observations above it.
fn at_most_open(drifting: f64, factor: f64, above: f64) -> f64 {
    /// Leaves one independent observation above it, as `quantile_ranks` requires, with room for rounding.
    const ONE: f64 = 1.0 - 1e-6;
    if factor > above {
        return drifting;
    }
    drifting.min(above * ONE).max(factor)
}

/// Whether the series drifts: tenths of it differ by more than what neighbouring short batches explain.
///
/// The differences between neighbours contain all of a queue's correlation, which is short, and
/// hardly anything of a drift. Two lengths are tried, as the correlation may be longer than the shorter
/// one in a recording of less than a few seconds. So without a drift the ratio of the two variances is
/// about one, and has Fisher's distribution with 9 and about 30 or 60 degrees of freedom. It is tested at
/// the quantiles that many observations determine, each at a level of about 1 %; a far percentile has too
/// few.
fn drifts(n: usize, levels: &[(f64, Vec<u64>)]) -> bool {
    const TENTHS: usize = 10;
    /// Fisher's distribution exceeds it with a probability of 1.5 to 3 %; the larger of the two variances
    /// counts, so the level is lower.
    const CRITICAL: f64 = 2.5;
    /// The farthest quantile that is tested.
    const NEAR: f64 = 0.9;
    /// The least length of a short batch: in shorter ones, the correlation of a queue looks like a drift.
    const IN_A_BATCH: usize = 50;
    if n < IN_A_BATCH * SHORT {
        return false;
    }
    let near = levels.iter().filter(|(q, _)| *q <= NEAR);
    near.map(|(_, counts)| {
        let explained =
            neighbour_variance(counts, n, SHORT).max(neighbour_variance(counts, n, SHORT / 2));
        (separate_batch_variance(counts, n, TENTHS), explained)
    })
    .any(|(found, explained)| explained > 0.0 && found > CRITICAL * explained)
}

/// Where cell `cell` begins in a series of `n`.
pub(super) const fn begin(cell: usize, n: usize) -> usize {
    (cell as u128 * n as u128 / CELLS as u128) as usize
}

/// Variance of the mean of a batch of n ÷ `batches` neighbouring indicators, over all
/// batches that begin with a cell, relative to the variance of independent ones.
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

/// The same over batches that do not overlap.
fn separate_batch_variance(counts: &[u64], n: usize, batches: usize) -> f64 {
    let share = counts[CELLS] as f64 / n as f64;
    let independent = share * (1.0 - share);
    if independent == 0.0 {
        return 1.0;
    }
    let cells = CELLS / batches;
    let deviations = (0..batches).map(|batch| {
        let own = share_between(counts, n, batch * cells, (batch + 1) * cells);
        (own - share).powi(2)
    });
    let variance = deviations.sum::<f64>() / (batches as f64 - 1.0);
    variance * (n as f64 / batches as f64) / independent
}

/// The same from half the squared differences between neighbouring batches (von Neumann 1941), which a
/// slow drift hardly changes.
fn neighbour_variance(counts: &[u64], n: usize, batches: usize) -> f64 {
    let share = counts[CELLS] as f64 / n as f64;
    let independent = share * (1.0 - share);
    if independent == 0.0 {
        return 1.0;
    }
    let cells = CELLS / batches;
    let pairs = CELLS - 2 * cells;
    let differences = (0..=pairs).map(|first| {
        let own = share_between(counts, n, first, first + cells);
        let next = share_between(counts, n, first + cells, first + 2 * cells);
        (own - next).powi(2) / 2.0
    });
    let variance = differences.sum::<f64>() / (pairs + 1) as f64;
    variance * (n as f64 / batches as f64) / independent
}

/// The share of the observations between two cells that are at or below the threshold.
fn share_between(counts: &[u64], n: usize, from: usize, to: usize) -> f64 {
    let length = begin(to, n) - begin(from, n);
    (counts[to] - counts[from]) as f64 / length.max(1) as f64
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
        let at = |threshold| variance_inflation(&series, &[(0.5, Nanos::new(threshold))])[0];
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
        let factor = variance_inflation(&series, &[(0.5, Nanos::ZERO)])[0];
        assert!((6.0..16.0).contains(&factor), "{factor}");
    }

    #[test]
    fn a_drift_widens_an_interval_and_takes_no_value() {
        // 1,000 observations above: worth 50 independent ones without a drift, and 2 or 0.2 with it
        assert_eq!(at_most_open(500.0, 20.0, 1_000.0), 500.0);
        let most = at_most_open(5_000.0, 20.0, 1_000.0);
        assert!((998.0..1_000.0).contains(&most), "{most}");
        // the sample does not support it in any case: what it needs follows from all that is known
        assert_eq!(at_most_open(5_000.0, 1_200.0, 1_000.0), 5_000.0);
    }
}
