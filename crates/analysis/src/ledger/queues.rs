//! The queues that the server is compared with: the ideal queue, an ideal queue for each worker, one queue
//! shared by all workers, and first come, first served.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use taillab_model::{Nanos, Tid};
use taillab_queueing::ideal::IdealQueue;

use super::events::RequestId;
use super::history::Position;
use super::label::Label;
use crate::id_map::{IdMap, grow_to};

/// How long a request waits in the queues that the server is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// Its wait in the ideal queue.
    pub(super) ideal_ns: u64,
    /// Its wait in an ideal queue of its own worker alone.
    pub(super) own_queue_ns: u64,
    /// How much longer it waited than it would have in one queue for all workers.
    pub(super) imbalance_ns: u64,
}

/// The queues that the server is compared with.
pub(super) struct Queues {
    service_time: Nanos,
    ideal: IdealQueue,
    one: OneQueue,
    workers: Vec<OwnQueue>,
    /// By worker.
    orders: Vec<ArrivalOrder>,
    /// The latest arrival that each worker has begun: its place, and when.
    latest: IdMap<(usize, u64)>,
}

impl Queues {
    pub(super) fn new(service_time: Nanos, workers: NonZeroU32) -> Self {
        Self {
            service_time,
            ideal: IdealQueue::new(service_time, workers),
            one: OneQueue::new(workers.get() as usize),
            workers: Vec::new(),
            orders: Vec::new(),
            latest: IdMap::default(),
        }
    }

    /// The measurement begins, with so many requests in the server: the ideal queues have no more work than that, and an
    /// own queue is empty when its worker has answered what came.
    pub(super) fn measurement_begins(&mut self, at_ns: u64, open: u64) {
        self.ideal.limit_to(Nanos::new(at_ns), open);
        for own in &mut self.workers {
            own.ideal
                .limit_until(Nanos::new(own.answered_ns.max(at_ns)));
        }
    }

    /// A request arrives, and nothing more is known about it. Returns its wait in the ideal queue.
    pub(super) fn arrives(&mut self, t1_ns: u64) -> u64 {
        wait_ns(&mut self.ideal, t1_ns, self.service_time)
    }

    /// Adds a request that worker `w` answered at `t6_ns`. Returns its wait in the ideal queue of that
    /// worker alone, and how much longer it waited than it would have in one queue for all workers.
    pub(super) fn was_served_by(&mut self, w: usize, t1_ns: u64, t6_ns: u64) -> (u64, u64) {
        let t = self.service_time;
        while self.workers.len() <= w {
            self.workers.push(OwnQueue::new(t));
        }
        let own = &mut self.workers[w];
        let demand_ns = own.demand_ns(t1_ns, t6_ns, t);
        let shared_ns = self.one.wait_ns(t1_ns, demand_ns);
        let waited_ns = t6_ns - t1_ns - demand_ns;
        (
            wait_ns(&mut own.ideal, t1_ns, t),
            waited_ns.saturating_sub(shared_ns),
        )
    }

    /// Worker `w`, which was this thread, has ended; another one may take its place.
    pub(super) fn forget(&mut self, (w, tid): (usize, Tid)) {
        if let Some(own) = self.workers.get_mut(w) {
            *own = OwnQueue::new(self.service_time);
        }
        if let Some(order) = self.orders.get_mut(w) {
            *order = ArrivalOrder::default();
        }
        self.latest.remove(&tid);
    }

    /// How many entries the largest of its tables has.
    pub(super) fn remembered(&self) -> usize {
        let tables = [self.workers.len(), self.orders.len(), self.latest.len()];
        tables.into_iter().max().unwrap_or_default()
    }

    /// The requests of worker `w`, in order of arrival.
    pub(super) fn in_order(&mut self, w: usize) -> &mut ArrivalOrder {
        grow_to(&mut self.orders, w)
    }

    /// A worker begins to serve the request at `place`, which was queued at `queued_ns`. Whether it began a
    /// later arrival before. What other workers do is in queues of their own.
    pub(super) fn begins(
        &mut self,
        (place, worker): (usize, Tid),
        queued_ns: u64,
        at_ns: u64,
    ) -> bool {
        let latest = self.latest.entry(worker).or_insert((place, at_ns));
        if latest.0 > place {
            return latest.1 >= queued_ns;
        }
        *latest = (place, at_ns);
        false
    }
}

fn wait_ns(queue: &mut IdealQueue, t1_ns: u64, t: Nanos) -> u64 {
    (queue.sojourn(Nanos::new(t1_ns)) - t).get()
}

/// A queue that all workers share, with the measured arrivals and the measured service demands.
#[derive(Clone, Debug)]
struct OneQueue {
    /// When each worker is done.
    free_ns: Vec<u64>,
}

impl OneQueue {
    fn new(workers: usize) -> Self {
        Self {
            free_ns: vec![0; workers],
        }
    }

    /// The wait of a request that arrives at `t1_ns` and occupies a worker for `demand_ns`.
    fn wait_ns(&mut self, t1_ns: u64, demand_ns: u64) -> u64 {
        let Some(free) = self.free_ns.iter_mut().min() else {
            return 0;
        };
        let begin_ns = t1_ns.max(*free);
        *free = begin_ns + demand_ns;
        begin_ns - t1_ns
    }
}

/// The queue of one worker alone.
struct OwnQueue {
    ideal: IdealQueue,
    /// When it has answered all that came so far.
    answered_ns: u64,
}

impl OwnQueue {
    fn new(service_time: Nanos) -> Self {
        Self {
            ideal: IdealQueue::new(service_time, NonZeroU32::MIN),
            answered_ns: 0,
        }
    }

