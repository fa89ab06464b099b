//! The queue as it was: arrivals, demands, and when its servers were taken away.

use taillab_model::Tid;
use taillab_model::explanation::{Cause, Culprit};

use super::absences::Absences;
use super::kernel::Change;

/// No such index.
pub(crate) const NONE: u32 = u32::MAX;

/// The [`Observed::block`] of a request that only keeps the queue in its state.
pub(crate) const UNCOUNTED: u8 = u8::MAX;

/// A recording's requests as the jobs of a queue, one entry of each column for each, in
/// the order in which they arrive at the queue. Times count from one origin.
///
/// A request occupies its server for `before_ns` until its response leaves and for
/// `after_ns` from then on (the worker returns from its call and looks for more, or goes
/// to sleep). Both are the worker's own time on its CPU, without what ran on top of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// When it arrives: T2.
    pub(crate) arrival_ns: Vec<u64>,
    /// T2 − T1, kept as measured.
    pub(crate) stack_ns: Vec<u64>,
    /// Of that, what it took to send again what was lost on its connection.
    pub(crate) lost_ns: Vec<u64>,
    /// Of `stack_ns`, what it waited for the end of one absence of the CPU that receives.
    pub(crate) held_ns: Vec<u32>,
    /// The source of that absence.
    pub(crate) held_by: Vec<u16>,
    /// T6 − T1 as measured.
    pub(crate) measured_ns: Vec<u64>,
    /// Own work until T6.
    pub(crate) before_ns: Vec<u32>,
    /// Own work after T6.
    pub(crate) after_ns: Vec<u32>,
    /// Own time asleep in the middle.
    pub(crate) blocked_ns: Vec<u32>,
    /// Why, where `blocked_ns` is not 0: a place in [`Cause::ALL`].
    pub(crate) blocked_cause: Vec<u8>,
    /// Why its worker slept in its middle: a bit for each place in [`Cause::ALL`].
    pub(crate) slept: Vec<u32>,
    /// Time of an idle CPU from its arrival until its worker was there; [`NONE`] where it
    /// did not find an idle CPU.
    pub(crate) wake_ns: Vec<u32>,
    /// Of `stack_ns`, what the CPU took to come out of a power state.
    pub(crate) exit_stack_ns: Vec<u32>,
    /// Of `wake_ns`, the same.
    pub(crate) exit_wake_ns: Vec<u32>,
    /// Its worker had not slept since its last response.
    pub(crate) awake: Vec<bool>,
    /// The probe was blind while it was served: `blocked_ns` is that, or has that in it.
    pub(crate) hidden: Vec<bool>,
    /// Of `before_ns`, the work until it slept for the first time; only where it did.
    pub(crate) first_ns: Vec<u32>,
    /// Of `before_ns`, the work that its worker does for all requests that it reads before
    /// it answers the first of them.
    pub(crate) compute_ns: Vec<u32>,
    /// The rest: its own answer.
    pub(crate) reply_ns: Vec<u32>,
    /// Its place in the order in which they were finished.
    pub(crate) rank: Vec<u32>,
    /// The server of the queue that served it.
    pub(crate) server: Vec<u16>,
    /// The worker that served it.
    pub(crate) worker: Vec<u16>,
    /// The block of time to which it belongs, or [`UNCOUNTED`].
    pub(crate) block: Vec<u8>,
}

impl Requests {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.arrival_ns.len()
    }

    /// For how long its worker sleeps in its middle, with what `change` leaves of that.
    pub(crate) fn blocked_ns(&self, i: usize, change: &Change) -> u64 {
        let blocked = self.blocked_ns[i];
        let cause = u32::from(self.blocked_cause[i]);
        if blocked == 0 || change.unblocked >> cause & 1 == 1 {
            0
        } else {
            u64::from(blocked)
        }
    }

    /// How much earlier `change` brings it to the socket.
    #[inline]
    pub(crate) fn late_ns(&self, i: usize, change: &Change) -> u64 {
        if change.no_loss && self.lost_ns[i] > 0 {
            return self.lost_ns[i];
        }
        let held = self.held_ns[i];
        if held == 0 {
            return 0;
        }
        let limit = change.limits[usize::from(self.held_by[i])];
        u64::from(held.saturating_sub(limit))
    }

    /// The most work that `change` leaves it until its response.
    pub(crate) fn work_limit_ns(&self, i: usize, change: &Change) -> u32 {
        if self.slept[i] & change.eased == 0 {
            change.work_limit_ns
        } else {
            change.work_limit_ns.min(change.eased_limit_ns)
        }
    }

    /// When it was finished: T6.
    pub(crate) fn finish_ns(&self, i: usize) -> u64 {
        self.arrival_ns[i] + self.measured_ns[i].saturating_sub(self.stack_ns[i])
    }
}

