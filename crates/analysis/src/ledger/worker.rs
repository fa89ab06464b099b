//! The state of a worker while the attribution follows its timeline.

use std::collections::VecDeque;

use taillab_model::{Monotonic, Tid};

use super::common::FreeWorker;
use super::events::RequestId;
use super::history::WorkerHistory;
use super::label::Label;
use super::trace::Trace;
use crate::timeline::{Question, SpanCursor, WorkerLine, WorkerSpan, WorkerState};

/// What the requests of a busy period can inherit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inheritance {
    /// The delay in the worker's history at which its busy period began. What came after it can be
    /// inherited.
    pub(super) from: u64,
    /// What can be inherited from its CPU's time before that: the CPU, the end of its history at that time,
    /// and the delay at which the CPU's busy period began.
    pub(super) cpu: Option<(usize, u64, u64)>,
}

/// The CPUs that count the worker while it has requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountingCpus {
    /// As active.
    pub(super) active: Option<usize>,
    /// As waiting; preempted or not.
    pub(super) waiting: Option<(usize, bool)>,
    /// As asleep, though it should be woken.
    pub(super) unwoken: Option<usize>,
    /// As one whose time is the shared queue's; whether it has no request of its own.
    pub(super) capacity: Option<(usize, bool)>,
}

/// The page faults of a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    times_ns: Vec<u64>,
    next: usize,
    /// The last one that was left behind with a window of the recording.
    before_ns: Option<u64>,
    /// Time of faults in this service that is not charged yet.
    uncharged_ns: u64,
}

impl Faults {
    fn read_on(&mut self, line: &WorkerLine) {
        if let Some(last) = self.next.checked_sub(1) {
            self.before_ns = Some(self.times_ns[last]);
        }
        let faults = line.faults().map(Monotonic::nanos_since_boot);
        self.times_ns = faults.filter(|at| Some(*at) > self.before_ns).collect();
        self.next = 0;
    }

    /// Passes those before `at_ns`; returns how many.
    fn pass(&mut self, at_ns: u64) -> u64 {
        let begin = self.next;
        while self.times_ns.get(self.next).is_some_and(|&at| at < at_ns) {
            self.next += 1;
        }
        (self.next - begin) as u64
    }

    /// A service begins.
    pub(super) fn begin_service(&mut self, at_ns: u64) {
        self.uncharged_ns = 0;
        self.pass(at_ns);
    }

    /// How much of the `length_ns` before `to_ns` the faults of this service took, at `cost_ns` each.
    pub(super) fn charge(&mut self, to_ns: u64, length_ns: u64, cost_ns: u64) -> u64 {
        self.uncharged_ns += self.pass(to_ns) * cost_ns;
        let charged = length_ns.min(self.uncharged_ns);
        self.uncharged_ns -= charged;
        charged
    }
}

/// A part of a sleep, in nanoseconds since boot, and what it is charged to.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelledPart {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) label: Label,
}

/// A worker, and its requests.
#[derive(Default)]
pub(super) struct Worker {
    pub(super) tid: Tid,
    /// The place of its line in the timeline, and the place in that line.
    line: Option<usize>,
    spans: SpanCursor,
    pub(super) state: WorkerState,
    /// When `state` ends; never before the attribution's time while there are requests.
    pub(super) until_ns: u64,
    /// When `state` began.
    pub(super) state_since_ns: u64,
    /// The number of its busy period, by which events of an earlier one are recognised.
    pub(super) busy_period: u32,
    pub(super) history: WorkerHistory,
    /// The CPU that it was on last.
    pub(super) home: Option<usize>,
    /// What holds its requests up while it is not attached to a CPU, and the time up to which that is in
    /// its history.
    pub(super) own: Label,
    pub(super) own_upto_ns: u64,
    /// What it waits for in the end while it sleeps, where that is not `own`: the last part first.
    pub(super) chain: Vec<LabelledPart>,
    /// The question to another server whose answer it sleeps for, where that was seen.
    pub(super) question: Option<Question>,
    /// What it has last waited for at another server, and where that ends in `history`.
    pub(super) asked: Option<(Label, u64)>,
    /// Its `SlowService` label, once that was needed.
    pub(super) slow_service: Option<Label>,
    pub(super) outstanding: usize,
    pub(super) counted: CountingCpus,
    /// For how long it has waited for its CPU while others of the server worked there, except for the present
    /// wait: that began when the CPU (its index) had been worked on for so long.
    pub(super) behind_ns: u64,
    pub(super) behind_since: Option<(usize, u64)>,
    /// The CPU on which it was last counted among those that share it.
    pub(super) shares: Option<usize>,
    pub(super) inheritance: Inheritance,
    /// The queue that it shares with others.
    pub(super) queue: Option<usize>,
    /// It has no request, and is followed since others wait in its queue.
    pub(super) lent: bool,
    /// Since when it has been free for its next request, if it has left its previous one or was woken.
    pub(super) free: FreeWorker,
    pub(super) woken: FreeWorker,
    pub(super) serving: Option<RequestId>,
    /// Requests that it began while it served another. Their places show whether they have left meanwhile.
    pub(super) pending: VecDeque<(RequestId, usize)>,
    /// Time that it may still take for what it serves or has served.
    pub(super) budget_ns: u64,
    /// The time that it may take beyond that, from what the stack leaves of ρ.
    pub(super) spare_ns: u64,
    /// How much longer the service may take because its CPU is slower than usual.
    pub(super) slower_ns: u64,
    pub(super) faults: Faults,
    pub(super) trace: Trace,
    pub(super) previous_t6_ns: u64,
    pub(super) served_ns: u64,
}

impl Worker {
    pub(super) fn new(tid: Tid, unknown: Label) -> Self {
        Self {
            tid,
            own: unknown,
            ..Self::default()
        }
    }

    /// Whether its states matter: it has requests, or could take one.
    pub(super) const fn is_followed(&self) -> bool {
        self.outstanding > 0 || self.lent
    }

    /// Continues in the next window's `line`, at `from_ns`, where the previous window ended.
    pub(super) fn read_on(&mut self, place: usize, line: &WorkerLine, from_ns: u64) {
        self.line = Some(place);
        self.faults.read_on(line);
        let from_ns = from_ns.min(self.until_ns.saturating_sub(1));
        self.spans = line.cursor_from(Monotonic::from_nanos_since_boot(from_ns));
        if from_ns > 0
            && let Some(span) = self.spans.next(line)
        {
            // the end of the previous window may have truncated it
            self.enter(&span);
        }
    }

    /// Enters its next state; returns `false` if there is none.
    pub(super) fn next_state(&mut self, lines: &[WorkerLine]) -> bool {
        let line = self.line.map(|place| &lines[place]);
        match line.and_then(|line| self.spans.next(line)) {
            Some(span) => {
                self.enter(&span);
                true
            }
            None => {
                self.until_ns = u64::MAX;
                false
            }
        }
    }

    fn enter(&mut self, span: &WorkerSpan) {
        if self.state != span.state {
            self.state_since_ns = span.from.nanos_since_boot();
        }
        self.state = span.state;
        self.until_ns = match self.spans.following() {
            Some(_) => span.to.nanos_since_boot(),
            None => u64::MAX,
        };
    }

    /// The thread that will wake it, if it is known.
    pub(super) fn waker(&self) -> Option<Tid> {
        match self.spans.following() {
            Some(WorkerState::Woken { by, .. }) if by != 0 => Some(by),
            _ => None,
        }
    }
}
