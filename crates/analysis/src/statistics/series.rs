//! Observations in order of time: kept as they are up to a size, and as counts beyond.

use taillab_model::histogram::cell;
use taillab_model::{Distribution, Histogram, Lacking, Nanos, REPORTED_QUANTILES, quantile_ranks};

use super::bins::Bins;
use super::ccdf::ccdf_of_ranks;
use super::inflation::{CELLS, begin, inflation_at_quantiles, inflation_of_counts};
use crate::coarsening::Coarsening;

/// log2 of the number of bins for each doubling, in the cells of a series: a bin is 1.6 to 3.1 % wide.
const BITS: u32 = 5;

/// A stream of observations in order of time: its distribution, and how strongly neighbours correlate.
///
/// Up to a limit the observations are kept, and everything is exact. A longer series is known to the
/// precision of a [`Histogram`]. For its correlation it is cut into one or two thousand equal cells,
/// each counted in wider bins. At the end, the threshold for a quantile is the nearest edge of a bin,
/// and counts at other places than the bounds of cells are interpolated.
#[derive(Clone, Debug)]
pub struct Series {
    /// All observations, while there are no more than `exact`.
    kept: Vec<Nanos>,
    exact: usize,
    histogram: Histogram,
    cells: Coarsening<Bins>,
}

impl Series {
    /// An empty series that keeps up to `exact` observations.
    pub fn new(exact: usize) -> Self {
        Self {
            kept: Vec::new(),
            exact,
            histogram: Histogram::default(),
            cells: Coarsening::new(1, 2 * CELLS),
        }
    }

    /// Takes the next observations.
    pub fn extend(&mut self, observations: &[Nanos]) {
        let is_counted = self.histogram.count() > 0;
        if !is_counted && self.kept.len() + observations.len() <= self.exact {
            self.kept.extend_from_slice(observations);
            return;
        }
        let kept = std::mem::take(&mut self.kept);
        self.count_all(&kept);
        self.count_all(observations);
    }

    fn count_all(&mut self, mut observations: &[Nanos]) {
        while !observations.is_empty() {
            let at = self.histogram.count();
            let (bins, end) = self.cells.cell(at);
            let (now, later) = observations.split_at(observations.len().min((end - at) as usize));
            self.histogram.record_all(now);
            for &length in now {
                bins.count(cell(length.get(), BITS));
            }
            observations = later;
        }
    }

    /// How many observations there are.
    pub fn count(&self) -> u64 {
        self.histogram.count() + self.kept.len() as u64
    }

    /// The finished series.
    pub fn finish(self) -> Observations {
        if self.histogram.count() > 0 {
            return Observations {
                factors: self.factors(),
                values: Values::Counted(self.histogram),
                lacking: Lacking::default(),
            };
        }
        Observations::of(&self.kept)
    }

    /// The variance inflation at each quantile that independent observations would support.
    fn factors(&self) -> Vec<(f64, f64)> {
        let n = self.histogram.count();
        let up_to = self.up_to();
        let edge = |q: f64| {
            let rank = quantile_ranks(n, q, 1.0)?.value;
            let above = up_to.partition_point(|count| *count <= rank);
            // the edge above its bin, or the one below
            let below = above.checked_sub(1).filter(|&below| {
                let nearer = rank - up_to[below] < up_to[above] - rank;
                up_to[below] > 0 && nearer
            });
            Some((q, below.unwrap_or(above)))
        };
        let levels: Vec<(f64, Vec<u64>)> = (REPORTED_QUANTILES.iter())
            .filter_map(|&q| edge(q))
            .map(|(q, edge)| (q, self.counts_up_to(edge)))
            .collect();
        let factors = inflation_of_counts(n as usize, &levels);
        levels.iter().map(|(q, _)| *q).zip(factors).collect()
    }

    /// For each bin, the number of observations in it and in all lower bins.
    fn up_to(&self) -> Vec<u64> {
        let cells = self.cells.cells();
        let end = cells.iter().map(Bins::end).max().unwrap_or(0);
        let mut counts = vec![0_u64; end];
        for bins in cells {
            for (count, more) in counts[bins.first()..].iter_mut().zip(bins.counts()) {
                *count += u64::from(*more);
            }
        }
        let mut below = 0;
        for count in &mut counts {
            below += *count;
            *count = below;
        }
        counts
    }

    /// How many observations lie in this bin or a lower one: before each of [`CELLS`] equal cells, and in all.
    fn counts_up_to(&self, bin: usize) -> Vec<u64> {
        let n = self.histogram.count();
        let width = self.cells.width();
        let mut before = Vec::with_capacity(2 * CELLS + 1);
        before.push(0);
        for bins in self.cells.cells() {
            before.push(before[before.len() - 1] + bins.up_to(bin));
        }
        let at = |cell: usize| {
            let place = begin(cell, n as usize) as u64;
            let own = ((place / width) as usize).min(before.len() - 2);
            let from = own as u64 * width;
            // the last cell is not full
            let length = (n - from).min(width).max(1);
            let inside = before[own + 1] - before[own];
            let part = u128::from(inside) * u128::from(place - from) / u128::from(length);
            before[own] + part as u64
        };
        (0..=CELLS).map(at).collect()
    }
}

