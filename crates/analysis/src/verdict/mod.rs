//! Whether a measurement can be believed, and what its reader should know.
//!
//! One table of rules serves every command. A rule reads the [`Evidence`] and says in one line
//! what was seen and what to do about it. A part of the evidence that a command does not have
//! is `None`, and rules about it do not apply. `docs/verdict.md` lists the keys.

mod evidence;
mod generator;
mod invalid;
mod overload;
mod rule;
mod warnings;
mod withdraw;
mod withdrawals;

use taillab_model::summary::{Claim, ClaimName, Reason, Verdict};

use generator::GENERATOR;
use overload::is_overloaded;
use rule::Rule;
use withdrawals::{Spoils, WITHDRAWALS, Withdrawal};

pub use evidence::{
    ClientSide, Evidence, Growth, LoadEvidence, SentLoad, ServerEvidence, TraceFacts, TracedServer,
    Unsupported, VirtualWorkers,
};
pub use overload::is_overload;
pub use withdraw::{withdraw, withdraw_from_closed_loop, withdraw_from_load, withdraw_from_rtt};

/// The rules about the server's own failures.
const SERVER_FAILED: [&str; 4] = ["errors", "few_errors", "no_answer", "unanswered"];

/// The rules about the sends that a server which does not keep up also holds up: a connection that is busy or
/// full takes no more.
const HELD_UP_BY_THE_SERVER: [&str; 2] = ["late_client", "arrivals"];

/// The rules about too few requests.
const TOO_FEW: [&str; 1] = [taillab_model::summary::TOO_FEW];

/// Judges a measurement: the reasons against all of it, those against some of its claims, and the warnings.
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
    verdict.warnings.extend(that_apply(overload::RULES));
    let mut spoiled: Vec<(&str, Spoils)> = Vec::new();
    for withdrawal in withdrawals(evidence) {
        let Some(reason) = withdrawal.rule.reason(evidence) else {
            continue;
        };
        verdict.warnings.push(reason);
        spoiled.push((withdrawal.rule.key, (withdrawal.spoils)(evidence)));
    }
    verdict.warnings.extend(that_apply(warnings::RULES));
    for condition in evidence.conditions {
        if !(verdict.warnings.iter()).any(|warning| warning.key == condition.key) {
            verdict.warnings.push(condition.clone());
        }
    }
    verdict.valid = verdict.reasons.is_empty();
    verdict.claims = claims(evidence, &verdict.reasons, &spoiled);
    verdict
}

/// The rules that withdraw claims of this measurement.
fn withdrawals(evidence: &Evidence<'_>) -> impl Iterator<Item = &'static Withdrawal> {
    let is_load_overloaded = evidence.server.is_none() && is_overloaded(evidence);
    let of_sends = |of: &&Withdrawal| HELD_UP_BY_THE_SERVER.contains(&of.rule.key);
    let all = GENERATOR.iter().chain(WITHDRAWALS);
    all.filter(move |withdrawal| !(is_load_overloaded && of_sends(withdrawal)))
}

/// Each claim that the measurement makes, and what withdraws it.
fn claims(evidence: &Evidence<'_>, reasons: &[Reason], spoiled: &[(&str, Spoils)]) -> Vec<Claim> {
    let judged = |claim: ClaimName| {
        let by_reasons = reasons.iter().map(|reason| reason.key.as_str());
        let withdraw = spoiled.iter().filter(|(_, spoils)| spoils.withdraws(claim));
        let mut because: Vec<String> = Vec::new();
        for key in by_reasons.chain(withdraw.map(|(key, _)| *key)) {
            if !because.iter().any(|known| known == key) {
                because.push(key.to_owned());
            }
        }
        Claim {
            claim,
            valid: because.is_empty(),
            because,
        }
    };
    let percentiles = evidence.measured().is_some();
    let percentiles = ClaimName::PERCENTILES.into_iter().filter(|_| percentiles);
    let comparison = ClaimName::COMPARISON.into_iter();
    let comparison = comparison.filter(|claim| evidence.claims(*claim));
    let comparison = comparison.map(judged).collect::<Vec<_>>();
    percentiles.map(judged).chain(comparison).collect()
}

/// What the verdicts on the steps of a sweep mean for the whole.
///
/// A sweep searches for the load at which the server fails or no longer keeps up, so neither makes the sweep
/// invalid. But where the client failed, the step shows nothing of the server, and a reader should know.
fn judge_steps(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    for step in evidence.sweep.unwrap_or_default() {
        let rate_per_s = step.load.target_rate_per_s;
        let withdraws = |warning: &&Reason| {
            !TOO_FEW.contains(&warning.key.as_str())
                && (step.verdict.claims.iter()).any(|claim| claim.because.contains(&warning.key))
        };
        let spoilt = step.verdict.warnings.iter().filter(withdraws);
        for reason in step.verdict.reasons.iter().chain(spoilt) {
            let text = format!("at {rate_per_s:.0}/s: {}", reason.text);
            verdict.warnings.push(Reason::new(&reason.key, text));
        }
    }
}

/// Whether something other than the server and the number of requests withdraws the percentile `q`, or all of
/// the measurement.
pub fn client_failed(verdict: &Verdict, q: f64) -> bool {
    let at_q = (verdict.claims.iter())
        .find(|claim| claim.claim.quantile().is_some_and(|of| of >= q - 1e-9));
    let withdrawn = at_q.iter().flat_map(|claim| &claim.because);
    let reasons = verdict.reasons.iter().map(|reason| &reason.key);
    let mut keys = reasons.chain(withdrawn).map(String::as_str);
    keys.any(|key| ![&SERVER_FAILED[..], &TOO_FEW].concat().contains(&key))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_rule_has_its_own_key_and_a_row_in_the_docs() {
        const DOCS: &str = include_str!("../../../../docs/verdict.md");
        let withdrawals = GENERATOR.iter().chain(WITHDRAWALS);
        let withdrawals = withdrawals.map(|withdrawal| &withdrawal.rule);
        let rules = (invalid::RULES.iter())
            .chain(overload::RULES)
            .chain(withdrawals)
            .chain(warnings::RULES);
        let mut seen = HashSet::new();
        for rule in rules {
            let key = rule.key;
            let is_snake_case = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(key.chars().all(is_snake_case), "{key}");
            assert!(seen.insert(key), "{key} twice");
            let row = format!("| `{key}` |");
            assert_eq!(DOCS.matches(&row).count(), 1, "{key} in docs/verdict.md");
        }
    }
}
