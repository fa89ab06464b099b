//! Which mitigations are worth a trial, the best first.

use taillab_host::tune::{MITIGATIONS, Mitigation};
use taillab_model::explanation::Prediction;
use taillab_model::fix::{Ratio, RatioAt};
use taillab_model::summary::ServerResult;

use super::decide::WORTH;

/// A cause with a smaller share of the excess above p99 is not worth a mitigation without forecast.
const LEAST_SHARE: f64 = 0.05;

/// A mitigation to try.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Which.
    pub mitigation: &'static Mitigation,
    /// Latency with it ÷ latency now, as forecast.
    pub predicted: Vec<RatioAt>,
}

/// The mitigations that this machine can apply by itself: those with a forecast of at least the
/// gain that is worth keeping, in the forecasts' order, then those that treat a chief cause and for
/// which the replay has no forecast. Where no cause is known, all of them.
pub fn of(result: &ServerResult) -> Vec<Candidate> {
    let known = |name: &str| {
        let found = MITIGATIONS.iter().find(|row| row.is.name == name);
        found.copied()
    };
    let forecast: Vec<Candidate> = (result.predictions.iter())
        .filter_map(|prediction| {
            Some(Candidate {
                mitigation: known(&prediction.change)?,
                predicted: ratios(prediction),
            })
        })
        .collect();
    let has_forecast = |name: &str| {
        forecast
            .iter()
            .any(|other| other.mitigation.is.name == name)
    };
    let share = |row: &Mitigation| {
        let wholes = result.causes.iter().filter(|share| share.culprit.is_none());
        wholes
            .filter(|share| row.is.treats.contains(&share.cause))
            .map(|share| share.excess_share_above_p99.value)
            .fold(0.0, f64::max)
    };
    let mut others: Vec<(f64, Candidate)> = (MITIGATIONS.iter())
        .filter(|row| !has_forecast(row.is.name))
        .map(|row| (share(row), row))
        .filter(|(share, _)| result.causes.is_empty() || *share >= LEAST_SHARE)
        .map(|(share, row)| {
            let candidate = Candidate {
                mitigation: row,
                predicted: Vec::new(),
            };
            (share, candidate)
        })
        .collect();
    others.sort_by(|a, b| b.0.total_cmp(&a.0));
    let worth = forecast.into_iter().filter(is_worth_it);
    worth
        .chain(others.into_iter().map(|(_, candidate)| candidate))
        .collect()
}

/// The forecast at the highest percentile promises enough.
fn is_worth_it(candidate: &Candidate) -> bool {
    let last = candidate.predicted.last();
    last.is_none_or(|at| at.ratio.value <= WORTH)
}

/// The forecast as ratios; the sample's own uncertainty is in neither end.
fn ratios(prediction: &Prediction) -> Vec<RatioAt> {
    let points = prediction.points.iter();
    points
        .filter(|point| point.measured_ns.get() > 0)
        .map(|point| {
            let now = point.measured_ns.get() as f64;
            RatioAt {
                q: point.q,
                ratio: Ratio {
                    value: point.predicted_ns.get() as f64 / now,
                    lo: point.lo_ns.map(|lo| lo.get() as f64 / now),
                    hi: point.hi_ns.map(|hi| hi.get() as f64 / now),
                },
            }
        })
        .collect()
}
