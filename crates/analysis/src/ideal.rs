//! The ideal sojourn of each measured request.

mod schedule;

use std::num::NonZeroU32;

use taillab_model::interval::Interval;
use taillab_model::summary::IdealBounds;
use taillab_model::{Distribution, Histogram, Monotonic, Nanos, quantile_rank};
use taillab_queueing::ideal::IdealQueue;

use self::schedule::Schedule;
use crate::left_over::LeftOver;
use crate::matched::{Arrival, Matched};

/// The measured requests of a window, in order of T1.
#[derive(Clone, Debug, Default)]
pub struct MeasuredRequests {
    /// Their places in [`Matched::requests`].
    pub places: Vec<u32>,
    /// The ideal sojourn of each.
    pub ideal: Vec<Nanos>,
    /// The same with the lower and the upper end of t's interval; empty where t has none.
    pub ideal_of_ends: Vec<[Nanos; 2]>,
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
/// warm-up count, so that the queue is in the right state when the measurement begins; what the server has
/// answered of them by then, the ideal server has answered, too. So do requests whose response was not
/// seen: the server may have answered, and the probe missed it. If such
/// a request was never served, the ideal has a little more work than the real server, and the excess
/// comes out a little too small.
///
/// A request that no socket of the server took (a datagram that found the buffer full) is an exception: nobody
/// worked on it, so the ideal server does not either. Its ideal sojourn is the one that it would have had.
///
/// A request without a response has waited until the end of the recording. If that is longer than
/// answers take, it is unanswered; otherwise the end cut it off, and it does not count.
pub struct IdealArrivals {
    queue: IdealQueue,
    /// The part of t after the response has left.
    after_response: Nanos,
    /// The same with the lower and the upper end of t's interval.
    interval: Option<[Bound; 2]>,
    /// The same with the t that the server has without the probe.
    without_probe: Option<Bound>,
    /// The same with the least t that the server would have if another CPU received the requests.
    receives_elsewhere: Option<Bound>,
    /// The same with the times at which the requests were due, where a client was joined.
    schedule: Schedule,
    measure_from: Monotonic,
    left_over: LeftOver,
    /// The first and the last arrival of the measurement.
    span: Option<(Monotonic, Monotonic)>,
    count: u64,
}

impl IdealArrivals {
    /// An empty queue; the measurement begins at `measure_from`.
    pub fn new(service_time: Nanos, workers: NonZeroU32, measure_from: Monotonic) -> Self {
        Self {
            queue: IdealQueue::new(service_time, workers),
            after_response: Nanos::ZERO,
            interval: None,
            without_probe: None,
            receives_elsewhere: None,
            schedule: Schedule::new(Bound::new(service_time, workers)),
            measure_from,
            left_over: LeftOver::default(),
            span: None,
            count: 0,
        }
    }

    /// The part of t after the response has left, which only the next request waits for. It holds for the queues
    /// that are added later, too.
    #[must_use]
    pub fn with_work_after_response(mut self, length: Nanos) -> Self {
        self.queue = self.queue.with_work_after_response(length);
        self.schedule = self.schedule.with_work_after_response(length);
        self.after_response = length;
        self
    }

    /// Also sends them through the queues with the lower and the upper end of t's interval.
    #[must_use]
    pub fn with_interval(mut self, of_t: Interval<Nanos>, workers: NonZeroU32) -> Self {
        self.interval = Some([of_t.lo, of_t.hi].map(|t| self.bound(t, workers)));
        self
    }

    fn bound(&self, service_time: Nanos, workers: NonZeroU32) -> Bound {
        Bound::new(service_time, workers).with_work_after_response(self.after_response)
    }

    /// Also sends them through the queue of a server without the probe, with this t.
    #[must_use]
    pub fn with_unprobed(mut self, service_time: Nanos, workers: NonZeroU32) -> Self {
        self.without_probe = Some(self.bound(service_time, workers));
        self
    }

