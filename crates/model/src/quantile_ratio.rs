//! Percentiles of two distributions, and the ratio of each with its interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Distribution, Nanos, Quantile, REPORTED_QUANTILES};

/// A percentile of two distributions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedAt {
    /// In the first distribution.
    pub before: Quantile,
    /// In the second distribution.
    pub after: Quantile,
    /// The second ÷ the first, where both are known and the ratio has at least one bound.
    #[schemars(range(min = 0))]
    pub ratio: Option<f64>,
    /// Lower end of its interval.
    #[schemars(range(min = 0))]
    pub lo: Option<f64>,
    /// Upper end; `None` where the second has none.
    #[schemars(range(min = 0))]
    pub hi: Option<f64>,
}

/// What the interval says about the ratio of a percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The whole interval of the ratio lies below 1.
    Lower,
    /// The whole interval lies above 1.
    Higher,
    /// The interval contains 1.
    NotSeen,
    /// One of the two is not known.
    NotKnown,
}

impl ComparedAt {
    /// The ratio of two independent measurements. Its interval is the widest that their intervals
    /// allow. It covers the true ratio in at least 90 % of cases (Bonferroni, from two 95 % intervals), and
    /// usually in more than 95 %, since the two errors rarely add up to the worst case.
    pub fn new(before: Quantile, after: Quantile) -> Self {
        let over = |after: Option<Nanos>, before: Option<Nanos>| {
            let before = before?.as_secs_f64();
            (before > 0.0).then_some(after?.as_secs_f64() / before)
        };
        let ratio = over(after.value, before.value);
        let (lo, hi) = match ratio {
            Some(_) => (over(after.lo, before.hi), over(after.hi, before.lo)),
            None => (None, None),
        };
        // a ratio without any bound is not an estimate
        let ratio = ratio.filter(|_| lo.is_some() || hi.is_some());
        Self {
            before,
            after,
            ratio,
            lo,
            hi,
        }
    }

    /// What the interval says.
    pub fn change(&self) -> Change {
        match (self.ratio, self.lo, self.hi) {
            (None, ..) => Change::NotKnown,
            (_, _, Some(hi)) if hi < 1.0 => Change::Lower,
            (_, Some(lo), _) if lo > 1.0 => Change::Higher,
            _ => Change::NotSeen,
        }
    }
}

/// The percentiles of two distributions, compared.
pub fn compared(before: &Distribution, after: &Distribution) -> Vec<ComparedAt> {
    let both = |q: f64| Some(ComparedAt::new(*before.at(q)?, *after.at(q)?));
    REPORTED_QUANTILES.into_iter().filter_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(us: std::ops::RangeInclusive<u64>) -> Distribution {
        let sorted: Vec<Nanos> = us.map(Nanos::from_micros).collect();
        Distribution::from_sorted(&sorted)
    }

    #[test]
    fn twice_as_long_is_higher_and_the_same_is_not_seen() {
        let (short, long) = (of(1..=10_000), of(10_001..=20_000));
        let compared_at = |before, after| compared(before, after)[0];
        let median = compared_at(&short, &long);
        assert!((median.ratio.unwrap() - 3.0).abs() < 0.01);
        assert!(median.lo.unwrap() < 3.0 && median.hi.unwrap() > 3.0);
        assert_eq!(median.change(), Change::Higher);
        assert_eq!(compared_at(&long, &short).change(), Change::Lower);
        assert_eq!(compared_at(&short, &short).change(), Change::NotSeen);
    }

    #[test]
    fn what_one_does_not_know_is_not_compared() {
        let (few, many) = (of(1..=100), of(1..=10_000));
        let tail = compared(&few, &many);
        let tail = tail.iter().find(|at| at.after.q == 0.999).unwrap();
        assert_eq!((tail.ratio, tail.lo, tail.hi), (None, None, None));
        assert_eq!(tail.change(), Change::NotKnown);
    }
}
