//! The queues that the server is compared with: the ideal queue, an ideal queue for each worker, one queue
//! shared by all workers, and first come, first served.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use taillab_model::{Nanos, Tid};
use taillab_queueing::ideal::IdealQueue;

use super::events::RequestId;
use super::history::Position;
use super::label::Label;
use crate::id_map::grow_to;

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

/// A queue whose requests should be served in order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) enum Line {
    OfCpu(usize),
    OfWorker(usize),
}

impl Line {
    /// Whether a worker takes its requests from this line while its last CPU is `home`. One that has moved
    /// to another CPU no longer delays those who wait for this one, nor do they delay it.
    pub(super) fn is_served_from(self, home: Option<usize>) -> bool {
        match self {
            Self::OfCpu(k) => home == Some(k),
            Self::OfWorker(_) => true,
        }
    }
}

/// The queues that the server is compared with.
pub(super) struct Queues {
    service_time: Nanos,
    ideal: IdealQueue,
    one: OneQueue,
    workers: Vec<OwnQueue>,
    of_cpus: Vec<ArrivalOrder>,
    of_workers: Vec<ArrivalOrder>,
    /// The latest arrival that was begun: its place, its worker, and when.
    latest: Option<(usize, Tid, u64)>,
}

impl Queues {
    pub(super) fn new(service_time: Nanos, workers: NonZeroU32) -> Self {
        Self {
            service_time,
            ideal: IdealQueue::new(service_time, workers),
            one: OneQueue::new(workers.get() as usize),
            workers: Vec::new(),
            of_cpus: Vec::new(),
            of_workers: Vec::new(),
            latest: None,
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

    /// The requests of a line, in order of arrival.
    pub(super) fn in_order(&mut self, line: Line) -> &mut ArrivalOrder {
        let (lines, place) = match line {
            Line::OfCpu(k) => (&mut self.of_cpus, k),
            Line::OfWorker(w) => (&mut self.of_workers, w),
        };
        grow_to(lines, place)
    }

    /// A worker begins to serve the request at `place`, which was queued at `queued_ns`. Returns the worker
    /// of a later arrival whose service began before it, if there is one.
    pub(super) fn begins(
        &mut self,
        (place, worker): (usize, Tid),
        queued_ns: u64,
        at_ns: u64,
    ) -> Option<Tid> {
        match self.latest {
            Some((latest, by, begun_ns)) if latest >= place => {
                (latest > place && begun_ns >= queued_ns).then_some(by)
            }
            _ => {
                self.latest = Some((place, worker, at_ns));
                None
            }
        }
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

/// First come, first served: when each request should have left.
///
/// Whichever request is served, the k-th response leaves at the same time. In the order of arrival, it
/// would have been that of the k-th request. If that request is still in the server then, it is late, and
/// whatever it waits for from then on is because of the order.
#[derive(Clone, Debug, Default)]
pub(super) struct ArrivalOrder {
    /// The places and ids of the requests whose turn to leave has not come; `None` for those that have
    /// already left.
    waiting: VecDeque<(usize, Option<RequestId>)>,
    /// The worker that last answered a request before its turn.
    overtaker: usize,
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

    /// The request at `place` was answered by worker `w`, or (`None`) by one that has moved elsewhere, which
    /// overtakes nobody here. Returns the request whose turn it was to leave, if that is still there, and
    /// the worker that overtook it. Those that `has_moved` have no turn.
    pub(super) fn left(
        &mut self,
        place: usize,
        w: Option<usize>,
        mut has_moved: impl FnMut(RequestId) -> bool,
    ) -> Option<(RequestId, usize)> {
        if self
            .waiting
            .front()
            .is_some_and(|&(first, _)| first == place)
        {
            self.waiting.pop_front();
            return None;
        }
        let found = self.waiting.partition_point(|&(other, _)| other < place);
        if let Some(entry) = self.waiting.get_mut(found)
            && entry.0 == place
        {
            let Some(w) = w else {
                self.waiting.remove(found);
                return None;
            };
            entry.1 = None;
            if found > 0 {
                self.overtaker = w;
            }
        }
        while let Some((_, due)) = self.waiting.pop_front() {
            if due.is_none_or(|due| !has_moved(due)) {
                return Some((due?, self.overtaker));
            }
        }
        None
    }
}

/// Since when a request is late.
#[derive(Clone, Debug)]
pub(super) struct Late {
    pub(super) since_ns: u64,
    /// The end of its worker's history then.
    pub(super) since: Position,
    /// The worker that overtook it.
    pub(super) by: Tid,
    /// The delays since then that its own service brought about, by label.
    pub(super) own: Vec<(Label, u64)>,
}

impl Late {
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
    fn the_overtaker_is_the_one_that_left_before_its_turn() {
        let mut order = ArrivalOrder::default();
        for place in 0..3 {
            order.came(place, place as RequestId);
        }
        // the third leaves first: the first is late. Then the first: the second is.
        let mut left = |place, w| order.left(place, Some(w), |_| false);
        assert_eq!(left(2, 7), Some((0, 7)));
        assert_eq!(left(0, 8), Some((1, 7)));
        assert_eq!(left(1, 9), None);
    }

    fn of_five() -> ArrivalOrder {
        let mut order = ArrivalOrder::default();
        for place in 0..5 {
            order.came(place, place as RequestId);
        }
        order
    }

    #[test]
    fn who_was_answered_elsewhere_has_overtaken_nobody() {
        let mut order = of_five();
        assert_eq!(order.left(1, None, |_| false), None);
        assert_eq!(order.left(0, Some(7), |_| false), None);
        // the fourth overtakes the third, which then moves: its turn becomes that of the fourth
        assert_eq!(order.left(3, Some(7), |_| false), Some((2, 7)));
        assert_eq!(order.left(2, None, |_| false), None);
        assert_eq!(order.left(4, Some(7), |_| false), None);
        assert!(order.waiting.is_empty());
    }

    #[test]
    fn who_has_moved_is_not_overtaken() {
        let mut order = of_five();
        assert_eq!(order.left(2, Some(7), |due| due == 0), Some((1, 7)));
        assert_eq!(order.left(1, Some(8), |due| due == 0), None);
        assert_eq!(order.left(3, Some(8), |due| due == 0), None);
        assert_eq!(order.left(4, Some(8), |due| due == 0), None);
        assert!(order.waiting.is_empty());
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
                let due = order.left(place, Some(1), |_| false);
                let due = due.map(|(id, _)| id as usize);
                prop_assert_eq!(due, (!gone).then_some(turn));
            }
        }
    }
}
