//! Tests of forecasts: a cause is really removed, and what is then measured is compared with the
//! forecast that was made while the cause was still there.

use schemars::JsonSchema;
use serde::Serialize;
use taillab_model::explanation::PredictedPoint;
use taillab_model::interval::{Estimate, median};
use taillab_model::{Nanos, Quantile};

use super::criteria::{FORECAST_TOLERANCE, QUANTILES};
use super::judge::{Criterion, Equivalence, Verdict};
use super::kind::Fix;
use super::pair::Pair;

/// A forecast and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Forecast {
    /// The forecast: `without background`, `rt-priority`; empty where no pair had one.
    pub change: String,
    /// What was done to remove the cause.
    pub done: &'static str,
    /// Pairs with a forecast; in the others the replay did not reproduce the queue.
    pub predicted_pairs: u32,
    /// p50, p99 and p99.9, as far as six pairs have a forecast of them.
    pub points: Vec<ForecastPoint>,
}

/// One percentile: medians over the pairs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ForecastPoint {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// As measured with the cause.
    pub with_ns: Nanos,
    /// As predicted without it.
    pub predicted_ns: Nanos,
    /// As measured without it.
    pub measured_ns: Nanos,
    /// Predicted ÷ measured of each pair by itself: the median must be 1, and "no change" must not
    /// have been as good a forecast.
    pub error: Criterion,
    /// How many of the forecasts' intervals contain what was then measured, as far as the measurement itself tells.
    pub interval: Criterion,
}

/// One pair at one percentile.
#[derive(Clone, Copy)]
struct Compared {
    /// As measured with the cause.
    with: Nanos,
    predicted: PredictedPoint,
    /// As measured without it, and the interval of that.
    without: Nanos,
    measured: Option<Quantile>,
}

impl Compared {
    /// Whether prediction and measurement differ by no more than their intervals together: both are samples, so the
    /// half widths add up in squares. `None` where the forecast has no interval.
    fn agrees(&self) -> Option<bool> {
        let (predicted, without) = (self.predicted.predicted_ns, self.without);
        let lo = self.predicted.lo_ns?;
        if self.measured.is_some_and(|it| it.value.is_none()) {
            return None;
        }
        let log = |a: Nanos, b: Nanos| (a.get().max(1) as f64 / b.get().max(1) as f64).ln();
        let off = log(without, predicted);
        let own = |end: fn(Quantile) -> Option<Nanos>| self.measured.map_or(Some(without), end);
        // the ends that face the other figure
        let halves = match off < 0.0 {
            true => Some(log(predicted, lo)).zip(own(|it| it.hi).map(|hi| log(hi, without))),
            false => (self.predicted.hi_ns.map(|hi| log(hi, predicted)))
                .zip(own(|it| it.lo).map(|lo| log(without, lo))),
        };
        // an open end is as far as one likes
        Some(halves.is_none_or(|(one, other)| off.abs() <= one.hypot(other)))
    }
}

impl Forecast {
    /// Compares what was predicted in each pair with what was measured.
    pub(super) fn of(fix: &Fix, pairs: &[Pair]) -> Self {
        let forecasts: Vec<_> = (pairs.iter())
            .filter_map(|pair| Some((pair, pair.with.forecast(fix.promise)?)))
            .collect();
        let point = |q: f64| {
            let at = forecasts.iter().filter_map(|(pair, forecast)| {
                let point = forecast.points.iter().find(|point| point.q == q)?;
                Some(Compared {
                    with: pair.with.sojourn(q),
                    predicted: *point,
                    without: pair.without.sojourn(q),
                    measured: pair.without.measured_at(q),
                })
            });
            ForecastPoint::of(q, &at.collect::<Vec<_>>())
        };
        Self {
            change: forecasts
                .first()
                .map_or_else(String::new, |(_, it)| it.change.clone()),
            done: fix.done,
            predicted_pairs: forecasts.len() as u32,
            points: QUANTILES.into_iter().filter_map(point).collect(),
        }
    }

    /// Two criteria for each percentile, of the forecast and of its interval; inconclusive where fewer than six pairs have a forecast of it.
    pub(super) fn criteria(&self) -> Vec<Criterion> {
        let of = |q: f64| match self.points.iter().find(|point| point.q == q) {
            Some(point) => vec![point.error.clone(), point.interval.clone()],
            None => vec![judge(q, None)],
        };
        QUANTILES.into_iter().flat_map(of).collect()
    }
}

