//! t and the workers, where they were neither given nor measured before the recording.

use std::collections::HashMap;
use std::num::NonZeroU32;

use taillab_analysis::Matched;
use taillab_analysis::service_time::busy_periods;
use taillab_analysis::service_time::busy_time::{self, BusyTime};
use taillab_analysis::timeline::Timeline;
use taillab_console::args::AnalysisArgs;
use taillab_console::exit::Failure;
use taillab_model::interval::Interval;
use taillab_model::summary::{BusyPeriods, BusyPeriodsOfCpu, ServiceTimeSource, WorkersSource};
use taillab_model::{Monotonic, Nanos, RecordingContext, Tid};

/// A thread with less than this share of the requests is not a worker: it served one while connections
/// were assigned, or does something else.
const LEAST_SHARE: f64 = 0.001;

/// It is one nevertheless if it has this share of what the busiest thread has: of a thousand threads, each
/// may have less than [`LEAST_SHARE`].
const SHARE_OF_BUSIEST: f64 = 0.1;

/// The ideal server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdealServer {
    pub service_time: ServiceTime,
    /// t as the busy periods show it, where they do.
    pub busy_periods: Option<BusyPeriods>,
    /// The same by CPU, where several served.
    pub busy_periods_by_cpu: Vec<BusyPeriodsOfCpu>,
    pub workers: NonZeroU32,
    pub workers_source: WorkersSource,
}

/// t, with its interval where it has one, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    pub t: Nanos,
    pub interval: Option<Interval<Nanos>>,
    pub source: ServiceTimeSource,
    /// The part of t after the response has left, where the busy periods show it.
    pub after_response: Nanos,
}

impl IdealServer {
    /// t as given by the user, else as the recording shows it, else as measured before. `calibrated` is the
    /// interval of the latter.
    pub fn of(
        args: &AnalysisArgs,
        context: &RecordingContext,
        (matched, timeline): (&Matched, &Timeline),
        from: Monotonic,
        calibrated: Option<Interval<Nanos>>,
    ) -> Result<Self, Failure> {
        let known = context.workers.and_then(NonZeroU32::new);
        let (workers, workers_source) = match (args.workers, known) {
            (Some(given), _) => (given, WorkersSource::Given),
            (None, Some(known)) => (known, WorkersSource::Known),
            (None, None) => (workers(matched, from, cpus(context)), WorkersSource::Seen),
        };
        let known = known_service_time(args, context);
        // they wait without using a CPU
        let are_virtual = known.is_some_and(|t| t.source == ServiceTimeSource::VirtualWait);
        let measured = match are_virtual {
            true => busy_periods::BusyPeriodCosts::default(),
            false => busy_periods::measure(matched, timeline, from),
        };
        let busy_periods = measured.pooled;
        let service_time = match (known, busy_periods) {
            (Some(known), None) if known.source == ServiceTimeSource::Calibrated => ServiceTime {
                interval: calibrated.map(|of_t| widened(known.t, of_t, matched, from, workers)),
                ..known
            },
            (Some(known), None) => known,
            (Some(known), _) if known.source != ServiceTimeSource::Calibrated => known,
            (_, Some(recorded)) => ServiceTime {
                t: recorded.service_time_ns,
                interval: Some(Interval {
                    lo: recorded.lo_ns,
                    hi: recorded.hi_ns,
                }),
                source: ServiceTimeSource::BusyPeriods,
                after_response: recorded.after_response_ns,
            },
            (None, None) => busy_time((matched, timeline), from, workers)?,
        };
        if service_time.t == Nanos::ZERO {
            return Err(unknown());
        }
        Ok(Self {
            service_time,
            busy_periods,
            busy_periods_by_cpu: measured.by_cpu,
            workers,
            workers_source,
        })
    }

    /// Whether t is known, rather than a stand-in.
    pub fn is_known(&self) -> bool {
        self.service_time.source != ServiceTimeSource::Unknown
    }
}

/// t as the user gave it, or as it was known before the recording.
fn known_service_time(args: &AnalysisArgs, context: &RecordingContext) -> Option<ServiceTime> {
    let known = |t, source| ServiceTime {
        t,
        interval: None,
        source,
        after_response: Nanos::ZERO,
    };
    if let Some(given) = args.service_time {
        return Some(known(given, ServiceTimeSource::Given));
    }
    // recordings that do not say it are of calibrated runs
    let source = context.service_time_source.unwrap_or_default();
    context.service_time_ns.map(|t| known(t, source))
}

