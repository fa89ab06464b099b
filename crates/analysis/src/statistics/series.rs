//! Series that are too long to be kept: read twice, in order of time both times.

use taillab_model::histogram::Ranked;
use taillab_model::{Distribution, Histogram, Nanos, REPORTED_QUANTILES, quantile_ranks};

use super::{Inflation, ccdf, ccdf_of_ranks};

/// A series of which a first reading knows the distribution, and a second one how far
/// neighbours correlate.
#[derive(Clone, Debug)]
pub struct Series {
    histogram: Histogram,
    ranked: Ranked,
    quantiles: Vec<f64>,
    inflation: Inflation,
}

impl Series {
    /// Before the second reading; what the first one found.
    pub fn new(histogram: Histogram) -> Self {
        let ranked = histogram.ranked();
        let n = histogram.count();
        let (quantiles, thresholds) = REPORTED_QUANTILES
            .iter()
            .filter_map(|&q| Some((q, ranked.at(quantile_ranks(n, q, 1.0)?.value)?.to)))
            .unzip();
        Self {
            inflation: Inflation::new(n as usize, thresholds),
            histogram,
            ranked,
            quantiles,
        }
    }

    /// Reads on, the second time.
    pub fn extend(&mut self, observations: &[Nanos]) {
        self.inflation.extend(observations);
    }

    /// The histogram.
    pub const fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// Its cells by rank.
    pub const fn ranked(&self) -> &Ranked {
        &self.ranked
    }

    /// The variance inflation at each quantile that independent observations would support.
    pub fn factors(&self) -> Vec<(f64, f64)> {
        let factors = self.inflation.clone().factors();
        self.quantiles.iter().copied().zip(factors).collect()
    }

    /// The distribution with these factors.
    pub fn distribution(&self, factors: &[(f64, f64)]) -> Distribution {
        self.histogram.distribution(|q| {
            let known = factors.iter().find(|(level, _)| *level == q);
            known.map_or(1.0, |(_, factor)| *factor)
        })
    }

    /// See [`ccdf()`].
    pub fn ccdf(&self) -> Vec<(Nanos, f64)> {
        ccdf_of_histogram(&self.histogram, &self.ranked)
    }
}

fn ccdf_of_histogram(histogram: &Histogram, ranked: &Ranked) -> Vec<(Nanos, f64)> {
    ccdf_of_ranks(histogram.count() as usize, |rank| {
        ranked
            .at(rank as u64)
            .map_or(Nanos::ZERO, |cell| cell.middle)
    })
}

/// A sample without order: whole, or in the cells of a histogram.
#[derive(Clone, Debug)]
pub enum Sample {
    /// Each observation.
    Whole(Vec<Nanos>),
    /// For any number of them.
    Cells(Histogram),
}

impl Sample {
    /// Adds an observation.
    #[inline]
    pub fn push(&mut self, length: Nanos) {
        match self {
            Self::Whole(lengths) => lengths.push(length),
            Self::Cells(histogram) => histogram.record(length),
        }
    }

    /// The distribution, as of independent observations, and the points of its curve.
    pub fn summarise(self) -> (Distribution, Vec<(Nanos, f64)>) {
        match self {
            Self::Whole(mut lengths) => {
                lengths.sort_unstable();
                (Distribution::from_sorted(&lengths), ccdf(&lengths))
            }
            Self::Cells(histogram) => {
                let curve = ccdf_of_histogram(&histogram, &histogram.ranked());
                (histogram.distribution(|_| 1.0), curve)
            }
        }
    }
}
