//! Whether a measurement can be believed, claim by claim.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::REPORTED_QUANTILES;

/// A percentile is withdrawn when the requests that went wrong exceed this share of those above it: it is not known
/// on which side of it they would have been.
pub const MAX_MISSING_SHARE: f64 = 0.1;

/// The lowest of [`REPORTED_QUANTILES`] that requests which went wrong spoil; `wrong` is their share of all.
pub fn spoiled_from(wrong: f64) -> Option<f64> {
    let spoils = |q: &f64| wrong > MAX_MISSING_SHARE * (1.0 - q) * (1.0 + 1e-9);
    REPORTED_QUANTILES.into_iter().find(spoils)
}

/// The lowest of [`REPORTED_QUANTILES`] without an upper bound where this share of the requests is missing: if
/// these were the slowest, the percentile would be among them. Below it, the interval includes that they were the
/// slowest, and that they were the fastest ([`Lacking`](crate::Lacking)).
pub fn unbounded_from(missing: f64) -> Option<f64> {
    let is_unbounded = |q: &f64| *q > (1.0 - missing) + 1e-12;
    REPORTED_QUANTILES.into_iter().find(is_unbounded)
}

/// The key of the warning that there are too few requests for a percentile.
pub const TOO_FEW: &str = "unsupported_percentile";

/// Whether a measurement can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"properties": {"valid": {"const": true}}},
    "then" = {"properties": {"reasons": {"maxItems": 0}}},
    "else" = {"properties": {"reasons": {"minItems": 1}}},
))]
pub struct Verdict {
    /// Some of the result can be used; `claims` says what.
    pub valid: bool,
    /// Why nothing of it can be used; empty when it is valid.
    pub reasons: Vec<Reason>,
    /// What a reader should know that does not make it invalid.
    pub warnings: Vec<Reason>,
    /// The claims of the result, and whether each holds. Absent in the verdict of a sweep, whose
    /// steps have their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
}

impl Verdict {
    /// Whether a percentile is withdrawn for a reason other than too few requests.
    pub fn withdraws(&self, q: f64) -> bool {
        let of_q = |claim: &&Claim| {
            let at = claim.claim.quantile();
            at.is_some_and(|at| (at - q).abs() < 1e-12)
        };
        let claim = self.claims.iter().find(of_q);
        claim.is_some_and(|claim| claim.because.iter().any(|key| key != TOO_FEW))
    }

    /// Whether a claim holds: the result is not invalid as a whole, and nothing withdraws this of it.
    pub fn holds(&self, claim: ClaimName) -> bool {
        let mut others = self.claims.iter();
        self.reasons.is_empty() && others.all(|other| other.valid || other.claim != claim)
    }

    /// How many of the percentiles hold; all of them where there are no claims.
    pub fn valid_percentiles(&self) -> ValidPercentiles {
        let mut last = ValidPercentiles::None;
        for claim in (self.claims.iter()).filter(|claim| claim.claim.quantile().is_some()) {
            if !claim.valid {
                return last;
            }
            last = ValidPercentiles::UpTo(claim.claim);
        }
        ValidPercentiles::All
    }
}

/// How many of the percentiles of a result hold, from the lowest one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidPercentiles {
    /// All of them.
    All,
    /// This one and those below it.
    UpTo(ClaimName),
    /// Not even the lowest one.
    None,
}

/// One reason against a measurement, or one warning about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Name for scripts, `snake_case`; `docs/verdict.md` lists them all.
    #[schemars(extend("pattern" = "^[a-z0-9_]+$"))]
    pub key: String,
    /// One line for people: what was seen, and what to do about it.
    pub text: String,
}

impl Reason {
    /// A reason with its key.
    pub fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            text: text.into(),
        }
    }
}

/// Something that a result states, which can hold even where the rest does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// Which one.
    pub claim: ClaimName,
    /// It holds. Otherwise it is withdrawn: no output has it.
    pub valid: bool,
    /// The keys of the reasons and warnings that withdraw it; empty where it holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
}

