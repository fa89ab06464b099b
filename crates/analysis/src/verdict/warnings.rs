//! Rules for what a reader should know and what does not make a result invalid.

use taillab_model::explanation::{Culprit, THIS_GENERATOR, THIS_TRACER};
use taillab_model::summary::{
    ArrivalsReference, LimitedBy, LoadErrors, LoadSummary, MAX_CLIENT_BUSY_SHARE,
    MAX_LATENESS_SHARE, MIN_COMPLETE_SHARE, NOTABLE_LATENESS_SHARE, NOTABLE_WAITING_SHARE,
};

use taillab_model::{MiddleStamps, REPORTED_QUANTILES};

use super::evidence::Evidence;
use super::rule::{Limit, NOTHING, REPORT_IT, Rule, exceeds, remedy_for_ambiguity};
use crate::fmt::{Count, Counted, Percent, Percentile, plural, share};

/// If a larger share of the requests is faster than the ideal, requests differ much in cost.
const MAX_FASTER_THAN_IDEAL: f64 = 0.25;

/// If a larger share of the excess above p99 is taillab's own doing, the reader should know.
const NOTABLE_SHARE_OF_TAIL: f64 = 0.05;

/// If a larger share of the sampled requests above p99 reaches beyond its slice, the reader should know.
const FEW_BEYOND: f64 = 0.03;

/// If the floor is above this share of the response time at p50, or above all of it at a higher
/// percentile, the client mostly measures itself.
const NOTABLE_FLOOR_SHARE: f64 = 0.5;

/// A larger loss of the peak is worth a remark (`Overhead::is_notable`).
const NOTABLE_LOSS: f64 = 0.1;

/// A larger share of a CPU is worth a remark (`Observer::is_notable`).
const NOTABLE_CPU_SHARE: f64 = 0.2;

