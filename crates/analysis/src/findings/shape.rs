//! The shape of the tail: near the ideal, overtaking, uneven workers, bursts.

use taillab_model::explanation::{Cause, Finding, OTHER_THREADS, WorkerShare};

use super::facts::{Facts, NOTABLE, WholePercent, conclusive};
use crate::fmt::{Count, Counted, Percentile, plural, share};

/// Up to this multiple of the ideal, there is little to gain.
const NEAR: f64 = 1.5;

/// A percentile below this part of the ideal says that the ideal is too slow.
const BELOW: f64 = 0.8;

/// Lower percentiles do not show the tail.
const TAIL: f64 = 0.99;

/// A larger share of overtaken requests is worth a sentence.
const MANY_OVERTAKEN: f64 = 0.01;

/// Workers are uneven if one is more than this many times as busy as another.
const UNEVEN: f64 = 1.5;

/// Slow requests come in bursts if at least this share of them is in runs.
const IN_BURSTS: f64 = 0.5;

/// If bursts have fewer requests on average, a burst is not one event that delays many.
const MANY_IN_A_BURST: f64 = 1.5;

pub(super) fn near_the_ideal(facts: &Facts<'_>) -> Option<Finding> {
    // a median near the ideal says nothing of a tail that is not known
    let tail = facts.tail().filter(|tail| tail.q >= TAIL)?;
    let ratio = tail.measured.get() as f64 / tail.ideal.get().max(1) as f64;
    // well below the ideal, t is in doubt, and not the server good
    (BELOW..=NEAR).contains(&ratio).then(|| {
        let near = match ratio < 1.0 {
            true => "no longer than that".to_owned(),
            false => format!("within a factor of {ratio:.2}"),
        };
        let text = format!(
            "{tail}: {near}. No setting can gain much here; a lower load or more workers would."
        );
        conclusive(text, None, None)
    })
}

pub(super) fn overtaking(facts: &Facts<'_>) -> Option<Finding> {
    let inversions = &facts.explanation.inversions;
    let matters = facts.share_above_p99(Cause::Order) >= NOTABLE;
    (inversions.share >= MANY_OVERTAKEN || matters).then(|| {
        let mut text = format!(
            "{} ({}) {} overtaken by a later one of the same worker",
            Counted(inversions.overtaken, "request", "requests"),
            WholePercent(inversions.share),
            plural(inversions.overtaken, "was", "were")
        );
        text.push('.');
        // without causes, because they were withdrawn or not recorded, its share is not known
        let is_known = !facts.server.causes.is_empty();
        let advice = (is_known && !matters).then(|| {
            format!(
                "It accounts for {} {}: there is no need to change it.",
                WholePercent(facts.share_above_p99(Cause::Order)),
                facts.above_p99()
            )
        });
        conclusive(text, advice, Some(Cause::Order))
    })
}

pub(super) fn uneven_workers(facts: &Facts<'_>) -> Option<Finding> {
    let workers = facts.explanation.workers.iter();
    let workers: Vec<&WorkerShare> = workers.filter(|it| it.tid != OTHER_THREADS).collect();
    let busy = |a: &&&WorkerShare, b: &&&WorkerShare| a.busy_share.total_cmp(&b.busy_share);
    let most = workers.iter().max_by(busy)?;
    let least = workers.iter().min_by(busy)?;
    let requests: u64 = workers.iter().map(|worker| worker.requests).sum();
    let uneven = most.busy_share > UNEVEN * least.busy_share;
    let matters = facts.surely_above_p99(Cause::Imbalance) >= NOTABLE;
    (workers.len() > 1 && uneven && matters).then(|| {
        let text = format!(
            "The workers are uneven: {} (thread {}) served {} of the requests and was busy {} of \
             the time, {} (thread {}) {} and {}.",
            most.name,
            most.tid,
            WholePercent(share(most.requests, requests)),
            WholePercent(most.busy_share),
            least.name,
            least.tid,
            WholePercent(share(least.requests, requests)),
            WholePercent(least.busy_share)
        );
        let advice = "Spread the connections evenly, or let all workers take from one queue.";
        conclusive(text, Some(advice.to_owned()), Some(Cause::Imbalance))
    })
}

pub(super) fn bursts(facts: &Facts<'_>) -> Option<Finding> {
    let clustering = facts.explanation.clustering.as_ref()?;
    let above = Percentile(clustering.q);
    let runs = WholePercent(clustering.in_runs_share);
    let in_bursts = clustering.in_runs_share >= IN_BURSTS;
    let text = if in_bursts && clustering.mean_episode_requests < MANY_IN_A_BURST {
        format!(
            "Slow requests come next to each other: {runs} of those above {above} have another \
             slow one right before or after them."
        )
    } else if in_bursts {
        format!(
            "Slow requests come in bursts: {runs} of those above {above} come in runs, {} \
             of {} requests on average. Each burst is one event that delays many.",
            Counted(clustering.episodes, "burst", "bursts"),
            Count(clustering.mean_episode_requests.round() as u64)
        )
    } else {
        format!(
            "Slow requests come one at a time: only {runs} of those above {above} come in runs. \
             Look at what those requests do differently."
        )
    };
    Some(conclusive(text, None, None))
}
