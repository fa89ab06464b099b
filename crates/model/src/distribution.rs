//! A distribution as reported: moments, extremes and quantiles with intervals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// The quantiles that every reported distribution carries, in this order.
pub const REPORTED_QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// The confidence of every interval that taillab prints.
pub const CONFIDENCE: f64 = 0.95;

/// One quantile with its confidence interval ([`CONFIDENCE`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"properties": {"value": {"type": "null"}}},
    "then" = {"properties": {"lo": {"type": "null"}, "hi": {"type": "null"}}},
))]
pub struct Quantile {
    /// The probability, in (0, 1).
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// The estimate; `None` where the sample cannot support it ([`quantile_ranks`]).
    pub value: Option<Nanos>,
    /// Lower end of the interval; there whenever the value is.
    pub lo: Option<Nanos>,
    /// Upper end of the interval; `None` with a value when it lies beyond the largest
    /// observation, so that the sample only says how long the quantile is at least.
    pub hi: Option<Nanos>,
}

/// A latency distribution; every time is in integer nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Always `ns`.
    pub unit: Unit,
    /// Observations.
    pub count: u64,
    /// Arithmetic mean in nanoseconds; `None` for an empty sample.
    pub mean: Option<f64>,
    /// The smallest observation.
    pub min: Option<Nanos>,
    /// The largest observation.
    pub max: Option<Nanos>,
    /// One for each of [`REPORTED_QUANTILES`], at least.
    #[schemars(length(min = 6), extend("allOf" = each_reported()))]
    pub quantiles: Vec<Quantile>,
}

/// A JSON Schema for each reported quantile: it is contained.
fn each_reported() -> Vec<serde_json::Value> {
    let contained = |q| serde_json::json!({"contains": {"properties": {"q": {"const": q}}}});
    REPORTED_QUANTILES.map(contained).to_vec()
}

/// The unit of a [`Distribution`]'s times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unit {
    /// Nanoseconds.
    #[default]
    #[serde(rename = "ns")]
    Nanoseconds,
}

impl Distribution {
    /// The distribution of a sorted sample of independent observations.
    ///
    /// Where observations are correlated (waiting times are), use
    /// [`Distribution::from_sorted_correlated`]: this one's intervals would be too narrow.
    pub fn from_sorted(sorted: &[Nanos]) -> Self {
        Self::from_sorted_correlated(sorted, |_| 1.0)
    }

    /// The distribution of a sorted sample whose observations are correlated.
    ///
    /// `inflation(q)` is the factor (≥ 1) by which correlation multiplies the variance
    /// of the share of observations below the quantile `q`; the interval is the
    /// order-statistic interval of a sample smaller by that factor.
    ///
    /// # Panics
    /// When `sorted` is not sorted (debug builds only).
    pub fn from_sorted_correlated(sorted: &[Nanos], inflation: impl Fn(f64) -> f64) -> Self {
        debug_assert!(sorted.is_sorted(), "the sample must be sorted");
        let n = sorted.len();
        let mean = (n > 0).then(|| {
            let total: u128 = sorted.iter().map(|x| u128::from(x.get())).sum();
            total as f64 / n as f64
        });
        let extremes = (sorted.first().copied(), sorted.last().copied());
        Self::from_ranks(n as u64, mean, extremes, inflation, |rank| {
            sorted[rank as usize]
        })
    }

    /// The distribution of `count` observations, of which `at` knows each by its rank.
    pub(crate) fn from_ranks(
        count: u64,
        mean: Option<f64>,
        (min, max): (Option<Nanos>, Option<Nanos>),
        inflation: impl Fn(f64) -> f64,
        at: impl Fn(u64) -> Nanos,
    ) -> Self {
        let quantiles = REPORTED_QUANTILES
            .iter()
            .map(|&q| match quantile_ranks(count, q, inflation(q)) {
                Some(ranks) => Quantile {
                    q,
                    value: Some(at(ranks.value)),
                    lo: Some(at(ranks.lo)),
                    hi: ranks.hi.map(&at),
                },
                None => Quantile {
                    q,
                    value: None,
                    lo: None,
                    hi: None,
                },
            })
            .collect();
        Self {
            unit: Unit::Nanoseconds,
            count,
            mean,
            min,
            max,
            quantiles,
        }
    }

    /// The estimate at `q`, where it is one of the reported quantiles and supported.
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        self.quantiles
            .iter()
            .find(|x| (x.q - q).abs() < 1e-12)
            .and_then(|x| x.value)
    }
}

