//! What to tell a person, in sentences, the most important first.
//!
//! Each rule is a small function from the evidence to findings. A sentence has its figures
//! with their units, and what to do next; where the evidence does not decide, it says so
//! and what to measure.

mod causes;
mod doubts;
mod evidence;
mod shape;
#[cfg(test)]
mod tests;

use taillab_model::explanation::Finding;

pub use evidence::Evidence;

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
