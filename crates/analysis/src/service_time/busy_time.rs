//! An upper bound of t: the busy time of the workers per request, where hardly any request had to wait.
//!
//! A request costs more where it finds the server asleep: caches are cold, and each wake-up serves one
//! request only. So t is the cost of a request in the *most efficient* stretches, provided that they last:
//!
//! 1. The recording is cut into at most forty stretches with equally many requests, at least fifty.
//!    The cost of a request in each is the [busy time](crate::timeline::busy_stretches) of the workers.
//!    A stretch has many requests, so that cheap requests alone do not make t short: the mix of
//!    requests is that of the whole recording.
//! 2. The first decile of these costs is t. The minimum could be luck; a tenth of the time is
//!    sustained. The interval is that of an order statistic.
//! 3. The ideal must not be slower than the server that is compared with it. If it were, t is
//!    shortened until at most one request in twenty is faster than its own ideal, and no percentile of
//!    the ideal is above the measured one. A few requests always are faster, because the cost of a
//!    request includes work before T1 and after T6.

use std::num::NonZeroU32;

use taillab_model::interval::quantile_of_independent;
use taillab_model::{Monotonic, Nanos, quantile_rank};
use taillab_queueing::ideal::IdealQueue;

use crate::matched::Matched;
use crate::timeline::{Timeline, busy_stretches};

/// The largest number of stretches: a tenth of them is still several, and each is still long.
const STRETCHES: usize = 40;

/// The least number of requests in a stretch.
const REQUESTS: usize = 50;

/// The share of the stretches that cost less than t.
const DECILE: f64 = 0.1;

/// If a larger share of the requests is faster than the ideal, t is too long.
const MOST_FASTER: f64 = 0.05;

/// The quantiles at which the ideal must not be above the measured sojourn.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// How many requests are sent through the ideal queue to check t.
const TRIED: usize = 50_000;

/// t from the busy time, with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyTime {
    /// t.
    pub service_time: Nanos,
    /// Lower end of its interval.
    pub lo: Nanos,
    /// Upper end of its interval.
    pub hi: Nanos,
    /// It was shortened because the ideal would have been slower than the server.
    pub shortened: bool,
}

/// t from the most efficient stretches, over the requests from `measure_from` on; `None` if no time of
/// a worker on a core is known.
pub fn estimate(
    matched: &Matched,
    timeline: &Timeline,
    measure_from: Monotonic,
    workers: NonZeroU32,
) -> Option<BusyTime> {
    let count = stretches(matched, measure_from);
    let mut costs = busy_stretches(matched, timeline, measure_from, count);
    costs.sort_unstable();
    let (lo, service_time, hi) = quantile_of_independent(&costs, DECILE)?;
    Some(shortened(
        matched,
        measure_from,
        workers,
        BusyTime {
            service_time,
            lo,
            hi,
            shortened: false,
        },
    ))
}

/// The number of stretches: with slices, the requests outside of the sample do not count.
fn stretches(matched: &Matched, measure_from: Monotonic) -> usize {
    let places = matched.measured_places(measure_from);
    let asked = places.filter(|place| matched.is_asked(*place)).count();
    (asked / REQUESTS).clamp(1, STRETCHES)
}

/// The estimate, shortened if the ideal would be slower than the server.
pub fn shortened(
    matched: &Matched,
    measure_from: Monotonic,
    workers: NonZeroU32,
    estimate: BusyTime,
) -> BusyTime {
    let longest = Trial::new(matched, measure_from, workers).longest(estimate.service_time);
    if longest == estimate.service_time {
        return estimate;
    }
    BusyTime {
        service_time: longest,
        lo: estimate.lo.min(longest),
        hi: estimate.hi,
        shortened: true,
    }
}

/// The first requests of a measurement, and some of its warm-up, to be sent through ideal queues.
struct Trial {
    workers: NonZeroU32,
    /// T1 and, of a measured request, the sojourn.
    arrivals: Vec<(Nanos, Option<Nanos>)>,
    /// The measured sojourn at each of [`QUANTILES`].
    measured: Vec<Nanos>,
}

impl Trial {
    fn new(matched: &Matched, measure_from: Monotonic, workers: NonZeroU32) -> Self {
        let sojourn = |place: usize| {
            let measured = matched.is_measured(place, measure_from);
            measured.then(|| matched.requests.sojourn(place))
        };
        let warm_up = matched.arrivals();
        let warm_up = warm_up.take_while(|arrival| arrival.t1 < measure_from);
        // at most half of what is tried is warm-up
        let passed_over = warm_up.count().saturating_sub(TRIED / 2);
        let arrivals: Vec<_> = matched
            .arrivals()
            .skip(passed_over)
            .take(TRIED)
            .map(|arrival| {
                let t1 = Nanos::new(arrival.t1.nanos_since_boot());
                (t1, arrival.matched.and_then(sojourn))
            })
            .collect();
        let sojourns = arrivals.iter().filter_map(|(_, sojourn)| *sojourn);
        Self {
            workers,
            measured: at_quantiles(sojourns.collect()),
            arrivals,
        }
    }

    /// The longest t up to `upto` with which the ideal is not slower than the server.
    fn longest(&self, upto: Nanos) -> Nanos {
        if self.holds(upto) {
            return upto;
        }
        let (mut holds, mut fails) = (0, upto.get());
        while fails - holds > 1 + holds / 1_000 {
            let middle = holds + (fails - holds) / 2;
            match self.holds(Nanos::new(middle)) {
                true => holds = middle,
                false => fails = middle,
            }
        }
        Nanos::new(holds)
    }

