//! Which causes make the tail, by whom, and what would remove them.

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, CauseShare, Culprit, Finding, Prediction};

use super::facts::{Facts, NOTABLE, Tail, Whole, conclusive, list};
use crate::fmt::{Count, Percentile};

/// The largest number of culprits that a sentence names.
const NAMED: usize = 3;

/// A culprit with a smaller share of its cause is not named.
const NAMED_PART: f64 = 0.1;

/// A mitigation that leaves a larger share of the percentile is not advised.
const WORTH_TRYING: f64 = 0.95;

/// A sentence for each cause with a notable share of the excess above p99, the largest first.
pub(super) fn main_causes(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(tail) = facts.tail().filter(|tail| tail.measured > tail.ideal) else {
        return Vec::new();
    };
    let have_own_findings = [Cause::Unexplained, Cause::Unobserved];
    let mut wholes: Vec<&CauseShare> = (facts.server.causes.iter())
        .filter(|share| share.culprit.is_none() && !have_own_findings.contains(&share.cause))
        .filter(|share| share.excess_share_above_p99.value >= NOTABLE)
        .collect();
    let above = |share: &CauseShare| share.excess_share_above_p99.value;
    wholes.sort_by(|a, b| above(b).total_cmp(&above(a)));
    let mut findings = Vec::new();
    for whole in wholes {
        let first = findings.is_empty();
        findings.push(finding(facts, &tail, whole, first));
    }
    findings
}

fn finding(facts: &Facts<'_>, tail: &Tail, whole: &CauseShare, first: bool) -> Finding {
    let mut text = if first {
        format!("{tail}. ")
    } else {
        String::new()
    };
    let share = whole.excess_share_above_p99;
    let of = if first {
        "of the excess above p99"
    } else {
        "of it"
    };
    let (comes, range) = match share.lo.zip(share.hi) {
        // a few bursts made many requests slow
        Some((lo, hi)) if lo <= 0.0 => ("may come from", format!(" (0 to {})", Whole(hi))),
        _ => ("comes from", String::new()),
    };
    let culprits = culprits(&facts.server.causes, whole);
    let blame = whole.cause.blame(&list(&culprits));
    text += &format!("{}{range} {of} {comes} {blame}", Whole(share.value));
    // each culprit has its own figures; without culprits, the figures are those of the cause
    if culprits.is_empty() {
        text += &episodes(whole);
    }
    text.push('.');
    let best = best(&facts.server.predictions, whole.cause, tail.q);
    if let Some((prediction, predicted)) = best {
        text += &format!(
            " Predicted with {}: {} {predicted}",
            prediction.description,
            Percentile(tail.q)
        );
        let point = prediction.points.iter().find(|point| point.q == tail.q);
        if let Some((lo, hi)) = point.and_then(|point| point.lo_ns.zip(point.hi_ns)) {
            text += &format!(" ({lo} to {hi})");
        }
        text.push('.');
        if point.is_some_and(|point| point.hi_ns.is_some_and(|hi| hi >= point.measured_ns)) {
            text += " The interval includes what was measured: this recording is too short or \
                     too noisy to say whether it helps.";
        }
    }
    let command = best.and_then(|(prediction, _)| prediction.command.clone());
    let advice = command.or_else(|| whole.cause.info().advice.map(str::to_owned));
    conclusive(text, advice, Some(whole.cause))
}

/// The largest culprits of a cause, each with its figures.
fn culprits(causes: &[CauseShare], whole: &CauseShare) -> Vec<String> {
    let above = |share: &CauseShare| share.excess_share_above_p99.value;
    let least = NAMED_PART * above(whole);
    let mut of_cause: Vec<(&CauseShare, &Culprit)> = causes
        .iter()
        .filter(|share| share.cause == whole.cause && above(share) >= least)
        .filter_map(|share| Some((share, share.culprit.as_ref()?)))
        .collect();
    of_cause.sort_by(|a, b| above(b.0).total_cmp(&above(a.0)));
    let named = of_cause.iter().take(NAMED);
    named
        .map(|(share, culprit)| format!("`{culprit}`{}", episodes(share)))
        .collect()
}

/// ` (212 times, 2.10 ms each; each delaying about 190 requests)`.
fn episodes(whole: &CauseShare) -> String {
    if whole.episodes == 0 {
        return String::new();
    }
    let times = if whole.episodes == 1 {
        "once".to_owned()
    } else {
        format!("{} times", Count(whole.episodes))
    };
    let mean = Nanos::new(whole.mean_episode_ns.round() as u64);
    let each = if whole.episodes == 1 { "" } else { " each" };
    let mut text = format!(" ({times}, {mean}{each}");
    if whole.requests_per_episode >= 1.5 {
        let requests = Count(whole.requests_per_episode.round() as u64);
        text += &format!("; each delaying about {requests} requests");
    }
    text.push(')');
    text
}

/// The mitigation of this cause with the lowest forecast, if it is worth its cost.
fn best(predictions: &[Prediction], cause: Cause, q: f64) -> Option<(&Prediction, Nanos)> {
    let mut best: Option<(&Prediction, Nanos)> = None;
    for prediction in predictions {
        // a mitigation has a cost, a what-if has none
        if prediction.cost.is_none() || !prediction.removes.contains(&cause) {
            continue;
        }
        let Some(point) = prediction.points.iter().find(|point| point.q == q) else {
            continue;
        };
        let worth = point.measured_ns.get() as f64 * WORTH_TRYING;
        let better = best.is_none_or(|(_, least)| point.predicted_ns < least);
        if better && point.predicted_ns.get() as f64 <= worth {
            best = Some((prediction, point.predicted_ns));
        }
    }
    best
}
