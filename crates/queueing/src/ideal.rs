//! The ideal server: a FIFO queue with c workers and the measured arrivals, in which every request takes
//! the same time t (*Tales of the Tail*, section 3.2).

use std::num::NonZeroU32;

use taillab_model::Nanos;

/// The ideal sojourn of each request, in the same order. `arrivals` are offsets from any common origin.
///
/// D_i = max(A_i, D_{i−c}) + t: with equal service times, requests depart in the order of arrival, so FIFO
/// over c workers is a round robin over them.
///
/// # Panics
/// If `arrivals` is not sorted (debug builds only).
pub fn sojourns(arrivals: &[Nanos], service_time: Nanos, workers: NonZeroU32) -> Vec<Nanos> {
    debug_assert!(arrivals.is_sorted(), "arrivals must be in order of time");
    let mut queue = IdealQueue::new(service_time, workers);
    arrivals.iter().map(|&at| queue.sojourn(at)).collect()
}

/// The ideal queue, for arrivals that come one at a time.
#[derive(Clone, Debug)]
pub struct IdealQueue {
    service_time: Nanos,
    after_response: Nanos,
    free_at: Vec<Nanos>,
    next: usize,
}

impl IdealQueue {
    /// An empty queue.
    pub fn new(service_time: Nanos, workers: NonZeroU32) -> Self {
        Self {
            service_time,
            after_response: Nanos::ZERO,
            free_at: vec![Nanos::ZERO; workers.get() as usize],
            next: 0,
        }
    }

    /// Each request keeps its worker for this part of t, or for all of it, after its response has left. The next
    /// request waits for it, the request itself does not.
    #[must_use]
    pub fn with_work_after_response(mut self, length: Nanos) -> Self {
        self.after_response = length.min(self.service_time);
        self
    }

    /// The sojourn of the next request, until its response leaves; all arrivals are offsets from the same origin.
    #[inline]
    pub fn sojourn(&mut self, arrival: Nanos) -> Nanos {
        let departure = self.departure(arrival);
        self.free_at[self.next] = departure;
        self.next += 1;
        if self.next == self.free_at.len() {
            self.next = 0;
        }
        departure - arrival - self.after_response
    }

    /// The sojourn that a request would have if it came now, without letting it in.
    #[inline]
    pub fn sojourn_outside(&self, arrival: Nanos) -> Nanos {
        self.departure(arrival) - arrival - self.after_response
    }

    /// From `at` on it has no more work than so many requests are: those that are left of another server, which has done
    /// the others already.
    pub fn limit_to(&mut self, at: Nanos, requests: u64) {
        let rounds = requests.div_ceil(self.free_at.len() as u64);
        self.limit_until(at + self.service_time * rounds);
    }

    /// No worker is busy for longer than until then with what has come.
    pub fn limit_until(&mut self, at: Nanos) {
        for free_at in &mut self.free_at {
            *free_at = (*free_at).min(at);
        }
    }

    fn departure(&self, arrival: Nanos) -> Nanos {
        arrival.max(self.free_at[self.next]) + self.service_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ideal sojourns of these arrivals if each request takes 10 ns.
    fn of(arrivals: &[u64], workers: u32) -> Vec<u64> {
        let arrivals: Vec<Nanos> = arrivals.iter().copied().map(Nanos::new).collect();
        let workers = NonZeroU32::new(workers).unwrap();
        let found = sojourns(&arrivals, Nanos::new(10), workers);
        found.into_iter().map(Nanos::get).collect()
    }

    #[test]
    fn a_request_begins_when_it_comes_or_when_a_worker_is_free() {
        // a request that comes when another leaves does not wait
        assert_eq!(of(&[7, 8, 27, 37], 1), [10, 19, 10, 10]);
        assert_eq!(of(&[0, 0, 0, 5, 20, 100], 2), [10, 10, 20, 15, 10, 10]);
        assert_eq!(of(&[0, 0, 0, 1], 3), [10, 10, 10, 19]);
        assert!(of(&[], 2).is_empty());
    }

    /// 4 of the 10 ns come after the response: only the next request waits for them.
    #[test]
    fn work_after_the_response_delays_the_next_request_alone() {
        let queue = IdealQueue::new(Nanos::new(10), NonZeroU32::MIN);
        let mut queue = queue.with_work_after_response(Nanos::new(4));
        let sojourns = [7, 8, 27, 37].map(|at| queue.sojourn(Nanos::new(at)).get());
        assert_eq!(sojourns, [6, 15, 6, 6]);
    }

    #[test]
    fn what_another_server_has_done_is_no_work_any_more() {
        let queue = || {
            let mut queue = IdealQueue::new(Nanos::new(10), NonZeroU32::new(2).unwrap());
            for _ in 0..8 {
                queue.sojourn(Nanos::new(100));
            }
            queue
        };
        let next = |mut queue: IdealQueue| queue.sojourn(Nanos::new(104)).get();
        assert_eq!(next(queue()), 46);
        let limited = |requests| {
            let mut queue = queue();
            queue.limit_to(Nanos::new(104), requests);
            next(queue)
        };
        // of five, one worker has three
        assert_eq!([0, 2, 5, 100].map(limited), [10, 20, 40, 46]);
    }

    #[test]
    fn a_request_that_is_not_let_in_delays_nobody() {
        let mut queue = IdealQueue::new(Nanos::new(10), NonZeroU32::MIN);
        assert_eq!(queue.sojourn(Nanos::new(5)).get(), 10);
        assert_eq!(queue.sojourn_outside(Nanos::new(6)).get(), 19);
        assert_eq!(queue.sojourn(Nanos::new(7)).get(), 18);
    }
}
