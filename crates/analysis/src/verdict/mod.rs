//! Whether a measurement can be believed, and what its reader should know.
//!
//! One table of rules serves every command. A rule reads the [`Evidence`] and says in one line
//! what was seen and what to do about it. A part of the evidence that a command does not have
//! is `None`, and rules about it do not apply. `docs/verdict.md` lists the keys.

mod evidence;
mod invalid;
mod rule;
mod warnings;

use taillab_model::summary::{Reason, Verdict};

use rule::OVERLOAD;

pub use evidence::{
    ClientSide, Evidence, Growth, LoadEvidence, SentLoad, ServerEvidence, Sweep, TraceFacts,
    TracedServer, Unsupported, VirtualWorkers,
};
pub use rule::{Rule, is_overload};

/// The rules about the server's own failures.
const SERVER_FAILED: [&str; 2] = ["errors", "no_answer"];

/// Every rule: first those that make a result invalid, then the warnings, each in the order in
/// which they are printed.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    invalid::RULES.iter().chain(warnings::RULES)
}

/// Judges a measurement.
pub fn judge(evidence: &Evidence<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    judge_steps(evidence, &mut verdict);
    let that_apply = |rules: &[Rule]| -> Vec<Reason> {
        rules
            .iter()
            .filter_map(|rule| rule.reason(evidence))
            .collect()
    };
    verdict.reasons.extend(that_apply(invalid::RULES));
    verdict.warnings.extend(that_apply(warnings::RULES));
    for condition in evidence.conditions {
        if !(verdict.warnings.iter()).any(|warning| warning.key == condition.key) {
            verdict.warnings.push(condition.clone());
        }
    }
    verdict.valid = verdict.reasons.is_empty();
    verdict
}

/// What the verdicts on the steps of a sweep mean for the whole.
///
/// A sweep looks for the load at which the server fails or no longer keeps up, so that is no
/// fault of the sweep. A step that the client failed says nothing, and the answer may lie there.
fn judge_steps(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    for step in evidence.sweep.iter().flat_map(|sweep| sweep.steps) {
        let rate_per_s = step.load.target_rate_per_s;
        for reason in &step.verdict.reasons {
            let text = format!("at {rate_per_s:.0}/s: {}", reason.text);
            let reason = Reason::new(&reason.key, text);
            if SERVER_FAILED.contains(&reason.key.as_str()) {
                verdict.warnings.push(reason);
            } else if !OVERLOAD.contains(&reason.key.as_str()) {
                verdict.reasons.push(reason);
            }
        }
    }
}

/// Something other than the server makes the measurement invalid.
pub fn client_failed(verdict: &Verdict) -> bool {
    let mut keys = verdict.reasons.iter().map(|reason| reason.key.as_str());
    keys.any(|key| !OVERLOAD.contains(&key) && !SERVER_FAILED.contains(&key))
}
