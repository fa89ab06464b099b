//! Rules that make a result invalid: there was nothing to measure, or it contradicts itself.

use taillab_model::summary::MAX_ERROR_SHARE;

use super::rule::{Limit, REPORT_IT, Rule, WithdrawnPart, first_of_them};
use crate::fmt::{Count, share};

pub(super) const RULES: &[Rule] = &[
    Rule {
        key: "no_answer",
        limit: Limit::Any("where nothing was answered, nothing was measured"),
        seen: |e| {
            let client = e.client()?;
            let answers = e
                .load
                .map_or(client.service_time, |l| &l.summary.response_time);
            let requests = Count(client.requests);
            // nothing may have been sent on schedule, and the server have answered all of it
            let is_cut = e.server.is_some() && answers.unanswered == 0;
            match answers.count {
                0 if !is_cut => Some(format!("none of {requests} requests was answered")),
                _ if e.errors()?.failed_requests() >= client.requests => Some(format!(
                    "none of {requests} requests was answered without an error{}",
                    first_of_them(e)
                )),
                _ => None,
            }
        },
        remedy: |_| "check that the target speaks this protocol",
        takes: |_| WithdrawnPart::Everything,
    },
    Rule {
        key: "longer_than_client",
        limit: Limit::Any("the client's time has the server's in it, so it cannot be shorter"),
        seen: |e| {
            // the client's times are of the requests that were sent on schedule; at its edges they may be others
            // than the server's, and in a queue that grows the percentiles depend on which they are
            let on_schedule = e.on_schedule()?;
            let beyond = e.server?.client_minus_server.as_ref();
            let agree = beyond.map_or(0, |beyond| beyond.count);
            if agree > on_schedule.count / 2 {
                return None;
            }
            let measured = on_schedule.quantile(0.5)?;
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
        remedy: |_| REPORT_IT,
        takes: |_| WithdrawnPart::Everything,
    },
    Rule {
        key: "no_load",
        limit: Limit::Any("without a step there is nothing to show"),
        seen: |e| {
            let none = e.sweep?.is_empty();
            none.then(|| "no load was measured".to_owned())
        },
        remedy: |_| "run it again, and let at least one load finish",
        takes: |_| WithdrawnPart::Everything,
    },
];
