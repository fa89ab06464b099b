//! The findings: sentences for the reader of a report, the most important first.
//!
//! Each rule is a small function from the evidence to findings. A finding has figures with units and
//! says what to do next. If the evidence is not conclusive, it says so, and what to measure.

mod arrivals;
mod bursts;
mod causes;
mod doubts;
mod facts;
mod overload;
mod shape;
mod sleeping;
mod spells;
#[cfg(test)]
mod tests;

use taillab_model::Distribution;
use taillab_model::explanation::Finding;
use taillab_model::summary::ServerResult;

use facts::Facts;

/// All findings, the most important first.
fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_overloaded = facts.server.measured.overload.is_some();
    findings.extend(overload::overload(facts));
    findings.extend(shape::near_the_ideal(facts));
    findings.extend(causes::main_causes(facts));
    // causes are of the excess, and this is of the ideal
    findings.extend(arrivals::in_bursts(facts));
    findings.extend(sleeping::sleeping_and_waking(facts));
    findings.extend(spells::hypervisor(facts));
    findings.extend(spells::single_events(facts));
    findings.extend(doubts::sent_again(facts));
    findings.extend(doubts::unexplained(facts));
    findings.extend(doubts::unobserved(facts));
    findings.extend(shape::overtaking(facts));
    findings.extend(shape::uneven_workers(facts));
    // in a queue that grows, the slow requests are the last ones
    findings.extend(shape::bursts(facts).filter(|_| !is_overloaded));
    findings.extend(doubts::poor_fit(facts));
    findings.extend(doubts::without_disturbances(facts));
    findings
}

/// Adds the findings to a result. `ideal` is the sojourn in the ideal queue as if its requests were independent;
/// `disturbances`: interrupts, softirqs and wake-ups were recorded.
pub fn add(server: &mut ServerResult, ideal: &Distribution, disturbances: bool) {
    let Some(explanation) = &server.explanation else {
        return;
    };
    let findings = findings(&Facts {
        server,
        explanation,
        ideal,
        disturbances,
    });
    if let Some(explanation) = &mut server.explanation {
        explanation.findings = findings;
    }
}