    /// Whether the ideal with this t is not slower than the server. A longer t makes every request of
    /// the ideal slower, so there is a longest t that holds.
    fn holds(&self, service_time: Nanos) -> bool {
        let mut queue = IdealQueue::new(service_time, self.workers);
        let mut faster = 0_usize;
        let mut ideals = Vec::with_capacity(self.arrivals.len());
        for &(t1, sojourn) in &self.arrivals {
            let ideal = queue.sojourn(t1);
            if let Some(sojourn) = sojourn {
                faster += usize::from(sojourn < ideal);
                ideals.push(ideal);
            }
        }
        let few = faster as f64 <= MOST_FASTER * ideals.len() as f64;
        few && (at_quantiles(ideals).iter())
            .zip(&self.measured)
            .all(|(ideal, measured)| ideal <= measured)
    }
}

/// The order statistics at those of [`QUANTILES`] that at least ten lengths are above.
fn at_quantiles(mut lengths: Vec<Nanos>) -> Vec<Nanos> {
    let n = lengths.len();
    let enough = |q: &f64| n as f64 * (1.0 - q) >= 10.0;
    let at = |q: f64| {
        *lengths
            .select_nth_unstable(quantile_rank(n as u64, q) as usize)
            .1
    };
    QUANTILES.into_iter().filter(enough).map(at).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taillab_model::{Event, EventKind, MiddleStamps, Request, RequestKey, Stamps};

    use super::*;
    use crate::slices::Slices;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(1_000_000_000 + ns)
    }

    /// Requests of one worker, first come first served: gaps and services in nanoseconds.
    fn served(jobs: &[(u64, u64)]) -> Matched {
        let (mut t1, mut free) = (0, 0);
        let requests = jobs.iter().map(|&(gap, service)| {
            t1 += gap;
            free = free.max(t1) + service;
            Request::from(Stamps::new(at(t1), [None; 4], at(free)))
        });
        Matched {
            requests: requests.collect(),
            keys: vec![RequestKey::default(); jobs.len()],
            workers: vec![7; jobs.len()],
            ..Matched::default()
        }
    }

    fn of(service_time: u64) -> BusyTime {
        BusyTime {
            service_time: Nanos::new(service_time),
            lo: Nanos::new(service_time / 10 * 9),
            hi: Nanos::new(service_time / 10 * 11),
            shortened: false,
        }
    }

    /// 1,000 requests per second for 2 s, of which 70 ms are sampled.
    #[test]
    fn a_stretch_has_fifty_requests_of_the_sample() {
        let mut matched = served(&vec![(1_000_000, 10_000); 2_000]);
        assert_eq!(stretches(&matched, at(0)), 40);
        let stamps: MiddleStamps = "sampled:1/16".parse().unwrap();
        let mut slices = Slices::of(stamps);
        for (ms, begins) in [(500, true), (600, false)] {
            slices.let_pass(&Event {
                at: at(ms * 1_000_000),
                cpu: 0,
                kind: EventKind::Slice { begins },
            });
        }
        (matched.stamps, matched.slices) = (stamps, slices);
        assert_eq!(stretches(&matched, at(0)), 1);
    }

    #[test]
    fn a_time_that_the_server_needs_is_not_shortened() {
        let matched = served(&vec![(15_000, 10_000); 5_000]);
        let found = shortened(&matched, at(0), NonZeroU32::MIN, of(10_000));
        assert_eq!(found, of(10_000));
    }

    /// A warm-up of more requests than are tried does not hide that t is too long.
    #[test]
    fn a_long_warm_up_is_passed_over() {
        let matched = served(&vec![(15_000, 10_000); TRIED + 5_000]);
        let from = at(15_000 * (TRIED as u64 + 1_000));
        assert!(shortened(&matched, from, NonZeroU32::MIN, of(20_000)).shortened);
    }

    /// Eight clients that wait for their answers keep the worker busy all the time. With a mean
    /// that is 1 % too long the ideal queue only grows.
    #[test]
    fn a_busy_server_does_not_make_the_ideal_queue_grow() {
        let mut jobs = vec![(0, 100_000); 8];
        jobs.extend(vec![(100_000, 100_000); 20_000]);
        let matched = served(&jobs);
        let found = shortened(&matched, at(0), NonZeroU32::MIN, of(101_000));
        assert!(found.shortened);
        let t = found.service_time.get();
        assert!((99_000..=100_100).contains(&t), "{t}");
    }

    proptest! {
        /// Whatever the server did: with the shortened t few requests are faster than their ideal.
        #[test]
        fn the_ideal_holds(
            jobs in prop::collection::vec((100_u64..20_000, 500_u64..30_000), 400..900),
            t in 1_000_u64..100_000,
        ) {
            let matched = served(&jobs);
            let found = shortened(&matched, at(0), NonZeroU32::MIN, of(t));
            prop_assert!(found.service_time <= Nanos::new(t));
            prop_assert!(found.lo <= found.service_time && found.service_time <= found.hi);
            let trial = Trial::new(&matched, at(0), NonZeroU32::MIN);
            prop_assert!(trial.holds(found.service_time));
            let longer = Nanos::new(found.service_time.get() + found.service_time.get() / 500 + 2);
            prop_assert!(!found.shortened || !trial.holds(longer));
        }
    }
}