pub(super) const RULES: &[Rule] = &[
    Rule {
        key: "damaged",
        limit: Limit::Any("what was read is not all that was recorded"),
        seen: |e| e.recording?.damage.map(str::to_owned),
        remedy: |_| "",
        takes: NOTHING,
    },
    Rule {
        key: "partial",
        limit: Limit::Any("what was measured is less than what was asked for"),
        seen: |e| {
            let damaged = e
                .recording
                .is_some_and(|recording| recording.damage.is_some());
            (e.partial && !damaged).then(|| match e.sweep {
                Some(_) => "some loads are missing or short".to_owned(),
                None => "the measurement ended early".to_owned(),
            })
        },
        remedy: |_| "what was measured is shown; run it again to measure all of it",
        takes: NOTHING,
    },
    Rule {
        key: "not_server_limited",
        limit: Limit::Any("a peak that something else limits is not the server's"),
        seen: |e| {
            let calibration = e.calibration?;
            // Virtual workers leave their CPUs idle, and t is not taken from their peak.
            let computes = e.virtual_workers.is_none();
            let busy = Percent(calibration.server_cpu_busy_share);
            let why = match calibration.limited_by {
                LimitedBy::Server => return None,
                LimitedBy::Others => "other programs used its CPUs too".to_owned(),
                LimitedBy::Client => format!(
                    "its CPUs were only {busy} busy, because the client could not send faster"
                ),
                LimitedBy::Waits => format!(
                    "its CPUs were only {busy} busy, because requests waited for something other \
                     than a CPU"
                ),
            };
            computes.then(|| format!("the calibrated peak is not the server's: {why}"))
        },
        remedy: |e| match e.calibration.map(|calibration| calibration.limited_by) {
            Some(LimitedBy::Others) => {
                "end the other programs, or give the server CPUs of its own (--server-cpus)"
            }
            Some(LimitedBy::Client) => {
                "end other programs on the client's CPUs, or give it more of them (--client-cpus)"
            }
            _ => {
                "try more outstanding requests (--outstanding); a server that waits for a disk, a \
                 lock or another server has CPU left at its peak"
            }
        },
        takes: NOTHING,
    },
    Rule {
        key: "faster_than_ideal",
        limit: Limit::At(
            MAX_FASTER_THAN_IDEAL,
            "of requests that cost much the same, fewer are faster than the mean allows",
        ),
        seen: |e| {
            let faster = e.server?.faster_than_ideal;
            // the waits of virtual workers are shorter and longer than t, which is their mean
            let said = e.not_compared().is_some() || e.virtual_workers.is_some();
            (!said && faster > MAX_FASTER_THAN_IDEAL).then(|| {
                format!(
                    "{} of the requests were faster than their ideal",
                    Percent(faster)
                )
            })
        },
        remedy: |_| {
            "requests differ in cost, and the ideal gives each the mean t, so compare the far percentiles \
             rather than p50"
        },
        takes: NOTHING,
    },
    Rule {
        key: "misses",
        limit: Limit::Any("a server answers them faster than the others"),
        seen: |e| {
            let client = e.client().filter(|_| e.server.is_none())?;
            let misses = client.errors.misses;
            (misses > 0).then(|| {
                format!(
                    "{} of {} requests found nothing, and servers answer those faster",
                    Count(misses),
                    Count(client.requests)
                )
            })
        },
        remedy: |_| "fill the server before the measurement, or use keys that it has",
        takes: NOTHING,
    },
    Rule {
        key: "connections_ended",
        limit: Limit::Any("reopening takes time that is none of a request's"),
        seen: |e| {
            let LoadErrors {
                connections_closed: closed,
                connections_reset: reset,
                ..
            } = *e.client().filter(|_| e.server.is_none())?.errors;
            (closed + reset > 0).then(|| {
                format!(
                    "the server closed {closed} {} and {reset} {} reset; all were reopened",
                    plural(closed, "connection", "connections"),
                    plural(reset, "was", "were")
                )
            })
        },
        remedy: |_| "raise the server's limit of requests per connection, or see its log",
        takes: NOTHING,
    },
    Rule {
        key: "lateness",
        limit: Limit::At(
            NOTABLE_LATENESS_SHARE,
            "less is within the interval of most response times",
        ),
        seen: |e| {
            e.load_alone()?;
            let (q, lateness, response_time) = e.lateness()?;
            let notable = exceeds(lateness, NOTABLE_LATENESS_SHARE, response_time)
                && !exceeds(lateness, MAX_LATENESS_SHARE, response_time);
            notable.then(|| {
                format!(
                    "the client sends {lateness} late at {}, where a response takes \
                     {response_time}: the service time does not include that",
                    Percentile(q)
                )
            })
        },
        remedy: |_| "give the client a dedicated CPU",
        takes: NOTHING,
    },
    Rule {
        key: "few_connections",
        limit: Limit::At(NOTABLE_WAITING_SHARE, "more are all of what is above p99"),
        seen: |e| {
            let clients = e.load?.summary.clients.as_ref()?;
            (clients.waited_share > NOTABLE_WAITING_SHARE).then(|| {
                // of many connections, the share that is busy falls with their number
                let enough = clients.waited_share / NOTABLE_WAITING_SHARE;
                let enough = (f64::from(clients.connections) * enough).round();
                format!(
                    "{} of the requests waited in the client for a free connection; with about {} connections \
                     it would be less than {}",
                    Percent(clients.waited_share),
                    Count(enough as u64),
                    Percent(NOTABLE_WAITING_SHARE)
                )
            })
        },
        remedy: |_| "use more connections (-c), unless your clients have so few; the waits are a part of the response time",
        takes: NOTHING,
    },
    Rule {
        key: "floor",
        limit: Limit::At(
            NOTABLE_FLOOR_SHARE,
            "of a response, more of the median is then the client's than the server's; in the tail, all of it",
        ),
        seen: |e| {
            let load = e.load?;
            let floor = &load.floor?.response_time;
            let response = &load.summary.response_time;
            // every percentile: in the tail, the client's own noise may exceed what the server did
            REPORTED_QUANTILES.into_iter().find_map(|q| {
                let (floor, response) = (floor.quantile(q)?, response.quantile(q)?);
                let most = if q <= 0.5 { NOTABLE_FLOOR_SHARE } else { 1.0 };
                exceeds(floor, most, response).then(|| {
                    format!(
                        "the client and its network alone take {floor}, and a response takes \
                         {response}, at {}",
                        Percentile(q)
                    )
                })
            })
        },
        remedy: |_| "the result says little about the server; see the percentiles above the floor",
        takes: NOTHING,
    },
    Rule {
        key: "client_peak",
        limit: Limit::At(
            MAX_CLIENT_BUSY_SHARE,
            "busier than that, the client has no time left to ask for more",
        ),
        // Only a warning: where the client itself is measured, it should be busy all the time.
        seen: |e| {
            let busy = e.closed_loop?.cost.busy_share;
            (busy > MAX_CLIENT_BUSY_SHARE).then(|| {
                format!(
                    "the client was busy {} of the time, so this is the client's peak, and the \
                     server's may be higher",
                    Percent(busy)
                )
            })
        },
        remedy: |_| "give the client more threads and CPUs",
        takes: NOTHING,
    },
    Rule {
        key: "ambiguous",
        limit: Limit::Any("they are matched to none"),
        seen: |e| {
            let ambiguous = e.server?.matching.ambiguous;
            (ambiguous > 0).then(|| {
                format!(
                    "{} of more than one request, and {} matched to none",
                    Counted(
                        ambiguous,
                        "response could be that",
                        "responses could be those"
                    ),
                    plural(ambiguous, "is", "are")
                )
            })
        },
        remedy: remedy_for_ambiguity,
        takes: NOTHING,
    },
    Rule {
        key: "foreign_requests",
        limit: Limit::Any("the server works for somebody else"),
        seen: |e| {
            let requests = e.server?.unexplained;
            e.load?;
            (requests > 0).then(|| {
                let requests = Counted(requests, "request is", "requests are");
                format!("{requests} not in the client's records")
            })
        },
        remedy: |_| "stop other clients of this server",
        takes: NOTHING,
    },
    Rule {
        key: "late_events",
        limit: Limit::Any("the matcher needs events in order"),
        seen: |e| {
            let events = e.server?.late_events;
            (events > 0).then(|| {
                format!(
                    "{} out of order by more than the matcher can correct, which can cost matches",
                    Counted(events, "event was", "events were")
                )
            })
        },
        remedy: |_| REPORT_IT,
        takes: NOTHING,
    },
    Rule {
        key: "stamps_out_of_order",
        limit: Limit::Any("one of them is wrong"),
        seen: |e| {
            let requests = e.server?.matching.out_of_order;
            (requests > 0).then(|| {
                let requests = Counted(requests, "request has", "requests have");
                format!("{requests} stamps that contradict each other")
            })
        },
        remedy: |_| "they count in the sojourn and not in the stages",
        takes: NOTHING,
    },
    Rule {
        key: "incomplete",
        limit: Limit::At(
            MIN_COMPLETE_SHARE,
            "the aim of the probe; where it is missed, the stages may be of other requests than the tail's",
        ),
        seen: |e| {
            let matching = &e.server?.matching;
            let complete = share(matching.complete, matching.asked());
            (matching.asked() > 0 && complete < MIN_COMPLETE_SHARE).then(|| {
                format!(
                    "only {} of {} {}responses have all six stamps (aim: {})",
                    Percent(complete),
                    Count(matching.asked()),
                    match matching.unasked {
                        0 => "",
                        _ => "sampled ",
                    },
                    Percent(MIN_COMPLETE_SHARE)
                )
            })
        },
        remedy: |_| {
            "the stages cover only these; processes that the server started later are not seen, \
             except with --cgroup"
        },
        takes: NOTHING,
    },
    Rule {
        key: "beyond_slice",
        limit: Limit::At(
            FEW_BEYOND,
            "fewer change no share of a cause by more than its interval",
        ),
        seen: |e| {
            let beyond = e.built?.beyond_slice?;
            (beyond > FEW_BEYOND).then(|| {
                format!(
                    "{} of the sampled requests above p99 left after the end of their slice, or \
                     waited for work from before it",
                    Percent(beyond)
                )
            })
        },
        remedy: |_| {
            "what delayed them outside of it is not known, so their causes are less certain; record \
             everything all the time (--stamps all)"
        },
        takes: NOTHING,
    },
    Rule {
        key: "share_intervals",
        limit: Limit::Any("a share without an interval may be chance"),
        seen: |e| {
            let causes = e.built?.causes;
            let mut above = causes.iter().map(|cause| cause.excess_share_above_p99);
            let unknown = !causes.is_empty() && above.all(|share| share.lo.is_none());
            unknown.then(|| {
                "too few parts of the measurement have requests above p99, so the causes' shares of \
                 their excess have no interval"
                    .to_owned()
            })
        },
        remedy: |e| match e.server.map(|server| server.matching.stamps) {
            Some(MiddleStamps::Sampled(_)) => {
                "measure for longer (-d of `run` and `trace`), or record everything all the time (--stamps all)"
            }
            _ => "measure for longer (-d of `run` and `trace`)",
        },
        takes: NOTHING,
    },
    Rule {
        key: "blind_windows",
        limit: Limit::Any("a stage that falls into one is not known"),
        seen: |e| {
            let matching = &e.server?.matching;
            (matching.blind_windows > 0).then(|| {
                format!(
                    "the probe was blind in {} (at most {} on all CPUs together), and {} them",
                    Counted(matching.blind_windows, "window", "windows"),
                    matching.blind_ns,
                    Counted(
                        matching.blind_requests,
                        "request overlaps",
                        "requests overlap"
                    )
                )
            })
        },
        remedy: |_| {
            "their sojourns are right, but some of their stages are not known; a kernel that lets \
             probes run in every thread avoids it"
        },
        takes: NOTHING,
    },
    Rule {
        key: "probe_cost",
        limit: Limit::At(NOTABLE_LOSS, "the interval of a peak is about as wide"),
        seen: |e| {
            let overhead = e.overhead?;
            let loss = overhead.throughput_loss?;
            (overhead.is_notable())
                .then(|| format!("the probe costs {} of the peak throughput", Percent(loss)))
        },
        remedy: |_| "without it the server would be about that much faster",
        takes: NOTHING,
    },
    Rule {
        key: "shared_cpus",
        limit: Limit::Any("work of taillab can delay the server"),
        seen: |e| {
            e.recording?.shares_cpus.then(|| {
                "the server may run on every CPU that taillab may use, so taillab's own work can \
                 delay it"
                    .to_owned()
            })
        },
        remedy: |_| "keep the server off one CPU (taskset -a -p)",
        takes: NOTHING,
    },
    Rule {
        key: "observer_cost",
        limit: Limit::At(
            NOTABLE_CPU_SHARE,
            "on a machine with few CPUs, more can come from the server's",
        ),
        seen: |e| {
            let observer = e.recording?.observer?;
            (observer.is_notable())
                .then(|| format!("recording took {} of a CPU", Percent(observer.cpu_share)))
        },
        remedy: |_| "record fewer kinds of disturbance to make it cheaper",
        takes: NOTHING,
    },
    Rule {
        key: "tracer_in_tail",
        limit: Limit::At(
            NOTABLE_SHARE_OF_TAIL,
            "a smaller part changes no conclusion",
        ),
        seen: |e| part_of_tail(e, THIS_TRACER),
        remedy: |_| {
            "without the recording the tail would be about that much shorter; leave taillab a \
             CPU that the \
             server does not use, or record fewer kinds (--disturbances none)"
        },
        takes: NOTHING,
    },
    Rule {
        key: "generator_in_tail",
        limit: Limit::At(
            NOTABLE_SHARE_OF_TAIL,
            "a smaller part changes no conclusion",
        ),
        seen: |e| part_of_tail(e, THIS_GENERATOR),
        remedy: |_| {
            "without it the tail would be about that much shorter; give the generator CPUs that \
             the server does not use"
        },
        takes: NOTHING,
    },
    Rule {
        key: "arrival_gaps",
        limit: Limit::Any("the tests of the gaps are at 5 %, with a limit for each number of gaps"),
        seen: |e| {
            let load = e.load?.summary;
            let arrivals = &load.arrivals;
            let judged = arrivals.reference == ArrivalsReference::Process;
            let any = e.on_schedule().is_some_and(|kept| kept.count > 0);
            (judged && any && !arrivals.gaps_passed()).then(|| {
                format!(
                    "the individual gaps between sends are not exactly {} (Kolmogorov–Smirnov \
                     distance {:.4}, Anderson–Darling A² {:.2}){}",
                    arrivals.process,
                    arrivals.ks_d,
                    arrivals.ad_a2,
                    down_to(load).unwrap_or_default()
                )
            })
        },
        remedy: |e| match e.server {
            Some(_) => {
                "one thread cannot send two requests within a few microseconds; the ideal queue \
                 gets the arrivals as they were, so the comparison is fair"
            }
            None => {
                "a send takes longer than the shortest gaps; a request that is due during a send \
                 waits in the generator, which the response time counts and the service time does not"
            }
        },
        takes: NOTHING,
    },
    Rule {
        key: "gaps_not_judged",
        limit: Limit::Any("only of a Poisson process is it known how single gaps are distributed"),
        seen: |e| {
            let arrivals = &e.load_alone()?.summary.arrivals;
            (arrivals.reference == ArrivalsReference::Schedule).then(|| {
                format!(
                    "individual gaps of {} arrivals are not judged",
                    arrivals.process
                )
            })
        },
        remedy: |_| {
            "their bursts are compared with the schedule's, and the lateness says how late each \
             send was"
        },
        takes: NOTHING,
    },
    Rule {
        key: "bursts_not_judged",
        limit: Limit::Any("an index of dispersion needs ten windows"),
        seen: |e| {
            let idc = &e.load_alone()?.summary.arrivals.idc;
            (idc.iter().all(|at| at.value.is_none())).then(|| {
                "the bursts of the sends are not judged: the measurement has fewer than ten of \
                 the shortest windows"
                    .to_owned()
            })
        },
        remedy: |_| "measure for longer (-d)",
        takes: NOTHING,
    },
    Rule {
        key: "virtual_machine",
        limit: Limit::Any("the guest's counters do not show all that the hypervisor takes"),
        seen: |e| {
            Some(format!(
                "this is a virtual machine ({}): the hypervisor can take a CPU away, and the \
                 guest's counters do not show all of that",
                e.hypervisor?
            ))
        },
        remedy: |_| "repeat the measurement on bare metal if the result must hold there",
        takes: NOTHING,
    },
    Rule {
        key: "virtual_workers",
        limit: Limit::Any("they wait on a timer instead of using a CPU"),
        seen: |e| {
            let it = e.virtual_workers?;
            Some(format!(
                "the {} workers are virtual: they wait {} on average on a timer and share {} of \
                 the machine's CPUs",
                it.workers, it.wait, it.cpus
            ))
        },
        remedy: |_| {
            "queues form as with a CPU for each worker, but the kernel's own work does \
                     not scale"
        },
        takes: NOTHING,
    },
];

