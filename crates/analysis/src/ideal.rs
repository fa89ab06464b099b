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
                let stamps = &matched.requests[place].server;
                run.measured.push(stamps.t6.saturating_since(stamps.t1));
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
