//! When workers begin to serve requests of which T3 was not to be recorded.

use taillab_model::MiddleStamps;

use crate::id_map::IdMap;
use crate::matched::Matched;

/// When each worker answered last, from window to window.
#[derive(Default)]
pub(super) struct Begins {
    answered_ns: IdMap<u64>,
}

impl Begins {
    /// For each request of the next window that is not in the sample and has no T3, when its worker was
    /// free for it, that is when it had answered the request before. Empty if all stamps were recorded.
    pub(super) fn of(&mut self, matched: &Matched) -> Vec<Option<u64>> {
        if matched.stamps == MiddleStamps::All {
            return Vec::new();
        }
        let t6_ns = |place: usize| matched.requests.t6(place).nanos_since_boot();
        let mut in_order: Vec<usize> = (0..matched.requests.len()).collect();
        in_order.sort_by_key(|&place| t6_ns(place));
        let mut begins = vec![None; in_order.len()];
        for place in in_order {
            let answered_ns = self.answered_ns.entry(matched.workers[place]).or_default();
            let unseen = !matched.is_asked(place) && matched.requests.stamps(place).t3.is_none();
            begins[place] = unseen.then_some(*answered_ns);
            *answered_ns = t6_ns(place).max(*answered_ns);
        }
        begins
    }
}
