//! Queues that several workers share: what their workers lost, and how far their work lags.
//!
//! # What a request inherits
//!
//! A request waits in such a queue until a worker is free for it; which one that is matters little. So it inherits
//! from the history of the *queue*: the **lost capacity**, which is all delays of all its workers while they had
//! requests, or could have taken one that waited. Where one worker of c is held up for 1 ms, the queue loses 1 ms of
//! the c ms that its workers have.
//!
//! Let U be the work in the queue (what is left of the requests that wait or are served) and U* that in the ideal
//! queue with c workers and the same arrivals. The **lag** U − U* grows with the capacity that the real queue loses
//! while the ideal one works, and shrinks where the real one works and the ideal one has run out of work. So the
//! lag that a request finds is what remains of the lost capacity, and as for one worker, the oldest is caught up
//! first. While the request waits, all workers are busy with what came before it, or lost.
//!
//! Let H be the part of its wait that the ideal queue does not have. It is charged to **the last c·H nanoseconds of
//! the lost capacity** up to the moment at which its worker was free for it, since each of them delays it by 1/c of a
//! nanosecond while the other workers still have something to do before it. Further back than the lag that it
//! found, nothing is charged: that was caught up. If the lost capacity is less than c·H, so that the other workers
//! had no work before it, each nanosecond of it counts for more, in proportion, but for at most one: taking an
//! interval away from one server of a queue (first come, first served) makes no request begin later by more than
//! its length. (In the sorted list of the times at which servers are free, no entry moves by more, and the
//! recursion of Kiefer and Wolfowitz never moves two lists further apart.)
//!
//! Receive softirqs for later packets, within ρ, are not lost: they are work that is done early. But they keep one
//! worker from what it serves while the others go on, so a request may wait for them that would not have met them in
//! the ideal queue. What is left of H is charged to them (`softirq`), as far as they came in the services that it
//! found or while it waited. What is left then is `unexplained`.
//!
//! With c = 1, the lost capacity is the history of the one worker, H is the lag and what was lost since, and the rule
//! is that of a queue of its own.
//!
//! # When its worker was free for it
//!
//! That is when the worker that served it had answered its previous request. A worker that slept then is free
//! from T2 on, and what delays its wake-up holds the request up directly; unless the wake-up for the request went
//! to another worker that could not run. Then the request waited for that one, until another request woke its
//! worker.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use taillab_model::Nanos;
use taillab_queueing::ideal::IdealQueue;

use super::cpu::Capacity;
use super::history::{CpuHistory, Position};
use super::label::Label;
use super::lengths::Lengths;

/// A queue that several workers share.
pub(super) struct CommonQueue {
    /// Its workers' places.
    pub(super) workers: Vec<usize>,
    /// c: how many of them can work at the same time.
    servers: u64,
    /// There are more, since some share a CPU.
    shares_cpus: bool,
    service_time: Nanos,
    /// The capacity that they lost.
    history: CpuHistory,
    /// The part of that which was lost by workers that had no request and could have taken one.
    lost_idle_ns: u64,
    /// For how long the CPUs of its workers were in receive softirqs, within ρ.
    received_ns: u64,
    ideal: IdealQueue,
    /// When the requests in the ideal queue leave.
    ideal_leaves_ns: VecDeque<u64>,
    /// Requests between T1 and T6.
    open: usize,
    /// Of these, the ones at the socket that no worker has begun.
    pub(super) waiting: usize,
    /// How many have come to the socket.
    turns: usize,
    /// When the last of these begins.
    pub(super) waits_until_ns: u64,
}

impl CommonQueue {
    /// A queue of `workers`, of which at most `servers` can work at the same time.
    pub(super) fn new(service_time: Nanos, workers: usize, servers: NonZeroU32) -> Self {
        let servers = u32::try_from(workers).map_or(servers, |workers| {
            NonZeroU32::new(workers).map_or(servers, |workers| workers.min(servers))
        });
        Self {
            workers: Vec::new(),
            servers: servers.get().into(),
            shares_cpus: (servers.get() as usize) < workers,
            service_time,
            history: CpuHistory::default(),
            lost_idle_ns: 0,
            received_ns: 0,
            ideal: IdealQueue::new(service_time, servers),
            ideal_leaves_ns: VecDeque::new(),
            open: 0,
            waiting: 0,
            turns: 0,
            waits_until_ns: 0,
        }
    }

    /// The measurement begins: the ideal queue has no more work than is left of the server's requests.
    pub(super) fn measurement_begins(&mut self, at_ns: u64) {
        let (at, open) = (Nanos::new(at_ns), self.open as u64);
        self.ideal.limit_to(at, open);
        let latest = at + self.service_time * open.div_ceil(self.servers);
        for leaves_ns in &mut self.ideal_leaves_ns {
            *leaves_ns = (*leaves_ns).min(latest.get());
        }
    }

    /// A request arrives, and is not at its socket yet.
    pub(super) fn arrives(&mut self, t1_ns: u64) {
        if self.open == 0 {
            self.history.clear();
        }
        self.open += 1;
        let sojourn = self.ideal.sojourn(Nanos::new(t1_ns));
        self.ideal_leaves_ns.push_back(t1_ns + sojourn.get());
    }

