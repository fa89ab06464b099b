//! The recorded queue: arrivals, work, and when its servers were unavailable.

use taillab_model::Tid;
use taillab_model::explanation::{Cause, Culprit};
use taillab_queueing::random::lanes::split_mix;

use super::change::{Change, Discipline, Order};
use super::vacations::{Cursor, Vacations};
use crate::speed::Speed;

/// An unknown length.
pub(crate) const NONE: u64 = u64::MAX;

/// A request that is sent less late than this came when it was due. To move it would only lose what is known of
/// its wake-up.
const LATE_SEND_NS: u64 = 1_000;

/// The [`Job::block`] of a request that is replayed only for the state of the queue.
pub(crate) const UNCOUNTED: u8 = u8::MAX;

/// A request as a job of the queue. Times count from one origin.
///
/// It occupies its server for `before_ns` until its response leaves, and then for `after_ns` (the worker
/// returns from its call and looks for more, or goes to sleep). Both are the worker's own time on its
/// CPU, without anything that interrupted it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// When it arrives: T2.
    pub(crate) arrival_ns: u64,
    /// T2 − T1, kept as measured.
    pub(crate) stack_ns: u64,
    /// The part of it caused by a retransmission on its connection.
    pub(crate) lost_ns: u64,
    /// How much later than it was due our own client sent it.
    pub(crate) sent_late_ns: u64,
    /// The part of `stack_ns` spent waiting for the end of one vacation of the receiving CPU.
    pub(crate) held_ns: u64,
    /// The source of that vacation.
    pub(crate) held_by: u16,
    /// T6 − T1 as measured.
    pub(crate) measured_ns: u64,
    /// Work until T6.
    pub(crate) before_ns: u64,
    /// Work after T6.
    pub(crate) after_ns: u64,
    /// Time for which the worker slept in the middle of it.
    pub(crate) blocked_ns: u64,
    /// The cause of `blocked_ns`, if that is not 0: a place in [`Cause::ALL`].
    pub(crate) blocked_cause: u8,
    /// All causes for which the worker slept in the middle of it: a bit for each place in [`Cause::ALL`].
    pub(crate) slept: u32,
    /// Idle time of the CPU from the arrival until the worker ran; [`NONE`] if the CPU was not idle.
    pub(crate) wake_ns: u64,
    /// If another thread had the CPU when it arrived: for how long the wake-up of the worker was under way, so
    /// that the other thread delayed nobody; [`NONE`] if the worker was not woken so.
    pub(crate) way_ns: u64,
    /// The part of `stack_ns` in which the CPU left a power state.
    pub(crate) exit_stack_ns: u64,
    /// The part of `wake_ns` in which the CPU left a power state.
    pub(crate) exit_wake_ns: u64,
    /// The worker had not slept since its last response.
    pub(crate) awake: bool,
    /// The probe was blind while it was served; `blocked_ns` includes that time.
    pub(crate) hidden: bool,
    /// The part of `before_ns` until the worker slept for the first time, if it did.
    pub(crate) first_ns: u64,
    /// The part of `before_ns` that the worker does before it answers the first request of the batch.
    pub(crate) compute_ns: u64,
    /// The rest of `before_ns`: the answer itself.
    pub(crate) reply_ns: u64,
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
    /// A job of which nothing is known.
    fn default() -> Self {
        Self {
            arrival_ns: 0,
            stack_ns: 0,
            lost_ns: 0,
            sent_late_ns: 0,
            held_ns: 0,
            held_by: 0,
            measured_ns: 0,
            before_ns: NONE,
            after_ns: NONE,
            blocked_ns: 0,
            blocked_cause: 0,
            slept: 0,
            wake_ns: NONE,
            way_ns: NONE,
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
    /// For how long the worker sleeps in the middle of it, under `change`.
    #[inline]
    pub(crate) fn blocked_ns(&self, change: &Change) -> u64 {
        let unblocked = change.unblocked >> u32::from(self.blocked_cause) & 1 == 1;
        if unblocked { 0 } else { self.blocked_ns }
    }

    /// How much earlier it is sent under `change`.
    #[inline]
    pub(crate) fn sent_earlier_ns(&self, change: &Change) -> u64 {
        let is_late = change.on_schedule && self.sent_late_ns >= LATE_SEND_NS;
        if is_late {
            self.sent_late_ns.min(self.arrival_ns)
        } else {
            0
        }
    }

    /// How much earlier, once it is sent, it reaches the socket under `change`.
    #[inline]
    pub(crate) fn late_ns(&self, change: &Change) -> u64 {
        if change.no_loss && self.lost_ns > 0 {
            return self.lost_ns;
        }
        if self.held_ns == 0 {
            return 0;
        }
        let limit = change.limits[usize::from(self.held_by)];
        self.held_ns.saturating_sub(limit)
    }

    /// Work until T6, under `change`.
    #[inline]
    pub(super) fn before_ns(&self, change: &Change) -> u64 {
        self.before_ns.min(self.work_limit_ns(change))
    }

    /// The part of [`Self::before_ns`] that follows a sleep in the middle of it, under `change`.
    #[inline]
    pub(super) fn rest_ns(&self, change: &Change) -> u64 {
        // where the probe was blind, it is not known what came first
        if self.blocked_ns(change) == 0 || self.hidden || self.is_sent_late() {
            return 0;
        }
        self.before_ns(change).saturating_sub(self.first_ns)
    }

    /// The place of this request, number `i`, in the order of `change`.
    #[inline]
    pub(super) fn rank(&self, i: usize, change: &Change) -> u32 {
        match change.discipline.order {
            Order::Arrival | Order::ByWorker | Order::Batches => i as u32,
            Order::AsMeasured | Order::AsMeasuredPreemptive => self.rank,
        }
    }

    /// Whether the kernel sends the response late, which keeps no worker busy.
    #[inline]
    pub(super) fn is_sent_late(&self) -> bool {
        self.blocked_cause == Cause::StackTx as u8
    }

    /// The maximum work until its response under `change`.
    #[inline]
    pub(crate) fn work_limit_ns(&self, change: &Change) -> u64 {
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

/// A recorded queue, as a replay needs it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Time 0 of the queue, in nanoseconds since boot.
    pub(crate) origin_ns: u64,
    /// When the CPUs were slower than usual.
    pub(crate) speed: Speed,
    /// In the order in which they arrive at the queue.
    pub(crate) requests: Vec<Job>,
    /// The vacations of each server of the queue.
    pub(crate) vacations: Vec<Vacations>,
    /// The sources of vacations.
    pub(crate) sources: Vec<VacationSource>,
    /// The threads that served requests.
    pub(crate) workers: Vec<Tid>,
    /// Whether the workers are real-time threads; `None` if some are and some are not, or if it is unknown.
    pub(crate) real_time: Option<bool>,
    /// The servers of the queue are the workers, and not the CPUs that they share.
    pub(crate) servers_are_workers: bool,
    /// There are several workers, and each connection was served by only one of them.
    pub(crate) connections_are_bound: bool,
    /// A sorted sample of measured wake-ups, from which wake-ups that were not measured are drawn: the length
    /// of each, and how much of it the CPU needed to leave a deep power state.
    pub(crate) wakes_ns: Vec<(u64, u64)>,
    /// A sorted sample of [`Job::way_ns`], for the same.
    pub(crate) ways_ns: Vec<u64>,
    /// The worker's usual work after a response before it can take the next request.
    pub(crate) linger_ns: u64,
    /// The number of requests that were read together with another one and answered after it.
    pub(crate) batched: u64,
    /// How long the server's CPUs received responses for their clients, which is a part of the work of requests.
    pub(crate) receives_responses_ns: u64,
    /// The number of blocks of time.
    pub(crate) blocks: usize,
    /// Everything was recorded in slices, and their requests are replayed.
    pub(crate) in_slices: bool,
    /// The number of requests of the measurement; more than in `requests` if only part is replayed.
    pub(crate) measured_requests: u64,
    /// The number of requests whose worker is unknown. The median is assumed for their work.
    pub(crate) without_worker: u64,
}

/// The source of vacations: what makes a server unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VacationSource {
    pub(crate) cause: Cause,
    pub(crate) culprit: Option<Culprit>,
    /// Whether it is one of the server's own threads, doing work other than requests.
    pub(crate) own: bool,
}

impl VacationSource {
    /// Whether the CPU is busy meanwhile, so that it need not be woken.
    pub(crate) fn keeps_awake(&self) -> bool {
        matches!(
            self.cause,
            Cause::Background | Cause::Hypervisor | Cause::Unobserved
        )
    }
}

impl Observed {
    /// The requests that count.
    pub(super) fn counted(&self) -> impl Iterator<Item = &Job> {
        let requests = self.requests.iter();
        requests.filter(|job| job.block != UNCOUNTED)
    }

    /// The number of requests that are replayed and counted.
    pub fn replayed(&self) -> usize {
        self.counted().count()
    }

    /// There are more workers than servers of the queue: they share CPUs.
    pub(crate) fn workers_share_servers(&self) -> bool {
        !self.servers_are_workers && self.workers.len() > self.vacations.len()
    }

    /// Whether workers often read several requests before they answer the first of them.
    pub(crate) fn answers_in_batches(&self) -> bool {
        self.batched * 1_000 > self.requests.len() as u64
    }

    /// Whether the cause delays anything here: vacations, sleeps, wake-ups or losses.
    pub(crate) fn shows(&self, cause: Cause) -> bool {
        let slept = |job: &Job| job.blocked_ns > 0 && job.blocked_cause == cause as u8;
        let mut away = self.by_source().into_iter().zip(&self.sources);
        (cause == Cause::Wakeup && !self.wakes_ns.is_empty())
            || (cause == Cause::Retransmit && self.has_losses())
            || (cause == Cause::SlowCpu && !self.speed.is_always_usual())
            || away.any(|(time, source)| time > 0 && source.cause == cause)
            || self.requests.iter().any(slept)
    }

    /// No change, with this discipline.
    pub(crate) fn unchanged(&self, discipline: Discipline) -> Change {
        Change::none(self.sources.len(), discipline)
    }

    /// Whether our own client sent requests later than they were due.
    pub(crate) fn has_late_sends(&self) -> bool {
        (self.requests.iter()).any(|job| job.sent_late_ns >= LATE_SEND_NS)
    }

    /// T6 − T1 of a request whose response leaves at `at_ns`.
    #[inline]
    pub(crate) fn sojourn_ns(&self, i: usize, at_ns: u64) -> u64 {
        let job = &self.requests[i];
        (at_ns + job.stack_ns).saturating_sub(job.arrival_ns)
    }

    /// The wake-up that delays request `i` when it finds its server idle since `free_ns`.
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
        let wake = |(wake, exit): (u64, u64)| {
            let exit = if change.no_exit { exit } else { 0 };
            wake.saturating_sub(exit)
        };
        if job.wake_ns != NONE {
            return wake((job.wake_ns, job.exit_wake_ns));
        }
        let sample = &self.wakes_ns;
        if sample.is_empty() && self.ways_ns.is_empty() {
            return 0;
        }
        let limits = &change.limits;
        // the server has not had the time to go to sleep
        let linger = self.linger_ns.max(1);
        let mut since = *cursor;
        if vacations.finish(&mut since, limits, free_ns, linger) > arrival {
            return 0;
        }
        if vacations.is_awake_at(*cursor, limits, keeps_awake, arrival) {
            return 0;
        }
        if vacations.is_awake_at(*cursor, &change.awake, keeps_awake, arrival) {
            return self.way_ns(i);
        }
        wake(drawn(sample, i).unwrap_or_default())
    }

    /// How long it takes until the thread that has the CPU gives way to the worker of request `i`.
    fn way_ns(&self, i: usize) -> u64 {
        match self.requests[i].way_ns {
            NONE => drawn(&self.ways_ns, i).unwrap_or(0),
            way => way,
        }
    }

    /// How long the server's CPUs receive a response for its client, on average; `None` where they do not.
    pub(crate) fn receives_response_ns(&self) -> Option<u64> {
        let each = self.receives_responses_ns / self.requests.len().max(1) as u64;
        (each > 0).then_some(each)
    }

    /// The total of all servers' vacations by source, in nanoseconds.
    pub(crate) fn by_source(&self) -> Vec<u64> {
        let mut sums = vec![0_u64; self.sources.len()];
        for (_, length, source) in self.vacations.iter().flat_map(Vacations::iter) {
            sums[usize::from(source)] += length;
        }
        sums
    }
}

/// One of a sample; every replay draws the same for the same request.
fn drawn<T: Copy>(sample: &[T], i: usize) -> Option<T> {
    let place = split_mix(&mut (i as u64)).checked_rem(sample.len() as u64)?;
    sample.get(place as usize).copied()
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
