//! The evidence that findings use, and how they write figures.

use taillab_model::explanation::{Cause, CauseShare, Explanation, Finding};
use taillab_model::summary::ServerResult;
use taillab_model::{Distribution, Nanos};

use crate::fmt::Percentile;

/// The evidence for the findings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) server: &'a ServerResult,
    pub(super) explanation: &'a Explanation,
    /// The sojourns in the ideal queue as if its requests were independent; empty where the server
    /// is not compared with it.
    pub(super) ideal: &'a Distribution,
    /// Interrupts, softirqs and wake-ups were recorded.
    pub(super) disturbances: bool,
}

/// A finding for which the evidence is conclusive.
pub(super) fn conclusive(text: String, advice: Option<String>, cause: Option<Cause>) -> Finding {
    Finding {
        key: None,
        text,
        advice,
        cause,
        inconclusive: false,
    }
}

/// A finding for which the evidence is not conclusive, with what to measure next.
pub(super) fn inconclusive(text: String, advice: &str, cause: Option<Cause>) -> Finding {
    Finding {
        inconclusive: true,
        ..conclusive(text, Some(advice.to_owned()), cause)
    }
}

/// A cause with at least this share of the excess above p99 is worth a sentence.
pub(super) const NOTABLE: f64 = 0.05;

/// A percentile, measured and ideal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) q: f64,
    pub(super) measured: Nanos,
    pub(super) ideal: Nanos,
}

impl Facts<'_> {
    /// The highest percentile up to p99.9 that both distributions support.
    pub(super) fn tail(&self) -> Option<Tail> {
        [0.999, 0.99, 0.9, 0.5].into_iter().find_map(|q| {
            Some(Tail {
                q,
                measured: self.server.measured.sojourn.quantile(q)?,
                ideal: self.ideal.quantile(q)?,
            })
        })
    }

    /// What the shares above p99 are of.
    pub(super) const fn above_p99(&self) -> &'static str {
        match self.server.ideal.is_compared() {
            true => "of the excess above p99",
            false => "of the delays above p99",
        }
    }

    /// The share of the cause as a whole, without its culprits.
    fn whole(&self, cause: Cause) -> Option<&CauseShare> {
        let shares = self.server.causes.iter();
        let mut wholes = shares.filter(|share| share.culprit.is_none());
        wholes.find(|share| share.cause == cause)
    }

    /// A cause's share of the excess above p99.
    pub(super) fn share_above_p99(&self, cause: Cause) -> f64 {
        let whole = self.whole(cause);
        whole.map_or(0.0, |share| share.excess_share_above_p99.value)
    }

    /// The same, or 0 if the share may be chance.
    pub(super) fn surely_above_p99(&self, cause: Cause) -> f64 {
        let sure = (self.whole(cause)).filter(|share| share.excess_share_above_p99.is_sure());
        sure.map_or(0.0, |share| share.excess_share_above_p99.value)
    }
}

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { q, measured, ideal } = self;
        write!(f, "{} is {measured}, ideal {ideal}", Percentile(*q))
    }
}

/// `0.931` as `93 %`, `0.004` as `less than 1 %`.
pub(super) struct WholePercent(pub(super) f64);

impl std::fmt::Display for WholePercent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            share if share > 0.0 && share < 0.01 => f.write_str("less than 1 %"),
            share => write!(f, "{:.0} %", 100.0 * share),
        }
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
