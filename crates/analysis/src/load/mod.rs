//! From the client's records to the result of a load: pure, for any generator.
//!
//! 1. [`summarise`] computes the distributions, with intervals that allow for autocorrelation, and the
//!    evidence for the verdict ([`of_closed_loop`] where there is no schedule);
//! 2. [`crate::verdict::judge`] says whether they can be trusted;
//! 3. [`objective_at`] and [`found`] give the results of a search for an objective.

mod dead_time;
mod objective;

use taillab_model::load_result::Wire;
use taillab_model::summary::{
    ArrivalsVerdict, ClientCost, ClientKind, ClientsSummary, Closing, ConnectingSummary,
    LoadErrors, LoadSummary,
};
use taillab_model::{
    ClientTimes, ConnectEnd, Connecting, Distribution, Monotonic, Nanos, WireTimes,
};

use crate::statistics::{Observations, distribution_of};
use crate::verdict::{Growth, LoadEvidence, Unsupported};

use dead_time::dead_time;
pub use objective::{found, objective_at};

/// A request of the measurement, as seen by the client; `received` is `None` if no answer came in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedRequest {
    /// Intended, sent, received.
    pub times: ClientTimes,
    /// The kernel's stamps, where there are any.
    pub wire: WireTimes,
    /// How long it waited in its client for its connection, before it was sent.
    pub waited: Nanos,
    /// How the connection of its own was opened after that; `None` where connections are kept.
    pub connecting: Option<Connecting>,
}

impl LoadedRequest {
    /// When the generator came to it: its send, if its connection was free and open.
    pub fn turn(&self) -> Monotonic {
        let sent_ns = self.times.sent.nanos_since_boot();
        let connecting = self.connecting.map_or(Nanos::ZERO, |of| of.took);
        let before = self.waited + connecting;
        Monotonic::from_nanos_since_boot(sent_ns.saturating_sub(before.get()))
    }
}

/// How the clients of a load used their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadClients {
    /// Who the requests come from.
    pub kind: ClientKind,
    /// Connections, or ports of the clients.
    pub connections: u32,
    /// The most requests under way on a connection at once; `None` if there is no limit.
    pub pipeline: Option<u32>,
    /// Who closes the connections, where each request has one of its own; `None` where they are kept.
    pub closing: Option<Closing>,
}

/// What is known about a load besides its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadFacts {
    /// Rate of the schedule, requests per second.
    pub target_rate_per_s: f64,
    /// That rate as a share of the capacity, where this is known.
    pub target_utilization: Option<f64>,
    /// How the sends compare with the intended process; the dead time follows from the requests.
    pub arrivals: ArrivalsVerdict,
    /// The client's own cost.
    pub client: ClientCost,
    /// What went wrong in the measurement.
    pub errors: LoadErrors,
    /// How the clients used their connections, where this is known.
    pub clients: Option<LoadClients>,
}

/// The analysis of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadAnalysis {
    /// The result's main part.
    pub summary: LoadSummary,
    /// The result by the kernel's stamps, if there are any.
    pub wire: Option<Wire>,
    /// The points of the figure.
    pub curves: LoadCurves,
    /// Evidence for the verdict that is not in the summary.
    pub evidence: LoadEvidence,
}

/// Points (x, P(X ≥ x)) of each distribution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadCurves {
    /// Of the response time.
    pub response_time: Vec<(Nanos, f64)>,
    /// Of the service time.
    pub service_time: Vec<(Nanos, f64)>,
    /// Of the lateness.
    pub lateness: Vec<(Nanos, f64)>,
}

/// Analyses the requests of a measurement, all of them sent on schedule.
///
/// `requests` returns an iterator over them in order of the intended time, and is called several times:
/// the series are made one after the other, so that only one is in memory at a time. In the
/// percentiles, a request without an answer counts as longer than all that were answered.
pub fn summarise<I>(requests: impl Fn() -> I, facts: LoadFacts) -> LoadAnalysis
where
    I: Iterator<Item = LoadedRequest>,
{
    summarise_kept(requests, |_| true, facts)
}

/// The response times of all requests, as [`summarise`] computes them, and nothing else.
pub fn response_times<I>(requests: impl Fn() -> I) -> Distribution
where
    I: Iterator<Item = LoadedRequest>,
{
    let times: Vec<Nanos> = requests().filter_map(|r| response_time(&r)).collect();
    let unanswered = (requests().count() - times.len()) as u64;
    observe(&times, unanswered, growth_of(&requests)).distribution()
}

