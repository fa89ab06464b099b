//! Forecasts of the sojourn without a cause, or with a mitigation.
//!
//! A forecast is the measured quantile times the ratio of two replays: with the change, and without it.
//! Its interval comes from blocks of time ([`interval`]), widened by the error with which the replay
//! reproduces that quantile, and by what the [`part`] that is replayed may not say of the whole. A ratio
//! above 1 is an error of the replay, unless the change has a [`toll`]. A quantile that the replay without
//! changes misses by more than [`MOST_FIT_ERROR`](taillab_model::explanation::MOST_FIT_ERROR) has no forecasts.

mod interval;
mod limits;
pub mod mitigation;
mod on_schedule;
mod part;
mod replayed;
pub(crate) mod scenario;
pub mod threads;
mod toll;

use std::collections::HashMap;

use taillab_model::explanation::{
    Cause, CauseShare, Culprit, ModelFit, NamedCurve, PredictedPoint, Prediction,
};
use taillab_model::interval::Interval;
use taillab_model::summary::ReplayedSchedule;
use taillab_model::{Distribution, Nanos, Tid};

use self::limits::limits;
use self::mitigation::{MITIGATIONS, Mitigation};
use self::part::ReplayedPart;
use self::replayed::replayed;
pub(crate) use self::replayed::sojourns;
use self::toll::Toll;
use crate::fmt::Percentile;
use crate::replay::{
    BlockHistogram, Change, FIT_QUANTILES, Fitted, Observed, Order, VacationSource, fit,
};
use crate::statistics::ccdf;

/// The quantiles of the sojourn that are predicted.
pub const PREDICTED_QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// A cause with a smaller share of the excess, and of the excess above p99, has no forecast.
const MIN_SHARE: f64 = 0.01;

/// A culprit with a smaller share of the excess above p99 has no forecast of its own.
const MIN_CULPRIT_SHARE: f64 = 0.05;

/// The maximum number of culprits with a forecast of their own.
const MAX_CULPRITS: usize = 3;

/// A mitigation that affects a smaller part of a cause does not treat it.
const MAIN_PART: f64 = 0.5;

/// Causes that one measure removes, and what there is no more without both.
const TOGETHER: [([Cause; 2], &str); 2] = [
    (
        [Cause::Softirq, Cause::Irq],
        "no softirqs and interrupts on the server's CPUs",
    ),
    (
        [Cause::Hypervisor, Cause::SlowCpu],
        "a host that neither takes the server's CPUs away nor slows them down",
    ),
];

/// A percentile is not raised for less than this, and a toll that raises none by more is not named.
const NOTABLE_TOLL: f64 = 0.01;

/// The number of forecasts whose curves are drawn.
const CURVES: usize = 3;

/// The number of points of a predicted curve.
const CURVE_POINTS: usize = 200;

/// What the forecasts need besides the queue.
#[derive(Clone, Copy, Debug)]
pub struct Basis<'a> {
    /// The measured sojourn.
    pub sojourn: &'a Distribution,
    /// The ledger's causes and culprits. Empty: those of the queue are used instead.
    pub causes: &'a [CauseShare],
    /// The ideal service time.
    pub service_time: Nanos,
    /// The server's process, if it still runs; commands name it.
    pub process: Option<Tid>,
}

/// The forecasts, and how well the replay fits.
#[derive(Clone, Debug, Default)]
pub struct Predicted {
    /// `None` if there are too few requests for any quantile.
    pub model_fit: Option<ModelFit>,
    /// The forecasts, the one with the lowest far percentile first.
    pub predictions: Vec<Prediction>,
    /// What the requests would have seen if our own client had sent each when it was due; `None` where it did.
    pub on_schedule: Option<ReplayedSchedule>,
    /// The replayed curve, and those of the best forecasts.
    pub curves: Vec<NamedCurve>,
    /// What the reader should know about the method.
    pub limits: Vec<String>,
}

