//! Which causes make the tail, which culprits, and what would remove them.

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, CauseShare, Culprit, Finding, PredictedPoint, Prediction};

use super::facts::{Facts, NOTABLE, Tail, Whole, conclusive, inconclusive, list};
use crate::fmt::{Count, Percentile};

/// The largest number of culprits that a sentence names.
const NAMED: usize = 3;

/// A culprit with a smaller share of its cause is not named.
const NAMED_PART: f64 = 0.1;

/// A mitigation that leaves a larger share of the percentile is not advised.
const WORTH_TRYING: f64 = 0.95;

/// A sentence for each cause with a notable share of the excess above p99, the largest first. Causes that
/// may be chance follow together.
pub(super) fn main_causes(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(tail) = facts.tail().filter(|tail| tail.measured > tail.ideal) else {
        return Vec::new();
    };
    let have_own_findings = [Cause::Unexplained, Cause::Unobserved];
    let above = |share: &&CauseShare| share.excess_share_above_p99;
    let mut wholes: Vec<&CauseShare> = (facts.server.causes.iter())
        .filter(|share| share.culprit.is_none() && !have_own_findings.contains(&share.cause))
        .filter(|share| above(share).value >= NOTABLE)
        .collect();
    wholes.sort_by(|a, b| above(b).value.total_cmp(&above(a).value));
    let (doubtful, sure): (Vec<_>, Vec<_>) =
        (wholes.into_iter()).partition(|share| above(share).is_in_doubt());
    let mut findings: Vec<Finding> = (sure.into_iter().enumerate())
        .map(|(place, whole)| finding(facts, &tail, whole, place == 0))
        .collect();
    findings.extend(chance(facts, &tail, &doubtful, findings.is_empty()));
    findings
}

/// `p99.9 is 2 ms, ideal 100 µs. 45 % of the excess above p99`, or only `45 % of it` after the first.
fn part(tail: &Tail, share: &str, first: bool) -> String {
    match first {
        true => format!("{tail}. {share} of the excess above p99"),
        false => format!("{share} of it"),
    }
}

/// A few bursts made many requests slow: another run may not have them.
fn chance(
    facts: &Facts<'_>,
    tail: &Tail,
    doubtful: &[&CauseShare],
    first: bool,
) -> Option<Finding> {
    let (largest, more) = doubtful.split_first()?;
    let from = |whole: &CauseShare, first: bool| {
        let share = whole.excess_share_above_p99;
        let range = format!("0 to {}", Whole(share.hi.unwrap_or(share.value)));
        let share = part(tail, &format!("{} ({range})", Whole(share.value)), first);
        format!("{share} may come from {}", blame(facts, whole))
    };
    let mut all = vec![from(largest, first)];
    all.extend(more.iter().map(|whole| from(whole, false)));
    let text = format!("{}: too few bursts to be sure.", all.join("; "));
    let advice = "Measure for longer (-d).";
    Some(inconclusive(text, advice, Some(largest.cause)))
}

/// The cause with its largest culprits and its figures.
fn blame(facts: &Facts<'_>, whole: &CauseShare) -> String {
    let culprits = culprits(&facts.server.causes, whole);
    let blame = whole.cause.blame(&list(&culprits));
    // each culprit has its own figures; without culprits, the figures are those of the cause
    match culprits.is_empty() {
        true => blame + &episodes(whole),
        false => blame,
    }
}

fn finding(facts: &Facts<'_>, tail: &Tail, whole: &CauseShare, first: bool) -> Finding {
    let share = Whole(whole.excess_share_above_p99.value).to_string();
    let share = part(tail, &share, first);
    let mut text = format!("{share} comes from {}.", blame(facts, whole));
    let best = best(&facts.server.predictions, &[whole.cause], tail.q);
    if let Some((prediction, point)) = best {
        text += &predicted_with(prediction, point);
    }
    let command = best.and_then(|(prediction, _)| prediction.command.clone());
    let advice = command.or_else(|| whole.cause.info().advice.map(str::to_owned));
    conclusive(text, advice, Some(whole.cause))
}

/// ` Predicted with the server's threads under SCHED_FIFO: p99.9 130 µs (120 µs to 150 µs).`
pub(super) fn predicted_with(prediction: &Prediction, point: &PredictedPoint) -> String {
    let mut text = format!(
        " Predicted with {}: {} {}",
        prediction.description,
        Percentile(point.q),
        point.predicted_ns
    );
    if let Some((lo, hi)) = point.lo_ns.zip(point.hi_ns) {
        text += &format!(" ({lo} to {hi})");
    }
    text.push('.');
    if point.hi_ns.is_some_and(|hi| hi >= point.measured_ns) {
        text += " The interval includes what was measured: this recording is too short or \
                 too noisy to say whether it helps.";
    }
    text
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

/// The mitigation of one of these causes with the lowest forecast, if it is worth its cost.
pub(super) fn best<'a>(
    predictions: &'a [Prediction],
    causes: &[Cause],
    q: f64,
) -> Option<(&'a Prediction, &'a PredictedPoint)> {
    let treats = |prediction: &&Prediction| {
        let mut removes = prediction.removes.iter();
        removes.any(|cause| causes.contains(cause))
    };
    // a mitigation has a cost, a what-if has none
    let mitigations = (predictions.iter())
        .filter(|prediction| prediction.cost.is_some())
        .filter(treats);
    let worth_trying = mitigations.filter_map(|prediction| {
        let point = prediction.points.iter().find(|point| point.q == q)?;
        let most = point.measured_ns.get() as f64 * WORTH_TRYING;
        (point.predicted_ns.get() as f64 <= most).then_some((prediction, point))
    });
    worth_trying.min_by_key(|(_, point)| point.predicted_ns)
}