/// A finished [`Series`], sorted by size, with the correlation that its order in time showed.
#[derive(Clone, Debug)]
pub struct Observations {
    factors: Vec<(f64, f64)>,
    values: Values,
    lacking: Lacking,
}

/// Observations without their order in time.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// Every observation, in ascending order.
    Sorted(Vec<Nanos>),
    /// How often each length occurred, to the precision of the histogram.
    Counted(Histogram),
}

impl Observations {
    /// The observations of a whole series, which is in order of time.
    pub fn of(series: &[Nanos]) -> Self {
        let mut sorted = series.to_vec();
        sorted.sort_unstable();
        Self {
            factors: inflation_at_quantiles(series, &sorted),
            values: Values::Sorted(sorted),
            lacking: Lacking::default(),
        }
    }

    /// Sets the number of requests that nobody answered: they count as longer than all others.
    pub const fn with_unanswered(mut self, requests: u64) -> Self {
        self.lacking.unanswered = requests;
        self
    }

    /// Sets the number of requests of which it is not known how long they took.
    pub const fn with_missing(mut self, requests: u64) -> Self {
        self.lacking.missing = requests;
        self
    }

    /// The variance inflation at each quantile that independent observations would support.
    pub fn factors(&self) -> &[(f64, f64)] {
        &self.factors
    }

    /// From now on, the observations count as independent of each other. Their distribution then includes
    /// percentiles that so correlated a sample does not support.
    pub fn assume_independent(&mut self) {
        self.factors
            .iter_mut()
            .for_each(|(_, factor)| *factor = 1.0);
    }

    /// Whether each value is known.
    pub const fn is_exact(&self) -> bool {
        matches!(self.values, Values::Sorted(_))
    }

    /// The share of the requests whose length is known; 1 without requests.
    pub(crate) fn answered_share(&self) -> f64 {
        let known = match &self.values {
            Values::Sorted(sorted) => sorted.len() as u64,
            Values::Counted(histogram) => histogram.count(),
        };
        match known + self.unanswered() {
            0 => 1.0,
            all => known as f64 / all as f64,
        }
    }

    /// The number of further observations that are longer than all others.
    pub(crate) const fn unanswered(&self) -> u64 {
        self.lacking.unanswered
    }

    pub(crate) const fn values(&self) -> &Values {
        &self.values
    }

    /// Their distribution.
    pub fn distribution(&self) -> Distribution {
        let factor = |q: f64| {
            let known = self.factors.iter().find(|(level, _)| *level == q);
            known.map_or(1.0, |(_, factor)| *factor)
        };
        match &self.values {
            Values::Sorted(sorted) => {
                Distribution::from_sorted_censored(sorted, self.lacking, factor)
            }
            Values::Counted(histogram) => histogram.distribution_censored(self.lacking, factor),
        }
    }

    /// The points of [`ccdf()`](super::ccdf()).
    pub fn curve(&self) -> Vec<(Nanos, f64)> {
        match &self.values {
            Values::Sorted(sorted) => {
                ccdf_of_ranks(sorted.len(), self.unanswered(), |rank| sorted[rank])
            }
            Values::Counted(histogram) => counted_curve(histogram, self.unanswered()),
        }
    }
}

/// The points of [`ccdf()`](super::ccdf()) for these lengths and `unanswered` longer ones.
pub(crate) fn counted_curve(histogram: &Histogram, unanswered: u64) -> Vec<(Nanos, f64)> {
    let ranked = histogram.ranked();
    ccdf_of_ranks(histogram.count() as usize, unanswered, |rank| {
        ranked
            .at(rank as u64)
            .map_or(Nanos::ZERO, |cell| cell.middle)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waiting times of a queue at 80 %, with a stall now and then.
    fn waits(n: usize) -> Vec<Nanos> {
        let (mut state, mut wait) = (1_u64, 0.0_f64);
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            ((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
        };
        let series = (0..n).map(|i| {
            let stall = if i % 20_011 == 7 { 3_000_000.0 } else { 0.0 };
            wait = (wait + 8_000.0 + stall + 10_000.0 * uniform().ln()).max(0.0);
            Nanos::new(5_000 + wait as u64)
        });
        series.collect()
    }

    #[test]
    fn factors_are_about_those_of_the_whole_series() {
        for n in [150, 1_919, 1_921, 40_000, 500_001] {
            let observations = waits(n);
            let mut series = Series::new(0);
            for some in observations.chunks(777) {
                series.extend(some);
            }
            let mut sorted = observations.clone();
            sorted.sort_unstable();
            let exact = inflation_at_quantiles(&observations, &sorted);
            let found = series.factors();
            assert_eq!(found.len(), exact.len());
            for ((q, factor), (p, exact)) in found.into_iter().zip(exact) {
                assert_eq!(q, p);
                let off = factor / exact;
                assert!(
                    (0.85..1.18).contains(&off),
                    "{n} {q}: {factor}, not {exact}"
                );
            }
        }
    }
}
