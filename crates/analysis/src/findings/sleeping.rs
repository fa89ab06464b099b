//! Workers that fall asleep between requests: what waking them costs, and what spares it.

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, Finding, Sleeping};
use taillab_model::summary::{ServerResult, ServiceTimeSource};

use super::causes::{best, predicted_with};
use super::facts::{Facts, Whole, conclusive, list};
use crate::fmt::Count;
use crate::predict::mitigation::MITIGATIONS;

/// Below this share of p50, leaving idle and waking up are not worth a sentence …
const NOTABLE_OF_P50: f64 = 0.1;

/// … unless they take more than this share of the server's CPU time.
const NOTABLE_OF_CPU: f64 = 0.15;

/// With fewer wake-ups per request, what a request costs beyond t is something else.
const FEW_WAKES: f64 = 0.05;

const CAUSES: [Cause; 2] = [Cause::Wakeup, Cause::IdleExit];

pub(super) fn sleeping_and_waking(facts: &Facts<'_>) -> Option<Finding> {
    let sleeping = facts.explanation.sleeping.as_ref()?;
    let (p50, wait) = (
        facts.server.measured.sojourn.quantile(0.5)?,
        sleeping.wait_asleep_ns?,
    );
    let cpu = CpuTime::of(facts.server, sleeping);
    let takes_cpu = cpu
        .as_ref()
        .is_some_and(|cpu| cpu.share() >= NOTABLE_OF_CPU);
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
    text += &cpu.map_or_else(String::new, |cpu| cpu.sentence());
    let best = best(&facts.server.predictions, &CAUSES, 0.5);
    if let Some((prediction, point)) = best {
        text += &predicted_with(prediction, point);
    }
    text += &remedies();
    let command = best.and_then(|(prediction, _)| prediction.command.clone());
    let advice = command.unwrap_or_else(|| "taillab tune plan busy-poll".to_owned());
    Some(conclusive(text, Some(advice), None))
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

/// CPU time of the server that goes into sleeping and waking: what a request costs beyond t.
struct CpuTime {
    beyond_ns: f64,
    busy_ns: f64,
    each_ns: f64,
    t: Nanos,
}

impl CpuTime {
    /// `None` where that is not known, or where it is something else.
    fn of(server: &ServerResult, sleeping: &Sleeping) -> Option<Self> {
        let busy_ns = server.measured.busy_ns_per_request?;
        let t = server.service_time_ns;
        let probe_ns = match server.service_time_source {
            // the busy time has the probe, and t has not
            ServiceTimeSource::Calibrated => server.overhead.cpu_ns_per_request.unwrap_or(0.0),
            ServiceTimeSource::Unknown
            | ServiceTimeSource::VirtualWait
            | ServiceTimeSource::AsFastAsMeasured => return None,
            _ => 0.0,
        };
        let beyond_ns = busy_ns - t.get() as f64 - probe_ns;
        let is_sleep = beyond_ns > 0.0 && sleeping.wakes_per_request >= FEW_WAKES;
        is_sleep.then(|| Self {
            beyond_ns,
            busy_ns,
            each_ns: beyond_ns / sleeping.wakes_per_request,
            t,
        })
    }

    fn share(&self) -> f64 {
        self.beyond_ns / self.busy_ns
    }

    /// ` A request costs 28.7 µs of CPU time and t is 16.0 µs: 12.7 µs (44 %) go into it, 15.9 µs each time.`
    fn sentence(&self) -> String {
        format!(
            " A request costs {} of CPU time, and t is {}: {} of it ({}) goes into sleeping and waking, {} \
             each time.",
            nanos(self.busy_ns),
            self.t,
            nanos(self.beyond_ns),
            Whole(self.share()),
            nanos(self.each_ns),
        )
    }
}

fn nanos(ns: f64) -> Nanos {
    Nanos::new(ns.round() as u64)
}
