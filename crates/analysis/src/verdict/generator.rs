//! Rules about a generator that sent less than it should have.
//!
//! As with the rules about the schedule, they withdraw what arrivals on schedule would have seen, and nothing that
//! is of the server; of a load alone, all percentiles. Not so where nearly all was sent, or where the server did not
//! keep up either: then it is the server that they show.

use taillab_model::summary::{MAX_CLIENT_BUSY_SHARE, MIN_SENT_SHARE};

use super::evidence::Evidence;
use super::overload::is_overloaded;
use super::rule::{Limit, Rule, WithdrawnPart};
use super::schedule::FirstSpoiledQuantile;
use crate::fmt::{Count, Percent};

/// Below this share, most requests met another load than was asked for. Above it, only the last ones were late, and how
/// late they were decides what is known (`late_client`).
const MIN_SENT_SHARE_OF_PERCENTILES: f64 = 0.9;

pub(super) const GENERATOR: &[Rule] = &[
    Rule {
        key: "rate_missed",
        limit: Limit::At(
            MIN_SENT_SHARE,
            "the schedule is that of the same requests, so only the first and the last send may be late",
        ),
        seen: |e| {
            let (sent, planned) = rates(e)?;
            (sent < MIN_SENT_SHARE * planned).then(|| {
                format!(
                    "the generator sent {} requests per second of the {} that were due{}",
                    Count(sent.round() as u64),
                    Count(planned.round() as u64),
                    so(e, sent_part(e))
                )
            })
        },
        remedy,
        takes: sent_part,
    },
    Rule {
        key: "client_busy",
        limit: Limit::At(
            MAX_CLIENT_BUSY_SHARE,
            "busier than that, most sends wait for other work of the generator",
        ),
        seen: |e| {
            let busy = e.load?.summary.client.busy_share;
            (busy > MAX_CLIENT_BUSY_SHARE).then(|| {
                format!(
                    "the generator was busy {} of the time, and sent and received late{}",
                    Percent(busy),
                    so(e, part(e))
                )
            })
        },
        remedy,
        takes: part,
    },
];

/// What was sent and what was planned, in requests per second.
fn rates(e: &Evidence<'_>) -> Option<(f64, f64)> {
    let load = e.load?;
    let planned = load.evidence.map(|evidence| evidence.planned_rate_per_s);
    let planned = planned.unwrap_or(load.summary.target_rate_per_s);
    Some((load.summary.sent_rate_per_s, planned))
}

fn sent_part(e: &Evidence<'_>) -> WithdrawnPart {
    match rates(e) {
        Some((sent, planned)) if sent < MIN_SENT_SHARE_OF_PERCENTILES * planned => part(e),
        _ => WithdrawnPart::Nothing,
    }
}

fn part(e: &Evidence<'_>) -> WithdrawnPart {
    match is_overloaded(e) {
        true => WithdrawnPart::Nothing,
        false => WithdrawnPart::From(0.5),
    }
}

/// What is withdrawn, for the end of a sentence.
fn so(e: &Evidence<'_>, part: WithdrawnPart) -> String {
    match part {
        WithdrawnPart::From(q) => FirstSpoiledQuantile(e, q).to_string(),
        _ => String::new(),
    }
}

fn remedy(e: &Evidence<'_>) -> &'static str {
    match is_overloaded(e) {
        true => "the server could not answer more; lower the load",
        false => "give the generator more threads and CPUs, or lower the load",
    }
}
