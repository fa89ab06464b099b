//! One queue for all workers: what waiting for a worker of one's own costs.

use taillab_model::Nanos;

/// The queue that all workers would share, with the requests as they came and as long as
/// each of them took.
#[derive(Clone, Debug)]
pub(super) struct OneQueue {
    /// When each worker is done.
    free_ns: Vec<u64>,
}

/// A worker with a queue of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnQueue {
    /// When it has answered all that came so far.
    answered_ns: u64,
}

impl OwnQueue {
    /// How long a request that was here from `t1_ns` to `t6_ns` kept its worker; of one that
    /// overtook another there, what one usually takes.
    pub(super) fn demand_ns(&mut self, t1_ns: u64, t6_ns: u64, usual: Nanos) -> u64 {
        let begun_ns = self.answered_ns.max(t1_ns);
        self.answered_ns = self.answered_ns.max(t6_ns);
        match t6_ns.checked_sub(begun_ns) {
            Some(demand) if demand > 0 => demand,
            _ => usual.get().min(t6_ns - t1_ns),
        }
    }
}

impl OneQueue {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            free_ns: vec![0; workers],
        }
    }

    /// How long a request waits here that came at `t1_ns` and keeps a worker for `demand_ns`.
    pub(super) fn wait_ns(&mut self, t1_ns: u64, demand_ns: u64) -> u64 {
        let Some(free) = self.free_ns.iter_mut().min() else {
            return 0;
        };
        let begin_ns = t1_ns.max(*free);
        *free = begin_ns + demand_ns;
        begin_ns - t1_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Nanos = Nanos::new(10);

    #[test]
    fn what_a_worker_was_kept_for_begins_when_it_was_free() {
        let mut own = OwnQueue::default();
        assert_eq!(own.demand_ns(0, 10, USUAL), 10);
        assert_eq!(own.demand_ns(5, 45, USUAL), 35);
        // answered before the one ahead of it
        assert_eq!(own.demand_ns(6, 30, USUAL), 10);
        assert_eq!(own.demand_ns(41, 44, USUAL), 3);
        assert_eq!(own.demand_ns(100, 107, USUAL), 7);
    }

    #[test]
    fn nobody_waits_beside_an_idle_worker() {
        let mut one = OneQueue::new(2);
        let waits = [(0, 10), (0, 30), (1, 10), (2, 10)].map(|(at, demand)| {
            let wait = one.wait_ns(at, demand);
            (at, wait)
        });
        assert_eq!(waits, [(0, 0), (0, 0), (1, 9), (2, 18)]);
    }
}
