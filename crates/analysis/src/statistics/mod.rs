//! Distributions of correlated observations, with intervals that know about it.

mod ccdf;
mod inflation;

use taillab_model::{Distribution, Nanos, quantile_ranks};

pub use ccdf::{CCDF_POINTS, ccdf};
pub use inflation::{SCORE_Z, variance_inflation};

/// The distribution of a series of observations in order of time.
///
/// Latencies are strongly correlated: a stall of 3 ms makes a hundred neighbours slow,
/// and a hundred slow neighbours say little more about p99.9 than one. The intervals of
/// the quantiles are widened by [`variance_inflation`], and a quantile that the sample
/// cannot support for that reason has no value.
pub fn distribution_of(series: &[Nanos]) -> Distribution {
    distribution_and_sorted(series).0
}

/// [`distribution_of`], and the sorted sample for who needs it too (for [`ccdf`]).
pub fn distribution_and_sorted(series: &[Nanos]) -> (Distribution, Vec<Nanos>) {
    let mut sorted = series.to_vec();
    sorted.sort_unstable();
    let distribution =
        Distribution::from_sorted_correlated(&sorted, |q| inflation_at(series, &sorted, q));
    (distribution, sorted)
}

/// The variance inflation at the sample's quantile `q`; 1 where even independent
/// observations would be too few for that quantile.
fn inflation_at(series: &[Nanos], sorted: &[Nanos], q: f64) -> f64 {
    match quantile_ranks(sorted.len() as u64, q, 1.0) {
        Some(ranks) => variance_inflation(series, sorted[ranks.value as usize]),
        None => 1.0,
    }
}

/// How many requests the quantile `q` needs, when the observations are as correlated as
/// those of `series` are.
///
/// Where `series` is too short to show the correlation at `q`, the one at the highest
/// quantile that it supports stands for it.
pub fn requests_needed(series: &[Nanos], sorted: &[Nanos], q: f64) -> u64 {
    let supported = taillab_model::REPORTED_QUANTILES
        .iter()
        .filter(|&&p| p <= q)
        .rfind(|&&p| quantile_ranks(sorted.len() as u64, p, 1.0).is_some());
    let inflation = supported.map_or(1.0, |&p| inflation_at(series, sorted, p));
    let needed = SCORE_Z * SCORE_Z * inflation / (1.0 - q);
    // to two digits, upwards: this is an estimate
    let step = 10_f64.powf(needed.log10().floor() - 1.0);
    ((needed / step).ceil() * step) as u64
}
