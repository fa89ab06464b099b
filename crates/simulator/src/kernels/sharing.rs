//! Processor sharing by virtual time: the service that a request has received if it has been there since the
//! queue was last empty.
//!
//! With n requests on c workers, virtual time runs at min(1, c/n) of real time. A request leaves when virtual
//! time has advanced by its service time since its arrival.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::kernel::Finished;
use super::per_lane::LaneQueue;

#[derive(Clone, Copy)]
pub(super) struct Sharer {
    leaves_at_virtual: f64,
    arrival: f64,
    service: f64,
}

/// The speed of virtual time for each number of requests in the system.
struct Pace {
    workers: f64,
    /// (virtual ÷ real, real ÷ virtual) time.
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

/// The requests in the system, of which the next one to leave can be found.
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
    /// When the next request leaves if none arrives; infinity while the system is empty.
    next_leaves: f64,
    /// Virtual ÷ real time.
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

    /// Computes the next departure in advance, so that it is known when the next event comes.
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
                // virtual time starts again, so that it stays small and precise
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
            // rounding could make the last bits negative
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

/// Other service times: the requests that leave first are kept unsorted, the later ones in a heap.
///
/// It cannot be predicted how far a new request would move in a sorted list, but the minimum of a few numbers
/// is found without a branch.
pub(super) struct AnyOrder {
    /// When each leaves, with its place in the last bits. The bits of positive doubles compare like the
    /// numbers. Places from `n` on have the greatest key.
    keys: [u64; NEAR],
    near: [Sharer; NEAR],
    n: usize,
    /// The place of the next one to leave.
    first: usize,
    /// Requests that leave later than all of `near`.
    far: BinaryHeap<Sharer>,
    /// When the first of `far` leaves.
    far_from: f64,
}

/// The maximum number of requests that are kept unsorted.
const NEAR: usize = 64;
const PLACE: u64 = NEAR as u64 - 1;

impl Default for AnyOrder {
    fn default() -> Self {
        let nobody = Sharer {
            leaves_at_virtual: f64::INFINITY,
            arrival: 0.0,
            service: 0.0,
        };
        Self {
            keys: [u64::MAX; NEAR],
            near: [nobody; NEAR],
            n: 0,
            first: 0,
            far: BinaryHeap::new(),
            far_from: f64::INFINITY,
        }
    }
}

impl AnyOrder {
    #[inline(always)]
    fn put(&mut self, sharer: Sharer) {
        let key = sharer.leaves_at_virtual.to_bits() & !PLACE | self.n as u64;
        let is_first = self.n == 0 || key < self.keys[self.first & PLACE as usize];
        self.first = if is_first { self.n } else { self.first };
        self.keys[self.n] = key;
        self.near[self.n] = sharer;
        self.n += 1;
    }

    /// Finds the least key, eight at a time, so that the time hardly depends on their number.
    #[inline(always)]
    fn find_first(&mut self) {
        let mut least = u64::MAX;
        for k in self.keys[..self.n.next_multiple_of(8)].as_chunks::<8>().0 {
            let fours = [
                k[0].min(k[4]),
                k[1].min(k[5]),
                k[2].min(k[6]),
                k[3].min(k[7]),
            ];
            let twos = [fours[0].min(fours[2]), fours[1].min(fours[3])];
            least = least.min(twos[0].min(twos[1]));
        }
        self.first = (least & PLACE) as usize;
    }

    /// Makes room by moving the later half to the heap.
    #[cold]
    fn spill(&mut self) {
        let mut all = self.near;
        all.sort_unstable_by(|a, b| a.leaves_at_virtual.total_cmp(&b.leaves_at_virtual));
        let (sooner, later) = all.split_at(NEAR / 2);
        self.far_from = later[0].leaves_at_virtual;
        self.far.extend(later);
        self.keys = [u64::MAX; NEAR];
        self.n = 0;
        for sharer in sooner {
            self.put(*sharer);
        }
    }

    /// Fills half of the places from the heap.
    #[cold]
    fn refill(&mut self) {
        while self.n < NEAR / 2
            && let Some(sharer) = self.far.pop()
        {
            self.put(sharer);
        }
        self.far_from = self
            .far
            .peek()
            .map_or(f64::INFINITY, |s| s.leaves_at_virtual);
    }
}

impl Present for AnyOrder {
    #[inline(always)]
    fn next(&self) -> Option<Sharer> {
        (self.n > 0).then(|| self.near[self.first])
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.n + self.far.len()
    }

    #[inline(always)]
    fn remove_next(&mut self) {
        let (gone, last) = (self.first, self.n - 1);
        self.near[gone] = self.near[last];
        self.keys[gone] = self.keys[last] & !PLACE | gone as u64;
        self.keys[last] = u64::MAX;
        self.n = last;
        if last == 0 && !self.far.is_empty() {
            self.refill();
        } else {
            self.find_first();
        }
    }

    #[inline(always)]
    fn insert(&mut self, sharer: Sharer) {
        if self.n == NEAR {
            self.spill();
        }
        if sharer.leaves_at_virtual >= self.far_from {
            self.far.push(sharer);
        } else {
            self.put(sharer);
        }
    }

    fn rebase(&mut self, by: f64) {
        let mut far = std::mem::take(&mut self.far).into_vec();
        for sharer in self.near[..self.n].iter_mut().chain(&mut far) {
            sharer.arrival -= by;
        }
        self.far = far.into();
    }
}

// the heap's top is the greatest, so the first one to leave must compare as the greatest
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
