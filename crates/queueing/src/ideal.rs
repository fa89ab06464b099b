//! The ideal server: the measured arrivals through a FIFO queue of c workers, each
//! request taking the same time t (Tales of the Tail, section 3.2).

use std::num::NonZeroU32;

use taillab_model::Nanos;

/// The ideal sojourn of each request of a recorded arrival series.
///
/// D_i = max(A_i, D_{i−c}) + t: with equal service times the request before the last
/// c departs first, so FIFO over c workers is a round robin over them. `arrivals`
/// are offsets from any common origin, in order; the result is in the same order.
///
/// # Panics
/// When `arrivals` is not sorted (debug builds only).
pub fn sojourns(arrivals: &[Nanos], service_time: Nanos, workers: NonZeroU32) -> Vec<Nanos> {
    debug_assert!(arrivals.is_sorted(), "arrivals must be in order of time");
    let mut queue = IdealQueue::new(service_time, workers);
    arrivals.iter().map(|&at| queue.sojourn(at)).collect()
}

/// The same queue, for arrivals that come one at a time.
#[derive(Clone, Debug)]
pub struct IdealQueue {
    service_time: Nanos,
    free_at: Vec<Nanos>,
    next: usize,
}

impl IdealQueue {
    /// An empty one.
    pub fn new(service_time: Nanos, workers: NonZeroU32) -> Self {
        Self {
            service_time,
            free_at: vec![Nanos::ZERO; workers.get() as usize],
            next: 0,
        }
    }

    /// The sojourn of the next arrival, an offset from the same origin as all others.
    #[inline]
    pub fn sojourn(&mut self, arrival: Nanos) -> Nanos {
        let departure = arrival.max(self.free_at[self.next]) + self.service_time;
        self.free_at[self.next] = departure;
        self.next += 1;
        if self.next == self.free_at.len() {
            self.next = 0;
        }
        departure - arrival
    }
}