/// The claims of a result.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ClaimName {
    /// The median of what was measured.
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    #[serde(rename = "p99.9")]
    P999,
    /// The 99.99th percentile.
    #[serde(rename = "p99.99")]
    P9999,
    /// The 99.999th percentile.
    #[serde(rename = "p99.999")]
    P99999,
    /// The comparison with the ideal queue.
    Ideal,
    /// The causes that the excess over the ideal above p99 is charged to.
    Causes,
    /// What the percentiles would be after a change.
    Forecasts,
}

impl ClaimName {
    /// The percentiles, in the order of [`REPORTED_QUANTILES`].
    pub const PERCENTILES: [Self; 6] = [
        Self::P50,
        Self::P90,
        Self::P99,
        Self::P999,
        Self::P9999,
        Self::P99999,
    ];

    /// The claims that depend on the ideal queue.
    pub const COMPARISON: [Self; 3] = [Self::Ideal, Self::Causes, Self::Forecasts];

    /// The probability of a percentile; `None` for the other claims.
    pub fn quantile(self) -> Option<f64> {
        let place = (Self::PERCENTILES.iter()).position(|other| *other == self)?;
        Some(REPORTED_QUANTILES[place])
    }
}

display_as_in_json!(ClaimName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_spoils_the_far_percentiles_first() {
        assert_eq!(spoiled_from(0.0), None);
        assert_eq!(spoiled_from(2e-6), Some(0.99999));
        // one in 10,000 is a tenth of what lies above p99.9
        assert_eq!(spoiled_from(1e-4), Some(0.9999));
        assert_eq!(spoiled_from(1.1e-4), Some(0.999));
        assert_eq!(spoiled_from(0.011), Some(0.9));
        assert_eq!(spoiled_from(0.06), Some(0.5));
    }

    #[test]
    fn what_may_have_been_the_slowest_takes_the_upper_bound_of_the_percentiles_among_it() {
        assert_eq!(unbounded_from(0.0), None);
        assert_eq!(unbounded_from(2e-5), Some(0.99999));
        // 12 of 1,984: p99 is not among the slowest 0.6 %
        assert_eq!(unbounded_from(12.0 / 1_984.0), Some(0.999));
        assert_eq!(unbounded_from(0.011), Some(0.99));
        assert_eq!(unbounded_from(0.11), Some(0.9));
        assert_eq!(unbounded_from(0.6), Some(0.5));
    }

    #[test]
    fn a_verdict_holds_up_to_the_percentile_below_the_first_withdrawn() {
        let verdict = |invalid: &[ClaimName]| Verdict {
            valid: true,
            claims: ClaimName::PERCENTILES
                .into_iter()
                .chain(ClaimName::COMPARISON)
                .map(|claim| Claim {
                    claim,
                    valid: !invalid.contains(&claim),
                    because: Vec::new(),
                })
                .collect(),
            ..Verdict::default()
        };
        assert_eq!(
            Verdict::default().valid_percentiles(),
            ValidPercentiles::All
        );
        assert_eq!(verdict(&[]).valid_percentiles(), ValidPercentiles::All);
        assert_eq!(
            verdict(&[ClaimName::Ideal]).valid_percentiles(),
            ValidPercentiles::All
        );
        let spoiled = verdict(&[ClaimName::P999, ClaimName::P9999, ClaimName::P99999]);
        assert_eq!(
            spoiled.valid_percentiles(),
            ValidPercentiles::UpTo(ClaimName::P99)
        );
        let nothing = verdict(&ClaimName::PERCENTILES);
        assert_eq!(nothing.valid_percentiles(), ValidPercentiles::None);
        let mut no_causes = verdict(&[ClaimName::Causes]);
        assert!(no_causes.holds(ClaimName::Ideal) && !no_causes.holds(ClaimName::Causes));
        no_causes.reasons = vec![Reason::new("no_answer", "none of 7 requests was answered")];
        assert!(!no_causes.holds(ClaimName::Ideal));
    }

    #[test]
    fn claims_are_called_alike_in_json_and_in_words() {
        for name in ClaimName::PERCENTILES
            .into_iter()
            .chain(ClaimName::COMPARISON)
        {
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(json, format!("\"{name}\""));
        }
    }
}
