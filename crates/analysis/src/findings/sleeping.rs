//! Workers that fall asleep between requests: what waking them costs, and what spares it.

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, Finding};

use super::causes::{best, forecast};
use super::facts::{Facts, WholePercent, conclusive};
use crate::fmt::Count;

/// Below this share of p50, leaving idle and waking up are not worth a sentence …
const NOTABLE_OF_P50: f64 = 0.1;

/// … unless they take more than this share of the workers' CPU time.
const NOTABLE_OF_CPU: f64 = 0.15;

const CAUSES: [Cause; 2] = [Cause::Wakeup, Cause::IdleExit];

/// The finding's name for scripts.
const KEY: &str = "sleeping_and_waking";

pub(super) fn sleeping_and_waking(facts: &Facts<'_>) -> Option<Finding> {
    let sleeping = facts.explanation.sleeping.as_ref()?;
    let wait = sleeping.wait_asleep_ns?;
    // without p50, a share of it says nothing
    facts.server.measured.sojourn.quantile(0.5)?;
    let takes_cpu = (sleeping.cpu_share).is_some_and(|share| share >= NOTABLE_OF_CPU);
    if sleeping.share_of_p50 < NOTABLE_OF_P50 && !takes_cpu {
        return None;
    }
    let times = Count(sleeping.wakes_per_s.round() as u64);
    let mut text = format!("Workers fall asleep and are woken {times} times a second");
    if let Some((each, share)) = sleeping.cpu_ns_each.zip(sleeping.cpu_share) {
        let each = nanos(each);
        text += &format!(
            ", at {each} of CPU time each ({} of what they use)",
            WholePercent(share)
        );
    }
    text += &format!(
        ": {} of the requests wait {wait} for a sleeping worker; sleeping and waking make {} ({}) of p50",
        WholePercent(sleeping.found_asleep_share),
        nanos(sleeping.at_p50_ns),
        WholePercent(sleeping.share_of_p50),
    );
    let best = best(&facts.server.predictions, &CAUSES, Some(0.5));
    if let Some((prediction, point)) = best {
        text += &forecast(prediction, point);
    }
    text.push('.');
    let command = best.and_then(|(prediction, _)| prediction.command.clone());
    let advice = command.unwrap_or_else(|| "taillab tune plan busy-poll".to_owned());
    Some(Finding {
        key: Some(KEY.to_owned()),
        ..conclusive(text, Some(advice), None)
    })
}

fn nanos(ns: f64) -> Nanos {
    Nanos::new(ns.round() as u64)
}