/// Finds the queue that fits and predicts with it.
pub fn predict(observed: &Observed, basis: &Basis<'_>) -> Predicted {
    let supported = |quantiles: &[f64]| -> Vec<f64> {
        let has = |q: &&f64| basis.sojourn.quantile(**q).is_some();
        quantiles.iter().filter(has).copied().collect()
    };
    let mut predicted = Predicted {
        limits: limits(observed),
        ..Predicted::default()
    };
    let Some(mut fitted) = fit(observed, &supported(&FIT_QUANTILES)) else {
        return predicted;
    };
    let part = ReplayedPart::compare(&mut fitted.fit, basis.sojourn);
    predicted.curves.push(NamedCurve {
        name: "replayed".to_owned(),
        points: part.curve_of_all(ccdf(&fitted.replayed)),
    });
    let quantiles = supported(&PREDICTED_QUANTILES).into_iter();
    let (borne, missed): (Vec<f64>, Vec<f64>) = quantiles.partition(|q| fitted.fit.bears(*q));
    predicted.limits.extend(missed.iter().map(|q| {
        format!(
            "no forecasts of {}: the replayed queue misses it by {:.0} %, more than the {:.0} % \
             that a forecast tolerates",
            Percentile(*q),
            100.0 * fitted.fit.error_at(*q).abs(),
            100.0 * fitted.fit.largest_borne,
        )
    }));
    if !borne.is_empty() {
        predicted.limits.extend(part.limits());
        let forecaster = Forecaster::new(observed, basis, (&fitted, &part), &borne);
        let (predictions, curves) = forecaster.all();
        predicted.predictions = predictions;
        predicted.on_schedule = forecaster.on_schedule();
        predicted.curves.extend(curves);
    }
    predicted.model_fit = Some(fitted.fit);
    predicted
}

/// Points (x, share of the requests that are at least as slow).
type ForecastCurve = Vec<(Nanos, f64)>;

/// What is forecast of a change.
#[derive(Clone, Debug)]
struct Forecast {
    points: Vec<PredictedPoint>,
    curve: ForecastCurve,
    /// Which percentiles get worse, and why.
    worse: Option<String>,
}

/// A forecast to be made.
struct Plan {
    prediction: Prediction,
    change: Change,
}

struct Forecaster<'a> {
    observed: &'a Observed,
    basis: &'a Basis<'a>,
    fitted: &'a Fitted,
    part: &'a ReplayedPart,
    quantiles: Vec<f64>,
    with: BlockHistogram,
}

impl<'a> Forecaster<'a> {
    fn new(
        observed: &'a Observed,
        basis: &'a Basis<'a>,
        (fitted, part): (&'a Fitted, &'a ReplayedPart),
        quantiles: &[f64],
    ) -> Self {
        Self {
            observed,
            basis,
            fitted,
            part,
            quantiles: quantiles.to_vec(),
            with: replayed(observed, &observed.unchanged(fitted.discipline)),
        }
    }

    /// Whether the cause has enough of the excess for a forecast.
    fn is_present(&self, cause: Cause) -> bool {
        let causes = self.basis.causes;
        if causes.is_empty() {
            return self.observed.shows(cause);
        }
        let whole = |share: &&CauseShare| share.cause == cause && share.culprit.is_none();
        let least = MIN_SHARE;
        causes.iter().find(whole).is_some_and(|share| {
            share.share.value >= least || share.excess_share_above_p99.value >= least
        })
    }

    fn unchanged(&self) -> Change {
        self.observed.unchanged(self.fitted.discipline)
    }

    /// Forecasts without each cause, without the largest culprits, and without all causes.
    fn what_ifs(&self) -> Vec<Plan> {
        let (observed, service_time) = (self.observed, self.basis.service_time);
        let plan = |name: String, description: String, removes: Vec<Cause>, change: Change| Plan {
            prediction: Prediction {
                change: name,
                description,
                command: None,
                removes,
                cost: None,
                points: Vec::new(),
            },
            change,
        };
        let mut plans = Vec::new();
        let mut everything = self.unchanged();
        let mut all = Vec::new();
        for cause in Cause::ALL
            .into_iter()
            .filter(|cause| self.is_present(*cause))
        {
            let mut change = self.unchanged();
            if !scenario::without(&mut change, observed, cause, service_time) {
                continue;
            }
            scenario::without(&mut everything, observed, cause, service_time);
            all.push(cause);
            let name = format!("without {}", cause.key());
            let description = format!("no {}", cause.info().absence);
            plans.push(plan(name, description, vec![cause], change));
        }
        for (pair, description) in TOGETHER {
            if pair.iter().all(|cause| all.contains(cause)) {
                let mut change = self.unchanged();
                for cause in pair {
                    scenario::without(&mut change, observed, cause, service_time);
                }
                let name = format!("without {} and {}", pair[0].key(), pair[1].key());
                plans.push(plan(name, description.to_owned(), pair.to_vec(), change));
            }
        }
        for (cause, culprit, change) in self.culprits() {
            let name = format!("without {culprit}");
            let description = format!("{culprit} moved off the server's CPUs");
            plans.push(plan(name, description, vec![cause], change));
        }
        if all.len() > 1 {
            let name = "without all of these".to_owned();
            let description = "none of the causes that the replay knows".to_owned();
            plans.push(plan(name, description, all, everything));
        }
        plans
    }

