//! Objectives: whether a load meets one, and up to which load it is met.

use taillab_model::Objective;
use taillab_model::load_result::{LoadStep, ObjectiveAt, SearchResult};
use taillab_model::summary::Verdict;
use taillab_model::{Nanos, REPORTED_QUANTILES, quantile_rank, quantile_ranks};

use super::LoadedRequest;
use crate::statistics::variance_inflation;
use crate::verdict::{client_failed, is_overload};

/// Whether a load meets an objective.
///
/// `requests` come in order of the intended time. A request without an answer counts as too slow, so that a
/// server cannot meet an objective by not answering. The objective is not met if the sample does not support
/// the percentile, or if the client contaminated the measurement; in both cases the result is not sure.
/// Otherwise the interval shows whether it is sure.
pub fn objective_at(
    objective: Objective,
    requests: impl Iterator<Item = LoadedRequest>,
    verdict: &Verdict,
) -> ObjectiveAt {
    let series: Vec<Nanos> = requests
        .map(|r| match r.times.received {
            Some(at) => at.saturating_since(r.times.intended),
            None => Nanos::MAX,
        })
        .collect();
    let mut sorted = series.clone();
    sorted.sort_unstable();
    let n = sorted.len() as u64;
    let independent = quantile_ranks(n, objective.q, 1.0);
    let ranks = independent.and_then(|ranks| {
        let at = sorted[ranks.value as usize];
        // with the lower percentiles, which show whether the capacity drifts
        let before = REPORTED_QUANTILES.iter().filter(|q| **q < objective.q);
        let levels: Vec<(f64, Nanos)> = (before)
            .map(|&q| (q, sorted[quantile_rank(n, q) as usize]))
            .chain([(objective.q, at)])
            .collect();
        let factors = variance_inflation(&series, &levels);
        quantile_ranks(n, objective.q, factors.last().copied().unwrap_or(1.0))
    });
    let value_at = |rank: u64| sorted[rank as usize];
    let value = ranks.map(|ranks| value_at(ranks.value));
    let (lo, hi) = (
        ranks.map(|ranks| value_at(ranks.lo)),
        ranks.and_then(|ranks| ranks.hi).map(value_at),
    );
    let limit = objective.limit_ns;
    let within = |x: Option<Nanos>| x.is_some_and(|x| x <= limit);
    let overload = is_overload(verdict);
    let contaminated = client_failed(verdict, objective.q);
    let held = within(value) && !overload && !contaminated;
    // an answer that never came has no response time
    let finite = |x: Option<Nanos>| x.filter(|x| *x != Nanos::MAX);
    ObjectiveAt {
        value_ns: finite(value),
        lo_ns: finite(value).and(finite(lo)),
        hi_ns: finite(value).and(finite(hi)),
        held,
        sure: if held {
            within(hi)
        } else {
            !contaminated && (overload || lo.is_some_and(|lo| lo > limit))
        },
    }
}

/// The result of a search.
///
/// By chance, a higher rate can meet the objective although a lower one does not. The result is the highest
/// rate below all rates that fail.
pub fn found(objective: Objective, steps: &[LoadStep]) -> SearchResult {
    let probes = || {
        steps
            .iter()
            .filter_map(|step| Some((step, step.objective?)))
            .filter(|(step, _)| !step.partial)
    };
    let rate = |(step, _): &(&LoadStep, ObjectiveAt)| step.load.target_rate_per_s;
    let fails_at = probes()
        .filter(|(_, at)| !at.held)
        .map(|probe| rate(&probe))
        .min_by(f64::total_cmp);
    let below = |probe: &(&LoadStep, ObjectiveAt)| fails_at.is_none_or(|fails| rate(probe) < fails);
    let best = probes()
        .filter(|(_, at)| at.held)
        .filter(below)
        .max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let surely_fails = probes()
        .filter(|(_, at)| !at.held && at.sure)
        .map(|probe| rate(&probe))
        .min_by(f64::total_cmp);
    let surely_holds = probes()
        .filter(|(_, at)| at.held && at.sure)
        .filter(below)
        .map(|probe| rate(&probe))
        .max_by(f64::total_cmp);
    SearchResult {
        objective,
        held: best.is_some(),
        rate_per_s: best.map(|probe| rate(&probe)),
        utilization: best.and_then(|(step, _)| step.load.target_utilization),
        fails_at_per_s: fails_at,
        surely_holds_per_s: surely_holds,
        surely_fails_per_s: surely_fails,
    }
}
