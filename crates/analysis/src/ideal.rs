//! The ideal sojourn of each measured request.

use std::num::NonZeroU32;

use taillab_model::{Monotonic, Nanos};
use taillab_queueing::ideal::IdealQueue;

use crate::matched::Matched;

/// The measured requests of a window, in order of T1.
#[derive(Clone, Debug, Default)]
pub struct MeasuredRequests {
    /// Their places in [`Matched::requests`].
    pub places: Vec<u32>,
    /// The ideal sojourn of each.
    pub ideal: Vec<Nanos>,
    /// The ideal sojourns of the requests that nobody answered.
    pub ideal_of_unanswered: Vec<Nanos>,
    /// T1 of each of those.
    pub t1_of_unanswered: Vec<Monotonic>,
    /// Requests that the end of the recording cut off: they may still have been answered.
    pub cut_off: u64,
}

/// Sends the measured arrivals through the ideal queue, window by window: FIFO, c workers, and t for
/// each request.
///
/// *Every* request that arrived is an arrival of the ideal queue, except for those that ask for no
/// response: what they cost is not known, and the report says how many they are. Arrivals of the
/// warm-up count, so that the queue is in the right state when the measurement begins, and so do
/// requests whose response was not seen: either the server answered and the probe missed it, or the
/// server dropped the request, which an ideal server does not do. If such a request was never served,
/// the ideal has a little more work than the real server, and the excess comes out a little too small.
///
/// A request without a response has waited until the end of the recording. If that is longer than
/// answers take, it is unanswered; otherwise the end cut it off, and it does not count.
pub struct IdealArrivals {
    queue: IdealQueue,
    measure_from: Monotonic,
    /// The first and the last arrival of the measurement.
    span: Option<(Monotonic, Monotonic)>,
    count: u64,
}

impl IdealArrivals {
    /// An empty queue; the measurement begins at `measure_from`.
    pub fn new(service_time: Nanos, workers: NonZeroU32, measure_from: Monotonic) -> Self {
        Self {
            queue: IdealQueue::new(service_time, workers),
            measure_from,
            span: None,
            count: 0,
        }
    }

    /// Sends the arrivals of the next window through the queue. Requests that arrived at
    /// `waited_for_until` or earlier were waited for as long as answers take.
    pub fn take(&mut self, matched: &Matched, waited_for_until: Monotonic) -> MeasuredRequests {
        let mut requests = MeasuredRequests::default();
        for arrival in matched.arrivals() {
            let ideal = self
                .queue
                .sojourn(Nanos::new(arrival.t1.nanos_since_boot()));
            if arrival.t1 >= self.measure_from {
                self.span = Some((self.span.map_or(arrival.t1, |(first, _)| first), arrival.t1));
                self.count += 1;
            }
            match arrival.matched {
                Some(place) if matched.is_measured(place, self.measure_from) => {
                    requests.places.push(place as u32);
                    requests.ideal.push(ideal);
                }
                None if arrival.t1 < self.measure_from || arrival.ambiguous => {}
                None if arrival.t1 > waited_for_until => requests.cut_off += 1,
                None => {
                    requests.ideal_of_unanswered.push(ideal);
                    requests.t1_of_unanswered.push(arrival.t1);
                }
                Some(_) => {}
            }
        }
        requests
    }

    /// Arrivals during the measurement.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// From the first to the last arrival of the measurement.
    pub fn length(&self) -> Nanos {
        let span = self.span;
        span.map_or(Nanos::ZERO, |(first, last)| last.saturating_since(first))
    }

    /// Arrivals per second of the measurement.
    pub fn rate_per_s(&self) -> f64 {
        let length = self.length().as_secs_f64();
        if length > 0.0 {
            self.count.saturating_sub(1) as f64 / length
        } else {
            0.0
        }
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

    fn matched(requests: &[(u64, u64)], unmatched: &[u64]) -> Matched {
        let key = RequestKey::default();
        let request =
            |&(t1, t6): &(u64, u64)| Request::from(Stamps::new(at(t1), [None; 4], at(t6)));
        let lost = |&t1: &u64| Unmatched {
            key,
            t1: at(t1),
            ambiguous: false,
        };
        Matched {
            requests: requests.iter().map(request).collect(),
            keys: vec![key; requests.len()],
            unmatched: unmatched.iter().map(lost).collect(),
            ..Matched::default()
        }
    }

    fn arrivals(from: u64) -> IdealArrivals {
        IdealArrivals::new(Nanos::new(10), NonZeroU32::MIN, at(from))
    }

    fn ideal(matched: &Matched, from: u64) -> Vec<u64> {
        let ideal = arrivals(from).take(matched, Monotonic::MAX).ideal;
        ideal.iter().map(|t| t.get()).collect()
    }

    #[test]
    fn the_warm_up_and_the_unanswered_keep_the_ideal_server_busy() {
        let matched = matched(&[(1_000, 1_030), (1_005, 1_050), (1_012, 1_070)], &[1_001]);
        assert_eq!(ideal(&matched, 0), [10, 25, 28]);
        assert_eq!(ideal(&matched, 1_004), [25, 28]);
        assert_eq!(
            arrivals(1_004).take(&matched, Monotonic::MAX).places,
            [1, 2]
        );
    }

    #[test]
    fn a_request_that_the_end_cut_off_is_not_unanswered() {
        let matched = matched(&[(1_000, 1_030)], &[900, 1_001, 1_050, 1_090]);
        let found = arrivals(950).take(&matched, at(1_060));
        assert_eq!((found.ideal.len(), found.cut_off), (1, 1));
        assert_eq!(found.ideal_of_unanswered, [Nanos::new(19), Nanos::new(10)]);
    }

    #[test]
    fn the_queue_goes_on_from_window_to_window() {
        let mut arrivals = arrivals(0);
        arrivals.take(&matched(&[(1_000, 1_030)], &[1_001]), Monotonic::MAX);
        let next = matched(&[(1_005, 1_050)], &[]);
        let ideal = arrivals.take(&next, Monotonic::MAX).ideal;
        assert_eq!(ideal, [Nanos::new(25)]);
    }

    #[test]
    fn the_rate_is_that_of_the_measurement() {
        let requests: Vec<(u64, u64)> = (0..101).map(|i| (1_000 * i, 1_000 * i + 20)).collect();
        let mut arrivals = arrivals(50_000);
        arrivals.take(&matched(&requests, &[]), Monotonic::MAX);
        assert!((arrivals.rate_per_s() - 1e6).abs() < 1e-6);
    }

    #[test]
    fn nothing_in_gives_nothing_out() {
        let mut arrivals = arrivals(0);
        assert!(arrivals.take(&Matched::default(), at(9)).ideal.is_empty());
        assert_eq!((arrivals.count(), arrivals.rate_per_s()), (0, 0.0));
    }
}
