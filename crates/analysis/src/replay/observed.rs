//! The queue as it was: arrivals, demands, and when its servers were taken away.

use taillab_model::Tid;
use taillab_model::explanation::{Cause, Culprit};

use super::change::{Change, Discipline, Order};
use super::vacations::{Cursor, Vacations};

/// No such index.
pub(crate) const NONE: u32 = u32::MAX;

/// The [`Observed::block`] of a request that only keeps the queue in its state.
pub(crate) const UNCOUNTED: u8 = u8::MAX;

/// A request as a job of the queue. Times count from one origin.
///
/// It occupies its server for `before_ns` until its response leaves and for
/// `after_ns` from then on (the worker returns from its call and looks for more, or goes
/// to sleep). Both are the worker's own time on its CPU, without what ran on top of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// When it arrives: T2.
    pub(crate) arrival_ns: u64,
    /// T2 − T1, kept as measured.
    pub(crate) stack_ns: u64,
    /// Of that, what it took to send again what was lost on its connection.
    pub(crate) lost_ns: u64,
    /// Of `stack_ns`, what it waited for the end of one vacation of the CPU that receives.
    pub(crate) held_ns: u32,
    /// The source of that vacation.
    pub(crate) held_by: u16,
    /// T6 − T1 as measured.
    pub(crate) measured_ns: u64,
    /// Own work until T6.
    pub(crate) before_ns: u32,
    /// Own work after T6.
    pub(crate) after_ns: u32,
    /// Own time asleep in the middle.
    pub(crate) blocked_ns: u32,
    /// Why, where `blocked_ns` is not 0: a place in [`Cause::ALL`].
    pub(crate) blocked_cause: u8,
    /// Why its worker slept in its middle: a bit for each place in [`Cause::ALL`].
    pub(crate) slept: u32,
    /// Time of an idle CPU from its arrival until its worker was there; [`NONE`] where it
    /// did not find an idle CPU.
    pub(crate) wake_ns: u32,
    /// Of `stack_ns`, what the CPU took to come out of a power state.
    pub(crate) exit_stack_ns: u32,
    /// Of `wake_ns`, the same.
    pub(crate) exit_wake_ns: u32,
    /// Its worker had not slept since its last response.
    pub(crate) awake: bool,
    /// The probe was blind while it was served: `blocked_ns` is that, or has that in it.
    pub(crate) hidden: bool,
    /// Of `before_ns`, the work until it slept for the first time; only where it did.
    pub(crate) first_ns: u32,
    /// Of `before_ns`, the work that its worker does for all requests that it reads before
    /// it answers the first of them.
    pub(crate) compute_ns: u32,
    /// The rest: its own answer.
    pub(crate) reply_ns: u32,
    /// Its place in the order in which they were finished.
    pub(crate) rank: u32,
    /// The server of the queue that served it.
    pub(crate) server: u16,
    /// The worker that served it.
    pub(crate) worker: u16,
    /// The block of time to which it belongs, or [`UNCOUNTED`].
    pub(crate) block: u8,
}

impl Default for Job {
    /// A job without any work, of which nothing is known.
    fn default() -> Self {
        Self {
            arrival_ns: 0,
            stack_ns: 0,
            lost_ns: 0,
            held_ns: 0,
            held_by: 0,
            measured_ns: 0,
            before_ns: NONE,
            after_ns: NONE,
            blocked_ns: 0,
            blocked_cause: 0,
            slept: 0,
            wake_ns: NONE,
            exit_stack_ns: 0,
            exit_wake_ns: 0,
            awake: false,
            hidden: false,
            first_ns: 0,
            compute_ns: 0,
            reply_ns: 0,
            rank: 0,
            server: 0,
            worker: 0,
            block: 0,
        }
    }
}

impl Job {
    /// For how long its worker sleeps in its middle, with what `change` leaves of that.
    #[inline]
    pub(crate) fn blocked_ns(&self, change: &Change) -> u64 {
        let unblocked = change.unblocked >> u32::from(self.blocked_cause) & 1 == 1;
        if unblocked { 0 } else { self.blocked_ns.into() }
    }

    /// How much earlier `change` brings it to the socket.
    #[inline]
    pub(crate) fn late_ns(&self, change: &Change) -> u64 {
        if change.no_loss && self.lost_ns > 0 {
            return self.lost_ns;
        }
        if self.held_ns == 0 {
            return 0;
        }
        let limit = change.limits[usize::from(self.held_by)];
        self.held_ns.saturating_sub(limit).into()
    }

    /// Own work until T6, as far as `change` leaves it.
    #[inline]
    pub(super) fn before_ns(&self, change: &Change) -> u32 {
        self.before_ns.min(self.work_limit_ns(change))
    }

    /// The place of request `i`, which is this one, in the order that `change` has.
    #[inline]
    pub(super) fn rank(&self, i: usize, change: &Change) -> u32 {
        match change.discipline.order {
            Order::Arrival | Order::ByWorker | Order::Batches => i as u32,
            Order::AsMeasured | Order::AsMeasuredPreemptive => self.rank,
        }
    }

    /// The kernel sends it late, which keeps no worker busy.
    #[inline]
    pub(super) fn is_sent_late(&self) -> bool {
        self.blocked_cause == Cause::StackTx as u8
    }

    /// The most work that `change` leaves it until its response.
    #[inline]
    pub(crate) fn work_limit_ns(&self, change: &Change) -> u32 {
        if self.slept & change.eased == 0 {
            change.work_limit_ns
        } else {
            change.work_limit_ns.min(change.eased_limit_ns)
        }
    }

