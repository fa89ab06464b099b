//! Rules that make a result invalid.

use taillab_model::summary::{MAX_CLIENT_BUSY_SHARE, MAX_ERROR_SHARE, MIN_SENT_SHARE};

use super::evidence::Growth;
use super::rule::Rule;
use crate::fmt::{Count, Percent, share};

pub(super) const RULES: &[Rule] = &[
    Rule {
        key: "no_answer",
        seen: |e| {
            let client = e.client()?;
            let answers = e
                .load
                .map_or(client.service_time, |l| &l.summary.response_time);
            // nothing may have been sent on schedule, and the server have answered all of it
            let is_cut = e.server.is_some() && answers.unanswered == 0;
            (answers.count == 0 && !is_cut)
                .then(|| format!("none of {} requests was answered", Count(client.requests)))
        },
        remedy: |_| "check that the target speaks this protocol",
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
                    "the client sent {} requests per second of the {} that were due",
                    Count(sent.round() as u64),
                    Count(planned.round() as u64)
                )
            })
        },
        remedy: |_| "give it more threads and CPUs, or lower the load",
    },
    Rule {
        key: "client_busy",
        seen: |e| {
            let busy = e.load?.summary.client.busy_share;
            (busy > MAX_CLIENT_BUSY_SHARE).then(|| {
                format!(
                    "the client was busy {} of the time (at most {} is allowed), so it is the \
                     bottleneck",
                    Percent(busy),
                    Percent(MAX_CLIENT_BUSY_SHARE)
                )
            })
        },
        remedy: |_| "give it more threads and CPUs, or lower the load",
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
            "the server cannot keep up; lower the load, or run longer if the load is only near \
             the capacity"
        },
    },
    Rule {
        key: "longer_than_client",
        seen: |e| {
            e.server?;
            // the client's times are of the requests that were sent on schedule
            let measured = e.on_schedule()?.quantile(0.5)?;
            let client = e.load?.summary.service_time.quantile(0.5)?;
            // if many requests went wrong, the client's percentile is over other requests than the server's
            let (wrong, requests) = (e.errors()?.total(), e.client()?.requests);
            (share(wrong, requests) <= MAX_ERROR_SHARE && measured >= client).then(|| {
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
            let none = e.sweep?.is_empty();
            none.then(|| "no load was measured".to_owned())
        },
        remedy: |_| "run it again, and let at least one load finish",
    },
];
