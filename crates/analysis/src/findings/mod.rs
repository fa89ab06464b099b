//! What to tell a person, in sentences, the most important first.
//!
//! Each rule is a small function from the evidence to findings. A sentence has its figures
//! with their units, and what to do next; where the evidence does not decide, it says so
//! and what to measure.

mod causes;
mod doubts;
mod shape;
#[cfg(test)]
mod tests;

use taillab_model::explanation::{
    CauseShare, Clustering, Finding, Inversions, ModelFit, Prediction, WorkerShare,
};
use taillab_model::summary::Matching;
use taillab_model::{Distribution, Nanos};

use crate::fmt::Percentile;

/// What the findings are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The measured sojourn.
    pub sojourn: &'a Distribution,
    /// The same arrivals through the ideal queue.
    pub ideal: &'a Distribution,
    /// The causes of the excess, and their culprits.
    pub causes: &'a [CauseShare],
    /// Forecasts.
    pub predictions: &'a [Prediction],
    /// How well the replay fits; `None` where there was none.
    pub model_fit: Option<&'a ModelFit>,
    /// Whether slow requests come together.
    pub clustering: Option<&'a Clustering>,
    /// The workers.
    pub workers: &'a [WorkerShare],
    /// Who overtook whom.
    pub inversions: &'a Inversions,
    /// How well events and requests joined.
    pub matching: &'a Matching,
    /// Interrupts, softirqs and wake-ups were recorded.
    pub disturbances: bool,
}

/// A share of the excess above p99 from which on a cause is worth a sentence.
const NOTABLE: f64 = 0.05;

/// All findings, the most important first.
pub fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(shape::near_the_ideal(evidence));
    findings.extend(causes::main_causes(evidence));
    findings.extend(doubts::unexplained(evidence));
    findings.extend(doubts::unobserved(evidence));
    findings.extend(shape::overtaking(evidence));
    findings.extend(shape::uneven_workers(evidence));
    findings.extend(shape::bursts(evidence));
    findings.extend(doubts::poor_fit(evidence));
    findings.extend(doubts::without_disturbances(evidence));
    findings.extend(doubts::too_short(evidence));
    findings
}

/// A percentile, measured and ideal.
#[derive(Clone, Copy, Debug)]
struct Tail {
    q: f64,
    measured: Nanos,
    ideal: Nanos,
}

impl Evidence<'_> {
    /// The highest percentile up to p99.9 that both distributions support.
    fn tail(&self) -> Option<Tail> {
        [0.999, 0.99, 0.9, 0.5].into_iter().find_map(|q| {
            Some(Tail {
                q,
                measured: self.sojourn.quantile(q)?,
                ideal: self.ideal.quantile(q)?,
            })
        })
    }

    /// The cause as a whole.
    fn whole(&self, cause: taillab_model::explanation::Cause) -> Option<&CauseShare> {
        let mut wholes = self.causes.iter().filter(|share| share.culprit.is_none());
        wholes.find(|share| share.cause == cause)
    }

    /// A cause's share of the excess above p99.
    fn share_above_p99(&self, cause: taillab_model::explanation::Cause) -> f64 {
        let whole = self.whole(cause);
        whole.map_or(0.0, |share| share.excess_share_above_p99.value)
    }
}

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { q, measured, ideal } = self;
        write!(f, "{} is {measured}, ideal {ideal}", Percentile(*q))
    }
}

/// `0.931` as `93 %`, `0.004` as `less than 1 %`.
struct Whole(f64);

impl std::fmt::Display for Whole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            share if share > 0.0 && share < 0.01 => f.write_str("less than 1 %"),
            share => write!(f, "{:.0} %", 100.0 * share),
        }
    }
}

/// `1234567` as `1,234,567`.
struct Count(u64);

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.0.to_string();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// `a`, `a and b`, `a, b and c`.
fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