/// How the queue grew, if it did.
fn growth_of<I>(requests: &impl Fn() -> I) -> Option<Growth>
where
    I: Iterator<Item = LoadedRequest>,
{
    let since_turn: Vec<Nanos> = requests().filter_map(|r| since_turn(&r)).collect();
    let answered = span(requests().filter_map(|r| r.times.received));
    growth(&since_turn, answered.rate_per_s())
}

/// Times in a queue that grew or did not.
fn observe(times: &[Nanos], unanswered: u64, growth: Option<Growth>) -> Observations {
    let mut observed = Observations::of(times).with_unanswered(unanswered);
    // in a queue that grows, the percentiles are those of this measurement
    if growth.is_some() {
        observed.assume_independent();
    }
    observed
}

/// [`summarise`] of a measurement in which only some requests were sent on schedule: those that are `kept`.
/// Percentiles are of these. Rate, length and number are of all requests.
pub fn summarise_kept<I>(
    requests: impl Fn() -> I,
    kept: impl Fn(&LoadedRequest) -> bool,
    facts: LoadFacts,
) -> LoadAnalysis
where
    I: Iterator<Item = LoadedRequest>,
{
    let due = span(requests().map(|r| r.times.intended));
    let turns = span(requests().map(|r| r.turn()));
    let waited = requests().filter(|r| r.waited > Nanos::ZERO).count() as u64;
    let ends = |end| {
        let of = requests().filter_map(|r| r.connecting);
        of.filter(|of| of.end == end).count() as u64
    };
    let ended = [
        ConnectEnd::Connected,
        ConnectEnd::Refused,
        ConnectEnd::TimedOut,
        ConnectEnd::Failed,
    ]
    .map(ends);
    let requests = || requests().filter(&kept);
    let times = |of: fn(&LoadedRequest) -> Option<Nanos>| -> Vec<Nanos> {
        requests().filter_map(|r| of(&r)).collect()
    };
    let service = times(service_time);
    let unanswered = (requests().count() - service.len()) as u64;
    let growth = growth_of(&requests);
    let observe = |times: Vec<Nanos>, unanswered: u64| observe(&times, unanswered, growth);
    let distribution_and_curve = |times: Vec<Nanos>, unanswered: u64| {
        let observed = observe(times, unanswered);
        (observed.distribution(), observed.curve())
    };
    let (service_time, service_curve) = distribution_and_curve(service, unanswered);
    let observed = observe(times(response_time), unanswered);
    let response_time = observed.distribution();
    let (response_curve, factors) = (observed.curve(), observed.factors().to_vec());
    drop(observed);
    let (lateness, lateness_curve) = distribution_and_curve(times(lateness), 0);
    let unsupported = Unsupported::of(&response_time, &factors);
    let clients = facts.clients.map(|clients| {
        let wait = (waited > 0).then(|| observe(times(|r| Some(r.waited)), 0).distribution());
        let connecting = clients.closing.map(|closing| {
            let times = times(|r| r.connecting?.connected_after());
            let without = requests().count() - times.len();
            connecting_summary(
                closing,
                ended,
                observe(times, without as u64).distribution(),
            )
        });
        ClientsSummary {
            kind: clients.kind,
            connections: clients.connections,
            pipeline: clients.pipeline,
            waited,
            waited_share: waited as f64 / due.instants.max(1) as f64,
            wait,
            connecting,
        }
    });
    LoadAnalysis {
        summary: LoadSummary {
            target_rate_per_s: facts.target_rate_per_s,
            target_utilization: facts.target_utilization,
            sent_rate_per_s: turns.rate_per_s(),
            duration_ns: due.length(),
            requests: due.instants,
            response_time,
            service_time,
            lateness,
            clients,
            segments: Vec::new(),
            arrivals: ArrivalsVerdict {
                dead_time: dead_time(requests().map(|r| ClientTimes {
                    sent: r.turn(),
                    ..r.times
                })),
                ..facts.arrivals
            },
            client: facts.client,
            errors: facts.errors,
        },
        wire: wire(&requests),
        curves: LoadCurves {
            response_time: response_curve,
            service_time: service_curve,
            lateness: lateness_curve,
        },
        evidence: LoadEvidence {
            unsupported,
            planned_rate_per_s: due.rate_per_s(),
            growth,
        },
    }
}