/// What a replay needs of a recording; made by [`Observed::build`].
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub(crate) requests: Requests,
    /// One for each server of the queue.
    pub(crate) absences: Vec<Absences>,
    /// What the absences' sources are.
    pub(crate) sources: Vec<Source>,
    /// The threads that served requests.
    pub(crate) workers: Vec<Tid>,
    /// The servers of the queue are the workers, and not the CPUs that they share.
    pub(crate) servers_are_workers: bool,
    /// Every connection was served by one worker only (with two workers and more).
    pub(crate) connections_are_bound: bool,
    /// Wake-ups as measured, sorted: a sample that others are drawn from.
    pub(crate) wakes_ns: Vec<u32>,
    /// The worker's usual work after a response before it could take the next request.
    pub(crate) linger_ns: u64,
    /// Requests that were answered after another one that had been read with them.
    pub(crate) batched: u64,
    /// How many blocks of time there are.
    pub(crate) blocks: usize,
    /// Requests of the measurement; more than there are here where only a part of the time
    /// is replayed.
    pub(crate) measured_requests: u64,
    /// Requests whose worker is not known: their demand is the median one.
    pub(crate) without_worker: u64,
    /// Requests without T2: they arrive when others would have.
    pub(crate) without_arrival: u64,
}

/// What takes a server away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) cause: Cause,
    pub(crate) culprit: Option<Culprit>,
    /// It is a thread of the server itself, beside its requests.
    pub(crate) own: bool,
}

impl Source {
    /// The CPU does something for as long as this lasts, and need not be woken.
    pub(crate) fn keeps_awake(&self) -> bool {
        matches!(
            self.cause,
            Cause::Background | Cause::Hypervisor | Cause::Unobserved
        )
    }
}

impl Observed {
    /// Requests that are replayed and counted.
    pub fn replayed(&self) -> usize {
        let counted = |block: &&u8| **block != UNCOUNTED;
        self.requests.block.iter().filter(counted).count()
    }

    /// There are more workers than servers of the queue: they share CPUs.
    pub(crate) fn workers_share_servers(&self) -> bool {
        !self.servers_are_workers && self.workers.len() > self.absences.len()
    }

    /// Workers read several requests before they answer the first of them, often enough.
    pub(crate) fn answers_in_batches(&self) -> bool {
        self.batched * 1_000 > self.requests.len() as u64
    }

    /// The cause takes servers away, or lets workers sleep or wake up.
    pub(crate) fn shows(&self, cause: Cause) -> bool {
        let requests = &self.requests;
        let mut blocked = requests.blocked_ns.iter().zip(&requests.blocked_cause);
        let slept = |(ns, place): (&u32, &u8)| {
            *ns > 0 && Cause::ALL.get(usize::from(*place)) == Some(&cause)
        };
        let mut away = self.by_source().into_iter().zip(&self.sources);
        (cause == Cause::Wakeup && !self.wakes_ns.is_empty())
            || (cause == Cause::Retransmit && self.loses())
            || away.any(|((time, _), source)| time > 0 && source.cause == cause)
            || blocked.any(slept)
    }

    /// The queue in figures, for a person who looks for a defect.
    pub fn summary(&self) -> String {
        let requests = &self.requests;
        let median = |values: &[u32]| {
            let mut known: Vec<u32> = values.iter().copied().filter(|v| *v != NONE).collect();
            let middle = known.len() / 2;
            if known.is_empty() {
                return "none".to_owned();
            }
            let value = *known.select_nth_unstable(middle).1;
            taillab_model::Nanos::new(u64::from(value)).to_string()
        };
        let woken = requests.wake_ns.iter().filter(|wake| **wake != NONE);
        let blocked = requests.blocked_ns.iter().filter(|ns| **ns != 0);
        let mut text = format!(
            "{} requests, {} workers, {} servers; work {} before and {} after the response, \
             {} woke a CPU ({}), {} slept, {} without worker, {} without T2",
            requests.len(),
            self.workers.len(),
            self.absences.len(),
            median(&requests.before_ns),
            median(&requests.after_ns),
            woken.count(),
            median(&requests.wake_ns),
            blocked.count(),
            self.without_worker,
            self.without_arrival,
        );
        for ((time, times), source) in self.by_source().into_iter().zip(&self.sources) {
            let culprit = source.culprit.as_ref();
            let culprit = culprit.map_or(String::new(), |culprit| format!(" {culprit}"));
            let time = taillab_model::Nanos::new(time);
            text += &format!("; {}{culprit} {times} times, {time}", source.cause.key());
        }
        text
    }

    /// Absence by source, over all servers, in nanoseconds: how long, and how often.
    pub(crate) fn by_source(&self) -> Vec<(u64, u64)> {
        let mut sums = vec![(0_u64, 0_u64); self.sources.len()];
        for (_, length, source) in self.absences.iter().flat_map(Absences::iter) {
            let (time, times) = &mut sums[usize::from(source)];
            *time += u64::from(length);
            *times += 1;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::agreement::{change, departures, observed};
    use super::super::kernel::{Order, Sharing};
    use super::*;

    #[test]
    fn only_requests_that_slept_for_it_lose_the_work_of_it() {
        let mut observed = observed(&[(0, 400, 0, 0), (1_000, 400, 0, 0)], &[vec![]]);
        observed.requests.slept[0] = 1 << Cause::BlockedIo as u32;
        let eased = |cause| {
            let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
            change.ease(cause, 100);
            departures(&observed, &change)
        };
        assert_eq!(eased(Cause::BlockedIo), [100, 1_400]);
        assert_eq!(eased(Cause::BlockedFault), [400, 1_400]);
    }
}
