//! A limit on a percentile, for assertions and for the search for the highest load.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Nanos, ParseNanosError};

/// A limit on a quantile of the response time, written `p99.9<=200us`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Objective {
    /// The probability, in (0, 1).
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// The largest value that the quantile may have.
    pub limit_ns: Nanos,
}

/// Why a text is not an objective.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseObjectiveError {
    /// There is no `<=`, or no percentile before it.
    #[error("`{0}` is not an objective; write a percentile and its limit, e.g. p99.9<=200us")]
    Form(String),
    /// The percentile is not between 0 and 100.
    #[error("the percentile of an objective must be between p0 and p100, not p{0}")]
    Percentile(f64),
    /// The limit is not a length of time.
    #[error("the limit of an objective: {0}")]
    Limit(#[from] ParseNanosError),
}

impl FromStr for Objective {
    type Err = ParseObjectiveError;

    /// Reads `p99.9<=200us`; `<` and `≤` mean the same as `<=`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseObjectiveError::Form(text.to_owned());
        let parts = ["<=", "≤", "<"]
            .iter()
            .find_map(|sign| text.split_once(sign));
        let (percentile, limit) = parts.ok_or_else(form)?;
        let percent = percentile.trim().strip_prefix(['p', 'P']);
        let percent: f64 = (percent.and_then(|text| text.trim().parse().ok())).ok_or_else(form)?;
        // 99.9 / 100 is not the same double as the literal 0.999 in the list of quantiles
        let q = (percent * 1e9).round() / 1e11;
        // of the rounded one, which may be 0 or 1
        if !(q > 0.0 && q < 1.0) {
            return Err(ParseObjectiveError::Percentile(percent));
        }
        let limit_ns = limit.trim().parse()?;
        Ok(Self { q, limit_ns })
    }
}

impl fmt::Display for Objective {
    /// In the form that [`Objective::from_str`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.q * 1e11).round() / 1e9;
        write!(f, "p{percent}<={}", self.limit_ns.to_exact_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_and_written_back() {
        for (text, q, limit, again) in [
            ("p99.9<=200us", 0.999, 200_000, "p99.9<=200us"),
            ("p50 < 1.5ms", 0.5, 1_500_000, "p50<=1500us"),
            ("P99.999 ≤ 2s", 0.99999, 2_000_000_000, "p99.999<=2s"),
        ] {
            let objective: Objective = text.parse().unwrap();
            assert_eq!(
                (objective.q, objective.limit_ns.get()),
                (q, limit),
                "{text}"
            );
            assert_eq!(objective.to_string(), again);
            assert_eq!(again.parse(), Ok(objective));
        }
    }

    #[test]
    fn what_is_no_objective_is_refused_with_a_remedy() {
        for text in ["", "p99", "200us", "p99>200us", "99<=200us", "pxx<=1ms"] {
            let error = text.parse::<Objective>().unwrap_err();
            assert!(
                error.to_string().contains("p99.9<=200us"),
                "{text}: {error}"
            );
        }
        for text in [
            "p0<=1ms",
            "p100<=1ms",
            "p99.9999999999<=1ms",
            "p-1<=1ms",
            "pnan<=1ms",
        ] {
            let error = text.parse::<Objective>().unwrap_err();
            assert!(
                matches!(error, ParseObjectiveError::Percentile(_)),
                "{text}"
            );
        }
        let error = "p99<=200".parse::<Objective>().unwrap_err();
        assert!(error.to_string().contains("a number and a unit"), "{error}");
    }
}
