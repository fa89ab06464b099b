//! A distribution as reported: moments, extremes and quantiles with intervals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::interval::NORMAL_975;

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
    /// Lower end of the interval; present whenever the value is.
    pub lo: Option<Nanos>,
    /// Upper end of the interval; `None` with a value when it lies beyond the largest
    /// observation, so that the sample gives only a lower bound of the quantile.
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
    /// Observations that are only known to be longer than the others: requests without an answer.
    /// They count in the quantiles, and a quantile that falls among them has no value. `count`,
    /// `mean`, `min` and `max` leave them out. Absent where there is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unanswered: u64,
    /// At least one for each of [`REPORTED_QUANTILES`].
    #[schemars(length(min = 6), extend("allOf" = each_reported()))]
    pub quantiles: Vec<Quantile>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// For each reported quantile, a JSON Schema that requires the list to contain it.
fn each_reported() -> Vec<serde_json::Value> {
    let contained = |q| serde_json::json!({"contains": {"properties": {"q": {"const": q}}}});
    REPORTED_QUANTILES.map(contained).to_vec()
}

/// What a sample lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Requests without an answer: each is longer than all that are known, by an unknown amount.
    pub unanswered: u64,
    /// Requests that were answered and were not seen. Each may have been the shortest or the longest of all, so
    /// the intervals of the quantiles reach from the one case to the other: with n known ones, m missing ones
    /// and the interval from rank a to rank b of n + m, from rank a − m to rank b of the known ones. The end
    /// that has no such rank is open.
    pub missing: u64,
}

impl Lacking {
    /// Only requests without an answer.
    pub const fn unanswered(unanswered: u64) -> Self {
        Self {
            unanswered,
            missing: 0,
        }
    }
}

/// The shortest and the longest of some times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extremes {
    pub(crate) min: Option<Nanos>,
    pub(crate) max: Option<Nanos>,
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
    /// order-statistic interval of a sample that is smaller by that factor.
    ///
    /// # Panics
    /// When `sorted` is not sorted (debug builds only).
    pub fn from_sorted_correlated(sorted: &[Nanos], inflation: impl Fn(f64) -> f64) -> Self {
        Self::from_sorted_censored(sorted, Lacking::default(), inflation)
    }

    /// [`Distribution::from_sorted_correlated`] of a sample that lacks observations.
    pub fn from_sorted_censored(
        sorted: &[Nanos],
        lacking: Lacking,
        inflation: impl Fn(f64) -> f64,
    ) -> Self {
        debug_assert!(sorted.is_sorted(), "the sample must be sorted");
        let n = sorted.len();
        let mean = (n > 0).then(|| {
            let total: u128 = sorted.iter().map(|x| u128::from(x.get())).sum();
            total as f64 / n as f64
        });
        let extremes = Extremes {
            min: sorted.first().copied(),
            max: sorted.last().copied(),
        };
        Self::from_ranks((n as u64, lacking), mean, extremes, inflation, |rank| {
            sorted[rank as usize]
        })
    }

    /// The distribution of `count` observations, which `at` returns by rank, and of those that the sample lacks.
    pub(crate) fn from_ranks(
        (count, lacking): (u64, Lacking),
        mean: Option<f64>,
        Extremes { min, max }: Extremes,
        inflation: impl Fn(f64) -> f64,
        at: impl Fn(u64) -> Nanos,
    ) -> Self {
        let Lacking {
            unanswered,
            missing,
        } = lacking;
        let seen = count + unanswered;
        let quantile = |q: f64| {
            let inflation = inflation(q);
            let ranks = quantile_ranks(seen, q, inflation).filter(|ranks| ranks.value < count);
            let of_all = quantile_ranks(seen + missing, q, inflation);
            let Some((ranks, of_all)) = ranks.zip(of_all) else {
                return Quantile {
                    q,
                    value: None,
                    lo: None,
                    hi: None,
                };
            };
            Quantile {
                q,
                value: Some(at(ranks.value)),
                lo: Some(at(ranks.lo.min(of_all.lo.saturating_sub(missing)))),
                hi: of_all.hi.filter(|rank| *rank < count).map(&at),
            }
        };
        let quantiles = REPORTED_QUANTILES.into_iter().map(quantile).collect();
        Self {
            unit: Unit::Nanoseconds,
            count,
            mean,
            min,
            max,
            unanswered,
            quantiles,
        }
    }

    /// Share of the observations whose length is known; 1 for an empty sample.
    pub fn answered_share(&self) -> f64 {
        let all = self.count + self.unanswered;
        if all == 0 {
            1.0
        } else {
            self.count as f64 / all as f64
        }
    }

    /// The estimate at `q` with its interval, where `q` is one of the reported quantiles.
    pub fn at(&self, q: f64) -> Option<&Quantile> {
        self.quantiles.iter().find(|x| (x.q - q).abs() < 1e-12)
    }

    /// The estimate at `q`, where it is one of the reported quantiles and supported.
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        self.at(q)?.value
    }
}

