//! Whether the part of a recording that is replayed is like the whole.
//!
//! A spell of half a second can decide p99. If it lies outside of the part, a replay of the part does not
//! say what p99 would be without it.

use taillab_model::explanation::ModelFit;
use taillab_model::{Distribution, Nanos};

use super::PREDICTED_QUANTILES;
use crate::fmt::Percentile;

/// A percentile of the part that differs by more than this from that of all requests has no forecast.
const MOST_UNLIKE: f64 = 0.25;

/// How much each percentile of the part differs from that of all requests: part ÷ all − 1.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayedPart(Vec<(f64, f64)>);

impl ReplayedPart {
    /// Compares the percentiles of a fit with those of all requests, and puts the latter into the fit. The
    /// replay keeps its relative error.
    pub(super) fn compare(fit: &mut ModelFit, all: &Distribution) -> Self {
        let mut differences = Vec::new();
        for point in &mut fit.points {
            let Some(measured) = all.quantile(point.q) else {
                continue;
            };
            let of_all = measured.get() as f64;
            let difference = point.measured_ns.get() as f64 / of_all.max(1.0) - 1.0;
            differences.push((point.q, difference));
            point.replayed_ns = Nanos::new((of_all * (1.0 + point.error)).round() as u64);
            point.measured_ns = measured;
        }
        Self(differences)
    }

    /// By how much this percentile of the part is higher or lower, as a share.
    pub(super) fn difference(&self, q: f64) -> f64 {
        let mut known = self.0.iter();
        let known = known.find(|(known, _)| *known == q);
        known.map_or(0.0, |(_, difference)| difference.abs())
    }

    /// Whether this percentile can be forecast from the part.
    pub(super) fn is_like_all(&self, q: f64) -> bool {
        self.difference(q) <= MOST_UNLIKE
    }

    /// What cannot be forecast, and why.
    pub(super) fn limits(&self) -> impl Iterator<Item = String> + '_ {
        let is_predicted = |(q, _): &&(f64, f64)| PREDICTED_QUANTILES.contains(q);
        let predicted = self.0.iter().filter(is_predicted);
        let unlike = predicted.filter(|(q, _)| !self.is_like_all(*q));
        unlike.map(|(q, difference)| {
            format!(
                "no forecasts of {}: in the requests that are replayed, it is {:.0} % {} than in all",
                Percentile(*q),
                100.0 * difference.abs(),
                if *difference > 0.0 { "higher" } else { "lower" },
            )
        })
    }
}
