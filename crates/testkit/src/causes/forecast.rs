//! Tests of forecasts: a cause is really removed, and what is then measured is compared with the
//! forecast that was made while the cause was still there.
//!
//! A pair is two measurements under the same arrivals, one with the cause and one without. Their
//! order changes from pair to pair, so that a drift of the machine's speed affects both alike. The
//! measurements without the cause are also compared with each other: they differ by the machine's
//! noise, and no forecast can be nearer than that.

use schemars::JsonSchema;
use serde::Serialize;
use taillab_analysis::{MedianEstimate, median};
use taillab_model::Nanos;
use taillab_model::explanation::Prediction;

use super::account::Account;
use super::criteria::{NEAR, QUANTILES};

/// A forecast and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FixCheck {
    /// The forecast: `without background`, `rt-priority`.
    pub change: String,
    /// What was done to remove the cause.
    pub done: &'static str,
    /// Pairs of measurements, with and without in turn.
    pub pairs: u32,
    /// Pairs with a forecast; in the others the replay did not reproduce the queue.
    pub predicted_pairs: u32,
    /// More pairs, which do not count since the machine contaminated them.
    pub contaminated_pairs: u32,
    /// p50, p99 and p99.9, as far as there were forecasts for them.
    pub points: Vec<FixPoint>,
}

/// One percentile.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FixPoint {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// As measured with the cause.
    pub with: PairMedian,
    /// As predicted without it.
    pub predicted: PairMedian,
    /// As measured without it.
    pub measured: PairMedian,
    /// predicted ÷ measured − 1, of the medians.
    pub error: f64,
    /// The same of each pair by itself: the median, …
    pub pair_error: f64,
    /// … the lower end of its interval …
    pub pair_error_lo: f64,
    /// … and the upper end.
    pub pair_error_hi: f64,
    /// The effect of the cause: the median over the pairs of the distance between with and without,
    /// measured as `control_error`.
    pub effect: f64,
    /// The median distance between two successive measurements without the cause: larger ÷ smaller
    /// − 1.
    pub control_error: f64,
    /// The number of pairs whose measured value lies in the forecast's own interval.
    pub within_interval: u32,
    /// Whether the forecast came true.
    pub verdict: ForecastVerdict,
}

/// A median over the pairs with its interval (95 %, sign test).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PairMedian {
    /// The median.
    pub median_ns: Nanos,
    /// Lower end.
    pub lo_ns: Nanos,
    /// Upper end.
    pub hi_ns: Nanos,
}

/// What became of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForecastVerdict {
    /// It is within [`NEAR`] of what was measured.
    Near,
    /// It is farther away, but the interval of the pairs includes values within [`NEAR`].
    Undecided,
    /// It did not come true.
    Missed,
    /// With and without the cause differ by no more than two measurements without it: "no change"
    /// would have been as good a forecast.
    ProvesNothing,
}

/// What was predicted of one percentile, with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Predicted {
    value: Nanos,
    interval: Option<(Nanos, Nanos)>,
}

/// The pairs, at each of [`QUANTILES`].
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    points: [Series; QUANTILES.len()],
    contaminated: u32,
    /// The forecast's name.
    change: Option<String>,
}

/// One percentile in every pair.
#[derive(Clone, Debug, Default)]
struct Series {
    with: Vec<Nanos>,
    predicted: Vec<Option<Predicted>>,
    without: Vec<Nanos>,
}

impl Pairs {
    /// Adds a pair, or only counts it where the machine contaminated one of its measurements;
    /// `forecast` comes from the measurement with the cause.
    pub fn add(&mut self, with: &Account, without: &Account, forecast: Option<&Prediction>) {
        let mut both = [with, without].into_iter();
        if both.any(|account| account.machine.outweighs(&with.machine)) {
            self.contaminated += 1;
            return;
        }
        if let Some(forecast) = forecast {
            self.change.get_or_insert_with(|| forecast.change.clone());
        }
        for (q, series) in QUANTILES.into_iter().zip(&mut self.points) {
            let point = forecast.and_then(|it| it.points.iter().find(|point| point.q == q));
            series.with.push(with.sojourn(q));
            series.predicted.push(point.map(|point| Predicted {
                value: point.predicted_ns,
                interval: point.lo_ns.zip(point.hi_ns),
            }));
            series.without.push(without.sojourn(q));
        }
    }

    /// Pairs that count.
    pub fn counted(&self) -> u32 {
        self.points[0].with.len() as u32
    }

    /// Those of them with a forecast.
    pub fn predicted(&self) -> u32 {
        let predicted = |series: &Series| series.predicted.iter().flatten().count() as u32;
        self.points.iter().map(predicted).max().unwrap_or(0)
    }

    /// Pairs that the machine contaminated.
    pub fn contaminated(&self) -> u32 {
        self.contaminated
    }

    /// The result of the test; without points where too few pairs have a forecast.
    pub fn check(&self, done: &'static str) -> FixCheck {
        let points = QUANTILES.into_iter().zip(&self.points);
        FixCheck {
            change: self.change.clone().unwrap_or_default(),
            done,
            pairs: self.counted(),
            predicted_pairs: self.predicted(),
            contaminated_pairs: self.contaminated,
            points: points.filter_map(|(q, series)| series.point(q)).collect(),
        }
    }
}

