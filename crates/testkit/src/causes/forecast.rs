//! Tests of forecasts: a cause is really removed, and what is then measured is compared with the
//! forecast that was made while the cause was still there.

use schemars::JsonSchema;
use serde::Serialize;
use taillab_analysis::{MedianEstimate, median};
use taillab_model::Nanos;

use super::criteria::{FORECAST_TOLERANCE, QUANTILES};
use super::judge::{Criterion, Verdict};
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
                Some((
                    pair.with.sojourn(q),
                    point.predicted_ns,
                    pair.without.sojourn(q),
                ))
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

    /// A criterion for each percentile; inconclusive where fewer than six pairs have a forecast of it.
    pub(super) fn criteria(&self) -> Vec<Criterion> {
        let of = |q: f64| match self.points.iter().find(|point| point.q == q) {
            Some(point) => point.error.clone(),
            None => judge(q, None),
        };
        QUANTILES.into_iter().map(of).collect()
    }
}

impl ForecastPoint {
    /// From pairs of (measured with the cause, predicted without it, measured without it).
    fn of(q: f64, pairs: &[(Nanos, Nanos, Nanos)]) -> Option<Self> {
        let ratio = |a: Nanos, b: Nanos| a.get() as f64 / (b.get() as f64).max(1.0);
        let middle = |of: &dyn Fn(&(Nanos, Nanos, Nanos)) -> f64| {
            median(&pairs.iter().map(of).collect::<Vec<_>>())
        };
        let ns = |of: &dyn Fn(&(Nanos, Nanos, Nanos)) -> Nanos| {
            Some(Nanos::new(
                middle(&|pair| of(pair).get() as f64)?.value as u64,
            ))
        };
        let error = middle(&|(_, predicted, without)| ratio(*predicted, *without))?;
        let effect = middle(&|(with, _, without)| ratio(*with, *without))?;
        let mut error = judge(q, Some(error));
        let nothing_changed = (effect.value - 1.0).abs() <= FORECAST_TOLERANCE;
        if nothing_changed {
            error.verdict = error.verdict.max(Verdict::Inconclusive);
        }
        Some(Self {
            q,
            with_ns: ns(&|pair| pair.0)?,
            predicted_ns: ns(&|pair| pair.1)?,
            measured_ns: ns(&|pair| pair.2)?,
            error,
        })
    }
}

/// Judges the median of predicted ÷ measured.
fn judge(q: f64, error: Option<MedianEstimate>) -> Criterion {
    let what = format!("forecast p{}", 100.0 * q);
    Criterion::judge(what, (1.0, FORECAST_TOLERANCE), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict on pairs of (predicted, measured), where `with` was measured before the fix; in µs.
    fn verdict(with: u64, pairs: &[(u64, u64)]) -> Verdict {
        let us = Nanos::from_micros;
        let pairs: Vec<_> = (pairs.iter())
            .map(|(predicted, measured)| (us(with), us(*predicted), us(*measured)))
            .collect();
        ForecastPoint::of(0.99, &pairs).unwrap().error.verdict
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
            points: ForecastPoint::of(0.5, &[(Nanos::new(30), Nanos::new(10), Nanos::new(10)); 6])
                .into_iter()
                .collect(),
        };
        let verdicts: Vec<Verdict> = forecast.criteria().iter().map(|it| it.verdict).collect();
        let expected = [Verdict::Pass, Verdict::Inconclusive, Verdict::Inconclusive];
        assert_eq!(verdicts, expected);
    }
}
