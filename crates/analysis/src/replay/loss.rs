//! Requests that came late to the socket: they were lost on their way and came again, or the CPU
//! that receives was away.
//!
//! Without that they would have been at the socket when others are. They then stand elsewhere
//! among the arrivals.

use super::kernel::Change;
use super::observed::{NONE, Observed, Requests};

impl Observed {
    /// Requests came late because they, or others before them on their connection, were lost.
    pub(crate) fn loses(&self) -> bool {
        self.requests.lost_ns.iter().any(|&late| late > 0)
    }

    /// The queue as it is where `change` lets requests come earlier, and which request of this
    /// one each of its requests is; `None` where it does not.
    pub(super) fn earlier(&self, change: &Change) -> Option<(Self, Vec<u32>)> {
        let of = &self.requests;
        let late = |i: u32| of.late_ns(i as usize, change);
        if (0..of.len() as u32).all(|i| late(i) == 0) {
            return None;
        }
        let arrival = |i: u32| of.arrival_ns[i as usize] - late(i);
        let mut order: Vec<u32> = (0..of.len() as u32).collect();
        order.sort_by_key(|&i| arrival(i));
        let mut requests = of.in_order(&order);
        for (place, &i) in order.iter().enumerate() {
            let late = late(i);
            if late > 0 {
                requests.arrival_ns[place] -= late;
                requests.stack_ns[place] -= late;
                requests.measured_ns[place] = requests.measured_ns[place].saturating_sub(late);
                (requests.lost_ns[place], requests.held_ns[place]) = (0, 0);
                // whom it would have found there is not known from when it really came
                requests.wake_ns[place] = NONE;
                requests.exit_wake_ns[place] = 0;
            }
        }
        let mut finished: Vec<u32> = (0..order.len() as u32).collect();
        finished.sort_by_key(|&place| requests.finish_ns(place as usize));
        for (rank, place) in (0..).zip(finished) {
            requests.rank[place as usize] = rank;
        }
        let earlier = Self {
            requests,
            ..self.clone()
        };
        Some((earlier, order))
    }
}

impl Requests {
    /// The same requests in another order.
    fn in_order(&self, order: &[u32]) -> Self {
        fn pick<T: Copy>(of: &[T], order: &[u32]) -> Vec<T> {
            order.iter().map(|&i| of[i as usize]).collect()
        }
        Self {
            arrival_ns: pick(&self.arrival_ns, order),
            stack_ns: pick(&self.stack_ns, order),
            lost_ns: pick(&self.lost_ns, order),
            held_ns: pick(&self.held_ns, order),
            held_by: pick(&self.held_by, order),
            measured_ns: pick(&self.measured_ns, order),
            before_ns: pick(&self.before_ns, order),
            after_ns: pick(&self.after_ns, order),
            blocked_ns: pick(&self.blocked_ns, order),
            blocked_cause: pick(&self.blocked_cause, order),
            slept: pick(&self.slept, order),
            wake_ns: pick(&self.wake_ns, order),
            exit_stack_ns: pick(&self.exit_stack_ns, order),
            exit_wake_ns: pick(&self.exit_wake_ns, order),
            awake: pick(&self.awake, order),
            hidden: pick(&self.hidden, order),
            first_ns: pick(&self.first_ns, order),
            compute_ns: pick(&self.compute_ns, order),
            reply_ns: pick(&self.reply_ns, order),
            rank: pick(&self.rank, order),
            server: pick(&self.server, order),
            worker: pick(&self.worker, order),
            block: pick(&self.block, order),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::agreement::{change, departures, observed};
    use super::super::kernel::{Order, Sharing};

    #[test]
    fn a_lost_request_is_served_in_its_turn_and_those_that_it_met_are_sooner_done() {
        // at 0, 100 and 1,000, 50 of work each; the last was there at 120 but for a loss
        let mut observed = observed(
            &[(0, 50, 0, 0), (100, 50, 0, 0), (900, 50, 0, 0)],
            &[vec![]],
        );
        observed.requests.stack_ns = vec![5, 5, 885];
        observed.requests.lost_ns[2] = 880;
        let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
        let sojourns = |done: Vec<u64>| -> Vec<u64> {
            let all = done.into_iter().enumerate();
            all.map(|(i, at)| observed.sojourn_ns(i, at)).collect()
        };
        assert_eq!(sojourns(departures(&observed, &change)), [55, 55, 935]);
        change.no_loss = true;
        assert_eq!(departures(&observed, &change), [50, 150, 200]);
        assert_eq!(sojourns(departures(&observed, &change)), [55, 55, 85]);
    }

    #[test]
    fn a_request_that_the_cpu_held_up_comes_earlier_where_its_absence_is_shorter() {
        // the CPU was away from 100 to 500: what came at 200 was at the socket at 510
        let away = vec![(100, 400, 0)];
        let jobs = [(0, 50, 0, 0), (510, 50, 0, 0), (90, 50, 0, 0)];
        let mut observed = observed(&jobs, &[away]);
        observed.requests.stack_ns = vec![5, 310, 5];
        observed.requests.held_ns[1] = 300;
        let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
        assert_eq!(departures(&observed, &change), [50, 560, 650]);
        change.limits[0] = 0;
        assert_eq!(departures(&observed, &change), [50, 260, 650]);
        let done = departures(&observed, &change);
        // it keeps the usual time on its way
        assert_eq!(observed.sojourn_ns(1, done[1]), 60);
        change.limits[0] = 200;
        assert_eq!(departures(&observed, &change), [50, 460, 650]);
    }

    proptest! {
        /// Without the loss it is the queue of those arrivals, whichever request is which.
        #[test]
        fn it_is_the_queue_of_the_earlier_arrivals(
            jobs in prop::collection::vec((1_u64..50, 1_u32..40, 0_u32..10, 0_u64..100), 1..20),
        ) {
            let of = |jobs: &[(u64, u32, u32)]| {
                let jobs: Vec<_> = jobs.iter().map(|&(gap, b, a)| (gap, b, a, 0)).collect();
                observed(&jobs, &[vec![]])
            };
            let plain: Vec<_> = jobs.iter().map(|&(gap, b, a, _)| (gap, b, a)).collect();
            let mut late = of(&plain);
            let mut earlier = Vec::new();
            for (i, &(_, before, after, lost)) in jobs.iter().enumerate() {
                let lost = lost.min(late.requests.arrival_ns[i]);
                late.requests.stack_ns[i] = lost;
                late.requests.lost_ns[i] = lost;
                earlier.push((late.requests.arrival_ns[i] - lost, i, before, after));
            }
            earlier.sort_unstable();
            let mut at = 0;
            let sorted: Vec<_> = earlier
                .iter()
                .map(|&(arrival, _, before, after)| {
                    let gap = arrival - at;
                    at = arrival;
                    (gap, before, after)
                })
                .collect();
            let sorted = of(&sorted);
            let expected = departures(&sorted, &change(&sorted, Sharing::Assigned, Order::Arrival));
            let mut without = change(&late, Sharing::Assigned, Order::Arrival);
            without.no_loss = true;
            let found = departures(&late, &without);
            for (place, &(_, i, ..)) in earlier.iter().enumerate() {
                prop_assert_eq!(found[i], expected[place]);
            }
        }
    }
}