/// A notable part of the tail is caused by taillab itself, under this name.
fn part_of_tail(evidence: &Evidence<'_>, name: &str) -> Option<String> {
    let causes = evidence.built?.causes;
    let own = causes.iter().filter(|share| match &share.culprit {
        Some(Culprit::Thread { name: other, .. }) => other == name,
        _ => false,
    });
    let share: f64 = own.map(|share| share.excess_share_above_p99.value).sum();
    // without an ideal, nothing is known to be in excess of it
    let whole = match evidence.not_compared() {
        Some(_) => "delays",
        None => "excess",
    };
    (share >= NOTABLE_SHARE_OF_TAIL)
        .then(|| format!("{name} caused {} of the {whole} above p99", Percent(share)))
}

/// In which windows the bursts of a load were as intended; `None` where they were not.
fn down_to(load: &LoadSummary) -> Option<String> {
    let arrivals = &load.arrivals;
    if arrivals.foreign_bursts(load.duration_ns).is_some() {
        return None;
    }
    let shortest = arrivals.idc.first().filter(|at| at.value.is_some())?;
    Some(match arrivals.more_even_below(load.duration_ns) {
        Some(window) => format!(
            "; in windows shorter than {window} the sends are more even than {}, in longer ones their \
             bursts are as intended",
            arrivals.process
        ),
        None => format!(
            ", but their bursts are as intended in windows of {} and longer",
            shortest.window_ns
        ),
    })
}
