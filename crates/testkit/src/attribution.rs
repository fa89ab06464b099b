//! What an injection cost each request, from the injection's stamps and the request's.
//!
//! The truth says when the server was held back. What that cost each request follows from
//! its T1, T2 and T6 alone, so this shares nothing with the ledger:
//!
//! - **Held back** ([`delays`]): a worker serves its requests one after the other. Request i is
//!   ready from T2_i on; r_i is the part of T1_i to T2_i that lies in injected intervals. It
//!   occupies its worker from max(T2_i, T6_{i−1}) to T6_i, and o_i is the injected part of that.
//!   The rest is its demand d_i, at most t: more is due to another disturbance. If nothing else
//!   disturbs the server, the request ends at E_i = max(T2_i, E_{i−1}) + d_i + o_i with the
//!   injection and at C_i = max(T2_i − r_i, C_{i−1}) + d_i without it (Lindley 1952). So the delay is
//!   E_i − C_i, including its inherited part.
//! - **By two sources**: requests that both delay lose more than the sum of what each would cost alone, since the
//!   second finds the queue of the first. Each source is charged the mean of what it costs alone and what it
//!   adds to the other (Shapley 1953), which together is what both cost.
//! - **Loss** ([`lost`]): from when a packet was dropped to when it arrived again.

use taillab_load::ground_truth::GroundTruth;

use taillab_model::explanation::Culprit;
use taillab_model::{Monotonic, Nanos, Tid};

/// The server's stamps of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// T1.
    pub t1: Monotonic,
    /// T2; T1 if T2 was not seen.
    pub t2: Monotonic,
    /// T6.
    pub t6: Monotonic,
    /// The thread that served it; 0 if that is unknown.
    pub worker: Tid,
}

/// For each source of the truth, the delay of each request, in the order of `spans`.
///
/// `spans` may be in any order. Intervals that name no thread hold back every request, also on its
/// way to its worker; intervals that name a thread hold back the requests that it serves. `usual`
/// is t: demand beyond it is due to something else.
///
/// More than two sources are charged what each costs alone.
pub fn delays(spans: &[Span], truth: &GroundTruth, usual: Nanos) -> Vec<Vec<Nanos>> {
    let sources = 0..truth.sources.len();
    let alone: Vec<Vec<Nanos>> = sources
        .map(|source| delays_by(spans, truth, &|other| other == source, usual))
        .collect();
    let [first, second] = &alone[..] else {
        return alone;
    };
    let both = delays_by(spans, truth, &|_| true, usual);
    let shared = |one: &[Nanos], other: &[Nanos]| {
        let each = one.iter().zip(other).zip(&both);
        each.map(|((&alone, &other), &both)| {
            Nanos::new((alone + both.saturating_sub(other)).get() / 2)
        })
        .collect()
    };
    vec![shared(first, second), shared(second, first)]
}

/// What the sources for which `is_one` is true cost each request together, if there are no others.
fn delays_by(
    spans: &[Span],
    truth: &GroundTruth,
    is_one: &dyn Fn(usize) -> bool,
    usual: Nanos,
) -> Vec<Nanos> {
    let intervals = |holds: &dyn Fn(Option<Tid>) -> bool| {
        let of = (truth.intervals.iter())
            .filter(|interval| is_one(interval.source.into()) && holds(interval.held));
        let mut of: Vec<(u64, u64)> = of
            .map(|interval| (ns(interval.from_ns), ns(interval.to_ns)))
            .collect();
        of.sort_unstable();
        Busy::of(&of)
    };
    let on_the_way = intervals(&|held| held.is_none());
    let mut delays = vec![Nanos::ZERO; spans.len()];
    for places in by_worker(spans) {
        let worker = places.first().map_or(0, |place| spans[*place].worker);
        let in_service = intervals(&|held| held.is_none_or(|held| held == worker || worker == 0));
        let (mut ended, mut with, mut without) = (0, 0, 0);
        for place in places {
            let span = &spans[place];
            let t6 = ns(span.t6);
            let t2 = ns(span.t2).min(t6);
            let way = on_the_way.within(ns(span.t1).min(t2), t2);
            let begun = t2.max(ended).min(t6);
            let held = in_service.within(begun, t6);
            let demand = (t6 - begun - held).min(usual.get());
            with = t2.max(with) + demand + held;
            without = (t2 - way).max(without) + demand;
            ended = t6;
            delays[place] = Nanos::new(with.saturating_sub(without));
        }
    }
    delays
}