    /// Also sends them through the queue of a server whose requests another CPU receives, and which then has this t at
    /// least.
    #[must_use]
    pub fn with_receiver_elsewhere(mut self, service_time: Nanos, workers: NonZeroU32) -> Self {
        self.receives_elsewhere = Some(self.bound(service_time, workers));
        self
    }

    /// These percentiles of the ideal sojourn if another CPU received the requests; empty where that was not asked for.
    pub fn receiver_elsewhere(&self, quantiles: &[f64]) -> Vec<(f64, Nanos)> {
        let Some(bound) = &self.receives_elsewhere else {
            return Vec::new();
        };
        let (n, ranked) = (bound.sojourns.count(), bound.sojourns.ranked());
        let known = |q: &f64| Some((*q, ranked.at(quantile_rank(n, *q))?.middle));
        quantiles.iter().filter_map(known).collect()
    }

    /// The percentiles of an `ideal` sojourn with the ends of t's interval. Also widens its intervals: the one
    /// by chance and the one by t are both relative to the value; together they are their product.
    pub fn widen(&self, ideal: &mut Distribution) -> Vec<IdealBounds> {
        let Some([lo, hi]) = &self.interval else {
            return Vec::new();
        };
        let n = lo.sojourns.count();
        let (lo, hi) = (lo.sojourns.ranked(), hi.sojourns.ranked());
        let mut bounds = Vec::new();
        for at in &mut ideal.quantiles {
            let rank = quantile_rank(n, at.q);
            let (Some(value), Some(lo), Some(hi)) = (at.value, lo.at(rank), hi.at(rank)) else {
                continue;
            };
            let (lo_ns, hi_ns) = (lo.middle.min(value), hi.middle.max(value));
            let scaled = |end: Nanos, by: Nanos| {
                let factor = by.as_secs_f64() / value.as_secs_f64();
                Nanos::new((end.get() as f64 * factor).round() as u64)
            };
            at.lo = at.lo.map(|end| scaled(end, lo_ns));
            at.hi = at.hi.map(|end| scaled(end, hi_ns));
            let q = at.q;
            bounds.push(IdealBounds { q, lo_ns, hi_ns });
        }
        bounds
    }

    /// The ideal sojourns without the probe, where they were asked for.
    pub fn without_probe(&self) -> Option<&Histogram> {
        Some(&self.without_probe.as_ref()?.sojourns)
    }

    /// The ideal sojourns if each request had arrived when it was due, without intervals; `None` where no
    /// client was joined.
    pub fn of_schedule(&self) -> Option<Distribution> {
        self.schedule.distribution()
    }

