//! The queue that is replayed, and what of it is different from the measurement.

use taillab_model::explanation::Cause;

/// Which of the requests that wait is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Order {
    /// The one that came first.
    Arrival,
    /// That of the worker that became busy first, which serves all that it has: workers that
    /// share a CPU and do not take it from each other, as under SCHED_FIFO.
    ByWorker,
    /// All that wait when the worker looks: it reads them all and then answers them all, in
    /// the order of the measurement; those that come meanwhile wait for the next time.
    Batches,
    /// The one that was finished first in the measurement.
    AsMeasured,
    /// The same, and it takes the server from one that was finished later.
    AsMeasuredPreemptive,
}

/// Who may serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Sharing {
    /// The server that did.
    Assigned,
    /// Any server.
    Shared,
}

/// The queue that is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Discipline {
    pub(crate) sharing: Sharing,
    pub(crate) order: Order,
}

/// What is different from the measurement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Change {
    pub(crate) discipline: Discipline,
    /// For each source, how long its vacations last at most: 0 takes it away, `u32::MAX` leaves it as it was.
    pub(crate) limits: Vec<u32>,
    /// Servers are woken at once.
    pub(crate) no_wake: bool,
    /// CPUs do not go into power states.
    pub(crate) no_exit: bool,
    /// The work of a request until its response is at most this.
    pub(crate) work_limit_ns: u32,
    /// The same of those whose worker slept in them for one of these causes, a bit for each
    /// place in [`Cause::ALL`]: what made it sleep is not done at all.
    pub(crate) eased: u32,
    /// The most work that is left of them.
    pub(crate) eased_limit_ns: u32,
    /// Workers do not sleep for this cause in the middle of a request: a bit for each place
    /// in [`Cause::ALL`].
    pub(crate) unblocked: u32,
    /// Nothing is lost on its way, and has to be sent again.
    pub(crate) no_loss: bool,
    /// Servers that are taken out of service; the others take over their requests.
    pub(crate) fewer_servers: usize,
}

impl Change {
    /// None: the queue as it was, with this many sources, of this discipline.
    pub(super) fn none(sources: usize, discipline: Discipline) -> Self {
        Self {
            discipline,
            limits: vec![u32::MAX; sources],
            no_wake: false,
            no_exit: false,
            work_limit_ns: u32::MAX,
            eased: 0,
            eased_limit_ns: u32::MAX,
            unblocked: 0,
            no_loss: false,
            fewer_servers: 0,
        }
    }

    /// Workers no longer sleep for `cause` in the middle of a request.
    pub(crate) fn unblock(&mut self, cause: Cause) {
        self.unblocked |= 1 << cause as u32;
    }

    /// Requests in which workers slept for `cause` have the work of others, at most so much.
    pub(crate) fn ease(&mut self, cause: Cause, at_most_ns: u32) {
        self.eased |= 1 << cause as u32;
        self.eased_limit_ns = at_most_ns;
    }
}
