//! Whether a measurement can be believed, and what its reader should know.
//!
//! 1. [`judge`] decides from the [`Evidence`], which is sums, what it supports: a [`Judgement`].
//! 2. The result is built. Whoever builds a part of it asks [`Supported`], which only the judge makes, so nothing is ever
//!    made that the evidence does not support.
//! 3. [`Judgement::verdict`] says it in words, with warnings, which take nothing away.
//!
//! One table of rules serves every command. A rule reads the evidence and says in one line what was seen and what
//! to do about it. A part of the evidence that a command does not have is `None`, and rules about it do not apply.
//! `docs/verdict.md` lists the keys.

mod evidence;
mod generator;
mod invalid;
mod overload;
mod rule;
mod schedule;
mod supported;
mod warnings;
mod withdrawals;

use taillab_model::Distribution;
use taillab_model::summary::{Claim, ClaimName, Reason, TOO_FEW, Verdict, Withdrawn};

use generator::GENERATOR;
use overload::is_overloaded;
use schedule::SCHEDULE;
use withdrawals::WITHDRAWALS;

pub use evidence::{
    Built, ClientSide, Evidence, Growth, LoadEvidence, ScheduleEvidence, SentLoad, ServerEvidence,
    TraceFacts, Unsupported, VirtualWorkers,
};
pub use overload::is_overload;
pub use rule::{Limit, NAME_THE_PROTOCOL, ONE_AT_A_TIME, Rule, WithdrawnPart};
pub use supported::Supported;

/// The rules about the server's own failures.
const SERVER_FAILED: [&str; 3] = ["errors", "no_answer", "unanswered"];

/// All rules, in the order in which they are said; whether each is about the sends.
fn table() -> impl Iterator<Item = (&'static Rule, bool)> {
    let of_sends = |rules: &'static [Rule]| rules.iter().map(|rule| (rule, true));
    let others = |rules: &'static [Rule]| rules.iter().map(|rule| (rule, false));
    others(invalid::RULES)
        .chain(others(overload::RULES))
        .chain(of_sends(GENERATOR))
        .chain(others(WITHDRAWALS))
        .chain(of_sends(SCHEDULE))
        .chain(others(warnings::RULES))
}

/// All rules.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    table().map(|(rule, _)| rule)
}

/// The rules that can apply to this evidence. A server that does not keep up holds the sends up as well: a connection
/// that is busy or full takes no more.
fn rules_for(evidence: &Evidence<'_>) -> impl Iterator<Item = (&'static Rule, bool)> {
    let is_held_up = evidence.server.is_none() && is_overloaded(evidence);
    table().filter(move |(rule, _)| !(is_held_up && schedule::has(rule)))
}

/// What the evidence says for and against a result.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The rules that take something away.
    against: Vec<Against>,
    supported: Supported,
    on_schedule: Supported,
}

/// A rule that applies.
#[derive(Clone, Copy, Debug)]
struct Against {
    key: &'static str,
    takes: WithdrawnPart,
    /// It is about the sends.
    of_sends: bool,
}

/// Decides what the evidence supports. What is built later (causes, forecasts) decides nothing.
pub fn judge(evidence: &Evidence<'_>) -> Judgement {
    let evidence = &Evidence {
        built: None,
        ..*evidence
    };
    let against = rules_for(evidence).filter_map(|(rule, of_sends)| {
        (rule.seen)(evidence)?;
        let takes = (rule.takes)(evidence);
        (takes != WithdrawnPart::Nothing).then_some(Against {
            key: rule.key,
            takes,
            of_sends,
        })
    });
    let mut judgement = Judgement {
        against: against.collect(),
        supported: Supported::NOTHING,
        on_schedule: Supported::NOTHING,
    };
    let is_valid = judgement.is_valid();
    let of_all = Supported::of(is_valid, |claim| judgement.against(evidence, claim));
    let on_schedule = Supported::of(is_valid, |claim| {
        judgement.against_on_schedule(evidence, claim)
    });
    (judgement.supported, judgement.on_schedule) = (of_all, on_schedule);
    judgement
}

/// Judges a measurement of a client alone: what it supports, and the verdict in words.
pub fn judge_client(evidence: &Evidence<'_>) -> (Supported, Verdict) {
    let judgement = judge(evidence);
    (
        judgement.supported,
        judgement.verdict(evidence, Built::default()),
    )
}

impl Judgement {
    /// What a result may claim about all requests.
    pub const fn supported(&self) -> &Supported {
        &self.supported
    }

    /// What it may claim about the requests that were sent on schedule, and about what their client saw.
    pub const fn on_schedule(&self) -> &Supported {
        &self.on_schedule
    }

    /// Whether there is a result.
    fn is_valid(&self) -> bool {
        let mut against = self.against.iter();
        !against.any(|against| against.takes == WithdrawnPart::Everything)
    }