/// Zero-based ranks of a quantile and of the ends of its interval in the sorted sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantileRanks {
    /// Rank of the estimate.
    pub value: u64,
    /// Rank of the interval's lower end.
    pub lo: u64,
    /// Rank of the interval's upper end; `None` when it lies beyond the sample.
    pub hi: Option<u64>,
}

/// The zero-based rank of the quantile `q` in a sorted sample of `n`: of the smallest observation such that at
/// least a share `q` of the sample is not above it. Every percentile in taillab is defined this way.
pub fn quantile_rank(n: u64, q: f64) -> u64 {
    let last = n.saturating_sub(1);
    ((q * n as f64).ceil() as u64).saturating_sub(1).min(last)
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
/// of 3,840) and these are worth at least one independent observation: a single stall that
/// delayed a thousand neighbours shows that such stalls happen, two show how often. With fewer
/// than 3.8 independent ones the upper end lies beyond the sample and is left open.
pub fn quantile_ranks(n: u64, q: f64, inflation: f64) -> Option<QuantileRanks> {
    debug_assert!(q > 0.0 && q < 1.0);
    if n == 0 {
        return None;
    }
    const Z: f64 = NORMAL_975;
    let count = n as f64;
    let effective = count / inflation.max(1.0);
    let above = effective * (1.0 - q);
    if count * (1.0 - q) < Z * Z || above < 1.0 {
        return None;
    }
    // The share p of the sample whose true share is q: solve |p − q| = z √(q(1−q)/m).
    let half = Z * (q * (1.0 - q) / effective).sqrt();
    let (lo, hi) = (q - half, q + half);
    let rank = |p: f64| quantile_rank(n, p);
    let inside = hi * count <= count - 1.0 && above >= Z * Z;
    Some(QuantileRanks {
        value: rank(q),
        lo: rank(lo.max(0.0)),
        hi: inside.then(|| rank(hi)),
    })
}

/// The smallest sample of independent observations that supports the quantile `q`.
pub fn quantile_need(q: f64) -> u64 {
    let (mut too_few, mut enough) = (0_u64, 1_u64 << 62);
    while enough - too_few > 1 {
        let n = too_few + (enough - too_few) / 2;
        if quantile_ranks(n, q, 1.0).is_some() {
            enough = n;
        } else {
            too_few = n;
        }
    }
    enough
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

    /// 1,000 answers of 1 to 1,000 ns and 10 requests that nobody answered.
    #[test]
    fn a_quantile_beyond_the_answered_share_has_no_value() {
        let answered: Vec<Nanos> = (1..=1_000).map(Nanos::new).collect();
        let of = |answered: &[Nanos], unanswered| {
            let lacking = Lacking::unanswered(unanswered);
            Distribution::from_sorted_censored(answered, lacking, |_| 1.0)
        };
        let all = of(&answered, 10);
        assert_eq!((all.count, all.unanswered), (1_000, 10));
        assert_eq!(all.quantile(0.5), Some(Nanos::new(505)));
        // 1,010 requests: the 1,000th is still an answer, but the interval reaches beyond
        let p99 = all.quantiles[2];
        assert_eq!((p99.value, p99.hi), (Some(Nanos::new(1_000)), None));
        let more = of(&answered, 11);
        assert_eq!(more.quantile(0.99), None);
        assert!(more.answered_share() < 0.9892);
        let none = of(&[], 500);
        assert!(none.quantiles.iter().all(|q| q.value.is_none()));
        assert_eq!((none.answered_share(), none.max), (0.0, None));
    }

    /// Of 10,000 requests, these many are not seen: whichever they are, the interval holds what it would be if all
    /// were.
    #[test]
    fn the_interval_allows_for_missing_requests_being_any() {
        let all: Vec<Nanos> = (1..=10_000).map(Nanos::new).collect();
        let whole = Distribution::from_sorted(&all);
        for missing in [0, 1, 12, 90, 500] {
            let lacking = Lacking {
                unanswered: 0,
                missing: missing as u64,
            };
            let seen =
                |known: &[Nanos]| Distribution::from_sorted_censored(known, lacking, |_| 1.0);
            let (fastest, slowest) = (seen(&all[missing..]), seen(&all[..10_000 - missing]));
            for (place, of_all) in whole.quantiles.iter().enumerate() {
                for found in [&fastest, &slowest].map(|seen| seen.quantiles[place]) {
                    let Some((value, lo)) = found.value.zip(found.lo) else {
                        continue;
                    };
                    let at = format!("{missing} missing: {found:?} {of_all:?}");
                    assert!(lo <= value && found.hi.is_none_or(|hi| value <= hi), "{at}");
                    assert!(of_all.lo.is_some_and(|of_all| lo <= of_all), "{at}");
                    let reaches = found
                        .hi
                        .is_none_or(|hi| of_all.hi.is_some_and(|of_all| of_all <= hi));
                    assert!(reaches, "{at}");
                }
            }
            // 12 in 10,000 hardly move the median, and 90 leave the upper end of p99 open
            let p50 = slowest.quantiles[0];
            let width = p50.hi.unwrap() - p50.lo.unwrap();
            assert!(missing > 12 || width < Nanos::new(230), "{p50:?}");
            assert_eq!(slowest.quantiles[2].hi.is_none(), missing >= 90);
        }
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
