//! Requests that reached the socket late, because they were sent late, lost and retransmitted, or because the
//! receiving CPU was unavailable.
//!
//! A change that removes the delay lets them arrive earlier, so the order of arrival changes.

use super::change::Change;
use super::observed::{Job, NONE, Observed, finishing_order};

impl Observed {
    /// Whether requests arrived late because they, or others before them on their connection, were lost.
    pub(crate) fn has_losses(&self) -> bool {
        self.requests.iter().any(|job| job.lost_ns > 0)
    }

    /// The queue in which requests arrive as early as `change` lets them, and the place in this queue of
    /// each of its requests; `None` if none arrives earlier.
    pub(super) fn earlier(&self, change: &Change) -> Option<(Self, Vec<u32>)> {
        let is_late = |job: &Job| job.late_ns(change) > 0 || job.sent_earlier_ns(change) > 0;
        if !self.requests.iter().any(is_late) {
            return None;
        }
        let mut requests = self.requests.clone();
        for job in &mut requests {
            if is_late(job) {
                let late = job.late_ns(change);
                job.arrival_ns -= late;
                job.arrival_ns -= job.sent_earlier_ns(change);
                job.stack_ns -= late;
                job.measured_ns = job.measured_ns.saturating_sub(late);
                (job.lost_ns, job.held_ns) = (0, 0);
                // what it met at its late arrival says nothing about the earlier one
                (job.wake_ns, job.way_ns) = (NONE, NONE);
                job.exit_wake_ns = 0;
            }
        }
        let mut order: Vec<u32> = (0..requests.len() as u32).collect();
        order.sort_by_key(|&i| requests[i as usize].arrival_ns);
        let mut requests: Vec<_> = order.iter().map(|&i| requests[i as usize]).collect();
        finishing_order(&mut requests);
        let earlier = Self {
            requests,
            ..self.clone()
        };
        Some((earlier, order))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::agreement::{change, departures, observed};
    use super::super::change::{Order, Sharing};

    #[test]
    fn a_lost_request_is_served_in_its_turn_and_those_that_it_met_are_sooner_done() {
        // at 0, 100 and 1,000, 50 of work each; without a loss, the last would have arrived at 120
        let mut observed = observed(
            &[(0, 50, 0, 0), (100, 50, 0, 0), (900, 50, 0, 0)],
            &[vec![]],
        );
        for (job, stack_ns) in observed.requests.iter_mut().zip([5, 5, 885]) {
            job.stack_ns = stack_ns;
        }
        observed.requests[2].lost_ns = 880;
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
    fn a_request_that_the_cpu_held_up_comes_earlier_where_its_vacation_is_shorter() {
        // the CPU was away from 100 to 500: what came at 200 was at the socket at 510
        let away = vec![(100, 400, 0)];
        let jobs = [(0, 50, 0, 0), (510, 50, 0, 0), (90, 50, 0, 0)];
        let mut observed = observed(&jobs, &[away]);
        for (job, stack_ns) in observed.requests.iter_mut().zip([5, 310, 5]) {
            job.stack_ns = stack_ns;
        }
        observed.requests[1].held_ns = 300;
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

    #[test]
    fn on_schedule_a_request_comes_when_it_was_due() {
        // at 0, 100 and 2,000, 50 of work each; the last was due 1,990 earlier, and so meets the first
        let jobs = [(0, 50, 0, 0), (100, 50, 0, 0), (1_900, 50, 0, 0)];
        let mut observed = observed(&jobs, &[vec![]]);
        observed.requests[2].sent_late_ns = 1_990;
        let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
        assert_eq!(departures(&observed, &change), [50, 150, 2_050]);
        change.on_schedule = true;
        assert_eq!(departures(&observed, &change), [50, 150, 100]);
        let sent_earlier = observed.requests[2].sent_earlier_ns(&change);
        assert_eq!(observed.sojourn_ns(2, 100 + sent_earlier), 90);
    }

    proptest! {
        /// Without the loss it is the queue of those arrivals, whichever request is which.
        #[test]
        fn it_is_the_queue_of_the_earlier_arrivals(
            jobs in prop::collection::vec((1_u64..50, 1_u64..40, 0_u64..10, 0_u64..100), 1..20),
        ) {
            let of = |jobs: &[(u64, u64, u64)]| {
                let jobs: Vec<_> = jobs.iter().map(|&(gap, b, a)| (gap, b, a, 0)).collect();
                observed(&jobs, &[vec![]])
            };
            let plain: Vec<_> = jobs.iter().map(|&(gap, b, a, _)| (gap, b, a)).collect();
            let mut late = of(&plain);
            let mut earlier = Vec::new();
            for (i, &(_, before, after, lost)) in jobs.iter().enumerate() {
                let lost = lost.min(late.requests[i].arrival_ns);
                late.requests[i].stack_ns = lost;
                late.requests[i].lost_ns = lost;
                earlier.push((late.requests[i].arrival_ns - lost, i, before, after));
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

        /// On schedule it is the queue of the requests as they were due, with the same vacations, however late
        /// they were sent.
        #[test]
        fn on_schedule_it_is_the_queue_of_the_due_times(
            jobs in prop::collection::vec((1_u64..50, 1_u64..40, 0_u64..10, 0_u64..300), 1..20),
            away in (0_u64..400, 1_u64..300),
        ) {
            let microseconds = |(gap, before, after, _): (u64, u64, u64, u64)| {
                (1_000 * gap, 1_000 * before, 1_000 * after, 0)
            };
            let away = vec![(1_000 * away.0, 1_000 * away.1, 0)];
            let due: Vec<_> = jobs.iter().map(|job| microseconds(*job)).collect();
            let due = observed(&due, std::slice::from_ref(&away));
            // the client sends in order: what is late makes all that follows as late
            let mut sent = Vec::new();
            let mut before = 0;
            for (job, &(.., late)) in due.requests.iter().zip(&jobs) {
                let at = before.max(job.arrival_ns + 1_000 * late);
                sent.push((at - before, job.before_ns, job.after_ns, 0));
                before = at;
            }
            let mut late = observed(&sent, &[away]);
            for (job, due) in late.requests.iter_mut().zip(&due.requests) {
                job.sent_late_ns = job.arrival_ns - due.arrival_ns;
            }
            let usual = change(&due, Sharing::Assigned, Order::Arrival);
            let mut on_schedule = change(&late, Sharing::Assigned, Order::Arrival);
            on_schedule.on_schedule = true;
            prop_assert_eq!(departures(&late, &on_schedule), departures(&due, &usual));
        }
    }
}