    /// The largest culprits among the sources of vacations.
    fn culprits(&self) -> Vec<(Cause, String, Change)> {
        let mut largest: Vec<&CauseShare> = self
            .basis
            .causes
            .iter()
            .filter(|share| share.culprit.is_some())
            .filter(|share| share.excess_share_above_p99.value >= MIN_CULPRIT_SHARE)
            .collect();
        let above = |share: &&CauseShare| share.excess_share_above_p99.value;
        largest.sort_by(|a, b| above(b).total_cmp(&above(a)));
        let mut found = Vec::new();
        for share in largest {
            let mut change = self.unchanged();
            scenario::limit(&mut change, self.observed, 0, |source| {
                source.cause == share.cause && same(&source.culprit, &share.culprit)
            });
            let nothing = change == self.unchanged();
            if let Some(culprit) = share.culprit.as_ref().filter(|_| !nothing) {
                found.push((share.cause, culprit.to_string(), change));
            }
            if found.len() == MAX_CULPRITS {
                break;
            }
        }
        found
    }

    fn mitigations(&self) -> Vec<Plan> {
        let possible = |mitigation: &&Mitigation| mitigation.is_possible(self.observed);
        let present = |mitigation: &&Mitigation| {
            let treats = mitigation.is.treats.iter();
            treats.copied().any(|cause| self.is_present(cause))
        };
        let modelled = |mitigation: &&Mitigation| !mitigation.effects.is_empty();
        let rows = MITIGATIONS.iter();
        rows.filter(modelled)
            .filter(possible)
            .filter(present)
            .filter_map(|mitigation| self.mitigation(mitigation))
            .collect()
    }

    /// `None` if it changes nothing in this queue.
    fn mitigation(&self, mitigation: &Mitigation) -> Option<Plan> {
        let mut change = self.unchanged();
        for effect in mitigation.effects {
            scenario::apply(&mut change, self.observed, effect, self.basis.service_time);
        }
        // a limit changes nothing unless its source occurs
        let mut limits = change.limits.iter().zip(self.observed.by_source());
        let touches = limits.any(|(limit, time)| *limit != u64::MAX && time > 0);
        let unchanged = self.unchanged();
        let mut rest = change.clone();
        rest.limits.clone_from(&unchanged.limits);
        rest.awake.clone_from(&unchanged.awake);
        // the order of arrival and the order by worker both count as in order, unless it is about who of them has the CPU
        let is_of_workers = mitigation.is.treats.contains(&Cause::OwnThreads);
        let in_order = |order| matches!(order, Order::Arrival | Order::ByWorker);
        let both = in_order(rest.discipline.order) && in_order(self.fitted.discipline.order);
        if both && !is_of_workers {
            rest.discipline.order = unchanged.discipline.order;
        }
        if !touches && rest == unchanged {
            return None;
        }
        let treated = mitigation.is.treats.iter().copied();
        let removes: Vec<Cause> = treated
            .filter(|cause| self.is_present(*cause) && self.treats(&change, *cause))
            .collect();
        let cost = if mitigation.keeps.is_empty() {
            mitigation.is.cost.to_owned()
        } else {
            format!("{}; remains: {}", mitigation.is.cost, mitigation.keeps)
        };
        Some(Plan {
            prediction: Prediction {
                change: mitigation.is.name.to_owned(),
                description: mitigation.is.description.to_owned(),
                command: mitigation
                    .by_tune
                    .then(|| command(mitigation.is.name, self.basis.process)),
                removes,
                cost: Some(cost),
                points: Vec::new(),
            },
            change,
        })
    }

