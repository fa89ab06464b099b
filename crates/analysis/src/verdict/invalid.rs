//! Rules that make a result invalid.

use taillab_model::summary::{
    MAX_CLIENT_BUSY_SHARE, MAX_CUT_SHARE, MAX_ERROR_SHARE, MAX_LATENESS_SHARE, MAX_UNSETTLED_SHARE,
    MIN_MATCHED_SHARE, MIN_SENT_SHARE,
};

use super::evidence::{Evidence, Growth};
use super::rule::{Rule, exceeds, first_of_them, no_percentile_beyond, remedy_for_ambiguity};
use crate::fmt::{Errors, Percent, Percentile, Unlike, plural, share};

pub(super) const RULES: &[Rule] = &[
    Rule {
        key: "lost_events",
        seen: |e| {
            let lost = e.server?.result.matching.lost_events;
            (lost > 0).then(|| {
                let events = plural(lost, "event", "events");
                format!("the probe lost {lost} {events}, so requests are missing where it matters")
            })
        },
        remedy: |e| match e.recording {
            None => "give it larger buffers, or lower the load",
            Some(_) => {
                "record fewer kinds (--disturbances none), give larger buffers (--ring-bytes), or \
                 leave taillab a CPU that the server does not use"
            }
        },
    },
    Rule {
        key: "losses_unknown",
        seen: |e| {
            let matching = &e.server?.result.matching;
            e.recording?.cut_off.then(|| {
                format!(
                    "the recording has no end, so nobody knows how many events the probe lost (at least {}) \
                     and which requests are missing from the tail",
                    matching.lost_events
                )
            })
        },
        remedy: |_| "end a recording with Ctrl-C or SIGTERM, which complete the file, and record again",
    },
    Rule {
        key: "unmatched",
        seen: |e| {
            let matching = &e.server?.result.matching;
            let matched = share(matching.matched, matching.responses);
            (matched < MIN_MATCHED_SHARE).then(|| {
                format!(
                    "only {} of {} responses have T1 and T6 (at least {} are needed; {} are \
                     ambiguous)",
                    Percent(matched),
                    matching.responses,
                    Percent(MIN_MATCHED_SHARE),
                    matching.ambiguous
                )
            })
        },
        remedy: remedy_for_unmatched,
    },
    Rule {
        key: "unseen_by_probe",
        seen: |e| {
            let matching = &e.server?.result.matching;
            let matched = share(matching.client_matched, matching.client_responses);
            (matching.client_responses > 0 && matched < MIN_MATCHED_SHARE).then(|| {
                format!(
                    "only {} of the {} responses that the client received have T1 and T6 (at \
                     least {} are needed)",
                    Percent(matched),
                    matching.client_responses,
                    Percent(MIN_MATCHED_SHARE)
                )
            })
        },
        remedy: |_| "check that the probe's hooks see all of the server's traffic",
    },
    Rule {
        key: "no_answer",
        seen: |e| {
            let client = e.client()?;
            let answers = e
                .load
                .map_or(client.service_time, |l| &l.summary.response_time);
            (answers.count == 0)
                .then(|| format!("none of {} requests was answered", client.requests))
        },
        remedy: |_| "check that the target is a server of this protocol",
    },
    Rule {
        key: "late_client",
        seen: |e| {
            let (q, lateness, whole) = e.lateness()?;
            let late = format!("the client sends late by {lateness} at {}", Percentile(q));
            match e.server {
                Some(_) => (lateness > whole)
                    .then(|| format!("{late}, more than the {whole} that it is to measure")),
                None => exceeds(lateness, MAX_LATENESS_SHARE, whole).then(|| {
                    format!("{late}, more than half of the {whole} that a response takes there")
                }),
            }
        },
        remedy: |_| "give it a dedicated CPU or more threads, or lower the load",
    },
    Rule {
        key: "cut",
        seen: |e| {
            let cut = e.cut.filter(|cut| cut.share > MAX_CUT_SHARE)?;
            let most = cut.by_reason.first()?;
            Some(format!(
                "{} of the measurement had to be cut, mostly because {} ({})",
                Percent(cut.share),
                most.why.sentence(),
                most.who
            ))
        },
        remedy: |_| "give the generator a CPU of its own, or wait until the machine is quieter",
    },
    Rule {
        key: "cut_too_often",
        seen: |e| {
            let cut = e
                .cut
                .filter(|cut| cut.unsettled_share > MAX_UNSETTLED_SHARE)?;
            Some(format!(
                "{} of the requests came so soon after a cut that the server was emptier than it \
                 should have been",
                Percent(cut.unsettled_share)
            ))
        },
        remedy: |_| "give the generator a CPU of its own, or wait until the machine is quieter",
    },
    Rule {
        key: "rate_missed",
        seen: |e| {
            let load = e.load?;
            let (sent, planned) = (
                load.summary.sent_rate_per_s,
                load.evidence?.planned_rate_per_s,
            );
            (sent < MIN_SENT_SHARE * planned).then(|| {
                format!(
                    "the client sent {sent:.0} requests per second of the {planned:.0} that were \
                     due"
                )
            })
        },
        remedy: |_| "give it more threads and CPUs, or lower the load",
    },
    Rule {
        key: "arrivals",
        seen: |e| {
            let load = e.load?.summary;
            let at = load.arrivals.foreign_bursts(load.duration_ns)?;
            Some(format!(
                "the sends are not {}: their index of dispersion in windows of {} is {:.2} and \
                 should be near {}",
                load.arrivals.process,
                at.window_ns,
                at.value.unwrap_or(f64::NAN),
                index(at.expected.unwrap_or(1.0))
            ))
        },
        remedy: |_| "give the client a dedicated CPU, or lower the load",
    },
    Rule {
        key: "client_busy",
        seen: |e| {
            let busy = e.load?.summary.client.busy_share;
            (busy > MAX_CLIENT_BUSY_SHARE).then(|| {
                format!(
                    "the client was busy {} of the time (at most {} are allowed), so it is the \
                     bottleneck",
                    Percent(busy),
                    Percent(MAX_CLIENT_BUSY_SHARE)
                )
            })
        },
        remedy: |_| "give it more threads and CPUs, or lower the load",
    },
    Rule {
        key: "errors",
        seen: |e| {
            let (errors, requests) = (e.errors()?, e.client()?.requests);
            (share(errors.total(), requests) > MAX_ERROR_SHARE).then(|| {
                format!(
                    "{} in {requests} requests{}{}",
                    Errors(&errors),
                    first_of_them(e),
                    no_percentile_beyond(e)
                )
            })
        },
        remedy: |e| match e.wrong_answer {
            Some(line) if line.contains("this port speaks") => {
                "name the target with that protocol's scheme, or another port"
            }
            Some(line) if line.starts_with("HTTP/") && line.contains(" 404") => "check the path",
            Some(line) if line.starts_with("HTTP/") && line.contains(" 40") => {
                "check the path, the headers and the protocol"
            }
            Some(_) => "check what is asked, the port and the protocol, then the server's log",
            None => "lower the load, or find out why the server fails",
        },
    },
    Rule {
        key: "overload",
        seen: |e| {
            let utilization = match e.server {
                Some(server) => server.result.ideal.utilization,
                None => e.load?.summary.target_utilization?,
            };
            (utilization >= 1.0).then(|| {
                format!(
                    "the load is {} of the capacity, so queues only grow and no percentile exists",
                    Percent(utilization)
                )
            })
        },
        remedy: |e| match (e.server, e.recording) {
            (_, Some(_)) => "correct --service-time or --workers, or trace at a lower load",
            (Some(_), None) => "lower the load, or calibrate again",
            (None, None) => "lower the load",
        },
    },
    Rule {
        key: "growing",
        seen: |e| {
            let Growth { first, last } = e.load?.evidence?.growth?;
            Some(format!(
                "response times grew throughout (p10 {first} in the first fifth, {last} in the \
                 last), so no percentile exists"
            ))
        },
        remedy: |_| {
            "lower the load, which the server cannot keep up with, or run longer if it is only \
             near the capacity"
        },
    },
    Rule {
        key: "ideal_above_measured",
        seen: |e| {
            e.load?;
            Some(Unlike(&e.ideal_above_measured()?).to_string())
        },
        remedy: |_| "calibrate again on a quiet machine, with the server as the limit",
    },
    Rule {
        key: "longer_than_client",
        seen: |e| {
            let measured = e.server?.result.measured.sojourn.quantile(0.5)?;
            let client = e.load?.summary.service_time.quantile(0.5)?;
            (measured >= client).then(|| {
                format!(
                    "the measured p50 of {measured} is not below the {client} that the client \
                     saw, so stamps and client disagree"
                )
            })
        },
        remedy: |_| "report this as a defect, with the capture",
    },
    Rule {
        key: "no_load",
        seen: |e| {
            let none = e.sweep?.steps.is_empty();
            none.then(|| "no load was measured".to_owned())
        },
        remedy: |_| "run it again, and let at least one finish",
    },
];

fn remedy_for_unmatched(evidence: &Evidence<'_>) -> &'static str {
    let unmatched = evidence.server.map(|server| &server.result.matching);
    let mostly_ambiguous = unmatched.is_some_and(|matching| {
        matching.ambiguous * 2 > matching.responses.saturating_sub(matching.matched)
    });
    match evidence.recording {
        None => "look for traffic that is not the client's, and for responses in several packets",
        Some(_) if mostly_ambiguous => remedy_for_ambiguity(evidence),
        Some(_) => {
            "look for other processes that answer on this port (-p PID, --cgroup), and for \
             responses without a request"
        }
    }
}

/// `1`, or two decimals where it is not whole.
fn index(expected: f64) -> String {
    if expected == 1.0 {
        "1".to_owned()
    } else {
        format!("{expected:.2}")
    }
}