/// Zero-based ranks in the sorted sample of a quantile and of its interval's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantileRanks {
    /// Rank of the estimate.
    pub value: u64,
    /// Rank of the interval's lower end.
    pub lo: u64,
    /// Rank of the interval's upper end; `None` when it lies beyond the sample.
    pub hi: Option<u64>,
}

/// The ranks of the quantile `q` and of its order-statistic interval in a sample of `n`,
/// or `None` where the sample cannot support it.
///
/// The number of observations below the true quantile is binomial(n, q); its
/// variance is taken `inflation` times larger, for correlated observations. The
/// interval's ends are the score interval's (Wilson 1927) for a proportion, which
/// stays right in the tail where the plain normal one fails.
///
/// A quantile is supported when about 3.8 observations lie above it (for p99.9: a sample
/// of 3,840) and these are worth at least one independent one: a single stall that
/// delayed a thousand neighbours says that such stalls happen, two say how often. Below
/// 3.8 independent ones the upper end lies beyond the sample and is left open.
pub fn quantile_ranks(n: u64, q: f64, inflation: f64) -> Option<QuantileRanks> {
    debug_assert!(q > 0.0 && q < 1.0);
    if n == 0 {
        return None;
    }
    const Z: f64 = 1.959_963_984_540_054; // the normal's 97.5 % point
    let count = n as f64;
    let effective = count / inflation.max(1.0);
    let above = effective * (1.0 - q);
    if count * (1.0 - q) < Z * Z || above < 1.0 {
        return None;
    }
    // The share p of the sample whose true share is q: solve |p − q| = z √(q(1−q)/m).
    let half = Z * (q * (1.0 - q) / effective).sqrt();
    let (lo, hi) = (q - half, q + half);
    let rank = |p: f64| ((p * count).ceil() - 1.0).clamp(0.0, count - 1.0) as u64;
    let inside = hi * count <= count - 1.0 && above >= Z * Z;
    Some(QuantileRanks {
        value: rank(q),
        lo: rank(lo.max(0.0)),
        hi: inside.then(|| rank(hi)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_sample_has_no_numbers() {
        let d = Distribution::from_sorted(&[]);
        assert_eq!((d.count, d.mean, d.min, d.max), (0, None, None, None));
        assert!(d.quantiles.iter().all(|q| q.value.is_none()));
    }

    #[test]
    fn a_quantile_that_the_sample_cannot_support_has_no_value() {
        let sample: Vec<Nanos> = (1..=1000).map(Nanos::new).collect();
        let d = Distribution::from_sorted(&sample);
        assert_eq!(d.quantile(0.5), Some(Nanos::new(500)));
        assert_eq!(d.quantile(0.99), Some(Nanos::new(990)));
        assert_eq!(d.quantile(0.999), None);
    }

    #[test]
    fn correlation_widens_the_interval() {
        let sample: Vec<Nanos> = (1..=100_000).map(Nanos::new).collect();
        let width = |d: &Distribution| {
            let q = d.quantiles[1];
            q.hi.unwrap() - q.lo.unwrap()
        };
        let independent = Distribution::from_sorted(&sample);
        let correlated = Distribution::from_sorted_correlated(&sample, |_| 4.0);
        let ratio = width(&correlated).get() as f64 / width(&independent).get() as f64;
        assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
    }

    #[test]
    fn strong_correlation_opens_the_upper_end_and_then_takes_the_value() {
        let ranks = |inflation| quantile_ranks(100_000, 0.999, inflation);
        assert!(ranks(1.0).unwrap().hi.is_some());
        let open = ranks(50.0).unwrap();
        assert_eq!(open.hi, None);
        assert!(open.lo < open.value);
        assert_eq!(ranks(200.0), None);
    }

    /// The interval holds the true quantile in about 95 % of samples: exact binomial sums.
    #[test]
    fn coverage_is_near_nominal() {
        for (n, q) in [(200_u64, 0.5), (1_000, 0.99), (20_000, 0.999)] {
            let ranks = quantile_ranks(n, q, 1.0).unwrap();
            // covered when lo < B ≤ hi, B ~ binomial(n, q) observations below the quantile
            let mut p = (n as f64 * (1.0 - q).ln()).exp(); // P(B = 0), may underflow
            let mut log_p = n as f64 * (1.0 - q).ln();
            let mut covered = 0.0;
            for k in 0..=n {
                if k > ranks.lo && k <= ranks.hi.unwrap() {
                    covered += p;
                }
                log_p += ((n - k).max(1) as f64 / (k + 1) as f64 * q / (1.0 - q)).ln();
                p = log_p.exp();
            }
            assert!((0.93..0.975).contains(&covered), "n={n} q={q}: {covered}");
        }
    }
}