/// The interval of a calibrated t, down to the t with which few requests are faster than their ideal.
fn widened(
    t: Nanos,
    Interval { lo, hi }: Interval<Nanos>,
    matched: &Matched,
    from: Monotonic,
    workers: NonZeroU32,
) -> Interval<Nanos> {
    let calibrated = BusyTime {
        service_time: t,
        lo,
        hi,
        shortened: false,
    };
    let BusyTime { lo, hi, .. } = busy_time::shortened(matched, from, workers, calibrated);
    Interval { lo, hi }
}

/// The upper bound from the busy time of the workers.
fn busy_time(
    (matched, timeline): (&Matched, &Timeline),
    from: Monotonic,
    workers: NonZeroU32,
) -> Result<ServiceTime, Failure> {
    // in a window of a second, there may be no slice
    let mut measured = matched.measured_places(from);
    if !measured.any(|place| matched.is_asked(place)) {
        let stand_in = typical_service(matched, from).ok_or_else(unknown)?;
        return Ok(ServiceTime {
            t: stand_in,
            interval: None,
            source: ServiceTimeSource::Unknown,
            after_response: Nanos::ZERO,
        });
    }
    let estimate = busy_time::estimate(matched, timeline, from, workers)
        .or_else(|| typical(matched, from, workers))
        .ok_or_else(unknown)?;
    Ok(ServiceTime {
        t: estimate.service_time,
        interval: Some(Interval {
            lo: estimate.lo,
            hi: estimate.hi,
        }),
        source: match estimate.shortened {
            true => ServiceTimeSource::AsFastAsMeasured,
            false => ServiceTimeSource::BusyTime,
        },
        after_response: Nanos::ZERO,
    })
}

fn unknown() -> Failure {
    Failure::failed(
        "the recording does not show how long the server works on a request: give it with \
         --service-time",
    )
}

/// [`typical_service`], shortened so that the ideal is not slower than the server was.
fn typical(matched: &Matched, from: Monotonic, workers: NonZeroU32) -> Option<BusyTime> {
    let t = typical_service(matched, from)?;
    let estimate = BusyTime {
        service_time: t,
        lo: t,
        hi: t,
        shortened: false,
    };
    Some(busy_time::shortened(matched, from, workers, estimate))
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
    use std::fs::File;

    use super::*;
    use taillab_analysis::match_recording;
    use taillab_model::{Recording, Request, RequestKey, Stamps};

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

    /// memcached at 90 % of its capacity, so that requests wait for each other.
    const RECORDING: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../analysis/tests/golden/memcached_90_percent.tlc"
    );

    #[test]
    fn a_given_t_comes_before_the_recordings_and_that_before_a_calibrated_one() {
        let recording = Recording::read(File::open(RECORDING).unwrap()).unwrap();
        let matched = match_recording(&recording).unwrap();
        let timeline = Timeline::build(recording.events(), &recording.context);
        let found = |given, known: Option<(Nanos, ServiceTimeSource)>| {
            let args = AnalysisArgs {
                service_time: given,
                ..AnalysisArgs::default()
            };
            let context = RecordingContext {
                service_time_ns: known.map(|(t, _)| t),
                service_time_source: known.map(|(_, source)| source),
                ..recording.context.clone()
            };
            let evidence = (&matched, &timeline);
            let server = IdealServer::of(&args, &context, evidence, recording.base, None);
            server.unwrap().service_time
        };
        let far_off = Nanos::from_millis(5);
        let recorded = found(None, None);
        assert_eq!(recorded.source, ServiceTimeSource::BusyPeriods);
        assert!(recorded.t < far_off && recorded.interval.is_some());
        let calibrated = Some((far_off, ServiceTimeSource::Calibrated));
        assert_eq!(found(None, calibrated), recorded);
        let given = found(Some(Nanos::from_micros(7)), calibrated);
        assert_eq!(
            (given.t, given.source),
            (Nanos::from_micros(7), ServiceTimeSource::Given)
        );
        // a worker that waits uses no CPU which could be seen
        let waits = found(None, Some((far_off, ServiceTimeSource::VirtualWait)));
        assert_eq!(
            (waits.t, waits.source),
            (far_off, ServiceTimeSource::VirtualWait)
        );
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
