//! What a sleep costs the CPU, from the stays of workers on their CPUs between two sleeps.
//!
//! A stay in which a worker answers several requests takes one sleep and one wake-up, as one with a single
//! request does. So what a stay with one request takes, less what each further request adds, is the cost of
//! the sleep with its wake-up: the way through the scheduler, the call that finds nothing to do, cold caches.
//! Where service times vary, long requests let others come meanwhile; then this is less than the true cost.

use taillab_model::{Monotonic, Tid};

use crate::timeline::{FAR, Segments, Timeline, Top};

/// With fewer stays of either kind the cost is not known.
const FEWEST: u64 = 100;

#[derive(Clone, Copy, Debug, Default)]
struct StaySums {
    stays: u64,
    requests: u64,
    own_ns: u64,
}

impl StaySums {
    /// Requests and nanoseconds per stay.
    fn means(self) -> (f64, f64) {
        let stays = self.stays.max(1) as f64;
        (self.requests as f64 / stays, self.own_ns as f64 / stays)
    }
}

/// Sums over the stays that have requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stays {
    with_one: StaySums,
    with_several: StaySums,
}

impl Stays {
    /// Adds a stay in which this many requests were answered.
    pub(super) fn add(&mut self, requests: u64, own_ns: u64) {
        let sums = match requests {
            0 => return,
            1 => &mut self.with_one,
            _ => &mut self.with_several,
        };
        sums.stays += 1;
        sums.requests += requests;
        sums.own_ns += own_ns;
    }

    /// The CPU time of a sleep with its wake-up, in nanoseconds, and its share of the workers' own time. `None`
    /// if there are few stays of one kind, or if it is too small to be seen.
    pub(super) fn cost(&self) -> Option<(f64, f64)> {
        let (one, several) = (self.with_one, self.with_several);
        let ((_, with_one), (requests, with_several)) = (one.means(), several.means());
        let further = (with_several - with_one) / (requests - 1.0);
        let cost = with_one - further;
        let is_known = one.stays.min(several.stays) >= FEWEST && further > 0.0 && cost > 0.0;
        let sleeps = (one.stays + several.stays) as f64;
        let own_ns = (one.own_ns + several.own_ns) as f64;
        is_known.then(|| (cost, cost * sleeps / own_ns))
    }
}

/// The time of a thread itself on its CPUs, read forwards.
pub(super) struct OwnTime<'a> {
    tid: Tid,
    timeline: &'a Timeline,
    segments: Vec<Option<Segments<'a>>>,
}

impl<'a> OwnTime<'a> {
    pub(super) fn of(tid: Tid, timeline: &'a Timeline) -> Self {
        Self {
            tid,
            timeline,
            segments: vec![None; timeline.cpus().len()],
        }
    }

    /// In nanoseconds between these instants, with nothing on top of it; on each CPU, they never decrease from
    /// call to call.
    pub(super) fn between(&mut self, cpu: u16, from: Monotonic, to: Monotonic) -> u64 {
        let lines = self.timeline.cpus();
        let Ok(place) = lines.binary_search_by_key(&cpu, |line| line.cpu()) else {
            return 0;
        };
        let line = &lines[place];
        let segments = self.segments[place].get_or_insert_with(|| line.segments_from(from));
        let mut passed = 0;
        while segments.peek().is_some_and(|segment| segment.to <= from) {
            segments.next();
            passed += 1;
            if passed == FAR {
                *segments = line.segments_from(from);
            }
        }
        let mut own_ns = 0;
        while let Some(segment) = segments.peek()
            && segment.from < to
        {
            if segment.thread == self.tid && matches!(segment.top, Top::Nothing | Top::KernelLock) {
                let length = segment.to.min(to).saturating_since(segment.from.max(from));
                own_ns += length.get();
            }
            if segment.to > to {
                break;
            }
            segments.next();
        }
        own_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stay_costs_what_its_requests_do_not_explain() {
        let mut stays = Stays::default();
        for _ in 0..300 {
            stays.add(1, 12_000 + 10_000);
            stays.add(0, 99_000);
        }
        assert_eq!(stays.cost(), None);
        for requests in (2..=4).cycle().take(150) {
            stays.add(requests, 12_000 + requests * 10_000);
        }
        let (cost, share) = stays.cost().unwrap();
        assert!((cost - 12_000.0).abs() < 1e-6, "{cost}");
        let expected = 450.0 * 12.0 / (450.0 * 12.0 + 750.0 * 10.0);
        assert!((share - expected).abs() < 1e-9, "{share} {expected}");
    }

    #[test]
    fn where_further_requests_take_longer_the_cost_is_not_known() {
        let mut stays = Stays::default();
        for _ in 0..200 {
            stays.add(1, 10_000);
            stays.add(2, 30_000);
        }
        assert_eq!(stays.cost(), None);
    }
}
