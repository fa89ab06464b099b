//! Rules that withdraw some claims of a result and leave the others.

use std::fmt;

use taillab_model::summary::{
    ClaimName, MAX_CUT_SHARE, MAX_ERROR_SHARE, MAX_LATENESS_SHARE, MAX_UNSETTLED_SHARE, Withdrawn,
    spoiled_from,
};
use taillab_model::{MiddleStamps, REPORTED_QUANTILES};

use super::evidence::Evidence;
use super::rule::{Rule, exceeds, first_of_them, no_percentile_beyond, remedy_for_ambiguity};
use crate::fmt::{Count, Counted, Errors, Percent, Percentile, Unlike, plural, share};

/// Fewer slices support no interval of a cause.
const LEAST_SLICES: u64 = 8;

/// A rule, and what it withdraws if it applies.
pub(super) struct Withdrawal {
    pub(super) rule: Rule,
    pub(super) spoils: fn(&Evidence<'_>) -> Spoils,
}

/// The part of a result that is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spoils {
    /// Nothing: it is only a warning.
    Nothing,
    /// This percentile and all higher ones; from p99 or below, causes and forecasts too; from p50,
    /// everything.
    From(f64),
    /// Everything that depends on the ideal queue.
    Comparison,
    /// Causes and forecasts.
    Explanation,
    /// What a server without its disturbances would do: the ideal and forecasts.
    IdealAndForecasts,
}

impl Spoils {
    fn tail(from: Option<f64>) -> Self {
        from.map_or(Self::Nothing, Self::From)
    }

    /// Whether nothing is left.
    pub(super) fn all(self) -> bool {
        matches!(self, Self::From(q) if q <= REPORTED_QUANTILES[0])
    }

    pub(super) fn withdraws(self, claim: ClaimName) -> bool {
        match (self, claim.quantile()) {
            (Self::Nothing, _) => false,
            (Self::Comparison | Self::Explanation | Self::IdealAndForecasts, Some(_)) => false,
            (Self::Comparison, None) => true,
            (Self::Explanation, None) => claim != ClaimName::Ideal,
            (Self::IdealAndForecasts, None) => claim != ClaimName::Causes,
            (Self::From(from), Some(q)) => q >= from,
            // causes and forecasts are about the excess above p99
            (Self::From(from), None) if claim != ClaimName::Ideal => from <= 0.99,
            (Self::From(_), None) => self.all(),
        }
    }
}

/// `, so p99.9 and higher percentiles are withdrawn`; empty if nothing is withdrawn.
struct So(Option<f64>);

