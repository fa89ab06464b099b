//! t and the workers, where they were neither given nor measured before the recording.

use std::collections::HashMap;
use std::num::NonZeroU32;

use taillab_analysis::Matched;
use taillab_analysis::service_time::{self, ServiceTimeEstimate};
use taillab_analysis::timeline::Timeline;
use taillab_model::summary::{ServiceTimeSource, WorkersSource};
use taillab_model::{Monotonic, Nanos, RecordingContext, Tid};

use crate::cli::AnalysisArgs;
use crate::exit::Failure;

/// A thread with less than this share of the requests is not a worker: it served one while connections
/// were assigned, or does something else.
const LEAST_SHARE: f64 = 0.001;

/// It is one nevertheless if it has this share of what the busiest thread has: of a thousand threads, each
/// may have less than [`LEAST_SHARE`].
const SHARE_OF_BUSIEST: f64 = 0.1;

/// The ideal server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdealServer {
    pub service_time: Nanos,
    /// The interval of t, where it was estimated from the recording.
    pub interval: Option<(Nanos, Nanos)>,
    pub source: ServiceTimeSource,
    pub workers: NonZeroU32,
    pub workers_source: WorkersSource,
}

impl IdealServer {
    /// As given by the user, else as measured before the recording, else as the recording shows.
    pub fn of(
        args: &AnalysisArgs,
        context: &RecordingContext,
        matched: &Matched,
        timeline: &Timeline,
        from: Monotonic,
    ) -> Result<Self, Failure> {
        let known = context.workers.and_then(NonZeroU32::new);
        let measured = || matched.measured_places(from);
        let (workers, workers_source) = match (args.workers, known) {
            (Some(given), _) => (given, WorkersSource::Given),
            (None, Some(known)) => (known, WorkersSource::Known),
            (None, None) => (workers(matched, from, cpus(context)), WorkersSource::Seen),
        };
        let (service_time, interval, source) = match (args.service_time, context.service_time_ns) {
            (Some(given), _) => (given, None, ServiceTimeSource::Given),
            (None, Some(t)) => (t, None, ServiceTimeSource::Calibrated),
            // in a window of a second, there may be no slice
            (None, None) if !measured().any(|place| matched.is_asked(place)) => {
                let stand_in = typical_service(matched, from).ok_or_else(unknown)?;
                (stand_in, None, ServiceTimeSource::Unknown)
            }
            (None, None) => {
                let estimate = service_time::estimate(matched, timeline, from, workers)
                    .or_else(|| typical(matched, from, workers))
                    .ok_or_else(unknown)?;
                let source = match estimate.shortened {
                    true => ServiceTimeSource::AsFastAsMeasured,
                    false => ServiceTimeSource::BusyTime,
                };
                let interval = Some((estimate.lo, estimate.hi));
                (estimate.service_time, interval, source)
            }
        };
        if service_time == Nanos::ZERO {
            return Err(unknown());
        }
        Ok(Self {
            service_time,
            interval,
            source,
            workers,
            workers_source,
        })
    }

    /// Whether t is known, rather than a stand-in.
    pub fn is_known(&self) -> bool {
        self.source != ServiceTimeSource::Unknown
    }
}

fn unknown() -> Failure {
    Failure::failed(
        "the recording does not show how long the server works on a request: give it with \
         --service-time",
    )
}

/// [`typical_service`], shortened so that the ideal is not slower than the server was.
fn typical(matched: &Matched, from: Monotonic, workers: NonZeroU32) -> Option<ServiceTimeEstimate> {
    let t = typical_service(matched, from)?;
    let estimate = ServiceTimeEstimate {
        service_time: t,
        lo: t,
        hi: t,
        shortened: false,
    };
    Some(service_time::shortened(matched, from, workers, estimate))
}