    /// Whether a change affects the main sources of a cause. Moving the devices' interrupts, for example,
    /// does nothing about the CPU's own timer.
    fn treats(&self, change: &Change, cause: Cause) -> bool {
        let observed = self.observed;
        let sources = observed.sources.iter().zip(observed.by_source());
        let (mut treated, mut all) = (0.0, 0.0);
        for ((source, time), limit) in sources.zip(&change.limits) {
            if source.cause != cause || time == 0 {
                continue;
            }
            let weight = self.weight(source, time);
            all += weight;
            if *limit != u64::MAX {
                treated += weight;
            }
        }
        // a cause without vacations is treated as a whole
        all == 0.0 || treated >= MAIN_PART * all
    }

    /// The weight of a source with vacations of `time_ns` in all: its share of the excess above p99, or
    /// that time if the ledger names no culprit.
    fn weight(&self, source: &VacationSource, time_ns: u64) -> f64 {
        let causes = self.basis.causes.iter();
        let mut named = causes
            .filter(|share| share.cause == source.cause && share.culprit.is_some())
            .peekable();
        if named.peek().is_none() {
            return time_ns as f64;
        }
        named
            .filter(|share| same(&share.culprit, &source.culprit))
            .map(|share| share.excess_share_above_p99.value)
            .sum()
    }

    /// Makes all forecasts and ranks them.
    fn all(&self) -> (Vec<Prediction>, Vec<NamedCurve>) {
        let mut plans = self.what_ifs();
        plans.extend(self.mitigations());
        // plans with the same change share a replay
        let mut known: HashMap<Change, Forecast> = HashMap::new();
        let mut made: Vec<(Prediction, ForecastCurve)> = Vec::new();
        for mut plan in plans {
            let forecast = known
                .entry(plan.change)
                .or_insert_with_key(|change| self.forecast(change))
                .clone();
            plan.prediction.points = forecast.points;
            if let Some(worse) = forecast.worse {
                admit(&mut plan.prediction, &worse);
            }
            made.push((plan.prediction, forecast.curve));
        }
        let farthest = |(prediction, _): &(Prediction, _)| {
            let mut points = prediction.points.iter().rev();
            let last = points.next().map(|point| point.predicted_ns);
            (last, points.next().map(|point| point.predicted_ns))
        };
        made.sort_by_key(farthest);
        let curves = made
            .iter()
            .filter(|(prediction, _)| prediction.cost.is_some())
            .take(CURVES)
            .map(|(prediction, curve)| NamedCurve {
                name: prediction.change.clone(),
                points: curve.clone(),
            })
            .collect();
        let predictions = made.into_iter().map(|(prediction, _)| prediction).collect();
        (predictions, curves)
    }

    fn forecast(&self, change: &Change) -> Forecast {
        let without = replayed(self.observed, change);
        let (ratios, tolls) = self.ratios_and_tolls(change, self.ratios(&without));
        // what takes no toll makes nothing worse
        let most = match tolls.is_empty() {
            true => 1.0,
            false => f64::INFINITY,
        };
        let points = self.points(ratios, &without, most);
        let worse: Vec<f64> = (points.iter())
            .filter(|point| point.predicted_ns > point.measured_ns)
            .map(|point| point.q)
            .collect();
        Forecast {
            worse: (!worse.is_empty()).then(|| toll::sentence(&worse, &tolls)),
            curve: self.part.curve_of_all(without.all().ccdf(CURVE_POINTS)),
            points,
        }
    }

    /// The percentiles with a change: the measured ones times the ratios of its replay, of at most `most`.
    fn points(
        &self,
        ratios: Vec<Option<f64>>,
        replayed: &BlockHistogram,
        most: f64,
    ) -> Vec<PredictedPoint> {
        let factors = interval::factors(replayed, &self.quantiles);
        let mut points: Vec<PredictedPoint> = Vec::with_capacity(self.quantiles.len());
        for ((&q, ratio), factor) in self.quantiles.iter().zip(ratios).zip(factors) {
            let (Some(measured), Some(ratio)) = (self.basis.sojourn.quantile(q), ratio) else {
                continue;
            };
            let scaled = |ratio: f64| {
                let predicted = measured.get() as f64 * ratio.min(most);
                Nanos::new(predicted.round() as u64)
            };
            // scaling each quantile by its own error must not change their order
            let before = points.last();
            let least = before.map_or(Nanos::ZERO, |point| point.predicted_ns);
            let least_lo = before.and_then(|point| point.lo_ns).unwrap_or_default();
            let predicted = scaled(ratio).max(least);
            let interval = factor.map(|factor| self.interval(q, ratio, factor));
            points.push(PredictedPoint {
                q,
                measured_ns: measured,
                predicted_ns: predicted,
                // what a lower percentile exceeds, this one does
                lo_ns: interval.map(|ends| scaled(ends.lo).max(least_lo).min(predicted)),
                // a change that makes nothing worse leaves at most what was measured
                hi_ns: interval
                    .filter(|ends| ends.hi.min(most).is_finite())
                    .map(|ends| scaled(ends.hi).max(predicted)),
            });
        }
        points
    }