    /// The keys of what takes a claim on all requests away.
    fn against(&self, evidence: &Evidence<'_>, claim: ClaimName) -> Vec<&'static str> {
        // a fault of the sends spoils all that a client alone knows, and nothing that the server did
        let counts = |against: &&Against| evidence.server.is_none() || !against.of_sends;
        self.keys_against(claim, counts)
    }

    fn keys_against(
        &self,
        claim: ClaimName,
        counts: impl Fn(&&Against) -> bool,
    ) -> Vec<&'static str> {
        let against = self.against.iter().filter(counts);
        let against = against.filter(|against| against.takes.withdraws(claim));
        against.map(|against| against.key).collect()
    }

    /// The same for the requests on schedule. What is against all requests is against these too, except for too few
    /// of them: they are judged by their own number.
    fn against_on_schedule(&self, evidence: &Evidence<'_>, claim: ClaimName) -> Vec<&'static str> {
        let Some(sojourn) = on_schedule(evidence) else {
            return Vec::new();
        };
        let mut keys = self.against(evidence, claim);
        keys.retain(|key| *key != TOO_FEW);
        keys.extend(self.keys_against(claim, |against| against.of_sends));
        if keys.is_empty()
            && claim
                .quantile()
                .is_some_and(|q| sojourn.quantile(q).is_none())
        {
            keys.push(TOO_FEW);
        }
        keys
    }

    /// Says it in words, with what a reader should know of what was `built`.
    pub fn verdict(&self, evidence: &Evidence<'_>, built: Built<'_>) -> Verdict {
        let evidence = &Evidence {
            built: Some(built),
            ..*evidence
        };
        let (mut reasons, mut warnings) = (Vec::new(), of_steps(evidence));
        for (rule, _) in rules_for(evidence) {
            let said = rule.reason(evidence);
            match (rule.takes)(evidence) {
                WithdrawnPart::Everything => reasons.extend(said),
                _ => warnings.extend(said),
            }
        }
        for condition in evidence.conditions {
            if !warnings.iter().any(|warning| warning.key == condition.key) {
                warnings.push(condition.clone());
            }
        }
        Verdict {
            valid: self.is_valid(),
            reasons,
            warnings,
            claims: self.claims(evidence),
        }
    }

    /// Each claim that the measurement makes, and what withdraws it.
    fn claims(&self, evidence: &Evidence<'_>) -> Vec<Claim> {
        let percentiles = ClaimName::PERCENTILES.into_iter();
        let percentiles = percentiles.filter(|_| evidence.measured().is_some());
        let comparison = ClaimName::COMPARISON.into_iter();
        let comparison = comparison.filter(|claim| evidence.claims(*claim, &self.supported));
        let claims = percentiles.chain(comparison);
        claims
            .map(|claim| judged(claim, self.against(evidence, claim)))
            .collect()
    }

    /// Whether each percentile of what requests on schedule saw holds; empty where the generator is not ours.
    pub fn claims_on_schedule(&self, evidence: &Evidence<'_>) -> Vec<Claim> {
        let percentiles = ClaimName::PERCENTILES.into_iter();
        let percentiles = percentiles.filter(|_| on_schedule(evidence).is_some());
        percentiles
            .map(|claim| judged(claim, self.against_on_schedule(evidence, claim)))
            .collect()
    }
}

fn judged(claim: ClaimName, because: Vec<&'static str>) -> Claim {
    Claim {
        claim,
        valid: because.is_empty(),
        because: because.into_iter().map(str::to_owned).collect(),
    }
}

/// What the requests on schedule saw, where the generator is ours.
fn on_schedule<'a>(evidence: &Evidence<'a>) -> Option<&'a Distribution> {
    evidence.scheduled.and(evidence.on_schedule())
}

/// What is supported if nothing is known but whether the server can be compared with its ideal.
pub(crate) fn unjudged(not_compared: Option<Withdrawn>) -> Supported {
    let server = ServerEvidence {
        not_compared,
        ..ServerEvidence::default()
    };
    let evidence = Evidence {
        server: Some(&server),
        ..Evidence::default()
    };
    judge(&evidence).supported
}

/// What the verdicts on the steps of a sweep mean for the whole.
///
/// A sweep searches for the load at which the server fails or no longer keeps up, so neither makes the sweep
/// invalid. But where the client failed, the step shows nothing of the server, and a reader should know.
fn of_steps(evidence: &Evidence<'_>) -> Vec<Reason> {
    let mut warnings = Vec::new();
    for step in evidence.sweep.unwrap_or_default() {
        let rate_per_s = step.load.target_rate_per_s;
        let withdraws = |warning: &&Reason| {
            warning.key != TOO_FEW
                && (step.verdict.claims.iter()).any(|claim| claim.because.contains(&warning.key))
        };
        let spoilt = step.verdict.warnings.iter().filter(withdraws);
        for reason in step.verdict.reasons.iter().chain(spoilt) {
            let text = format!("at {rate_per_s:.0}/s: {}", reason.text);
            warnings.push(Reason::new(&reason.key, text));
        }
    }
    warnings
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
        let mut seen = HashSet::new();
        for rule in rules() {
            let key = rule.key;
            let is_snake_case = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(key.chars().all(is_snake_case), "{key}");
            assert!(seen.insert(key), "{key} twice");
            let row = format!("| `{key}` |");
            assert_eq!(DOCS.matches(&row).count(), 1, "{key} in docs/verdict.md");
        }
    }
}
