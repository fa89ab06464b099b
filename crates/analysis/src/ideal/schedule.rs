//! The ideal queue with each request at the time when it was due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use taillab_model::{Distribution, Monotonic, Nanos};

use super::Bound;

/// How long a request may come after it was due for its place in the order to be certain. Each thread of a
/// client sends in the order of the schedule, so this matters only where one of many is held up.
const LATEST: Nanos = Nanos::from_secs(1);

/// Requests on their way into the ideal queue. They come in order of T1; the queue needs them in the order in
/// which they were due.
#[derive(Clone)]
pub(super) struct Schedule {
    ideal: Bound,
    /// When each was due, and whether it belongs to the measurement; the earliest first.
    waiting: BinaryHeap<Reverse<(Nanos, bool)>>,
    /// When the last one in the queue arrived there.
    last: Nanos,
    /// From when on the queue has no more work than so many requests are, until one comes that was due then.
    limit: Option<(Nanos, u64)>,
}

impl Schedule {
    /// The schedule of a queue that is still empty.
    pub(super) fn new(ideal: Bound) -> Self {
        Self {
            ideal,
            waiting: BinaryHeap::new(),
            last: Nanos::ZERO,
            limit: None,
        }
    }

    /// From `at` on the queue has no more work than so many requests are.
    pub(super) const fn limit_to(&mut self, at: Nanos, requests: u64) {
        self.limit = Some((at, requests));
    }

    pub(super) fn with_work_after_response(mut self, length: Nanos) -> Self {
        self.ideal = self.ideal.with_work_after_response(length);
        self
    }

    /// The next request in order of T1; `counts` if it belongs to the measurement.
    pub(super) fn add(&mut self, due: Monotonic, t1: Monotonic, counts: bool) {
        let due = Nanos::new(due.nanos_since_boot());
        self.waiting.push(Reverse((due, counts)));
        let t1 = Nanos::new(t1.nanos_since_boot());
        self.send_before(t1.saturating_sub(LATEST));
    }

    /// Sends all that were due before `end` through the queue.
    fn send_before(&mut self, end: Nanos) {
        while let Some(&Reverse((due, counts))) = self.waiting.peek()
            && due < end
        {
            self.waiting.pop();
            self.last = self.last.max(due);
            if let Some((at, requests)) = self.limit.take_if(|(at, _)| *at <= self.last) {
                self.ideal.queue.limit_to(at, requests);
            }
            self.ideal.add(self.last, counts);
        }
    }

    /// The sojourns of the measurement, without intervals; `None` where there are none.
    pub(super) fn distribution(&self) -> Option<Distribution> {
        let mut all = self.clone();
        all.send_before(Nanos::MAX);
        let sojourns = all.ideal.sojourns;
        (sojourns.count() > 0).then(|| {
            let mut found = sojourns.distribution(|_| 1.0);
            // they are not independent
            for at in &mut found.quantiles {
                (at.lo, at.hi) = (None, None);
            }
            found
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use taillab_model::{ClientTimes, Request, RequestKey, Stamps};

    use super::*;
    use crate::ideal::IdealArrivals;
    use crate::matched::{ClientJoin, Matched};

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns)
    }

    /// The ideal sojourns of requests (due, T1) that take 10 ns each: the mean.
    fn mean(requests: &[(u64, u64)]) -> f64 {
        let mut schedule = Schedule::new(Bound::new(Nanos::new(10), NonZeroU32::MIN));
        for &(due, t1) in requests {
            schedule.add(at(due), at(t1), true);
        }
        schedule.distribution().unwrap().mean.unwrap()
    }

    #[test]
    fn requests_queue_as_they_were_due() {
        // due together, but sent 20 ns apart
        assert_eq!(mean(&[(100, 100), (100, 120), (100, 140)]), 20.0);
        // due in another order than sent
        assert_eq!(
            mean(&[(300, 310), (100, 320), (105, 330)]),
            (10.0 + 10.0 + 15.0) / 3.0
        );
    }

    #[test]
    fn order_is_kept_for_a_second() {
        let s = 1_000_000_000;
        let far = [(s, s), (s - 5, s + 3), (3 * s, 3 * s)];
        assert_eq!(mean(&far), (10.0 + 15.0 + 10.0) / 3.0);
        // the last one comes too late for its place: it arrives right behind the one at 2 s
        let too_far = [(2 * s, 2 * s), (9 * s, 9 * s), (6, 9 * s + 1)];
        assert_eq!(mean(&too_far), (10.0 + 20.0 + 10.0) / 3.0);
    }

    #[test]
    fn the_warm_up_keeps_the_queue_busy_and_does_not_count() {
        let mut schedule = Schedule::new(Bound::new(Nanos::new(10), NonZeroU32::MIN));
        assert_eq!(schedule.distribution(), None);
        schedule.add(at(100), at(101), false);
        assert_eq!(schedule.distribution(), None);
        schedule.add(at(100), at(120), true);
        let found = schedule.distribution().unwrap();
        assert_eq!((found.count, found.max), (1, Some(Nanos::new(20))));
    }

    #[test]
    fn a_request_is_due_when_its_client_says_so() {
        let key = RequestKey::default();
        let request = |t1| Request::from(Stamps::new(at(t1), [None; 4], at(t1 + 30)));
        let mut matched = Matched {
            requests: [1_000, 1_020].map(request).into_iter().collect(),
            keys: vec![key; 2],
            ..Matched::default()
        };
        let of = |matched: &Matched| {
            let mut arrivals = IdealArrivals::new(Nanos::new(10), NonZeroU32::MIN, at(0));
            arrivals.take(matched, Monotonic::MAX);
            arrivals.of_schedule().and_then(|found| found.max)
        };
        assert_eq!(of(&matched), None);
        for (place, sent) in [1_000, 1_020].into_iter().enumerate() {
            let times = ClientTimes {
                intended: at(990),
                sent: at(sent),
                received: None,
            };
            matched.requests.set_client(place, Some(times), None);
        }
        matched.client = Some(ClientJoin::default());
        assert_eq!(of(&matched), Some(Nanos::new(20)));
    }
}
