//! Rules that withdraw some claims of a result and leave the others.

use std::fmt;

use taillab_model::summary::{MAX_ERROR_SHARE, Matching, Withdrawn, spoiled_from, unbounded_from};
use taillab_model::{MiddleStamps, REPORTED_QUANTILES};

use super::evidence::Evidence;
use super::rule::{
    Limit, Rule, WithdrawnPart, first_of_them, no_percentile_beyond, remedy_for_ambiguity,
};
use crate::comparison::AGREES;
use crate::fmt::{Count, Counted, Errors, Percent, Percentile, WhyNotCompared, plural, share};

/// Fewer slices support no interval of a cause.
const LEAST_SLICES: u64 = 8;

/// `, so p99.9 and higher percentiles are withdrawn`; empty if nothing is withdrawn.
pub(super) struct WithdrawnPercentiles(pub(super) Option<f64>);

impl fmt::Display for WithdrawnPercentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(q) if WithdrawnPart::From(q).all() => f.write_str(", so no percentile is known"),
            Some(q) if q <= 0.9 => {
                let q = Percentile(q);
                write!(
                    f,
                    ", so {q} and higher percentiles are withdrawn, with causes and forecasts"
                )
            }
            Some(q) if q < 0.99999 => {
                write!(
                    f,
                    ", so {} and higher percentiles are withdrawn",
                    Percentile(q)
                )
            }
            Some(q) => write!(f, ", so {} is withdrawn", Percentile(q)),
        }
    }
}

/// What the percentiles that are not withdrawn make of missing requests.
const ALLOWED: &str =
    "; the other intervals allow for all of these being the slowest, or the fastest";

/// The lowest percentile without an upper bound, if the requests that were not seen were the slowest.
fn unbounded(e: &Evidence<'_>) -> Option<f64> {
    unbounded_from(e.server?.matching.missing_share())
}

/// The same, if events were lost and no client knows which requests that hid.
fn lost(e: &Evidence<'_>) -> Option<f64> {
    let matching = &e.server?.matching;
    let counts = matching.lost_events > 0 && matching.client_responses == 0;
    counts.then(|| unbounded(e)).flatten()
}

/// How many responses lack T1 or T6, and the lowest percentile that this spoils.
fn unmatched(e: &Evidence<'_>) -> Option<(u64, f64)> {
    let matching = &e.server?.matching;
    let missing = matching.responses.saturating_sub(matching.matched);
    (missing > 0).then_some(missing).zip(unbounded(e))
}

/// The same for the responses that the client received.
fn unseen(e: &Evidence<'_>) -> Option<(u64, f64)> {
    let matching = &e.server?.matching;
    let missing = unseen_responses(matching);
    (missing > 0).then_some(missing).zip(unbounded(e))
}

const fn unseen_responses(matching: &Matching) -> u64 {
    (matching.client_responses).saturating_sub(matching.client_matched)
}

/// The share of the requests that went wrong.
fn wrong(e: &Evidence<'_>) -> Option<f64> {
    Some(share(e.errors()?.total(), e.client()?.requests))
}

/// The lowest percentile that wrong answers spoil. Requests without an answer are known to be the slowest, so
/// the percentiles below them hold. A datagram that comes twice, or too late, is wrong for no request: each has its
/// own answer, or none.
fn spoiled_by_wrong_answers(e: &Evidence<'_>) -> Option<f64> {
    let errors = e.errors()?;
    let of_no_request = match e.on_stream {
        true => 0,
        false => errors.unexpected_responses,
    };
    let wrong = errors.total() - errors.unanswered_requests() - of_no_request;
    spoiled_from(share(wrong, e.client()?.requests))
}

/// The lowest percentile that the errors of the client spoil, or that lies beyond the answers.
fn spoiled_by_errors(e: &Evidence<'_>) -> WithdrawnPart {
    let first = [spoiled_by_wrong_answers(e), beyond_answers(e)];
    WithdrawnPart::tail(first.into_iter().flatten().min_by(f64::total_cmp))
}

fn some_errors(e: &Evidence<'_>) -> Option<String> {
    let requests = e.client()?.requests;
    Some(format!(
        "{} in {} requests{}{}{}",
        Errors(&e.errors()?),
        Count(requests),
        first_of_them(e),
        no_percentile_beyond(e),
        WithdrawnPercentiles(spoiled_by_wrong_answers(e))
    ))
}

/// Why the server is not compared with the ideal, if this is the reason.
fn unlike(e: &Evidence<'_>, is_reason: fn(&Withdrawn) -> bool) -> Option<String> {
    let withdrawn = e.not_compared().filter(is_reason)?;
    Some(WhyNotCompared(&withdrawn).to_string())
}

