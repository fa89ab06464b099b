//! Rules about work that came faster than it was done. They withdraw nothing: what was measured is what this
//! load does to this server.

use taillab_model::summary::Verdict;

use super::evidence::{Evidence, Growth};
use super::rule::{Limit, NOTHING, Rule};
use crate::fmt::{Count, Percent, QueueGrowth};
use crate::load::GROWTH;

/// The utilisation at which a server has no time left.
const FULL_LOAD: f64 = 1.0;

/// The rules that say that the server did not keep up with the load.
const OVERLOAD: [&str; 2] = ["overload", "growing"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        key: OVERLOAD[0],
        limit: Limit::At(
            FULL_LOAD,
            "beyond it, the queue grows for as long as the load lasts",
        ),
        seen: |e| {
            let Some(server) = e.server else {
                let load = e.load?.summary;
                let utilization = load.target_utilization?;
                // a generator that is the limit sends less than planned
                let sent = load.sent_rate_per_s / load.target_rate_per_s;
                return (utilization * sent >= FULL_LOAD).then(|| {
                    format!(
                        "the load is {} of the capacity, so work arrives faster than it is done",
                        Percent(utilization)
                    )
                });
            };
            let overload = server.overload.as_ref()?;
            Some(format!(
                "work arrived faster than it was done, {}",
                QueueGrowth(overload)
            ))
        },
        remedy: |e| match e.server.and_then(|server| server.overload.as_ref()) {
            Some(overload) if !overload.outlasts_load => {
                "the percentiles depend on how long that lasted; see the first finding"
            }
            Some(_) => {
                "the percentiles are those of this measurement only, and grow with its length; \
                     see the first finding"
            }
            None => {
                "the percentiles are those of this measurement only, and grow with its length; \
                     lower the load"
            }
        },
        takes: NOTHING,
    },
    Rule {
        key: OVERLOAD[1],
        limit: Limit::At(
            GROWTH as f64,
            "p10 of a stable queue is about the same in each part of a measurement",
        ),
        seen: |e| {
            let load = e.load?.evidence?;
            let Growth {
                first,
                last,
                answered_per_s,
            } = load.growth?;
            Some(format!(
                "answers took longer throughout (p10 {first} in the first fifth, {last} in the \
                 last), {} requests per second were due and {} were answered",
                Count(load.planned_rate_per_s.round() as u64),
                Count(answered_per_s.round() as u64)
            ))
        },
        remedy: |_| {
            "the percentiles are those of this measurement only, and grow with its length; lower \
             the load, or measure for longer if it is only near the capacity"
        },
        takes: NOTHING,
    },
    Rule {
        key: "server_overloaded",
        limit: Limit::Any(
            "a sweep looks for such loads, and its reader should know which they were",
        ),
        seen: |e| {
            let overloaded = e.sweep?.iter().filter(|step| is_overload(&step.verdict));
            let rates: Vec<String> = overloaded
                .map(|step| format!("{:.0}/s", step.load.target_rate_per_s))
                .collect();
            (!rates.is_empty())
                .then(|| format!("the server did not keep up at {}", rates.join(", ")))
        },
        remedy: |_| {
            "what was measured there depends on the length of the measurement; read it as “too \
             much”"
        },
        takes: NOTHING,
    },
];

/// The server did not keep up with the load.
pub fn is_overload(verdict: &Verdict) -> bool {
    let mut keys = verdict.warnings.iter().map(|warning| warning.key.as_str());
    keys.any(|key| OVERLOAD.contains(&key))
}

/// The same, before there is a verdict.
pub(super) fn is_overloaded(evidence: &Evidence<'_>) -> bool {
    let mut of_server = RULES.iter().filter(|rule| OVERLOAD.contains(&rule.key));
    of_server.any(|rule| (rule.seen)(evidence).is_some())
}
