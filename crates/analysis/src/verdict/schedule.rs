//! Rules about the sends.
//!
//! Where the server was recorded, they withdraw what arrivals by the schedule would have seen
//! ([`Scheduled`](taillab_model::summary::Scheduled)) and what the client saw, and nothing that is of the server: it
//! answered the arrivals that came. Of a load alone they withdraw what the client saw, which is all of it.

use std::fmt;

use taillab_model::summary::{
    ArrivalsVerdict, CutSummary, MAX_CUT_SHARE, MAX_LATENESS_SHARE, MAX_UNSETTLED_SHARE,
};
use taillab_model::{Nanos, REPORTED_QUANTILES};

use super::evidence::Evidence;
use super::rule::{Limit, Rule, WithdrawnPart, exceeds};
use super::withdrawals::WithdrawnPercentiles;
use crate::fmt::{Percent, Percentile};

pub(super) const SCHEDULE: &[Rule] = &[
    Rule {
        key: "late_client",
        limit: Limit::At(
            MAX_LATENESS_SHARE,
            "beyond half of a response time, the generator had more part in it than the server; \
of a recorded server, whose sojourn has no lateness in it, all of it is the limit",
        ),
        seen: |e| {
            let (q, lateness, whole) = too_late(e)?;
            let late = format!("the client sends {lateness} late at {}", Percentile(q));
            let so = FirstSpoiledQuantile(e, q);
            Some(match e.server {
                Some(_) => format!("{late}, more than the {whole} to be measured{so}"),
                None => {
                    format!("{late}, more than half of the {whole} that a response takes there{so}")
                }
            })
        },
        remedy: |_| "give it a dedicated CPU or more threads, or lower the load",
        takes: |e| WithdrawnPart::tail(too_late(e).map(|(q, ..)| q)),
    },
    Rule {
        key: "cut",
        limit: Limit::At(
            MAX_CUT_SHARE,
            "of what is left, too little is above p99; from twice that on, too little at all",
        ),
        seen: |e| {
            let from = cut(e)?;
            let cut = of_cuts(e)?;
            let most = cut.by_reason.first()?;
            Some(format!(
                "the generator did not keep its schedule for {} of the time, mostly because {} \
                     ({}){}",
                Percent(cut.share),
                most.why.sentence(),
                most.who,
                FirstSpoiledQuantile(e, from)
            ))
        },
        remedy: |_| "give the generator a CPU of its own, or wait until the machine is quieter",
        takes: |e| WithdrawnPart::tail(cut(e)),
    },
    Rule {
        key: "cut_too_often",
        limit: Limit::At(
            MAX_UNSETTLED_SHARE,
            "where a quarter of the requests above it is missing, what is called p99 is p98.7",
        ),
        seen: |e| {
            let (q, missing) = unsettled(e)?;
            Some(format!(
                "the generator was held up so often that {} of the requests above {} are \
                     missing from those on schedule{}",
                Percent(missing),
                Percentile(q),
                FirstSpoiledQuantile(e, q)
            ))
        },
        remedy: |_| "give the generator a CPU of its own, or wait until the machine is quieter",
        takes: |e| WithdrawnPart::tail(unsettled(e).map(|(q, _)| q)),
    },
    Rule {
        key: "arrivals",
        limit: Limit::At(
            ArrivalsVerdict::MAX_DISPERSION_ERROR,
            "one pause of 10 ms in 20 s adds as much, since all that was due in it is sent at once",
        ),
        seen: |e| {
            let load = e.load?.summary;
            let cut = of_cuts(e).map_or(Nanos::ZERO, |cut| cut.length_ns);
            let length = load.duration_ns.saturating_sub(cut);
            let at = load.arrivals.foreign_bursts(length)?;
            Some(format!(
                "the sends are not {}: their index of dispersion in windows of {} is {:.2} and \
                     should be near {}{}",
                load.arrivals.process,
                at.window_ns,
                at.value.unwrap_or(f64::NAN),
                index(at.expected.unwrap_or(1.0)),
                FirstSpoiledQuantile(e, BURSTS_SHOW)
            ))
        },
        remedy: |_| "give the client a dedicated CPU, or lower the load",
        takes: |_| WithdrawnPart::From(BURSTS_SHOW),
    },
];

/// Whether a rule is one of these.
pub(super) fn has(rule: &Rule) -> bool {
    SCHEDULE.iter().any(|other| other.key == rule.key)
}

/// Bursts make queues, which show from this percentile on, and hardly in the median.
const BURSTS_SHOW: f64 = 0.9;

/// From which percentile on a fault of the schedule spoils what its arrivals would have seen; in a load alone,
/// from which on it spoils the result.
pub(super) struct FirstSpoiledQuantile<'e, 'a>(pub(super) &'e Evidence<'a>, pub(super) f64);

impl fmt::Display for FirstSpoiledQuantile<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(evidence, from) = *self;
        if evidence.server.is_none() {
            return WithdrawnPercentiles(Some(from)).fmt(f);
        }
        let is_replayed = evidence.built.is_some_and(|built| built.is_replayed);
        f.write_str(match is_replayed {
            true => ", so what arrivals on schedule would see is known from a replay only",
            false => ", so what arrivals on schedule would see is not known",
        })?;
        match WithdrawnPart::From(from).all() {
            true => Ok(()),
            false => write!(f, " from {} on", Percentile(from)),
        }
    }
}

/// What was cut, where something was.
fn of_cuts<'a>(e: &Evidence<'a>) -> Option<&'a CutSummary> {
    e.scheduled?.cut.as_ref()
}

fn cut(e: &Evidence<'_>) -> Option<f64> {
    match of_cuts(e)?.share {
        share if share > 2.0 * MAX_CUT_SHARE => Some(0.5),
        share if share > MAX_CUT_SHARE => Some(0.99),
        _ => None,
    }
}

/// The lowest percentile above which too many requests are missing because cuts follow each other too
/// soon, and the share that is missing.
fn unsettled(e: &Evidence<'_>) -> Option<(f64, f64)> {
    let unsettled = of_cuts(e)?.unsettled.iter();
    let mut too_many = unsettled.filter(|at| at.share > MAX_UNSETTLED_SHARE);
    too_many.next().map(|at| (at.q, at.share))
}

/// The lowest percentile at which the generator was too late for what it measures: its probability,
/// the lateness, and what that is compared with (the sojourn, or else the response time).
fn too_late(e: &Evidence<'_>) -> Option<(f64, Nanos, Nanos)> {
    let most = if e.server.is_some() {
        1.0
    } else {
        MAX_LATENESS_SHARE
    };
    REPORTED_QUANTILES.into_iter().find_map(|q| {
        let (lateness, whole) = e.lateness_at(q)?;
        exceeds(lateness, most, whole).then_some((q, lateness, whole))
    })
}

/// `1` if it is exactly 1, otherwise two decimals.
fn index(expected: f64) -> String {
    if expected == 1.0 {
        "1".to_owned()
    } else {
        format!("{expected:.2}")
    }
}
