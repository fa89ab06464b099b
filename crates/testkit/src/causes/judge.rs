//! Judges an estimate with its interval against its target. Pure functions.

use schemars::JsonSchema;
use serde::Serialize;
use taillab_analysis::paired::{PairedEstimate, ratio_of_sums};

use super::criteria::{CHARGE_TOLERANCE, MOST_CONTAMINATED_PAIRS, MOST_UNCERTAIN};

/// What a judgement comes to; a later one outweighs an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Near enough, and known well enough to say so.
    Pass,
    /// Not known well enough.
    Inconclusive,
    /// Too far off, whichever way.
    Fail,
}

/// One thing that is judged.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Criterion {
    /// What: `charge`, `charge to background` of one of several things that were injected, `placebo`, `forecast p99.9`, or the key of a cause that should not change.
    pub what: String,
    /// What it should be.
    pub target: f64,
    /// How far from that it may be, on either side.
    pub tolerance: f64,
    /// What it is; `None` where the pairs support no estimate.
    pub value: Option<f64>,
    /// Lower end of the interval (95 %).
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
}

impl Criterion {
    /// An estimate fails if it is farther from its target than the tolerance and than its own
    /// interval. If not, it passes where the interval is narrow enough.
    pub(super) fn judge(
        what: impl Into<String>,
        (target, tolerance): (f64, f64),
        estimate: Option<PairedEstimate>,
    ) -> Self {
        let verdict = match estimate {
            None => Verdict::Inconclusive,
            Some(PairedEstimate { value, lo, hi }) => {
                let (below, above) = (value - lo, hi - value);
                // the side of the interval that faces the target
                let own = if value > target { below } else { above };
                if (value - target).abs() > tolerance.max(own) {
                    Verdict::Fail
                } else if below.max(above) > MOST_UNCERTAIN {
                    Verdict::Inconclusive
                } else {
                    Verdict::Pass
                }
            }
        };
        Self {
            what: what.into(),
            target,
            tolerance,
            value: estimate.map(|it| it.value),
            lo: estimate.map(|it| it.lo),
            hi: estimate.map(|it| it.hi),
            verdict,
        }
    }

    /// What was charged in each pair against the delay that the client saw, both in nanoseconds:
    /// their ratio must be `target`. Inconclusive unless the client certainly saw a delay.
    pub(super) fn of_charge(what: &str, target: f64, pairs: &[(f64, f64)]) -> Self {
        let mut judged = Self::judge(what, (target, CHARGE_TOLERANCE), ratio_of_sums(pairs));
        let delays: Vec<(f64, f64)> = pairs.iter().map(|(_, delay)| (*delay, 1.0)).collect();
        let is_certain = ratio_of_sums(&delays).is_some_and(|delay| delay.lo > 0.0);
        if !is_certain {
            judged.verdict = Verdict::Inconclusive;
        }
        judged
    }

    /// What was charged in each pair, relative to a scale, where nothing should be charged.
    pub(super) fn of_nothing(what: &str, tolerance: f64, pairs: &[(f64, f64)]) -> Self {
        Self::judge(what, (0.0, tolerance), ratio_of_sums(pairs))
    }
}

/// The verdict over several criteria, in a measurement with this share of contaminated pairs.
pub(super) fn overall(criteria: &[Criterion], contaminated: f64) -> Verdict {
    let worst = criteria.iter().map(|criterion| criterion.verdict).max();
    match worst {
        Some(verdict) if contaminated <= MOST_CONTAMINATED_PAIRS => verdict,
        _ => Verdict::Inconclusive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_charge(pairs: &[(f64, f64)]) -> Verdict {
        Criterion::of_charge("charge", 1.0, pairs).verdict
    }

    /// Eight pairs whose charge is this share of the delay, give or take `spread`.
    fn pairs(share: f64, spread: f64) -> Vec<(f64, f64)> {
        let sign = |pair: u32| if pair.is_multiple_of(2) { 1.0 } else { -1.0 };
        (0..8)
            .map(|pair| (1e9 * (share + spread * sign(pair)), 1e9))
            .collect()
    }

    #[test]
    fn a_charge_passes_within_a_tenth_and_fails_on_both_sides() {
        for (share, verdict) in [
            (0.85, Verdict::Fail),
            (0.92, Verdict::Pass),
            (1.0, Verdict::Pass),
            (1.08, Verdict::Pass),
            (1.15, Verdict::Fail),
            (0.0, Verdict::Fail),
        ] {
            assert_eq!(of_charge(&pairs(share, 0.01)), verdict, "{share}");
        }
    }

    #[test]
    fn what_is_not_known_well_enough_is_inconclusive_and_never_passes() {
        assert_eq!(of_charge(&pairs(1.0, 0.5)), Verdict::Inconclusive);
        // the interval is wider than the tolerance, and narrow enough
        assert_eq!(of_charge(&pairs(0.87, 0.2)), Verdict::Pass);
        assert_eq!(of_charge(&pairs(1.0, 0.01)[..4]), Verdict::Inconclusive);
        // not known precisely, but certainly wrong
        assert_eq!(of_charge(&pairs(3.0, 0.5)), Verdict::Fail);
    }

    #[test]
    fn without_a_delay_that_the_client_saw_nothing_is_said() {
        let noise: Vec<(f64, f64)> = (0..8)
            .map(|pair| (1e9, if pair % 2 == 0 { 1e9 } else { -0.9e9 }))
            .collect();
        assert_eq!(of_charge(&noise), Verdict::Inconclusive);
        let exactly_none = vec![(1e9, 0.0); 8];
        assert_eq!(of_charge(&exactly_none), Verdict::Inconclusive);
    }

    #[test]
    fn a_placebo_that_is_charged_fails() {
        let placebo = |share| Criterion::of_nothing("placebo", 0.1, &pairs(share, 0.01)).verdict;
        assert_eq!(placebo(0.02), Verdict::Pass);
        assert_eq!(placebo(0.3), Verdict::Fail);
        assert_eq!(placebo(-0.3), Verdict::Fail);
        let wide = Criterion::of_nothing("placebo", 0.1, &pairs(0.02, 0.5));
        assert_eq!(wide.verdict, Verdict::Inconclusive);
    }

    #[test]
    fn the_worst_decides_and_nothing_is_decided_where_most_is_contaminated() {
        let pass = Criterion::of_charge("charge", 1.0, &pairs(1.0, 0.01));
        let fail = Criterion::of_charge("charge", 1.0, &pairs(2.0, 0.01));
        let unknown = Criterion::of_charge("charge", 1.0, &[]);
        assert_eq!(overall(std::slice::from_ref(&pass), 0.5), Verdict::Pass);
        assert_eq!(
            overall(&[pass.clone(), unknown.clone()], 0.0),
            Verdict::Inconclusive
        );
        assert_eq!(
            overall(&[unknown, fail.clone(), pass.clone()], 0.0),
            Verdict::Fail
        );
        assert_eq!(overall(&[pass], 0.6), Verdict::Inconclusive);
        assert_eq!(overall(&[fail], 0.6), Verdict::Inconclusive);
        assert_eq!(overall(&[], 0.0), Verdict::Inconclusive);
    }
}
