//! The ideal sojourn of each measured request, and its excess over it.

use std::num::NonZeroU32;

use taillab_model::{Monotonic, Nanos};
use taillab_queueing::ideal;

use crate::matched::Matched;

/// The ideal of the requests of the measurement, in order of T1.
#[derive(Clone, Debug, Default)]
pub struct IdealRun {
    /// Measured sojourn T6 − T1.
    pub measured: Vec<Nanos>,
    /// Ideal sojourn of the same request.
    pub ideal: Vec<Nanos>,
    /// Arrivals per second over the measurement, all of them.
    pub arrival_rate_per_s: f64,
}

impl IdealRun {
    /// Sends the measured arrivals through the ideal queue: FIFO, `workers` workers, each
    /// request taking `service_time`.
    ///
    /// *Every* request that came in is an arrival of the ideal queue, also in the warm-up
    /// (so that the queue is in its state when the measurement begins), and also where
    /// its response was not seen. Those were served and only their response was lost to
    /// the probe, or the real server dropped them, which an ideal one does not. Where
    /// they were in truth never served, the ideal carries a little more work than the
    /// real server did, so the excess errs on the small side. They have no measured
    /// sojourn and so stand in neither distribution.
    pub fn of(
        matched: &Matched,
        service_time: Nanos,
        workers: NonZeroU32,
        measure_from: Monotonic,
    ) -> Self {
        let Some(origin) = matched.arrivals().next().map(|first| first.t1) else {
            return Self::default();
        };
        let arrivals: Vec<Nanos> = matched
            .arrivals()
            .map(|arrival| arrival.t1.saturating_since(origin))
            .collect();
        let sojourns = ideal::sojourns(&arrivals, service_time, workers);
        let is_measured = |place: usize| matched.is_measured(place, measure_from);
        let mut run = Self {
            arrival_rate_per_s: rate_per_s(&arrivals, measure_from.saturating_since(origin)),
            ..Self::default()
        };
        drop(arrivals);
        for (arrival, sojourn) in matched.arrivals().zip(sojourns) {
            if let Some(place) = arrival.matched.filter(|&place| is_measured(place)) {
                run.measured.push(matched.requests.sojourn(place));
                run.ideal.push(sojourn);
            }
        }
        run
    }

    /// Measured − ideal of each request; zero where the ideal is the longer.
    pub fn excess(&self) -> Vec<Nanos> {
        let pairs = self.measured.iter().zip(&self.ideal);
        pairs.map(|(m, i)| m.saturating_sub(*i)).collect()
    }

    /// Share of the requests that were faster than their ideal. Some are, because a
    /// service time varies and t is its mean at the peak; many mean that t is too long.
    pub fn faster_than_ideal(&self) -> f64 {
        let pairs = self.measured.iter().zip(&self.ideal);
        let faster = pairs.filter(|(measured, ideal)| measured < ideal).count();
        faster as f64 / self.measured.len().max(1) as f64
    }
}

/// Arrivals per second from `from` on (offsets from the same origin).
fn rate_per_s(arrivals: &[Nanos], from: Nanos) -> f64 {
    let first = arrivals.partition_point(|&at| at < from);
    match arrivals[first..] {
        [begin, .., end] if end > begin => {
            (arrivals.len() - first - 1) as f64 / (end - begin).as_secs_f64()
        }
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matched::Unmatched;
    use taillab_model::{Request, RequestKey, Stamps};

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns)
    }

    fn request(t1: u64, t6: u64) -> Request {
        let server = Stamps {
            t1: at(t1),
            t2: None,
            t3: None,
            t4: None,
            t5: None,
            t6: at(t6),
        };
        Request {
            server,
            client: None,
            operation: None,
        }
    }

    fn matched(requests: &[(u64, u64)], unmatched: &[u64]) -> Matched {
        let key = RequestKey {
            address: 0,
            port: 1,
            id: 1,
        };
        let lost = |&t1: &u64| Unmatched {
            key,
            t1: at(t1),
            t2: None,
            ambiguous: false,
        };
        Matched {
            requests: requests.iter().map(|&(a, b)| request(a, b)).collect(),
            keys: vec![key; requests.len()],
            unmatched: unmatched.iter().map(lost).collect(),
            ..Matched::default()
        }
    }

    fn run(matched: &Matched, from: u64) -> IdealRun {
        IdealRun::of(matched, Nanos::new(10), NonZeroU32::MIN, at(from))
    }

    fn ns(times: &[Nanos]) -> Vec<u64> {
        times.iter().map(|t| t.get()).collect()
    }

    #[test]
    fn the_warm_up_and_the_unanswered_keep_the_ideal_server_busy() {
        let matched = matched(&[(1_000, 1_030), (1_005, 1_050), (1_012, 1_070)], &[1_001]);
        let all = run(&matched, 0);
        assert_eq!(ns(&all.ideal), [10, 25, 28]);
        let late = run(&matched, 1_004);
        assert_eq!(ns(&late.ideal), [25, 28]);
        assert_eq!(ns(&late.measured), [45, 58]);
        assert_eq!(ns(&late.excess()), [20, 30]);
    }

    #[test]
    fn a_request_faster_than_its_ideal_has_no_excess_and_is_counted() {
        let run = run(&matched(&[(1_000, 1_004), (1_100, 1_120)], &[]), 0);
        assert_eq!(ns(&run.excess()), [0, 10]);
        assert_eq!(run.faster_than_ideal(), 0.5);
    }

    #[test]
    fn the_rate_is_that_of_the_measurement() {
        let requests: Vec<(u64, u64)> = (0..101).map(|i| (1_000 * i, 1_000 * i + 20)).collect();
        let run = run(&matched(&requests, &[]), 50_000);
        assert!((run.arrival_rate_per_s - 1e6).abs() < 1e-6);
    }

    #[test]
    fn nothing_in_gives_nothing_out() {
        let run = run(&Matched::default(), 0);
        assert!(run.ideal.is_empty());
        assert_eq!(run.faster_than_ideal(), 0.0);
    }
}
