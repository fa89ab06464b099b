//! When workers begin to serve requests outside the sample, which have no T3; and their busy periods.

use taillab_model::MiddleStamps;

use crate::id_map::IdMap;
use crate::matched::Matched;

/// When each worker answered last, and its busy period, from window to window.
#[derive(Default)]
pub(super) struct ServiceStarts {
    answered_ns: IdMap<u64>,
    busy: IdMap<BusyPeriod>,
}

/// A stretch in which a worker always has requests.
#[derive(Clone, Copy, Default)]
struct BusyPeriod {
    since_ns: u64,
    until_ns: u64,
}

impl ServiceStarts {
    /// For each request of the next window that is not in the sample and has no T3, when its worker became
    /// free for it: when it had answered its previous request. Empty if all stamps were recorded.
    pub(super) fn of(&mut self, matched: &Matched) -> Vec<Option<u64>> {
        if matched.stamps == MiddleStamps::All {
            return Vec::new();
        }
        let from_ns = first_ns(matched);
        // a worker that was free before the first one came needs no entry, and it may have ended
        (self.answered_ns).retain(|_, answered_ns| *answered_ns > from_ns);
        let t6_ns = |place: usize| matched.requests.t6(place).nanos_since_boot();
        let mut in_order: Vec<usize> = (0..matched.requests.len()).collect();
        in_order.sort_by_key(|&place| t6_ns(place));
        let mut starts = vec![None; in_order.len()];
        for place in in_order {
            let answered_ns = self.answered_ns.entry(matched.workers[place]).or_default();
            let unseen = !matched.is_asked(place) && matched.requests.stamps(place).t3.is_none();
            starts[place] = unseen.then_some(*answered_ns);
            *answered_ns = t6_ns(place).max(*answered_ns);
        }
        starts
    }

    /// For each request of the next window, when its worker's current busy period began. Empty if there are
    /// no slices.
    pub(super) fn busy_since(&mut self, matched: &Matched) -> Vec<u64> {
        if !matched.slices.are_used() {
            return Vec::new();
        }
        let requests = &matched.requests;
        let from_ns = first_ns(matched);
        self.busy.retain(|_, busy| busy.until_ns > from_ns);
        let since = |place: usize| {
            let busy = self.busy.entry(matched.workers[place]).or_default();
            let t1_ns = requests.t1(place).nanos_since_boot();
            if t1_ns >= busy.until_ns {
                busy.since_ns = t1_ns;
            }
            busy.until_ns = busy.until_ns.max(requests.t6(place).nanos_since_boot());
            busy.since_ns
        };
        (0..requests.len()).map(since).collect()
    }

    /// How many entries the larger of its tables has.
    pub(super) fn remembered(&self) -> usize {
        self.answered_ns.len().max(self.busy.len())
    }
}

/// T1 of the first request of a window; 0 without any.
fn first_ns(matched: &Matched) -> u64 {
    match matched.requests.is_empty() {
        true => 0,
        false => matched.requests.t1(0).nanos_since_boot(),
    }
}