    /// When it was finished: T6.
    #[inline]
    pub(crate) fn finish_ns(&self) -> u64 {
        self.arrival_ns + self.measured_ns.saturating_sub(self.stack_ns)
    }
}

/// Ranks the jobs by when they were finished; returns their places in that order.
pub(super) fn finishing_order(jobs: &mut [Job]) -> Vec<u32> {
    let mut finished: Vec<u32> = (0..jobs.len() as u32).collect();
    finished.sort_by_key(|&i| jobs[i as usize].finish_ns());
    for (rank, &i) in (0..).zip(&finished) {
        jobs[i as usize].rank = rank;
    }
    finished
}

/// What a replay needs of a recording; made by [`Observed::build`].
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// In the order in which they arrive at the queue.
    pub(crate) requests: Vec<Job>,
    /// One for each server of the queue.
    pub(crate) vacations: Vec<Vacations>,
    /// What the vacations' sources are.
    pub(crate) sources: Vec<VacationSource>,
    /// The threads that served requests.
    pub(crate) workers: Vec<Tid>,
    /// All of these are real-time threads, or none is; `None` where neither is known.
    pub(crate) real_time: Option<bool>,
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
}

/// What takes a server away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VacationSource {
    pub(crate) cause: Cause,
    pub(crate) culprit: Option<Culprit>,
    /// It is a thread of the server that does something other than requests.
    pub(crate) own: bool,
}

impl VacationSource {
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
        let counted = |job: &&Job| job.block != UNCOUNTED;
        self.requests.iter().filter(counted).count()
    }

    /// There are more workers than servers of the queue: they share CPUs.
    pub(crate) fn workers_share_servers(&self) -> bool {
        !self.servers_are_workers && self.workers.len() > self.vacations.len()
    }

    /// Workers read several requests before they answer the first of them, often enough.
    pub(crate) fn answers_in_batches(&self) -> bool {
        self.batched * 1_000 > self.requests.len() as u64
    }

    /// The cause takes servers away, or lets workers sleep or wake up.
    pub(crate) fn shows(&self, cause: Cause) -> bool {
        let slept = |job: &Job| job.blocked_ns > 0 && job.blocked_cause == cause as u8;
        let mut away = self.by_source().into_iter().zip(&self.sources);
        (cause == Cause::Wakeup && !self.wakes_ns.is_empty())
            || (cause == Cause::Retransmit && self.loses())
            || away.any(|(time, source)| time > 0 && source.cause == cause)
            || self.requests.iter().any(slept)
    }

    /// No change: the queue as it was, of this discipline.
    pub(crate) fn unchanged(&self, discipline: Discipline) -> Change {
        Change::none(self.sources.len(), discipline)
    }

    /// T6 − T1 of a request whose response leaves at `at_ns`.
    #[inline]
    pub(crate) fn sojourn_ns(&self, i: usize, at_ns: u64) -> u64 {
        let job = &self.requests[i];
        (at_ns + job.stack_ns).saturating_sub(job.arrival_ns)
    }

    /// The wake-up that request `i` has to wait for when it finds its server idle since `free_ns`.
    pub(super) fn wake_ns(
        &self,
        change: &Change,
        keeps_awake: &[bool],
        i: usize,
        (vacations, cursor): (&Vacations, &mut Cursor),
        free_ns: u64,
    ) -> u64 {
        let job = &self.requests[i];
        let arrival = job.arrival_ns;
        if change.no_wake {
            return 0;
        }
        let measured = job.wake_ns;
        if measured != NONE {
            let exit = job.exit_wake_ns;
            let exit = if change.no_exit { exit } else { 0 };
            return u64::from(measured.saturating_sub(exit));
        }
        let sample = &self.wakes_ns;
        if sample.is_empty() {
            return 0;
        }
        let limits = &change.limits;
        // it has not had the time to go to sleep
        let linger = self.linger_ns.max(1);
        let mut since = *cursor;
        if vacations.finish(&mut since, limits, free_ns, linger) > arrival {
            return 0;
        }
        if vacations.is_awake_at(cursor, limits, keeps_awake, arrival) {
            return 0;
        }
        // the same draw for the same request in every replay
        u64::from(sample[place_of(i, sample.len())])
    }

    /// Vacation by source, over all servers, in nanoseconds.
    pub(crate) fn by_source(&self) -> Vec<u64> {
        let mut sums = vec![0_u64; self.sources.len()];
        for (_, length, source) in self.vacations.iter().flat_map(Vacations::iter) {
            sums[usize::from(source)] += u64::from(length);
        }
        sums
    }
}

/// A place in a table of `length` for request `i`, evenly (SplitMix64's mix, Steele, Lea and
/// Flood 2014).
fn place_of(i: usize, length: usize) -> usize {
    let mut z = (i as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % length as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::super::agreement::{change, departures, observed};
    use super::super::change::{Order, Sharing};
    use super::*;

    #[test]
    fn only_requests_that_slept_for_it_lose_the_work_of_it() {
        let mut observed = observed(&[(0, 400, 0, 0), (1_000, 400, 0, 0)], &[vec![]]);
        observed.requests[0].slept = 1 << Cause::BlockedIo as u32;
        let eased = |cause| {
            let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
            change.ease(cause, 100);
            departures(&observed, &change)
        };
        assert_eq!(eased(Cause::BlockedIo), [100, 1_400]);
        assert_eq!(eased(Cause::BlockedFault), [400, 1_400]);
    }
}