/// Places of the requests of each worker, in the order in which it answered them.
fn by_worker(spans: &[Span]) -> Vec<Vec<usize>> {
    let mut places: Vec<usize> = (0..spans.len()).collect();
    places.sort_by_key(|place| (spans[*place].worker, spans[*place].t6));
    places
        .chunk_by(|a, b| spans[*a].worker == spans[*b].worker)
        .map(<[usize]>::to_vec)
        .collect()
}

fn ns(at: Monotonic) -> u64 {
    at.nanos_since_boot()
}

/// Disjoint intervals in order, each with the total length of those before it.
struct Busy {
    intervals: Vec<(u64, u64)>,
    before: Vec<u64>,
}

impl Busy {
    fn of(sorted: &[(u64, u64)]) -> Self {
        let mut intervals: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
        for &(from, to) in sorted {
            match intervals.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => intervals.push((from, to)),
            }
        }
        let mut sum = 0;
        let before = intervals
            .iter()
            .map(|(from, to)| {
                sum += to - from;
                sum - (to - from)
            })
            .collect();
        Self { intervals, before }
    }

    /// How much of the time before `at` lies in the intervals.
    fn until(&self, at: u64) -> u64 {
        match self.intervals.partition_point(|(from, _)| *from < at) {
            0 => 0,
            count => {
                let (from, to) = self.intervals[count - 1];
                self.before[count - 1] + at.min(to) - from
            }
        }
    }

    fn within(&self, from: u64, to: u64) -> u64 {
        self.until(to) - self.until(from)
    }
}

/// How long each request was lost. An interval lasts from when a packet was dropped to when it
/// arrived again. Its request is the one that was under way throughout and was answered first
/// after that.
pub fn lost(spans: &[Span], truth: &GroundTruth) -> Vec<Nanos> {
    let mut places: Vec<usize> = (0..spans.len()).collect();
    places.sort_by_key(|place| spans[*place].t6);
    let mut delays = vec![Nanos::ZERO; spans.len()];
    for interval in &truth.intervals {
        let after = places.partition_point(|place| spans[*place].t6 < interval.to_ns);
        let mut candidates = places[after..].iter();
        if let Some(place) = candidates.find(|place| spans[**place].t1 <= interval.from_ns) {
            delays[*place] += interval.length();
        }
    }
    delays
}

/// Whether the named culprit is the true one, as far as both identify a thread, process or name.
pub(crate) fn is_meant(truth: &Option<Culprit>, named: &Option<Culprit>) -> bool {
    let (Some(truth), Some(named)) = (truth, named) else {
        // the truth has no culprit: the cause alone decides
        return truth.is_none();
    };
    match (truth, named) {
        (
            Culprit::Thread { name, tid, pid, .. },
            Culprit::Thread {
                name: other,
                tid: tid_named,
                pid: pid_named,
                ..
            },
        ) => match (tid, tid_named) {
            (Some(tid), Some(named)) => tid == named,
            _ => name == other && (pid.is_none() || pid_named.is_none() || pid == pid_named),
        },
        (
            Culprit::Chain { tid, end, .. },
            Culprit::Chain {
                tid: named,
                end: named_end,
                ..
            },
        ) => tid == named && end == named_end,
        (Culprit::Worker { tid, .. }, Culprit::Worker { tid: named, .. }) => tid == named,
        (Culprit::Upstream { servers }, Culprit::Upstream { servers: named }) => {
            // an explanation adds the program: `127.0.0.1:7998 (backend)`
            let address = |named: &String| named.split(' ').next().map(str::to_owned);
            servers
                .iter()
                .cloned()
                .map(Some)
                .eq(named.iter().map(address))
        }
        (Culprit::Interrupt { name, .. }, Culprit::Interrupt { name: other, .. })
        | (Culprit::Softirq { name }, Culprit::Softirq { name: other })
        | (Culprit::SystemCall { name }, Culprit::SystemCall { name: other }) => name == other,
        _ => truth == named,
    }
}

#[cfg(test)]
mod tests;