    /// Sends the arrivals of the next window through the queue. Requests that arrived at
    /// `waited_for_until` or earlier were waited for as long as answers take.
    pub fn take(&mut self, matched: &Matched, waited_for_until: Monotonic) -> MeasuredRequests {
        let mut requests = MeasuredRequests::default();
        let sees_queueing = sees_queueing(matched);
        for arrival in matched.arrivals() {
            let left_over = (self.left_over).at_the_beginning(matched, &arrival, self.measure_from);
            if let Some(requests) = left_over {
                self.limit_to(arrival.t1, requests);
            }
            let t1 = Nanos::new(arrival.t1.nanos_since_boot());
            let counts = arrival
                .matched
                .is_some_and(|place| matched.is_measured(place, self.measure_from));
            let was_dropped = sees_queueing && !arrival.queued && !arrival.ambiguous;
            let (ideal, of_ends) = match was_dropped {
                true => (self.queue.sojourn_outside(t1), None),
                false => self.let_in(matched, &arrival, counts),
            };
            if arrival.t1 >= self.measure_from {
                self.span = Some((self.span.map_or(arrival.t1, |(first, _)| first), arrival.t1));
                self.count += 1;
            }
            match arrival.matched {
                Some(place) if counts => {
                    requests.places.push(place as u32);
                    requests.ideal.push(ideal);
                    if self.interval.is_some() {
                        requests.ideal_of_ends.push(of_ends.unwrap_or([ideal; 2]));
                    }
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

    /// From `at` on the queues have no more work than so many requests are.
    fn limit_to(&mut self, at: Monotonic, requests: u64) {
        let at = Nanos::new(at.nanos_since_boot());
        self.queue.limit_to(at, requests);
        for bound in self.bounds() {
            bound.queue.limit_to(at, requests);
        }
        self.schedule.limit_to(at, requests);
    }

    /// All queues but that of t and that of the schedule.
    fn bounds(&mut self) -> impl Iterator<Item = &mut Bound> {
        let bounds = self.interval.iter_mut().flatten();
        bounds.chain(others(
            &mut self.without_probe,
            &mut self.receives_elsewhere,
        ))
    }

    /// Sends a request through all queues; `counts` if it belongs to the measurement. Its ideal sojourn, and those of
    /// the ends of t's interval.
    fn let_in(
        &mut self,
        matched: &Matched,
        arrival: &Arrival,
        counts: bool,
    ) -> (Nanos, Option<[Nanos; 2]>) {
        let t1 = Nanos::new(arrival.t1.nanos_since_boot());
        let ends = self.interval.as_mut();
        let of_ends = ends.map(|ends| ends.each_mut().map(|end| end.add(t1, counts)));
        for bound in others(&mut self.without_probe, &mut self.receives_elsewhere) {
            bound.add(t1, counts);
        }
        if matched.client.is_some() {
            let due = |place| matched.requests.due(place);
            let due = arrival.matched.map_or(arrival.t1, due);
            self.schedule.add(due, arrival.t1, counts);
        }
        (self.queue.sojourn(t1), of_ends)
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

/// Whether T2 of the requests was recorded: one that has none was not queued.
fn sees_queueing(matched: &Matched) -> bool {
    matched.stamps.are_complete()
        && matched
            .requests
            .iter()
            .any(|request| request.server.t2.is_some())
}

/// The queues without the probe and with another receiver, as far as there are any.
fn others<'a>(
    without_probe: &'a mut Option<Bound>,
    receives_elsewhere: &'a mut Option<Bound>,
) -> impl Iterator<Item = &'a mut Bound> {
    without_probe.iter_mut().chain(receives_elsewhere)
}

/// An ideal queue with the distribution of its sojourns.
#[derive(Clone)]
struct Bound {
    queue: IdealQueue,
    sojourns: Histogram,
}

impl Bound {
    fn new(service_time: Nanos, workers: NonZeroU32) -> Self {
        Self {
            queue: IdealQueue::new(service_time, workers),
            sojourns: Histogram::default(),
        }
    }

    fn with_work_after_response(mut self, length: Nanos) -> Self {
        self.queue = self.queue.with_work_after_response(length);
        self
    }

    /// The next arrival; `counts` if it belongs to the measurement. Its sojourn.
    fn add(&mut self, t1: Nanos, counts: bool) -> Nanos {
        let sojourn = self.queue.sojourn(t1);
        if counts {
            self.sojourns.record(sojourn);
        }
        sojourn
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
            early: false,
            queued: false,
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

    /// A server that answers many at once keeps up with a warm-up that comes faster than one request each t.
    #[test]
    fn what_is_answered_of_the_warm_up_is_no_work_of_the_ideal_server() {
        let warm_up = (0..100).map(|i| (1_000 + i, 1_005 + i));
        let with = |measured| {
            let all: Vec<(u64, u64)> = warm_up.clone().chain([measured]).collect();
            matched(&all, &[])
        };
        assert_eq!(ideal(&with((1_202, 1_240)), 1_200), [10]);
        // five of them are still in the server
        assert_eq!(ideal(&with((1_102, 1_180)), 1_100), [60]);
    }

    /// Where T2 is recorded, a request without one found no place at the socket.
    #[test]
    fn a_request_that_was_dropped_delays_nobody() {
        let mut found = matched(&[(1_000, 1_030), (1_005, 1_050)], &[1_001, 1_002]);
        found.unmatched[1].queued = true;
        assert_eq!(ideal(&found, 0), [10, 35]);
        let t2 = [Some(at(1_001)), None, None, None];
        let first = Request::from(Stamps::new(at(1_000), t2, at(1_030)));
        found.requests = [first]
            .into_iter()
            .chain(found.requests.iter().skip(1))
            .collect();
        let requests = arrivals(0).take(&found, Monotonic::MAX);
        assert_eq!(requests.ideal, [Nanos::new(10), Nanos::new(25)]);
        assert_eq!(
            requests.ideal_of_unanswered,
            [Nanos::new(19), Nanos::new(18)]
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

    /// An interval of t.
    fn of_t() -> Interval<Nanos> {
        let [lo, hi] = [8, 11].map(Nanos::new);
        Interval { lo, hi }
    }

    /// Of the 10 ns of each, 4 are spent after the response: the queue has all of them, the sojourns do not.
    #[test]
    fn work_after_the_response_is_not_in_the_sojourn() {
        let ns = Nanos::new;
        let matched = matched(&[(1_000, 1_030), (1_005, 1_050), (1_012, 1_070)], &[]);
        let arrivals = arrivals(0).with_work_after_response(ns(4));
        let mut arrivals = arrivals.with_interval(of_t(), NonZeroU32::MIN);
        let found = arrivals.take(&matched, Monotonic::MAX);
        assert_eq!(found.ideal, [ns(6), ns(11), ns(14)]);
        let greatest = |bound: &Bound| bound.sojourns.greatest();
        let [lo, hi] = arrivals.interval.as_ref().unwrap();
        assert_eq!((greatest(lo), greatest(hi)), (Some(ns(8)), Some(ns(17))));
    }

    #[test]
    fn a_server_whose_requests_are_received_elsewhere_has_a_shorter_t() {
        let matched = matched(&[(1_000, 1_030), (1_005, 1_050), (1_012, 1_070)], &[]);
        assert!(arrivals(0).receiver_elsewhere(&[0.5]).is_empty());
        let mut elsewhere = arrivals(0).with_receiver_elsewhere(Nanos::new(6), NonZeroU32::MIN);
        elsewhere.take(&matched, Monotonic::MAX);
        let known = elsewhere.receiver_elsewhere(&[0.1, 0.9]);
        assert_eq!(known, [(0.1, Nanos::new(6)), (0.9, Nanos::new(7))]);
    }

    /// Every ideal sojourn is t here, so each quantile is known as well as t.
    #[test]
    fn the_interval_of_t_is_in_every_quantile() {
        let requests: Vec<(u64, u64)> = (0..5_000).map(|i| (1_000 * i, 1_000 * i + 50)).collect();
        let ns = Nanos::new;
        let mut arrivals = arrivals(0)
            .with_interval(of_t(), NonZeroU32::MIN)
            .with_unprobed(ns(9), NonZeroU32::MIN);
        let found = arrivals.take(&matched(&requests, &[]), Monotonic::MAX);
        let mut ideal = Distribution::from_sorted(&found.ideal);
        let bounds = arrivals.widen(&mut ideal);
        assert_eq!((bounds[0].lo_ns, bounds[0].hi_ns), (ns(8), ns(11)));
        let at = ideal.at(0.5).unwrap();
        assert_eq!(
            (at.lo, at.value, at.hi),
            (Some(ns(8)), Some(ns(10)), Some(ns(11)))
        );
        let without_probe = arrivals.without_probe().unwrap();
        assert_eq!(without_probe.greatest(), Some(ns(9)));
    }
}
