//! The threads of the server while events come.

use taillab_model::{Monotonic, Tid};

use super::codes::pack_state;
use super::column::Column;
use super::line::{WorkerLine, at as instant, ns};
use super::questions::Questions;
use super::state::WorkerState;
use crate::bound::Bound;
use crate::id_map::LastFound;

/// The most threads that are remembered. Servers may start one for each request, and none says that it ends.
pub(crate) const MOST_THREADS: usize = 1 << 16;

/// A thread of the server.
#[derive(Default)]
pub(super) struct OpenWorker {
    tid: Tid,
    /// The recording names it.
    pub(super) named: bool,
    pub(super) states: Column,
    pub(super) faults: Column,
    pub(super) questions: Questions,
    /// Its last page fault.
    pub(super) fault_ns: Option<u64>,
    /// The CPU on which it ran last, or will run next.
    pub(super) cpu: u16,
    pub(super) state: WorkerState,
}

impl OpenWorker {
    pub(super) fn set(&mut self, at: Monotonic, state: WorkerState) {
        self.state = state;
        self.states.push(ns(at), pack_state(state));
    }

    /// The thread was assumed to be on a core since `since_ns`, but at `at` it was not.
    pub(super) fn lost(&mut self, since_ns: u64, at: Monotonic) {
        self.state = WorkerState::Unknown;
        let unknown = pack_state(WorkerState::Unknown);
        self.states.rewrite(since_ns, ns(at), |_| unknown);
        self.states.push(ns(at), unknown);
    }

    /// When it last did something; boot if it has done nothing.
    fn last(&self) -> Monotonic {
        let last_ns = self.states.last_ns().max(self.faults.last_ns());
        instant(last_ns.unwrap_or(0))
    }
}

/// All threads of the server.
#[derive(Default)]
pub(super) struct OpenWorkers {
    all: Vec<OpenWorker>,
    /// The place of a thread in `all`.
    places: LastFound<usize>,
    /// Threads that were forgotten while they were in use, since there were too many.
    forgotten: u64,
}

impl OpenWorkers {
    pub(super) fn contains(&self, tid: Tid) -> bool {
        self.places.contains(tid)
    }

    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenWorker> {
        self.all.iter_mut()
    }

    pub(super) fn get(&mut self, tid: Tid) -> Option<&mut OpenWorker> {
        Some(&mut self.all[self.places.get(tid)?])
    }

    pub(super) fn get_or_add(&mut self, tid: Tid, cpu: u16) -> &mut OpenWorker {
        let place = match self.places.get(tid) {
            Some(place) => place,
            None => self.add(tid, cpu),
        };
        &mut self.all[place]
    }

    fn add(&mut self, tid: Tid, cpu: u16) -> usize {
        if Bound::<MOST_THREADS>::is_reached(self.all.len()) {
            let before = self.all.len();
            self.forget(instant(0));
            self.forgotten += (before - self.all.len()) as u64;
        }
        let place = self.all.len();
        self.all.push(OpenWorker {
            tid,
            cpu,
            ..OpenWorker::default()
        });
        self.places.insert(tid, place);
        place
    }

    /// Forgets threads that have done nothing since `idle`: most of them have ended. If there are too many
    /// others, those that have done nothing for longest are forgotten too.
    fn forget(&mut self, idle: Monotonic) {
        let unnamed = self.all.iter().filter(|worker| !worker.named);
        let seen = unnamed.map(OpenWorker::last);
        let recent = seen.filter(|&seen| seen > idle).collect();
        let upto = Bound::<MOST_THREADS>::upto(recent, idle);
        self.all
            .retain(|worker| worker.named || worker.last() > upto);
        self.places = LastFound::default();
        for (place, worker) in self.all.iter().enumerate() {
            self.places.insert(worker.tid, place);
        }
    }

    /// The lines so far, in order of the threads' ids. Almost everything before `keep_from` is dropped.
    pub(super) fn part(&mut self, keep_from: Monotonic, end_ns: u64) -> Vec<WorkerLine> {
        let mut lines = Vec::with_capacity(self.all.len());
        for worker in &mut self.all {
            let has_none = |column: &Column| column.last_ns().is_none();
            let is_idle = has_none(&worker.states) && has_none(&worker.faults);
            if is_idle && worker.questions.is_empty() {
                continue;
            }
            lines.push(WorkerLine {
                tid: worker.tid,
                states: worker.states.part(ns(keep_from)),
                faults: worker.faults.part(ns(keep_from)),
                questions: worker.questions.part(ns(keep_from)),
                end_ns,
            });
        }
        lines.sort_by_key(|line| line.tid);
        // all of them have just been gone through
        if Bound::<MOST_THREADS>::are_many(self.all.len()) {
            self.forget(keep_from);
        }
        lines
    }

    /// How many threads were forgotten since the last call while they were in use.
    pub(super) const fn take_forgotten(&mut self) -> u64 {
        std::mem::replace(&mut self.forgotten, 0)
    }
}