/// The number of threads that served requests, but at most the number of CPUs.
fn workers(matched: &Matched, from: Monotonic, cpus: u32) -> NonZeroU32 {
    let mut served: HashMap<Tid, u64> = HashMap::new();
    for place in matched.measured_places(from) {
        *served.entry(matched.workers[place]).or_default() += 1;
    }
    served.remove(&0);
    let all: u64 = served.values().sum();
    let busiest = served.values().max().copied().unwrap_or(0);
    let least = (all as f64 * LEAST_SHARE).min(busiest as f64 * SHARE_OF_BUSIEST);
    let threads = served.values().filter(|n| **n as f64 >= least).count();
    let threads = u32::try_from(threads).unwrap_or(u32::MAX);
    NonZeroU32::new(threads.min(cpus)).unwrap_or(NonZeroU32::MIN)
}

fn cpus(context: &RecordingContext) -> u32 {
    match u32::try_from(context.server_cpus.len()) {
        Ok(0) | Err(_) => u32::MAX,
        Ok(n) => n,
    }
}

/// An estimate for recordings that do not say which threads were on the CPUs: the median time from when a
/// worker could begin a request (its T2, or T1 where T2 was not to be recorded, or the worker's previous T6)
/// to its T6.
fn typical_service(matched: &Matched, from: Monotonic) -> Option<Nanos> {
    let mut by_end: Vec<usize> = matched.measured_places(from).collect();
    by_end.sort_by_key(|place| matched.requests.t6(*place));
    let mut previous: HashMap<Tid, Monotonic> = HashMap::new();
    let mut services = Vec::with_capacity(by_end.len());
    for place in by_end {
        let stamps = matched.requests.stamps(place);
        let [t2, ..] = stamps.middle();
        let before = previous.insert(matched.workers[place], stamps.t6);
        let unasked = (!matched.is_asked(place)).then_some(stamps.t1);
        let Some(queued) = t2.or(unasked) else {
            continue;
        };
        let began = before.map_or(queued, |t6| t6.max(queued));
        services.push(stamps.t6.saturating_since(began));
    }
    let middle = services.len() / 2;
    (!services.is_empty()).then(|| *services.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::{Request, RequestKey, Stamps};

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(us * 1000)
    }

    /// Requests of one worker each: (t1, t6, worker) in microseconds; T2 is 1 µs after T1.
    fn matched(requests: &[(u64, u64, Tid)]) -> Matched {
        let request = |&(t1, t6, _): &(u64, u64, Tid)| {
            let middle = [Some(at(t1 + 1)), None, None, None];
            Request::from(Stamps::new(at(t1), middle, at(t6)))
        };
        Matched {
            requests: requests.iter().map(request).collect(),
            keys: vec![RequestKey::default(); requests.len()],
            workers: requests.iter().map(|(.., worker)| *worker).collect(),
            ..Matched::default()
        }
    }

    #[test]
    fn waiting_for_the_worker_is_no_service() {
        // the second and the third wait for the one before
        let matched = matched(&[(10, 21, 5), (12, 31, 5), (13, 41, 5), (90, 101, 5)]);
        assert_eq!(
            typical_service(&matched, at(1)),
            Some(Nanos::from_micros(10))
        );
        assert_eq!(typical_service(&Matched::default(), at(1)), None);
    }

    #[test]
    fn workers_are_the_threads_that_serve_but_no_more_than_cpus() {
        let mut requests: Vec<(u64, u64, Tid)> = (0..4000)
            .map(|i| (10 + i, 20 + i, if i % 2 == 0 { 5 } else { 6 }))
            .collect();
        requests[7].2 = 9;
        requests[8].2 = 0;
        let matched = matched(&requests);
        let count = |cpus| workers(&matched, at(1), cpus).get();
        assert_eq!((count(u32::MAX), count(1)), (2, 1));
        assert_eq!(workers(&Matched::default(), at(1), 4).get(), 1);
    }

    #[test]
    fn a_thousand_threads_that_share_the_requests_are_workers() {
        let requests: Vec<(u64, u64, Tid)> = (0..4500)
            .map(|i| (10 + i, 20 + i, 5 + i as Tid % 1500))
            .collect();
        let matched = matched(&requests);
        assert_eq!(workers(&matched, at(1), 64).get(), 64);
        assert_eq!(workers(&matched, at(1), u32::MAX).get(), 1500);
    }
}