    /// How long a request that was in the server from `t1_ns` to `t6_ns` occupied its worker. If it
    /// overtook another one there, the usual time is assumed.
    fn demand_ns(&mut self, t1_ns: u64, t6_ns: u64, usual: Nanos) -> u64 {
        let begun_ns = self.answered_ns.max(t1_ns);
        self.answered_ns = self.answered_ns.max(t6_ns);
        match t6_ns.checked_sub(begun_ns) {
            Some(demand) if demand > 0 => demand,
            _ => usual.get().min(t6_ns - t1_ns),
        }
    }
}

/// First come, first served: when each request of a worker should have left.
///
/// Whichever request is served, the k-th response leaves at the same time. In the order of arrival, it
/// would have been that of the k-th request. If that request is still in the server then, it is late, and
/// what its worker does for others from then on is because of the order.
#[derive(Clone, Debug, Default)]
pub(super) struct ArrivalOrder {
    /// The places and ids of the requests whose turn to leave has not come; `None` for those that have
    /// already left. In a queue that several workers share, a place is that at the socket.
    waiting: VecDeque<(usize, Option<RequestId>)>,
}

impl ArrivalOrder {
    /// A request is queued; places count in order of arrival.
    pub(super) fn came(&mut self, place: usize, id: RequestId) {
        if self.waiting.back().is_none_or(|&(last, _)| last < place) {
            self.waiting.push_back((place, Some(id)));
            return;
        }
        let after = self.waiting.partition_point(|&(other, _)| other < place);
        self.waiting.insert(after, (place, Some(id)));
    }

    /// The request at `place` was answered. Returns the request whose turn it was to leave, if that is still
    /// there.
    pub(super) fn left(&mut self, place: usize) -> Option<RequestId> {
        let first = self.waiting.front().map(|&(first, _)| first);
        if first == Some(place) {
            self.waiting.pop_front();
            return None;
        }
        let found = self.waiting.partition_point(|&(other, _)| other < place);
        if let Some(entry) = self.waiting.get_mut(found)
            && entry.0 == place
        {
            entry.1 = None;
        }
        self.waiting.pop_front()?.1
    }
}

/// Since when a request is late.
#[derive(Clone, Debug)]
pub(super) struct LateStart {
    pub(super) since_ns: u64,
    /// The end of its worker's history then.
    pub(super) since: Position,
    /// For how long its worker had waited behind others on its CPU until then.
    pub(super) behind_ns: u64,
    /// What its worker has waited for at another server since the request came. The worker has read the request by
    /// then, so it waits there too while the worker goes on with others, and that is no matter of order.
    pub(super) away: Option<Label>,
    /// The delays since then that its own service brought about, by label.
    pub(super) own: Vec<(Label, u64)>,
}

impl LateStart {
    /// Notes a delay that its own service brought about.
    pub(super) fn add_own(&mut self, label: Label, ns: u64) {
        match self.own.iter_mut().find(|own| own.0 == label) {
            Some(own) => own.1 += ns,
            None => self.own.push((label, ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USUAL: Nanos = Nanos::new(10);

    #[test]
    fn what_a_worker_was_kept_for_begins_when_it_was_free() {
        let mut own = OwnQueue::new(USUAL);
        assert_eq!(own.demand_ns(0, 10, USUAL), 10);
        assert_eq!(own.demand_ns(5, 45, USUAL), 35);
        // answered before the one ahead of it
        assert_eq!(own.demand_ns(6, 30, USUAL), 10);
        assert_eq!(own.demand_ns(41, 44, USUAL), 3);
        assert_eq!(own.demand_ns(100, 107, USUAL), 7);
    }

    #[test]
    fn nobody_waits_while_a_worker_is_idle() {
        let mut one = OneQueue::new(2);
        let waits = [(0, 10), (0, 30), (1, 10), (2, 10)].map(|(at, demand)| {
            let wait = one.wait_ns(at, demand);
            (at, wait)
        });
        assert_eq!(waits, [(0, 0), (0, 0), (1, 9), (2, 18)]);
    }

    #[test]
    fn who_is_overtaken_is_late() {
        let mut order = ArrivalOrder::default();
        for place in 0..3 {
            order.came(place, place as RequestId);
        }
        // the third leaves first: the first is late. Then the first: the second is.
        assert_eq!(
            [2, 0, 1].map(|place| order.left(place)),
            [Some(0), Some(1), None]
        );
    }

    #[test]
    fn only_the_same_worker_overtakes() {
        let mut queues = Queues::new(USUAL, NonZeroU32::MIN);
        assert!(!queues.begins((3, 7), 0, 50));
        assert!(!queues.begins((2, 8), 10, 60), "another worker's queue");
        assert!(queues.begins((2, 7), 10, 60));
        assert!(
            !queues.begins((1, 7), 55, 60),
            "it came after that had begun"
        );
        assert!(!queues.begins((4, 7), 10, 70));
    }

    proptest! {
        /// The k-th departure makes the k-th arrival late, unless that has already left.
        #[test]
        fn each_is_late_from_when_its_turn_was(keys in prop::collection::vec(any::<u32>(), 1..40)) {
            let mut leaving: Vec<usize> = (0..keys.len()).collect();
            leaving.sort_by_key(|&place| (keys[place], place));
            let mut order = ArrivalOrder::default();
            for place in 0..keys.len() {
                order.came(place, place as RequestId);
            }
            for (turn, &place) in leaving.iter().enumerate() {
                let gone = leaving[..=turn].contains(&turn);
                let due = order.left(place).map(|id| id as usize);
                prop_assert_eq!(due, (!gone).then_some(turn));
            }
        }
    }
}