    /// Each quantile of a replay ÷ that of the replay without changes.
    fn ratios(&self, without: &BlockHistogram) -> Vec<Option<f64>> {
        let with = self.with.all().quantiles_ns(&self.quantiles);
        let without = without.all().quantiles_ns(&self.quantiles);
        let pairs = without.into_iter().zip(with);
        pairs
            .map(|(without, with)| Some(without? / with?.max(1.0)))
            .collect()
    }

    /// The ratios of a change without the part above 1 that none of its tolls explains, and the tolls that
    /// raise a percentile.
    fn ratios_and_tolls(
        &self,
        change: &Change,
        ratios: Vec<Option<f64>>,
    ) -> (Vec<Option<f64>>, Vec<Toll>) {
        let exceeds = |ratio: &Option<f64>| ratio.is_some_and(|ratio| ratio > 1.0);
        if !ratios.iter().any(exceeds) {
            return (ratios, Vec::new());
        }
        let unchanged = self.unchanged();
        let (mut spared, mut tolls) = (change.clone(), Vec::new());
        for toll in Toll::ALL {
            let mut without = change.clone();
            if !toll.spare(&mut without, &unchanged) {
                continue;
            }
            toll.spare(&mut spared, &unchanged);
            let without = self.ratios(&replayed(self.observed, &without));
            let raises = |(with, without): (&Option<f64>, Option<f64>)| {
                let notable = 1.0 + NOTABLE_TOLL;
                let both = with.zip(without);
                both.is_some_and(|(with, without)| with > notable && with > notable * without)
            };
            if ratios.iter().zip(without).any(raises) {
                tolls.push(toll);
            }
        }
        let errors = match spared == *change {
            true => ratios.clone(),
            false => self.ratios(&replayed(self.observed, &spared)),
        };
        let corrected = ratios.into_iter().zip(errors).map(|(ratio, error)| {
            let corrected = ratio? / error.unwrap_or(1.0).max(1.0);
            let is_notable = corrected > 1.0 + NOTABLE_TOLL;
            Some(if is_notable {
                corrected
            } else {
                corrected.min(1.0)
            })
        });
        (corrected.collect(), tolls)
    }

    /// The interval of a ratio, from the factors by which it varies.
    fn interval(&self, q: f64, ratio: f64, factors: Interval<f64>) -> Interval<f64> {
        let error = self.fitted.fit.error_at(q).abs().min(1.0);
        let lo = ratio * factors.lo.min(1.0) * (1.0 - error);
        let hi = ratio * factors.hi.max(1.0) * (1.0 + error);
        self.part.of_all(q, Interval { lo, hi })
    }
}

/// Says what a change costs: a what-if has no costs, so its description does.
fn admit(prediction: &mut Prediction, worse: &str) {
    let text = match &mut prediction.cost {
        Some(cost) => cost,
        None => &mut prediction.description,
    };
    text.push_str("; ");
    text.push_str(worse);
}

/// Whether both are the same culprit; threads with the same name and process are.
fn same(a: &Option<Culprit>, b: &Option<Culprit>) -> bool {
    match (a, b) {
        (
            Some(Culprit::Thread { name, pid, .. }),
            Some(Culprit::Thread {
                name: other,
                pid: of,
                ..
            }),
        ) => name == other && pid == of,
        _ => a == b,
    }
}

/// The command that applies the mitigation to the server's process; without a process, the command that
/// shows what would be changed.
fn command(mitigation: &str, process: Option<Tid>) -> String {
    match process {
        Some(pid) => format!("sudo taillab tune apply {mitigation} -p {pid}"),
        None => format!("taillab tune plan {mitigation}"),
    }
}

#[cfg(test)]
mod tests;
