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
mod spells;
#[cfg(test)]
mod tests;

use taillab_model::Distribution;
use taillab_model::explanation::Finding;
use taillab_model::summary::ServerResult;

pub use facts::Facts;

/// All findings, the most important first.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(overload::overload(facts));
    findings.extend(shape::near_the_ideal(facts));
    findings.extend(causes::main_causes(facts));
    findings.extend(spells::hypervisor(facts));
    findings.extend(spells::single_events(facts));
    findings.extend(doubts::unexplained(facts));
    findings.extend(doubts::unobserved(facts));
    findings.extend(shape::overtaking(facts));
    findings.extend(shape::uneven_workers(facts));
    findings.extend(shape::bursts(facts));
    findings.extend(doubts::poor_fit(facts));
    findings.extend(doubts::without_disturbances(facts));
    findings
}

/// Draws the findings anew from what a result still says, after some of it was withdrawn.
pub fn renew(server: &mut ServerResult, ideal: &Distribution, disturbances: bool) {
    let Some(explanation) = &mut server.explanation else {
        return;
    };
    let mut ideal = ideal.clone();
    let known = server.measured.sojourn.quantiles.iter();
    for at in ideal.quantiles.iter_mut() {
        // what is not known of the server is not compared
        if known.clone().any(|of| of.q == at.q && of.value.is_none()) {
            (at.value, at.lo, at.hi) = (None, None, None);
        }
    }
    explanation.findings = findings(&Facts {
        sojourn: &server.measured.sojourn,
        ideal: &ideal,
        withdrawn: server.ideal.withdrawn,
        overload: server.measured.overload,
        causes: &server.causes,
        predictions: &server.predictions,
        model_fit: server.model_fit.as_ref(),
        clustering: explanation.clustering.as_ref(),
        hypervisor: explanation.hypervisor.as_ref(),
        workers: &explanation.workers,
        inversions: &explanation.inversions,
        matching: &server.matching,
        disturbances,
    });
}