impl Series {
    fn point(&self, q: f64) -> Option<FixPoint> {
        let of_pairs = || self.predicted.iter().zip(&self.without);
        let predicted: Vec<Nanos> = self.predicted.iter().flatten().map(|p| p.value).collect();
        let errors: Vec<f64> = of_pairs()
            .filter_map(|(predicted, without)| Some(ratio(predicted.as_ref()?.value, *without)))
            .collect();
        let (with, predicted, measured) = (
            PairMedian::of(&self.with)?,
            PairMedian::of(&predicted)?,
            PairMedian::of(&self.without)?,
        );
        let error = ratio(predicted.median_ns, measured.median_ns) - 1.0;
        let of_pair = median(&errors)?;
        let [pair_error, pair_error_lo, pair_error_hi] =
            [of_pair.value, of_pair.lo, of_pair.hi].map(|it| it - 1.0);
        let effect = middle_distance(self.with.iter().zip(&self.without));
        let control_error = middle_distance(self.without.iter().zip(self.without.iter().skip(1)));
        let holds = |(predicted, measured): &(&Option<Predicted>, &Nanos)| {
            predicted
                .and_then(|predicted| predicted.interval)
                .is_some_and(|(lo, hi)| (lo..=hi).contains(measured))
        };
        Some(FixPoint {
            q,
            with,
            predicted,
            measured,
            error,
            pair_error,
            pair_error_lo,
            pair_error_hi,
            effect,
            control_error,
            within_interval: of_pairs().filter(holds).count() as u32,
            verdict: if effect <= control_error {
                ForecastVerdict::ProvesNothing
            } else if error.abs() <= NEAR {
                ForecastVerdict::Near
            } else if pair_error_lo <= NEAR && pair_error_hi >= -NEAR {
                ForecastVerdict::Undecided
            } else {
                ForecastVerdict::Missed
            },
        })
    }
}

impl PairMedian {
    fn of(values: &[Nanos]) -> Option<Self> {
        let values: Vec<f64> = values.iter().map(|value| value.get() as f64).collect();
        let MedianEstimate { value, lo, hi } = median(&values)?;
        let ns = |value: f64| Nanos::new(value.round() as u64);
        Some(Self {
            median_ns: ns(value),
            lo_ns: ns(lo),
            hi_ns: ns(hi),
        })
    }
}

fn ratio(a: Nanos, b: Nanos) -> f64 {
    a.get() as f64 / (b.get() as f64).max(1.0)
}

/// The median distance of two values: larger ÷ smaller − 1.
fn middle_distance<'a>(twos: impl Iterator<Item = (&'a Nanos, &'a Nanos)>) -> f64 {
    let mut distances: Vec<f64> = twos
        .map(|(one, other)| ratio(*one.max(other), *one.min(other)) - 1.0)
        .collect();
    distances.sort_by(f64::total_cmp);
    distances.get(distances.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use taillab_model::explanation::PredictedPoint;

    use super::super::contaminated::Machine;
    use super::*;

    /// An account whose sojourns are all of this length.
    fn account(us: u64) -> Account {
        Account {
            rows: Vec::new(),
            rows_together: Vec::new(),
            requests: 10,
            excess: Vec::new(),
            excess_above_p99: Vec::new(),
            sojourns: vec![Nanos::from_micros(us); 10],
            model_fit: None,
            predictions: Vec::new(),
            injected: Vec::new(),
            machine: Machine::default(),
        }
    }

    fn forecast(us: u64, (lo, hi): (u64, u64)) -> Prediction {
        Prediction {
            change: "without background".to_owned(),
            description: String::new(),
            command: None,
            removes: Vec::new(),
            cost: None,
            points: vec![PredictedPoint {
                q: 0.999,
                measured_ns: Nanos::from_micros(1_000),
                predicted_ns: Nanos::from_micros(us),
                lo_ns: Some(Nanos::from_micros(lo)),
                hi_ns: Some(Nanos::from_micros(hi)),
            }],
        }
    }

    /// The p99.9 of pairs of (predicted, measured).
    fn checked(pairs: &[(u64, u64)]) -> FixPoint {
        let mut all = Pairs::default();
        for &(predicted, measured) in pairs {
            let forecast = forecast(predicted, (predicted - 10, predicted + 10));
            all.add(&account(1_000), &account(measured), Some(&forecast));
        }
        let check = all.check("ended it");
        assert_eq!(check.change, "without background");
        // there was no forecast of the other quantiles
        assert_eq!(check.points.len(), 1);
        check.points[0].clone()
    }

    #[test]
    fn a_forecast_comes_true_or_does_not_or_cannot_be_told() {
        let near = checked(&[(115, 100); 6]);
        assert_eq!(
            (near.verdict, near.within_interval),
            (ForecastVerdict::Near, 0)
        );
        assert!((near.error - 0.15).abs() < 1e-9 && near.control_error == 0.0);
        let missed = checked(&[
            (130, 100),
            (125, 101),
            (124, 99),
            (126, 90),
            (127, 80),
            (125, 70),
        ]);
        assert_eq!(missed.verdict, ForecastVerdict::Missed);
        // as far away, but what was measured scatters beyond it
        let noisy = checked(&[
            (130, 100),
            (125, 90),
            (124, 300),
            (126, 95),
            (127, 80),
            (125, 99),
        ]);
        assert_eq!(noisy.verdict, ForecastVerdict::Undecided);
        assert!(noisy.control_error > 0.2);
    }

    #[test]
    fn a_pair_without_a_forecast_is_counted_and_too_few_say_nothing() {
        let mut pairs = Pairs::default();
        for pair in 0..7 {
            let forecast = (pair > 0).then(|| forecast(100, (50, 150)));
            pairs.add(&account(1_000), &account(100), forecast.as_ref());
        }
        let check = pairs.check("ended it");
        assert_eq!((check.pairs, check.predicted_pairs), (7, 6));
        assert_eq!(check.points[0].within_interval, 6);
        let mut few = Pairs::default();
        few.add(&account(1), &account(1), Some(&forecast(100, (50, 150))));
        let few = few.check("ended it");
        assert_eq!(
            (few.pairs, few.predicted_pairs, few.points.len()),
            (1, 1, 0)
        );
    }
}
