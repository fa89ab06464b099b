//! The second ideal: the same arrivals in the same queue, but each request is served for as long as its own work
//! took, undisturbed. Where requests ask for very different work, one t for all of them says little.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use taillab_model::summary::OwnWork;
use taillab_model::{Histogram, Nanos};

use crate::ledger::Entry;
use crate::statistics::counted_curve;

/// How long a request may stay in the server for its place in the order of arrival to be certain: accounts come
/// in the order in which requests leave.
const LONGEST_NS: u64 = 1_000_000_000;

/// With fewer requests, it is not known how much they differ.
const LEAST_REQUESTS: u64 = 100;

/// At least this share of the requests must have been seen at work.
const MOST: f64 = 0.99;

/// What that queue gives.
pub(crate) struct OwnWorkIdeal {
    pub(crate) own_work: OwnWork,
    /// Points (x, P(sojourn ≥ x)).
    pub(crate) ccdf: Vec<(Nanos, f64)>,
}

/// The queue in which each request takes as long as its own work.
pub(crate) struct OwnWorkQueue {
    /// When each worker is free.
    free_ns: BinaryHeap<Reverse<u64>>,
    /// The part of t that is receiving, and the part that is after the response has left.
    receive_ns: u64,
    after_response_ns: u64,
    /// T1 and own work of those that are not in the queue yet, the earliest first.
    waiting: BinaryHeap<Reverse<(u64, u64)>>,
    /// When the last one in the queue arrived there.
    last_ns: u64,
    sojourns: Histogram,
    spread: Spread,
    /// Requests whose work was not seen.
    unseen: u64,
}

impl OwnWorkQueue {
    /// An empty queue, for c workers.
    pub(crate) fn new(workers: NonZeroU32, receive_ns: u64, after_response: Nanos) -> Self {
        Self {
            free_ns: (0..workers.get()).map(|_| Reverse(0)).collect(),
            receive_ns,
            after_response_ns: after_response.get(),
            waiting: BinaryHeap::new(),
            last_ns: 0,
            sojourns: Histogram::default(),
            spread: Spread::default(),
            unseen: 0,
        }
    }

    /// The next request that left.
    pub(crate) fn add(&mut self, entry: &Entry<'_>) {
        if !entry.asked || entry.own_ns == 0 {
            self.unseen += 1;
            return;
        }
        let t6_ns = entry.stamps.t6.nanos_since_boot();
        self.add_one(entry.stamps.t1.nanos_since_boot(), entry.own_ns, t6_ns);
    }

    fn add_one(&mut self, t1_ns: u64, own_ns: u64, now_ns: u64) {
        self.spread.add(own_ns as f64);
        self.waiting.push(Reverse((t1_ns, own_ns)));
        self.serve_before(now_ns.saturating_sub(LONGEST_NS));
    }

    /// Sends all that came before `end_ns` through the queue.
    fn serve_before(&mut self, end_ns: u64) {
        while let Some(&Reverse((t1_ns, own_ns))) = self.waiting.peek()
            && t1_ns < end_ns
        {
            self.waiting.pop();
            self.last_ns = self.last_ns.max(t1_ns);
            let Some(Reverse(free_ns)) = self.free_ns.pop() else {
                return;
            };
            let done_ns = free_ns.max(self.last_ns) + own_ns + self.receive_ns;
            self.free_ns.push(Reverse(done_ns));
            let sojourn_ns = (done_ns - self.last_ns).saturating_sub(self.after_response_ns);
            self.sojourns.record(Nanos::new(sojourn_ns));
        }
    }

    /// The ideal; `None` if the work of too many requests was not seen.
    pub(crate) fn finish(mut self) -> Option<OwnWorkIdeal> {
        self.serve_before(u64::MAX);
        let seen = self.sojourns.count();
        let is_known = seen >= LEAST_REQUESTS && seen as f64 >= MOST * (seen + self.unseen) as f64;
        is_known.then(|| {
            let mut sojourn = self.sojourns.distribution(|_| 1.0);
            // they are not independent
            for at in &mut sojourn.quantiles {
                (at.lo, at.hi) = (None, None);
            }
            OwnWorkIdeal {
                own_work: OwnWork::new(sojourn, self.spread.cv()),
                ccdf: counted_curve(&self.sojourns, 0),
            }
        })
    }
}

/// Mean and variance of numbers that come one at a time (Welford).
#[derive(Default)]
struct Spread {
    n: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, x: f64) {
        self.n += 1.0;
        let off = x - self.mean;
        self.mean += off / self.n;
        self.squares += off * (x - self.mean);
    }

    /// The coefficient of variation.
    fn cv(&self) -> f64 {
        match self.mean > 0.0 {
            true => (self.squares / self.n).sqrt() / self.mean,
            false => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sojourns of requests (T1, own work) with this many workers, of which each also receives for 2 ns, and
    /// of whose work 1 ns is after the response. They leave in the order given.
    fn sojourns(workers: u32, requests: &[(u64, u64)]) -> (u64, u64) {
        let workers = NonZeroU32::new(workers).unwrap();
        let mut queue = OwnWorkQueue::new(workers, 2, Nanos::new(1));
        for &(t1_ns, own_ns) in requests {
            queue.add_one(t1_ns, own_ns, t1_ns);
        }
        queue.serve_before(u64::MAX);
        let (least, most) = (queue.sojourns.least(), queue.sojourns.greatest());
        (least.unwrap().get(), most.unwrap().get())
    }

    #[test]
    fn each_request_takes_its_own_time_in_the_order_of_arrival() {
        // done at 132 and, since it came later, at 144; the first one left last
        assert_eq!(sojourns(1, &[(105, 10), (100, 30)]), (31, 38));
        assert_eq!(sojourns(2, &[(105, 10), (100, 30)]), (11, 31));
    }

    #[test]
    fn what_differs_by_more_than_half_of_the_mean_is_the_base() {
        let of = |long_ns: u64| {
            let mut queue = OwnWorkQueue::new(NonZeroU32::MIN, 0, Nanos::ZERO);
            for i in 0..1_000 {
                let own_ns = if i % 10 == 0 { long_ns } else { 1_000 };
                queue.add_one(i * 100_000, own_ns, i * 100_000);
            }
            queue.finish().unwrap()
        };
        let (alike, mixed) = (of(1_200), of(50_000));
        let (alike, mixed, curve) = (alike.own_work, mixed.own_work, mixed.ccdf);
        assert!(alike.cv < 0.1 && !alike.is_base, "{alike:?}");
        assert!((mixed.cv - 2.49).abs() < 0.01 && mixed.is_base, "{mixed:?}");
        assert_eq!(mixed.sojourn.quantile(0.5), Some(Nanos::new(1_000)));
        let p99 = mixed.sojourn.quantile(0.99).unwrap().get();
        assert!((49_000..51_000).contains(&p99), "{p99}");
        // a tenth of the requests take that long
        let share = curve.iter().rev().find(|(_, share)| *share >= 0.1).unwrap();
        assert!((49_000..51_000).contains(&share.0.get()), "{share:?}");
    }

    #[test]
    fn work_that_was_not_seen_gives_no_ideal() {
        let mut queue = OwnWorkQueue::new(NonZeroU32::MIN, 0, Nanos::ZERO);
        for i in 0..1_000 {
            queue.add_one(i * 1_000, 100, i * 1_000);
        }
        queue.unseen = 20;
        assert!(queue.finish().is_none());
    }
}
