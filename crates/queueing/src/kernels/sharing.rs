//! Processor sharing by virtual time: the service that each request present has had
//! since the queue was last empty.
//!
//! With n requests on c workers virtual time runs at min(1, c/n) of real time, and
//! a request leaves when it has advanced by its service time since it came.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::Finished;
use super::per_lane::LaneQueue;

pub(super) struct Sharing<Q> {
    present: Q,
    virtual_now: f64,
    now: f64,
    /// real over virtual time for each number of requests, as far as it was needed
    slowness: Vec<f64>,
    workers: f64,
}

#[derive(Clone, Copy)]
pub(super) struct Sharer {
    leaves_at_virtual: f64,
    arrival: f64,
    service: f64,
}

/// Requests present, the next one to leave first.
pub(super) trait Present: Send {
    fn next(&self) -> Option<Sharer>;
    fn remove_next(&mut self);
    fn insert(&mut self, sharer: Sharer);
    fn len(&self) -> usize;
    fn rebase(&mut self, by: f64);
}

/// Equal service times: requests leave in the order of arrival.
#[derive(Default)]
pub(super) struct InOrder(VecDeque<Sharer>);

/// Other service times.
#[derive(Default)]
pub(super) struct AnyOrder(BinaryHeap<Sharer>);

impl Sharing<InOrder> {
    pub(super) fn in_order_of_arrival(workers: usize) -> Self {
        Self::with(InOrder::default(), workers)
    }
}

impl Sharing<AnyOrder> {
    pub(super) fn in_any_order(workers: usize) -> Self {
        Self::with(AnyOrder::default(), workers)
    }
}

impl<Q: Present> Sharing<Q> {
    fn with(present: Q, workers: usize) -> Self {
        Self {
            present,
            virtual_now: 0.0,
            now: 0.0,
            slowness: Vec::new(),
            workers: workers as f64,
        }
    }

    #[inline(always)]
    fn slowness(&mut self, n: usize) -> f64 {
        if n >= self.slowness.len() {
            let workers = self.workers;
            let from = self.slowness.len();
            self.slowness
                .extend((from..=n.max(63)).map(|n| (n as f64 / workers).max(1.0)));
        }
        self.slowness[n]
    }

    #[inline(always)]
    fn run_until(&mut self, until: f64, out: &mut Finished) {
        while let Some(next) = self.present.next() {
            let n = self.present.len();
            let slowness = self.slowness(n);
            let leaves = self.now + (next.leaves_at_virtual - self.virtual_now) * slowness;
            if leaves > until {
                self.virtual_now += (until - self.now) / slowness;
                self.now = until;
                return;
            }
            self.present.remove_next();
            self.now = leaves;
            self.virtual_now = next.leaves_at_virtual;
            // rounding may take the last bits of the time alone
            out.push((leaves - next.arrival - next.service).max(0.0), next.service);
        }
        // nobody there: virtual time starts again, so that it stays small and precise
        self.virtual_now = 0.0;
        self.now = until;
    }
}

impl<Q: Present> LaneQueue for Sharing<Q> {
    const NAME: &'static str = "processor sharing by virtual time";

    #[inline(always)]
    fn arrive(&mut self, at: f64, service: f64, _choice: u64, out: &mut Finished) {
        self.run_until(at, out);
        self.present.insert(Sharer {
            leaves_at_virtual: self.virtual_now + service,
            arrival: at,
            service,
        });
    }

    fn drain(&mut self, out: &mut Finished) {
        self.run_until(f64::INFINITY, out);
    }

    fn rebase(&mut self, by: f64) {
        self.now -= by;
        self.present.rebase(by);
    }
}

impl Present for InOrder {
    fn next(&self) -> Option<Sharer> {
        self.0.front().copied()
    }

    fn remove_next(&mut self) {
        self.0.pop_front();
    }

    fn insert(&mut self, sharer: Sharer) {
        self.0.push_back(sharer);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn rebase(&mut self, by: f64) {
        for sharer in &mut self.0 {
            sharer.arrival -= by;
        }
    }
}

impl Present for AnyOrder {
    fn next(&self) -> Option<Sharer> {
        self.0.peek().copied()
    }

    fn remove_next(&mut self) {
        self.0.pop();
    }

    fn insert(&mut self, sharer: Sharer) {
        self.0.push(sharer);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn rebase(&mut self, by: f64) {
        let mut all = std::mem::take(&mut self.0).into_vec();
        for sharer in &mut all {
            sharer.arrival -= by;
        }
        self.0 = all.into();
    }
}

// The heap's top is the greatest: the first to leave must compare as such.
impl Ord for Sharer {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .leaves_at_virtual
            .total_cmp(&self.leaves_at_virtual)
            .then(other.arrival.total_cmp(&self.arrival))
    }
}

impl PartialOrd for Sharer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Sharer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Sharer {}