    /// A request is at the socket, and lost `held_up` on its way there, beyond what is usual. Returns what it may
    /// inherit, and its place in the order at the socket.
    pub(super) fn comes(
        &mut self,
        at_ns: u64,
        done: &WorkDone,
        held_up: impl Iterator<Item = (Label, u64)>,
    ) -> (CommonWait, usize) {
        let lag_ns = self.lag_ns(at_ns, done.work_ns);
        // until then the workers could not have it
        for (label, ns) in held_up {
            self.history.push(label, ns);
        }
        self.waiting += 1;
        self.turns += 1;
        let end = self.history.end().delay_ns;
        let wait = CommonWait {
            from: end.saturating_sub(lag_ns),
            to: end,
            received_ns: done.received_ns,
            received_before_ns: self.received_ns,
            wait_ns: 0,
            order_ns: 0,
            lost_idle_ns: self.lost_idle_ns,
        };
        (wait, self.turns)
    }

    /// A request is answered.
    pub(super) const fn leaves(&mut self) {
        self.open -= 1;
    }

    /// A CPU on which its workers are was in receive softirqs, within ρ.
    #[inline]
    pub(super) const fn receives(&mut self, length: u64) {
        self.received_ns += length;
    }

    /// A CPU on which so many of its workers are loses `length`.
    #[inline]
    pub(super) fn loses(&mut self, label: Label, length: u64, there: &Capacity) {
        let most = if self.shares_cpus { 1 } else { u64::MAX };
        self.history.push(label, length * there.workers.min(most));
        self.lost_idle_ns += length * there.lent.min(most);
    }

    /// U − U*, or 0, in nanoseconds of a worker.
    fn lag_ns(&mut self, at_ns: u64, done_ns: u64) -> u64 {
        let t = self.service_time.get();
        while (self.ideal_leaves_ns.front()).is_some_and(|leaves_ns| *leaves_ns <= at_ns) {
            self.ideal_leaves_ns.pop_front();
        }
        let served = (self.ideal_leaves_ns.iter()).take(self.servers as usize);
        let left: u64 = served.map(|leaves_ns| (leaves_ns - at_ns).min(t)).sum();
        let waiting = self.ideal_leaves_ns.len() as u64;
        let ideal = left + waiting.saturating_sub(self.servers) * t;
        let real = (self.open as u64 * t).saturating_sub(done_ns);
        real.saturating_sub(ideal)
    }

    /// One of its workers is off its CPU for `length`, in the middle of a request.
    pub(super) fn sleeps(&mut self, label: Label, length: u64) {
        self.history.push(label, length);
    }

    /// What it has lost until now.
    pub(super) const fn lost(&self) -> QueueLoss {
        QueueLoss {
            all_ns: self.history.end().delay_ns,
            idle_ns: self.lost_idle_ns,
            received_ns: self.received_ns,
        }
    }

    /// Adds to `lost`, by label, what a request inherits that waited for `wanted` nanoseconds longer than in the
    /// ideal queue. Returns how much it inherits: at most `wanted`. `visit` gives the lost capacity between two
    /// positions of the history.
    pub(super) fn inherit(
        &self,
        wait: &CommonWait,
        wanted: u64,
        lost: &mut Lengths,
        visit: impl FnOnce(&CpuHistory, u64, u64, &mut Lengths),
    ) -> u64 {
        lost.clear();
        let most = wanted.saturating_mul(self.servers);
        let from = wait.to.saturating_sub(most).max(wait.from);
        let all = self.history.kept_ns(from, wait.to);
        let given = wanted.min(all);
        if given > 0 {
            visit(&self.history, from, wait.to, lost);
            lost.scale(given, all);
        }
        given
    }
}

/// The wait of a request in a queue that several workers share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CommonWait {
    /// The stretch of the lost capacity that it may inherit: what lagged when it came, and what was lost until its
    /// worker was free for it.
    from: u64,
    to: u64,
    /// Receive softirqs within ρ in the services that it found and until its worker was free for it, and all of those
    /// before it came.
    pub(super) received_ns: u64,
    received_before_ns: u64,
    /// How long that took.
    pub(super) wait_ns: u64,
    /// The part of that in which it was late, since its worker served later arrivals.
    pub(super) order_ns: u64,
    /// What workers without a request had lost when it came.
    lost_idle_ns: u64,
}

impl CommonWait {
    /// Its worker was free for it at `since`.
    pub(super) const fn ends(&mut self, since: &FreeWorker, queued_ns: u64) {
        self.to = since.lost.all_ns;
        self.received_ns += since.lost.received_ns - self.received_before_ns;
        self.wait_ns = since.at_ns - queued_ns;
    }

    /// Whether the wake-up for this request, which came at `queued_ns`, went to a worker that could not run until the
    /// worker that served it was woken.
    pub(super) const fn went_elsewhere(&self, woken: &FreeWorker, queued_ns: u64) -> bool {
        let lost_ns = woken.lost.idle_ns.saturating_sub(self.lost_idle_ns);
        2 * lost_ns > woken.at_ns.saturating_sub(queued_ns) && woken.at_ns > queued_ns
    }
}

/// A moment since which a worker is free for its next request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FreeWorker {
    pub(super) at_ns: u64,
    /// The end of its history.
    pub(super) position: Position,
    /// For how long it had waited behind others on its CPU.
    pub(super) behind_ns: u64,
    /// The end of its trace.
    pub(super) traced: usize,
    /// What its queue had lost.
    pub(super) lost: QueueLoss,
}

/// What a queue has lost, in nanoseconds of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueLoss {
    all_ns: u64,
    /// The part of that which workers without a request have lost.
    idle_ns: u64,
    /// Receive softirqs within ρ, which are not lost.
    received_ns: u64,
}

/// What the workers of a queue have done for the requests that they serve, t each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkDone {
    pub(super) work_ns: u64,
    /// For how long they were interrupted by receive softirqs within ρ.
    pub(super) received_ns: u64,
}
