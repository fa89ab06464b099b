//! Processor sharing by virtual time: the service that each request present has had
//! since the queue was last empty.
//!
//! With n requests on c workers virtual time runs at min(1, c/n) of real time, and
//! a request leaves when it has advanced by its service time since it came.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::Finished;
use super::per_lane::LaneQueue;

#[derive(Clone, Copy)]
pub(super) struct Sharer {
    leaves_at_virtual: f64,
    arrival: f64,
    service: f64,
}

/// How fast time passes for each number of requests present.
struct Pace {
    workers: f64,
    /// (virtual over real, real over virtual) time.
    of: Vec<(f64, f64)>,
}

impl Pace {
    fn new(workers: usize) -> Self {
        let mut pace = Self {
            workers: workers as f64,
            of: Vec::new(),
        };
        pace.extend(64);
        pace
    }

    #[cold]
    fn extend(&mut self, n: usize) {
        for present in self.of.len()..=2 * n {
            let slowness = (present as f64 / self.workers).max(1.0);
            self.of.push((1.0 / slowness, slowness));
        }
    }

    #[inline(always)]
    fn of(&mut self, n: usize) -> (f64, f64) {
        if n >= self.of.len() {
            self.extend(n);
        }
        self.of[n]
    }
}

/// Requests present, the next one to leave first.
pub(super) trait Present: Send {
    fn next(&self) -> Option<Sharer>;
    fn remove_next(&mut self);
    fn insert(&mut self, sharer: Sharer);
    fn len(&self) -> usize;
    fn rebase(&mut self, by: f64);
}

pub(super) struct Sharing<P> {
    present: P,
    virtual_now: f64,
    now: f64,
    /// When the next one leaves if nobody comes; never, if nobody is there.
    next_leaves: f64,
    /// Virtual over real time.
    speed: f64,
    pace: Pace,
}

impl Sharing<InTurn> {
    /// For equal service times.
    pub(super) fn in_turn(workers: usize) -> Self {
        Self::with(InTurn::default(), workers)
    }
}

impl Sharing<AnyOrder> {
    pub(super) fn in_any_order(workers: usize) -> Self {
        Self::with(AnyOrder::default(), workers)
    }
}

impl<P: Present> Sharing<P> {
    fn with(present: P, workers: usize) -> Self {
        Self {
            present,
            virtual_now: 0.0,
            now: 0.0,
            next_leaves: f64::INFINITY,
            speed: 0.0,
            pace: Pace::new(workers),
        }
    }

    /// Looks ahead to the next departure: when an event comes, this is known already.
    #[inline(always)]
    fn look_ahead(&mut self) {
        match self.present.next() {
            Some(next) => {
                let (speed, slowness) = self.pace.of(self.present.len());
                let left = next.leaves_at_virtual - self.virtual_now;
                self.next_leaves = self.now + left * slowness;
                self.speed = speed;
            }
            None => {
                self.next_leaves = f64::INFINITY;
                // virtual time starts again: it stays small and precise
                self.virtual_now = 0.0;
                self.speed = 0.0;
            }
        }
    }

    #[inline(always)]
    fn run_until(&mut self, until: f64, out: &mut Finished) {
        while self.next_leaves <= until {
            let Some(next) = self.present.next() else {
                return;
            };
            self.present.remove_next();
            self.now = self.next_leaves;
            self.virtual_now = next.leaves_at_virtual;
            // rounding may take the last bits of the time alone
            out.push(
                (self.now - next.arrival - next.service).max(0.0),
                next.service,
            );
            self.look_ahead();
        }
    }
}

impl<P: Present> LaneQueue for Sharing<P> {
    const NAME: &'static str = "processor sharing by virtual time";

    #[inline(always)]
    fn arrive(&mut self, at: f64, service: f64, _choice: u64, out: &mut Finished) {
        self.run_until(at, out);
        self.virtual_now += (at - self.now) * self.speed;
        self.now = at;
        self.present.insert(Sharer {
            leaves_at_virtual: self.virtual_now + service,
            arrival: at,
            service,
        });
        self.look_ahead();
    }

    fn drain(&mut self, out: &mut Finished) {
        self.run_until(f64::MAX, out);
    }

    fn rebase(&mut self, by: f64) {
        self.now -= by;
        self.next_leaves -= by;
        self.present.rebase(by);
    }
}

/// Equal service times: requests leave in the order of arrival.
#[derive(Default)]
pub(super) struct InTurn(VecDeque<Sharer>);

impl Present for InTurn {
    #[inline(always)]
    fn next(&self) -> Option<Sharer> {
        self.0.front().copied()
    }

    #[inline(always)]
    fn remove_next(&mut self) {
        self.0.pop_front();
    }

    #[inline(always)]
    fn insert(&mut self, sharer: Sharer) {
        self.0.push_back(sharer);
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }

    fn rebase(&mut self, by: f64) {
        for sharer in &mut self.0 {
            sharer.arrival -= by;
        }
    }
}

/// Requests present by time of departure: the next few in a sorted list, which is fastest
/// while it is short, the others in a heap.
#[derive(Default)]
pub(super) struct AnyOrder {
    /// The next to leave stands last.
    near: Vec<Sharer>,
    far: BinaryHeap<Sharer>,
}

/// The longest sorted list.
const NEAR: usize = 48;

impl AnyOrder {
    #[cold]
    fn refill(&mut self) {
        while self.near.len() < NEAR / 2
            && let Some(sharer) = self.far.pop()
        {
            self.near.push(sharer);
        }
        self.near.reverse();
    }
}

impl Present for AnyOrder {
    #[inline(always)]
    fn next(&self) -> Option<Sharer> {
        self.near.last().copied()
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.near.len() + self.far.len()
    }

    #[inline(always)]
    fn remove_next(&mut self) {
        self.near.pop();
        if self.near.is_empty() && !self.far.is_empty() {
            self.refill();
        }
    }

    #[inline(always)]
    fn insert(&mut self, sharer: Sharer) {
        // later than all in the list, where there is a heap: it may be later than those, too
        let later = |other: &Sharer| sharer.leaves_at_virtual >= other.leaves_at_virtual;
        if !self.far.is_empty() && self.near.first().is_some_and(later) {
            self.far.push(sharer);
            return;
        }
        self.near.push(sharer);
        let mut place = self.near.len() - 1;
        while place > 0 && later(&self.near[place - 1]) {
            self.near[place] = self.near[place - 1];
            place -= 1;
        }
        self.near[place] = sharer;
        if self.near.len() > NEAR {
            self.far.push(self.near.remove(0));
        }
    }

    fn rebase(&mut self, by: f64) {
        let mut far = std::mem::take(&mut self.far).into_vec();
        for sharer in self.near.iter_mut().chain(&mut far) {
            sharer.arrival -= by;
        }
        self.far = far.into();
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