/// The service times of a closed loop, which are given in order of time, and the evidence for the verdict.
/// A request without an answer counts as longer than all that were answered.
pub fn of_closed_loop(service_times: &[Nanos], unanswered: u64) -> (Distribution, LoadEvidence) {
    let observed = Observations::of(service_times).with_unanswered(unanswered);
    let distribution = observed.distribution();
    let evidence = LoadEvidence {
        unsupported: Unsupported::of(&distribution, observed.factors()),
        ..LoadEvidence::default()
    };
    (distribution, evidence)
}

/// The connections of a load, by how opening them ended, and how long it took.
fn connecting_summary(
    closing: Closing,
    [connected, refused, timed_out, failed]: [u64; 4],
    time: Distribution,
) -> ConnectingSummary {
    ConnectingSummary {
        connected,
        refused,
        timed_out,
        failed,
        closing,
        time,
    }
}

/// From the intended send to the answer.
fn response_time(request: &LoadedRequest) -> Option<Nanos> {
    let times = request.times;
    Some(times.received?.saturating_since(times.intended))
}

/// From the actual send to the answer.
fn service_time(request: &LoadedRequest) -> Option<Nanos> {
    let times = request.times;
    Some(times.received?.saturating_since(times.sent))
}

/// From when the generator came to it to the answer: the wait for its connection is a part of it.
fn since_turn(request: &LoadedRequest) -> Option<Nanos> {
    Some(request.times.received?.saturating_since(request.turn()))
}

/// From the intended send until the generator came to it.
fn lateness(request: &LoadedRequest) -> Option<Nanos> {
    Some(request.turn().saturating_since(request.times.intended))
}

fn wire<I>(requests: &impl Fn() -> I) -> Option<Wire>
where
    I: Iterator<Item = LoadedRequest>,
{
    let late: Vec<Nanos> = requests()
        .filter_map(|r| Some(r.wire.sent?.saturating_since(r.times.intended)))
        .collect();
    let service: Vec<Nanos> = requests()
        .filter_map(|r| Some(r.wire.received?.saturating_since(r.wire.sent?)))
        .collect();
    (!late.is_empty()).then(|| Wire {
        stamped: service.len() as u64,
        lateness: distribution_of(&late),
        service_time: distribution_of(&service),
    })
}

/// The first and the last of some instants.
struct Span {
    instants: u64,
    ends: Option<(Monotonic, Monotonic)>,
}

fn span(instants: impl Iterator<Item = Monotonic>) -> Span {
    let none = Span {
        instants: 0,
        ends: None,
    };
    instants.fold(none, |span, at| Span {
        instants: span.instants + 1,
        ends: Some(
            span.ends
                .map_or((at, at), |(first, last)| (first.min(at), last.max(at))),
        ),
    })
}

impl Span {
    fn length(&self) -> Nanos {
        let ends = self.ends;
        ends.map_or(Nanos::ZERO, |(first, last)| last.saturating_since(first))
    }

    /// Gaps per second: n instants have n − 1. 0 without a gap.
    fn rate_per_s(&self) -> f64 {
        let length = self.length().as_secs_f64();
        if length > 0.0 {
            (self.instants - 1) as f64 / length
        } else {
            0.0
        }
    }
}

/// The number of parts of a measurement that are compared.
const PARTS: usize = 5;

/// With fewer answers than this in a part, growth is not judged.
const FEWEST_IN_A_PART: usize = 100;

/// If the queue grows, p10 of the last part is more than this many times p10 of the first.
pub(crate) const GROWTH: u64 = 3;

/// Whether the server's queue only grew: even the fastest tenth of the answers took longer in each fifth than in
/// the one before, and in the last [`GROWTH`] times as long as in the first. The times count from when the generator came
/// to each request: a generator that is the limit sends late, and response times grow because of that; but requests
/// that wait for their connections wait for the server.
///
/// A stable queue is often short, whatever its tail, so its p10 is about the same in every part. The p10 of
/// a growing queue is not.
fn growth(times: &[Nanos], answered_per_s: f64) -> Option<Growth> {
    let length = times.len() / PARTS;
    if length < FEWEST_IN_A_PART {
        return None;
    }
    let fastest: Vec<Nanos> = times
        .chunks_exact(length)
        .take(PARTS)
        .map(|part| {
            let mut part = part.to_vec();
            *part.select_nth_unstable(length / 10).1
        })
        .collect();
    let (first, last) = (fastest[0], fastest[PARTS - 1]);
    let grew = fastest.is_sorted_by(|a, b| a < b) && last > first * GROWTH;
    grew.then_some(Growth {
        first,
        last,
        answered_per_s,
    })
}
