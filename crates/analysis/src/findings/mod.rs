//! What to tell a person, in sentences, the most important first.
//!
//! Each rule is a small function from the evidence to findings. A sentence has its figures
//! with their units, and what to do next; where the evidence does not decide, it says so
//! and what to measure.

mod causes;
mod doubts;
mod facts;
mod overload;
mod shape;
#[cfg(test)]
mod tests;

use taillab_model::explanation::Finding;

pub use facts::Facts;

/// All findings, the most important first.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(overload::overload(facts));
    findings.extend(doubts::withdrawn(facts));
    findings.extend(shape::near_the_ideal(facts));
    findings.extend(causes::main_causes(facts));
    findings.extend(doubts::unexplained(facts));
    findings.extend(doubts::unobserved(facts));
    findings.extend(shape::overtaking(facts));
    findings.extend(shape::uneven_workers(facts));
    findings.extend(shape::bursts(facts));
    findings.extend(doubts::poor_fit(facts));
    findings.extend(doubts::without_disturbances(facts));
    findings.extend(doubts::too_short(facts));
    findings
}