/// The lowest percentile beyond the share of the requests that was answered.
fn beyond_answers(e: &Evidence<'_>) -> Option<f64> {
    let answered = e.measured()?.answered_share();
    REPORTED_QUANTILES.into_iter().find(|q| *q > answered)
}

pub(super) const WITHDRAWALS: &[Rule] = &[
    Rule {
        key: "lost_events",
        limit: Limit::Any("each may be of a request, and that the slowest"),
        seen: |e| {
            let matching = &e.server?.matching;
            let events = Counted(matching.lost_events, "event", "events");
            (matching.lost_events > 0).then(|| match matching.client_responses {
                0 => {
                    let so = WithdrawnPercentiles(lost(e));
                    format!(
                        "the probe lost {events}, and as many requests may be missing\
                             {so}{ALLOWED}"
                    )
                }
                all => format!(
                    "the probe lost {events}, and of the {} responses that the client received, \
                         {} lack T1 or T6",
                    Count(all),
                    Count(unseen_responses(matching))
                ),
            })
        },
        remedy: |e| match e.recording {
            None => "give the probe larger buffers (--ring-bytes), or lower the load",
            Some(_) => {
                "record fewer kinds (--disturbances none), give larger buffers (--ring-bytes), \
                     or leave taillab a CPU that the server does not use"
            }
        },
        takes: |e| WithdrawnPart::tail(lost(e)),
    },
    Rule {
        key: "losses_unknown",
        limit: Limit::Any("without its end, a recording does not say what it lost"),
        seen: |e| {
            let matching = &e.server?.matching;
            e.recording?.cut_off.then(|| {
                format!(
                    "the recording has no end, so it is not known how many events the probe \
                         lost (at least {}) and which requests are missing from the tail{}",
                    Count(matching.lost_events),
                    WithdrawnPercentiles(Some(0.9))
                )
            })
        },
        remedy: |_| "record again, and stop it with Ctrl-C or SIGTERM, which complete the file",
        takes: |_| WithdrawnPart::From(0.9),
    },
    Rule {
        key: "unmatched",
        limit: Limit::Any("each may have been the slowest"),
        seen: |e| {
            let matching = &e.server?.matching;
            let (missing, from) = unmatched(e)?;
            Some(format!(
                "{} of {} responses {} T1 or T6 ({}){}{ALLOWED}",
                Count(missing),
                Count(matching.responses),
                plural(missing, "lacks", "lack"),
                Counted(matching.ambiguous, "is ambiguous", "are ambiguous"),
                WithdrawnPercentiles(Some(from))
            ))
        },
        remedy: remedy_for_unmatched,
        takes: |e| WithdrawnPart::tail(unmatched(e).map(|(_, q)| q)),
    },
    Rule {
        key: "unseen_by_probe",
        limit: Limit::Any("each may have been the slowest"),
        seen: |e| {
            let matching = &e.server?.matching;
            let (missing, from) = unseen(e)?;
            Some(format!(
                "{} of the {} responses that the client received {} T1 or T6{}{ALLOWED}",
                Count(missing),
                Count(matching.client_responses),
                plural(missing, "lacks", "lack"),
                WithdrawnPercentiles(Some(from))
            ))
        },
        remedy: |_| "check that the probe's hooks see all of the server's traffic",
        takes: |e| WithdrawnPart::tail(unseen(e).map(|(_, q)| q)),
    },
    Rule {
        key: "errors",
        limit: Limit::Any("each may be an answer that is too fast, or too slow"),
        seen: |e| {
            let some = wrong(e)? > 0.0;
            some.then(|| some_errors(e)).flatten()
        },
        remedy: |e| match e.wrong_answer {
            _ if wrong(e).is_some_and(|wrong| wrong <= MAX_ERROR_SHARE) => "see the server's log",
            Some(line) if line.contains("this port speaks") => {
                "name the target with that protocol's scheme, or another port"
            }
            Some(line) if line.starts_with("HTTP/") && line.contains(" 404") => "check the path",
            Some(line) if line.starts_with("HTTP/") && line.contains(" 30") => {
                "ask for the place to which the server redirects; https:// is not spoken here"
            }
            Some(line) if line.contains("Too many open connections") => {
                "give the server more connections (memcached: -c), or use fewer (-c)"
            }
            Some(line) if line.starts_with("HTTP/") && line.contains(" 40") => {
                "check the path, the headers and the protocol"
            }
            Some(_) => "check the request, the port and the protocol, then the server's log",
            None => "lower the load, or find out why the server fails",
        },
        takes: spoiled_by_errors,
    },
    Rule {
        key: "unanswered",
        limit: Limit::At(
            MAX_ERROR_SHARE,
            "as many are a tenth of what is above p99.9, the furthest percentile that most readers look at",
        ),
        seen: |e| {
            let sojourn = &e.server?.sojourn;
            let (unanswered, all) = (sojourn.unanswered, sojourn.count + sojourn.unanswered);
            (share(unanswered, all) > MAX_ERROR_SHARE).then(|| {
                format!(
                    "{} of {} requests ({}) were not answered, though each was given longer \
                         than any answer took{}",
                    Count(unanswered),
                    Count(all),
                    Percent(share(unanswered, all)),
                    no_percentile_beyond(e)
                )
            })
        },
        remedy: |_| {
            "find out why the server drops them (its log, full queues), whether clients give up and close \
                 their connections, or whether the protocol has requests without a response"
        },
        takes: |e| WithdrawnPart::tail(beyond_answers(e)),
    },
    Rule {
        key: "service_time_disagrees",
        limit: Limit::At(
            AGREES,
            "between two measurements of one server, frequency and caches change t by less",
        ),
        seen: |e| {
            unlike(e, |why| {
                matches!(why, Withdrawn::ServiceTimeDisagrees { .. })
            })
        },
        remedy: |_| {
            "there is no comparison with an ideal server; leave --service-time out, and t is taken \
                 from the recording"
        },
        takes: |_| WithdrawnPart::Comparison,
    },
    Rule {
        key: "ideal_above_measured",
        limit: Limit::Any("no server is faster than its ideal, so t is too long"),
        seen: |e| unlike(e, |why| matches!(why, Withdrawn::IdealAboveMeasured { .. })),
        remedy: |_| {
            "there is no comparison with an ideal server; measure at a higher load, at which requests \
                 wait and the recording shows what one costs, or give t with --service-time"
        },
        takes: |_| WithdrawnPart::Comparison,
    },
    Rule {
        key: "service_time_unknown",
        limit: Limit::Any("without t there is no ideal"),
        seen: |e| unlike(e, |why| matches!(why, Withdrawn::ServiceTimeUnknown)),
        remedy: |_| {
            "give the service time with --service-time, or record everything for a share of the \
                 time (--stamps sampled:1/16)"
        },
        takes: |_| WithdrawnPart::Comparison,
    },
    Rule {
        key: "few_slices",
        limit: Limit::At(
            LEAST_SLICES as f64,
            "the intervals take the slices as the sample, and fewer support none",
        ),
        seen: |e| {
            let matching = &e.server?.matching;
            let sampled = matches!(matching.stamps, MiddleStamps::Sampled(_));
            (sampled && matching.slices < LEAST_SLICES).then(|| {
                format!(
                    "only {} of the measurement {} all stamps, and causes need {LEAST_SLICES}",
                    Counted(matching.slices, "slice", "slices"),
                    plural(matching.slices, "has", "have")
                )
            })
        },
        remedy: |_| {
            "measure for longer, or record a larger share of the time (a slice takes 100 ms, so \
                 --stamps sampled:1/16 needs 13 s, sampled:1/4 needs 4 s)"
        },
        takes: |_| WithdrawnPart::Explanation,
    },
    Rule {
        key: "closed_loop",
        limit: Limit::Any("a faster server would have got other arrivals"),
        seen: |e| unlike(e, |why| matches!(why, Withdrawn::ClientsWait { .. })),
        remedy: |_| {
            "what was measured holds for these clients; for a comparison, send an open-loop \
                 load (`taillab load -R`, `taillab run`)"
        },
        takes: |_| WithdrawnPart::IdealAndForecasts,
    },
    Rule {
        key: "unsupported_percentile",
        limit: Limit::Any("the interval of a percentile needs requests on both sides of it"),
        seen: |e| {
            let (unsupported, has) = e.unsupported()?;
            let seconds = (e.rate_per_s()).map(|per_s| unsupported.needs as f64 / per_s);
            let long = seconds.map_or_else(String::new, |s| {
                format!(" (about {} s)", Count(s.ceil() as u64))
            });
            Some(format!(
                "too few samples for {}: about {} needed at this correlation{long}, {} \
                     collected",
                Percentile(unsupported.q),
                Count(unsupported.needs),
                Count(has)
            ))
        },
        remedy: |_| "measure for longer (-d)",
        takes: |e| WithdrawnPart::tail(e.unsupported().map(|(unsupported, _)| unsupported.q)),
    },
];

fn remedy_for_unmatched(evidence: &Evidence<'_>) -> &'static str {
    let unmatched = evidence.server.map(|server| &server.matching);
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
