//! Workers that fall asleep between requests: what waking them costs, and what spares it.

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, Finding};
use taillab_model::summary::{ServerResult, ServiceTimeSource};

use super::causes::{best, predicted_with};
use super::facts::{Facts, Whole, conclusive, list};
use crate::fmt::Count;
use crate::predict::mitigation::MITIGATIONS;

/// Below this share of p50, leaving idle and waking up are not worth a sentence …
const NOTABLE_OF_P50: f64 = 0.1;

/// … unless they take more than this share of the workers' CPU time.
const NOTABLE_OF_CPU: f64 = 0.15;

const CAUSES: [Cause; 2] = [Cause::Wakeup, Cause::IdleExit];

pub(super) fn sleeping_and_waking(facts: &Facts<'_>) -> Option<Finding> {
    let sleeping = facts.explanation.sleeping.as_ref()?;
    let (p50, wait) = (
        facts.server.measured.sojourn.quantile(0.5)?,
        sleeping.wait_asleep_ns?,
    );
    let takes_cpu = (sleeping.cpu_share).is_some_and(|share| share >= NOTABLE_OF_CPU);
    if sleeping.share_of_p50 < NOTABLE_OF_P50 && !takes_cpu {
        return None;
    }
    let mut text = format!(
        "The workers fall asleep and are woken {} times a second: {} of the requests find theirs \
         asleep, and it mostly runs {wait} later. Of p50, {p50}, leaving idle states and waking up \
         make {} ({}).",
        Count(sleeping.wakes_per_s.round() as u64),
        Whole(sleeping.found_asleep_share),
        nanos(sleeping.at_p50_ns),
        Whole(sleeping.share_of_p50),
    );
    if let Some((each, share)) = sleeping.cpu_ns_each.zip(sleeping.cpu_share) {
        text += &format!(
            " Each time takes {} of CPU time, in all {} of the workers' own.",
            nanos(each),
            Whole(share)
        );
    }
    text += &by_t(facts.server);
    let best = best(&facts.server.predictions, &CAUSES, 0.5);
    if let Some((prediction, point)) = best {
        text += &predicted_with(prediction, point);
    }
    text += &remedies();
    let command = best.and_then(|(prediction, _)| prediction.command.clone());
    let advice = command.unwrap_or_else(|| "taillab tune plan busy-poll".to_owned());
    Some(conclusive(text, Some(advice), None))
}

/// What a request costs, and what it would cost where no worker ever slept, if that is known and less.
fn by_t(server: &ServerResult) -> String {
    /// A smaller difference says nothing.
    const LEAST: f64 = 1.15;
    let t = server.service_time_ns;
    let is_measured = !matches!(
        server.service_time_source,
        ServiceTimeSource::Unknown
            | ServiceTimeSource::VirtualWait
            | ServiceTimeSource::AsFastAsMeasured
    );
    let cost = (server.measured.busy_ns_per_request)
        .filter(|cost| is_measured && *cost > LEAST * t.get() as f64);
    cost.map_or_else(String::new, |cost| {
        let cost = nanos(cost);
        format!(
            " A request costs {cost} with the work of receiving it, and {t} (t) without a pause."
        )
    })
}

/// What treats it, by name.
fn remedies() -> String {
    let treats = |cause: &Cause| CAUSES.contains(cause);
    let rows = MITIGATIONS.iter();
    let rows = rows.filter(|row| row.by_tune && !row.effects.is_empty());
    let names = rows
        .filter(|row| row.is.treats.iter().any(treats))
        .map(|row| format!("`{}`", row.is.name));
    format!(
        " What treats it: workers that spin, {} (taillab tune), and in a virtual machine the haltpoll \
         governor or idle=poll.",
        list(&names.collect::<Vec<_>>())
    )
}

fn nanos(ns: f64) -> Nanos {
    Nanos::new(ns.round() as u64)
}
