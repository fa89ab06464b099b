//! How a replay differs from the measurement.

use taillab_model::explanation::Cause;

/// Which waiting request is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Order {
    /// The one that arrived first.
    Arrival,
    /// One of the worker that became runnable first. That worker keeps the CPU until it has served
    /// everything that waits for it, as under SCHED_FIFO.
    ByWorker,
    /// Whenever the worker looks, it reads all waiting requests and then answers them all, in the order
    /// of the measurement. Requests that arrive meanwhile wait for the next time.
    Batches,
    /// The one that was finished first in the measurement.
    AsMeasured,
    /// As [`Self::AsMeasured`], and it preempts requests that were finished later.
    AsMeasuredPreemptive,
}

/// Who may serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Sharing {
    /// The server that served it in the measurement.
    Assigned,
    /// Any server.
    Shared,
}

/// A queueing discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Discipline {
    pub(crate) sharing: Sharing,
    pub(crate) order: Order,
}

/// The differences from the measurement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Change {
    pub(crate) discipline: Discipline,
    /// For each source, the maximum length of its vacations: 0 removes them, `u64::MAX` changes nothing.
    pub(crate) limits: Vec<u64>,
    /// For each source, how much of its vacations keeps the CPU awake. That is `limits`, or more where a
    /// thread only gives way to the server: it still runs in the time that the server leaves.
    pub(crate) awake: Vec<u64>,
    /// Wake-ups take no time.
    pub(crate) no_wake: bool,
    /// Leaving a power state takes no time.
    pub(crate) no_exit: bool,
    /// The maximum work of a request until its response.
    pub(crate) work_limit_ns: u64,
    /// Causes, a bit for each place in [`Cause::ALL`]. Requests in which the worker slept for one of them
    /// have a limit of their own, since the operation that made the worker sleep is not done at all.
    pub(crate) eased: u32,
    /// The work limit of those requests.
    pub(crate) eased_limit_ns: u64,
    /// Causes, a bit for each place in [`Cause::ALL`], for which workers no longer sleep in the middle of
    /// a request.
    pub(crate) unblocked: u32,
    /// No packet is lost, so nothing is retransmitted.
    pub(crate) no_loss: bool,
    /// Our own client sends each request when it is due.
    pub(crate) on_schedule: bool,
    /// The CPUs are never slower than usual.
    pub(crate) usual_speed: bool,
    /// The number of servers that are taken out of service; the others take over their requests.
    pub(crate) fewer_servers: usize,
}

impl Change {
    /// No change, for a queue with this many sources and this discipline.
    pub(super) fn none(sources: usize, discipline: Discipline) -> Self {
        Self {
            discipline,
            limits: vec![u64::MAX; sources],
            awake: vec![u64::MAX; sources],
            no_wake: false,
            no_exit: false,
            work_limit_ns: u64::MAX,
            eased: 0,
            eased_limit_ns: u64::MAX,
            unblocked: 0,
            no_loss: false,
            on_schedule: false,
            usual_speed: false,
            fewer_servers: 0,
        }
    }

    /// Workers no longer sleep for `cause` in the middle of a request.
    pub(crate) fn unblock(&mut self, cause: Cause) {
        self.unblocked |= 1 << cause as u32;
    }

    /// Requests in which workers slept for `cause` have at most this much work.
    pub(crate) fn ease(&mut self, cause: Cause, at_most_ns: u64) {
        self.eased |= 1 << cause as u32;
        self.eased_limit_ns = at_most_ns;
    }
}