impl ForecastPoint {
    fn of(q: f64, pairs: &[Compared]) -> Option<Self> {
        let ratio = |a: Nanos, b: Nanos| a.get() as f64 / (b.get() as f64).max(1.0);
        let middle =
            |of: &dyn Fn(&Compared) -> f64| median(&pairs.iter().map(of).collect::<Vec<_>>());
        let ns = |of: &dyn Fn(&Compared) -> Nanos| {
            Some(Nanos::new(
                middle(&|pair| of(pair).get() as f64)?.value as u64,
            ))
        };
        let error = middle(&|pair| ratio(pair.predicted.predicted_ns, pair.without))?;
        let effect = middle(&|pair| ratio(pair.with, pair.without))?;
        let mut error = judge(q, Some(error));
        let nothing_changed = (effect.value - 1.0).abs() <= FORECAST_TOLERANCE;
        if nothing_changed {
            error.verdict = error.verdict.max(Verdict::Inconclusive);
        }
        let agree: Vec<bool> = pairs.iter().filter_map(Compared::agrees).collect();
        let contain = agree.iter().filter(|agrees| **agrees).count();
        let what = format!("forecast p{} in its interval", 100.0 * q);
        Some(Self {
            q,
            with_ns: ns(&|pair| pair.with)?,
            predicted_ns: ns(&|pair| pair.predicted.predicted_ns)?,
            measured_ns: ns(&|pair| pair.without)?,
            error,
            interval: Criterion::of_intervals(what, contain as u32, agree.len() as u32),
        })
    }
}

/// Judges the median of predicted ÷ measured.
fn judge(q: f64, error: Option<Estimate>) -> Criterion {
    let what = format!("forecast p{}", 100.0 * q);
    let wanted = Equivalence {
        target: 1.0,
        tolerance: FORECAST_TOLERANCE,
    };
    Criterion::judge(what, wanted, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of (predicted, measured), where `with` was measured before the fix; in µs. The forecast's interval reaches
    /// a tenth to either side.
    fn compared(with: u64, pairs: &[(u64, u64)]) -> Vec<Compared> {
        let us = Nanos::from_micros;
        let one = |(predicted, measured): &(u64, u64)| Compared {
            with: us(with),
            predicted: PredictedPoint {
                q: 0.99,
                measured_ns: us(with),
                predicted_ns: us(*predicted),
                lo_ns: Some(Nanos::new(*predicted * 900)),
                hi_ns: Some(Nanos::new(*predicted * 1_100)),
            },
            without: us(*measured),
            measured: None,
        };
        pairs.iter().map(one).collect()
    }

    fn verdict(with: u64, pairs: &[(u64, u64)]) -> Verdict {
        let point = ForecastPoint::of(0.99, &compared(with, pairs));
        point.unwrap().error.verdict
    }

    #[test]
    fn the_interval_is_judged_by_itself() {
        let interval = |pairs: &[(u64, u64)]| {
            let point = ForecastPoint::of(0.99, &compared(1_000, pairs));
            point.unwrap().interval.verdict
        };
        assert_eq!(interval(&[(105, 100); 8]), Verdict::Pass);
        // the median is near enough, but the interval says that it is nearer
        assert_eq!(interval(&[(115, 100); 8]), Verdict::Fail);
        // what is measured is itself uncertain by a fifth
        let mut uncertain = compared(1_000, &[(115, 100); 8]);
        for pair in &mut uncertain {
            let us = |us| Some(Nanos::from_micros(us));
            pair.measured = Some(Quantile {
                q: 0.99,
                value: us(100),
                lo: us(83),
                hi: us(120),
            });
        }
        let point = ForecastPoint::of(0.99, &uncertain).unwrap();
        assert_eq!(point.interval.verdict, Verdict::Pass);
    }

    #[test]
    fn a_forecast_comes_true_or_does_not_or_cannot_be_told() {
        assert_eq!(verdict(1_000, &[(115, 100); 6]), Verdict::Pass);
        assert_eq!(verdict(1_000, &[(85, 100); 6]), Verdict::Pass);
        assert_eq!(verdict(1_000, &[(130, 100); 6]), Verdict::Fail);
        assert_eq!(verdict(1_000, &[(70, 100); 6]), Verdict::Fail);
        let noisy = [
            (130, 100),
            (125, 90),
            (124, 300),
            (126, 95),
            (127, 80),
            (125, 99),
        ];
        assert_eq!(verdict(1_000, &noisy), Verdict::Inconclusive);
        assert!(ForecastPoint::of(0.99, &[]).is_none());
    }

    #[test]
    fn where_nothing_changed_a_forecast_proves_nothing() {
        assert_eq!(verdict(110, &[(105, 100); 6]), Verdict::Inconclusive);
        // but it can still be wrong
        assert_eq!(verdict(110, &[(50, 100); 6]), Verdict::Fail);
    }

    #[test]
    fn a_percentile_without_a_forecast_is_inconclusive() {
        let forecast = Forecast {
            change: String::new(),
            done: "",
            predicted_pairs: 0,
            points: ForecastPoint::of(0.5, &compared(30, &[(10, 10); 8]))
                .into_iter()
                .collect(),
        };
        let verdicts: Vec<Verdict> = forecast.criteria().iter().map(|it| it.verdict).collect();
        let (pass, unknown) = (Verdict::Pass, Verdict::Inconclusive);
        let expected = [pass, pass, unknown, unknown];
        assert_eq!(verdicts, expected);
    }
}