impl fmt::Display for So {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(q) if Spoils::From(q).all() => f.write_str(", so no percentile is known"),
            Some(q) if q <= 0.99 => {
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

/// The lowest percentile that is spoiled if one request is missing for each lost event.
fn lost(e: &Evidence<'_>) -> Option<f64> {
    let matching = &e.server?.result.matching;
    spoiled_from(share(matching.lost_events, matching.responses))
}

/// How many responses lack T1 or T6, and the lowest percentile that this spoils.
fn unmatched(e: &Evidence<'_>) -> Option<(u64, f64)> {
    let matching = &e.server?.result.matching;
    let missing = matching.responses.saturating_sub(matching.matched);
    Some((missing, spoiled_from(share(missing, matching.responses))?))
}

/// The same for the responses that the client received.
fn unseen(e: &Evidence<'_>) -> Option<(u64, f64)> {
    let matching = &e.server?.result.matching;
    let (all, seen) = (matching.client_responses, matching.client_matched);
    let missing = all.saturating_sub(seen);
    Some((missing, spoiled_from(share(missing, all))?))
}

fn cut(e: &Evidence<'_>) -> Option<f64> {
    match e.cut?.share {
        share if share > 2.0 * MAX_CUT_SHARE => Some(0.5),
        share if share > MAX_CUT_SHARE => Some(0.99),
        _ => None,
    }
}

/// The lowest percentile above which too many requests are missing because cuts follow each other too
/// soon, and the share that is missing.
fn unsettled(e: &Evidence<'_>) -> Option<(f64, f64)> {
    let unsettled = e.cut?.unsettled.iter();
    let mut too_many = unsettled.filter(|at| at.share > MAX_UNSETTLED_SHARE);
    too_many.next().map(|at| (at.q, at.share))
}

/// The share of the requests that went wrong.
fn wrong(e: &Evidence<'_>) -> Option<f64> {
    Some(share(e.errors()?.total(), e.client()?.requests))
}

/// The lowest percentile that wrong answers spoil. Requests without an answer are known to be the slowest, so
/// the percentiles below them hold.
fn spoiled_by_wrong_answers(e: &Evidence<'_>) -> Option<f64> {
    let errors = e.errors()?;
    let wrong = errors.total() - errors.unanswered_requests();
    spoiled_from(share(wrong, e.client()?.requests))
}

/// The lowest percentile that the errors of the client spoil, or that lies beyond the answers.
fn spoiled_by_errors(e: &Evidence<'_>) -> Spoils {
    let first = [spoiled_by_wrong_answers(e), beyond_answers(e)];
    Spoils::tail(first.into_iter().flatten().min_by(f64::total_cmp))
}

fn some_errors(e: &Evidence<'_>) -> Option<String> {
    let requests = e.client()?.requests;
    Some(format!(
        "{} in {} requests{}{}{}",
        Errors(&e.errors()?),
        Count(requests),
        first_of_them(e),
        no_percentile_beyond(e),
        So(spoiled_by_wrong_answers(e))
    ))
}

/// Why the server is not compared with the ideal, if this is the reason.
fn unlike(e: &Evidence<'_>, is_reason: fn(&Withdrawn) -> bool) -> Option<String> {
    let withdrawn = e.withdrawn().filter(is_reason)?;
    Some(Unlike(&withdrawn).to_string())
}

/// The lowest percentile beyond the share of the requests that was answered.
fn beyond_answers(e: &Evidence<'_>) -> Option<f64> {
    let answered = e.measured()?.answered_share();
    REPORTED_QUANTILES.into_iter().find(|q| *q > answered)
}

pub(super) const WITHDRAWALS: &[Withdrawal] = &[
    Withdrawal {
        rule: Rule {
            key: "lost_events",
            seen: |e| {
                let lost_events = e.server?.result.matching.lost_events;
                (lost_events > 0).then(|| {
                    let events = Counted(lost_events, "event", "events");
                    let so = So(lost(e));
                    format!("the probe lost {events}, and as many requests may be missing{so}")
                })
            },
            remedy: |e| match e.recording {
                None => "give the probe larger buffers (--ring-bytes), or lower the load",
                Some(_) => {
                    "record fewer kinds (--disturbances none), give larger buffers (--ring-bytes), \
                     or leave taillab a CPU that the server does not use"
                }
            },
        },
        spoils: |e| Spoils::tail(lost(e)),
    },
    Withdrawal {
        rule: Rule {
            key: "losses_unknown",
            seen: |e| {
                let matching = &e.server?.result.matching;
                e.recording?.cut_off.then(|| {
                    format!(
                        "the recording has no end, so it is not known how many events the probe \
                         lost (at least {}) and which requests are missing from the tail{}",
                        Count(matching.lost_events),
                        So(Some(0.9))
                    )
                })
            },
            remedy: |_| "record again, and stop it with Ctrl-C or SIGTERM, which complete the file",
        },
        spoils: |_| Spoils::From(0.9),
    },
    Withdrawal {
        rule: Rule {
            key: "unmatched",
            seen: |e| {
                let matching = &e.server?.result.matching;
                let (missing, from) = unmatched(e)?;
                Some(format!(
                    "{} of {} responses {} T1 or T6 ({}){}",
                    Count(missing),
                    Count(matching.responses),
                    plural(missing, "lacks", "lack"),
                    Counted(matching.ambiguous, "is ambiguous", "are ambiguous"),
                    So(Some(from))
                ))
            },
            remedy: remedy_for_unmatched,
        },
        spoils: |e| Spoils::tail(unmatched(e).map(|(_, q)| q)),
    },
    Withdrawal {
        rule: Rule {
            key: "unseen_by_probe",
            seen: |e| {
                let matching = &e.server?.result.matching;
                let (missing, from) = unseen(e)?;
                Some(format!(
                    "{} of the {} responses that the client received {} T1 or T6{}",
                    Count(missing),
                    Count(matching.client_responses),
                    plural(missing, "lacks", "lack"),
                    So(Some(from))
                ))
            },
            remedy: |_| "check that the probe's hooks see all of the server's traffic",
        },
        spoils: |e| Spoils::tail(unseen(e).map(|(_, q)| q)),
    },
    Withdrawal {
        rule: Rule {
            key: "late_client",
            seen: |e| {
                let (q, lateness, whole) = too_late(e)?;
                let late = format!("the client sends {lateness} late at {}", Percentile(q));
                let so = So(Some(q));
                Some(match e.server {
                    Some(_) => format!("{late}, more than the {whole} to be measured{so}"),
                    None => format!(
                        "{late}, more than half of the {whole} that a response takes there{so}"
                    ),
                })
            },
            remedy: |_| "give it a dedicated CPU or more threads, or lower the load",
        },
        spoils: |e| Spoils::tail(too_late(e).map(|(q, ..)| q)),
    },
    Withdrawal {
        rule: Rule {
            key: "cut",
            seen: |e| {
                let from = cut(e)?;
                let most = e.cut?.by_reason.first()?;
                Some(format!(
                    "{} of the measurement had to be cut, mostly because {} ({}){}",
                    Percent(e.cut?.share),
                    most.why.sentence(),
                    most.who,
                    So(Some(from))
                ))
            },
            remedy: |_| "give the generator a CPU of its own, or wait until the machine is quieter",
        },
        spoils: |e| Spoils::tail(cut(e)),
    },
    Withdrawal {
        rule: Rule {
            key: "cut_too_often",
            seen: |e| {
                let (q, missing) = unsettled(e)?;
                Some(format!(
                    "the cuts are so close together that {} of the requests above {} are missing{}",
                    Percent(missing),
                    Percentile(q),
                    So(Some(q))
                ))
            },
            remedy: |_| "give the generator a CPU of its own, or wait until the machine is quieter",
        },
        spoils: |e| Spoils::tail(unsettled(e).map(|(q, _)| q)),
    },
    Withdrawal {
        rule: Rule {
            key: "arrivals",
            seen: |e| {
                let load = e.load?.summary;
                let at = load.arrivals.foreign_bursts(load.duration_ns)?;
                Some(format!(
                    "the sends are not {}: their index of dispersion in windows of {} is {:.2} and \
                     should be near {}{}",
                    load.arrivals.process,
                    at.window_ns,
                    at.value.unwrap_or(f64::NAN),
                    index(at.expected.unwrap_or(1.0)),
                    So(Some(0.9))
                ))
            },
            remedy: |_| "give the client a dedicated CPU, or lower the load",
        },
        // bursts make queues, which the median hardly shows
        spoils: |_| Spoils::From(0.9),
    },
    Withdrawal {
        rule: Rule {
            key: "errors",
            seen: |e| {
                let many = wrong(e)? > MAX_ERROR_SHARE;
                many.then(|| some_errors(e)).flatten()
            },
            remedy: |e| match e.wrong_answer {
                Some(line) if line.contains("this port speaks") => {
                    "name the target with that protocol's scheme, or another port"
                }
                Some(line) if line.starts_with("HTTP/") && line.contains(" 404") => {
                    "check the path"
                }
                Some(line) if line.starts_with("HTTP/") && line.contains(" 40") => {
                    "check the path, the headers and the protocol"
                }
                Some(_) => "check the request, the port and the protocol, then the server's log",
                None => "lower the load, or find out why the server fails",
            },
        },
        spoils: spoiled_by_errors,
    },
    Withdrawal {
        rule: Rule {
            key: "few_errors",
            seen: |e| {
                let wrong = wrong(e)?;
                let few = wrong > 0.0 && wrong <= MAX_ERROR_SHARE;
                few.then(|| some_errors(e)).flatten()
            },
            remedy: |_| "see the server's log",
        },
        spoils: spoiled_by_errors,
    },
    Withdrawal {
        rule: Rule {
            key: "unanswered",
            seen: |e| {
                let sojourn = &e.server?.result.measured.sojourn;
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
                "find out why the server drops them (its log, full queues, ended connections), or \
                 whether its protocol has requests without a response"
            },
        },
        spoils: |e| Spoils::tail(beyond_answers(e)),
    },
    Withdrawal {
        rule: Rule {
            key: "service_time_disagrees",
            seen: |e| {
                unlike(e, |why| {
                    matches!(why, Withdrawn::ServiceTimeDisagrees { .. })
                })
            },
            remedy: |_| {
                "there is no comparison with an ideal server; leave --service-time out, and t is taken \
                 from the recording"
            },
        },
        spoils: |_| Spoils::Comparison,
    },
    Withdrawal {
        rule: Rule {
            key: "ideal_above_measured",
            seen: |e| unlike(e, |why| matches!(why, Withdrawn::IdealAboveMeasured { .. })),
            remedy: |_| {
                "there is no comparison with an ideal server; measure at a higher load, at which requests \
                 wait and the recording shows what one costs, or give t with --service-time"
            },
        },
        spoils: |_| Spoils::Comparison,
    },
    Withdrawal {
        rule: Rule {
            key: "service_time_unknown",
            seen: |e| unlike(e, |why| matches!(why, Withdrawn::ServiceTimeUnknown)),
            remedy: |_| {
                "give the service time with --service-time, or record everything for a share of the \
                 time (--stamps sampled:1/16)"
            },
        },
        spoils: |_| Spoils::Comparison,
    },
    Withdrawal {
        rule: Rule {
            key: "few_slices",
            seen: |e| {
                let matching = &e.server?.result.matching;
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
        },
        spoils: |_| Spoils::Explanation,
    },
    Withdrawal {
        rule: Rule {
            key: "closed_loop",
            seen: |e| unlike(e, |why| matches!(why, Withdrawn::ClientsWait { .. })),
            remedy: |_| {
                "what was measured holds for these clients; for a comparison, send an open-loop \
                 load (`taillab load -R`, `taillab run`)"
            },
        },
        spoils: |_| Spoils::IdealAndForecasts,
    },
    Withdrawal {
        rule: Rule {
            key: "unsupported_percentile",
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
        },
        spoils: |e| Spoils::tail(e.unsupported().map(|(unsupported, _)| unsupported.q)),
    },
];

/// The lowest percentile at which the generator was too late for what it measures: its probability,
/// the lateness, and what that is compared with (the sojourn, or else the response time).
fn too_late(e: &Evidence<'_>) -> Option<(f64, taillab_model::Nanos, taillab_model::Nanos)> {
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

/// `1` if it is exactly 1, otherwise two decimals.
fn index(expected: f64) -> String {
    if expected == 1.0 {
        "1".to_owned()
    } else {
        format!("{expected:.2}")
    }
}
