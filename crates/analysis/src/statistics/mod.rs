//! Distributions of correlated observations, with intervals that allow for the correlation.

mod bins;
mod ccdf;
mod inflation;
mod series;

use taillab_model::interval::NORMAL_975;
use taillab_model::{Distribution, Nanos};

pub(crate) use bins::Bins;
pub use ccdf::{ccdf, ccdf_of_ranks};
pub use inflation::variance_inflation;
pub use series::{Observations, Series};
pub(crate) use series::{Values, counted_curve};

/// The distribution of a series of observations in order of time.
///
/// Latencies are strongly correlated: a stall of 3 ms makes a hundred neighbours slow,
/// and a hundred slow neighbours say little more about p99.9 than one. The intervals of
/// the quantiles are widened by [`variance_inflation`], and a quantile that the sample
/// cannot support for that reason has no value.
pub fn distribution_of(series: &[Nanos]) -> Distribution {
    Observations::of(series).distribution()
}

/// The median of some values (the upper one of two in the middle); `None` without values.
pub(crate) fn middle<T: Copy + Ord>(values: &mut [T]) -> Option<T> {
    let place = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(place).1)
}

/// About how many requests the quantile `q` needs if observations are as correlated as these.
///
/// `factors` are those of [`Observations::factors`]. If the sample is too short to show the correlation
/// at `q`, the correlation at the highest quantile that it shows is used.
pub fn requests_needed(factors: &[(f64, f64)], q: f64) -> u64 {
    let known = factors.iter().rfind(|(p, _)| *p <= q);
    let factor = known.map_or(1.0, |(_, factor)| *factor);
    // The conditions of `quantile_ranks`, solved for the sample's size.
    let needed = factor.max(NORMAL_975 * NORMAL_975) / (1.0 - q);
    // two digits, rounded up: it is an estimate
    let step = 10_f64.powf(needed.log10().floor() - 1.0).max(1.0);
    ((needed / step).ceil() * step) as u64
}

#[cfg(test)]
mod tests {
    use taillab_model::quantile_ranks;

    use super::*;

    #[test]
    fn the_requests_needed_are_about_those_that_the_model_accepts() {
        for q in [0.99, 0.999, 0.9999] {
            for factor in [1.0, 7.0, 40.0] {
                let needed = requests_needed(&[(0.5, 2.0), (q, factor)], q);
                assert!(quantile_ranks(needed * 11 / 10, q, factor).is_some());
                assert!(quantile_ranks(needed * 8 / 10, q, factor).is_none());
            }
        }
    }
}
