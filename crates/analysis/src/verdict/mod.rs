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
mod schedule;
mod warnings;
mod withdraw;
mod withdrawals;

use taillab_model::summary::{Claim, ClaimName, Reason, TOO_FEW, Verdict};

use generator::GENERATOR;
use overload::is_overloaded;
use rule::Rule;
use schedule::SCHEDULE;
use withdrawals::{WITHDRAWALS, Withdrawal, WithdrawnPart};

pub use evidence::{
    ClientSide, Evidence, Growth, LoadEvidence, SentLoad, ServerEvidence, TraceFacts, TracedServer,
    Unsupported, VirtualWorkers,
};
pub use overload::is_overload;
pub use withdraw::{withdraw, withdraw_from_closed_loop, withdraw_from_load, withdraw_from_rtt};

/// The rules about the server's own failures.
const SERVER_FAILED: [&str; 4] = ["errors", "few_errors", "no_answer", "unanswered"];

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
    // a server that does not keep up holds the sends up as well: a connection that is busy or full takes no more
    let is_held_up = evidence.server.is_none() && is_overloaded(evidence);
    let schedule = SCHEDULE.iter().filter(|_| !is_held_up);
    let is_of_sends = |key: &str| of_sends().any(|rule| rule.rule.key == key);
    let rules = GENERATOR.iter().chain(WITHDRAWALS).chain(schedule);
    let mut spoiled: Vec<(&str, WithdrawnPart)> = Vec::new();
    for (reason, part, key) in that_apply_to(evidence, rules) {
        verdict.warnings.push(reason);
        // a fault of the sends spoils all that a client alone knows, and nothing that the server did
        if evidence.server.is_none() || !is_of_sends(key) {
            spoiled.push((key, part));
        }
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

/// The rules about the sends.
fn of_sends() -> impl Iterator<Item = &'static Withdrawal> {
    GENERATOR.iter().chain(SCHEDULE)
}

/// Those of these rules that apply: what each says, what it spoils, and its key.
fn that_apply_to<'w>(
    evidence: &Evidence<'_>,
    withdrawals: impl Iterator<Item = &'w Withdrawal>,
) -> impl Iterator<Item = (Reason, WithdrawnPart, &'static str)> {
    withdrawals.filter_map(move |withdrawal| {
        let reason = withdrawal.rule.reason(evidence)?;
        Some((reason, (withdrawal.part)(evidence), withdrawal.rule.key))
    })
}

/// Whether each percentile of what requests on schedule saw holds; empty where the generator is not ours.
///
/// What `verdict` says against a percentile of all requests is against this one too, except for too few of them.
pub fn judge_schedule(evidence: &Evidence<'_>, verdict: &Verdict) -> Vec<Claim> {
    let Some(sojourn) = evidence.scheduled.and(evidence.on_schedule()) else {
        return Vec::new();
    };
    let of_schedule = that_apply_to(evidence, of_sends());
    let of_schedule: Vec<(&str, WithdrawnPart)> =
        of_schedule.map(|(_, part, key)| (key, part)).collect();
    let judged = |claim: ClaimName| {
        let of_all = verdict.claims.iter().find(|other| other.claim == claim);
        let of_all = of_all.iter().flat_map(|other| &other.because);
        let mut because: Vec<String> = of_all.filter(|key| *key != TOO_FEW).cloned().collect();
        let parts = of_schedule.iter();
        let parts = parts.filter(|(_, part)| part.withdraws(claim));
        because.extend(parts.map(|(key, _)| (*key).to_owned()));
        let value = claim.quantile().and_then(|q| sojourn.quantile(q));
        if because.is_empty() && value.is_none() {
            because.push(TOO_FEW.to_owned());
        }
        Claim {
            claim,
            valid: because.is_empty(),
            because,
        }
    };
    ClaimName::PERCENTILES.into_iter().map(judged).collect()
}

/// Each claim that the measurement makes, and what withdraws it.
fn claims(
    evidence: &Evidence<'_>,
    reasons: &[Reason],
    spoiled: &[(&str, WithdrawnPart)],
) -> Vec<Claim> {
    let judged = |claim: ClaimName| {
        let by_reasons = reasons.iter().map(|reason| reason.key.as_str());
        let withdraw = spoiled.iter().filter(|(_, part)| part.withdraws(claim));
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
            warning.key != TOO_FEW
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
    keys.any(|key| ![&SERVER_FAILED[..], &[TOO_FEW]].concat().contains(&key))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_rule_has_its_own_key_and_a_row_in_the_docs() {
        const DOCS: &str = include_str!("../../../../docs/verdict.md");
        let withdrawals = of_sends().chain(WITHDRAWALS);
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
