//! What workers with requests do, from state to state.

use taillab_model::explanation::Cause;

use super::label::{Label, Who};
use super::sweep::{OpenId, Sweep};
use super::turns::Turn;
use crate::timeline::{Sleep, WorkerState};

impl Sweep {
    /// A worker gets its first request: its state is looked up.
    pub(super) fn catch_up(&mut self, w: usize, at_ns: u64) {
        self.skim(w, at_ns);
        self.enter_state(w, at_ns);
    }

    /// Reads on to a worker's state at `at_ns`, while it has no requests.
    pub(super) fn skim(&mut self, w: usize, at_ns: u64) {
        while self.workers[w].until_ns <= at_ns && self.next_state(w) {
            if let WorkerState::OnCore { cpu }
            | WorkerState::Preempted { cpu }
            | WorkerState::Woken { cpu, .. } = self.workers[w].state
            {
                self.workers[w].home = self.cpu_index(cpu);
            }
        }
    }

    /// Whether the worker's line has a next state; it is in it then.
    pub(super) fn next_state(&mut self, w: usize) -> bool {
        let worker = &mut self.workers[w];
        let line = worker.line.map(|place| &self.timeline.workers()[place]);
        match line.and_then(|line| worker.spans.next(line)) {
            Some(span) => worker.enter(&span),
            None => {
                worker.until_ns = u64::MAX;
                return false;
            }
        }
        true
    }

    pub(super) fn cpu_index(&self, cpu: u16) -> Option<usize> {
        self.cpus.iter().position(|state| state.cpu == cpu)
    }

    /// A worker's state ends.
    pub(super) fn worker_changes(&mut self, w: usize, at_ns: u64) {
        self.settle(w, at_ns);
        self.next_state(w);
        self.enter_state(w, at_ns);
    }

    /// Attaches the worker to its CPU or takes it off, as its new state says.
    pub(super) fn enter_state(&mut self, w: usize, at_ns: u64) {
        let cpu = match self.workers[w].state {
            WorkerState::OnCore { cpu }
            | WorkerState::Preempted { cpu }
            | WorkerState::Woken { cpu, .. } => self.cpu_index(cpu),
            WorkerState::Asleep(_) if self.is_unwoken(w, at_ns) => self.workers[w].home,
            WorkerState::Asleep(_) | WorkerState::Unknown => None,
        };
        match cpu {
            Some(k) => {
                if self.workers[w].attached != Some(k) {
                    self.advance(k, at_ns);
                    self.workers[w].attach(k, &self.cpus);
                }
            }
            None => {
                self.workers[w].detach(&self.cpus);
                self.workers[w].own = self.own_label(w);
                self.workers[w].own_upto_ns = at_ns;
            }
        }
        self.recount(w, at_ns);
        let worker = &self.workers[w];
        if worker.until_ns < u64::MAX {
            let turn = Turn::Worker(w as u32, worker.turn);
            self.turns.push(worker.until_ns.max(at_ns), turn);
        }
    }

    /// It sleeps where it waits for requests, though it has one that it has not read: it is
    /// about to be woken, or nobody saw that it was. What its CPU does holds it up.
    pub(super) fn is_unwoken(&self, w: usize, at_ns: u64) -> bool {
        let worker = &self.workers[w];
        let WorkerState::Asleep(Sleep::Work | Sleep::Unknown) = worker.state else {
            return false;
        };
        let has_read = |open: OpenId| {
            let t4_ns = self.opens[open as usize].t4_ns();
            t4_ns.is_none_or(|t4_ns| t4_ns <= at_ns)
        };
        !worker.serving.is_some_and(has_read)
    }

    /// Why a worker that is not on a CPU and does not wait for one holds up its requests.
    pub(super) fn own_label(&mut self, w: usize) -> Label {
        let worker = &self.workers[w];
        let by = match worker.spans.following() {
            Some(WorkerState::Woken { by, .. }) if by != 0 => Some(by),
            _ => None,
        };
        let call = |call: Option<u16>| call.map_or(Who::Nobody, Who::Call);
        let (cause, who) = match worker.state {
            WorkerState::Asleep(sleep) => match sleep {
                Sleep::Lock { call: number } => {
                    let who = by.map_or(call(number), Who::Thread);
                    (Cause::BlockedLock, who)
                }
                Sleep::Fault => (Cause::BlockedFault, Who::Nobody),
                Sleep::Io { call: number } => (Cause::BlockedIo, call(number)),
                Sleep::Other { .. } if self.usual.virtual_workers && worker.state.is_timer() => {
                    (Cause::SlowService, Who::Worker(worker.tid))
                }
                Sleep::Other { call: number } => (Cause::BlockedOther, Who::Call(number)),
                // in the middle of a request it waits for somebody else's answer
                Sleep::Work | Sleep::Unknown if worker.serving.is_some() => {
                    (Cause::BlockedOther, Who::Nobody)
                }
                Sleep::Work | Sleep::Unknown => return self.fixed.wakeup,
            },
            _ => return self.fixed.unobserved,
        };
        self.labels.label(cause, who)
    }

    /// The label of services of worker `w` that take too long.
    pub(super) fn slow_service(&mut self, w: usize) -> Label {
        let (worker, labels) = (&mut self.workers[w], &mut self.labels);
        let by = Who::Worker(worker.tid);
        let label = || labels.label(Cause::SlowService, by);
        *worker.slow_service.get_or_insert_with(label)
    }

    /// Brings the counts of active and waiting workers of its CPU up to date.
    pub(super) fn recount(&mut self, w: usize, at_ns: u64) {
        let worker = &self.workers[w];
        let busy = worker.outstanding > 0;
        let active_on = worker.home.filter(|_| busy);
        let waiting_on = match worker.state {
            WorkerState::Preempted { .. } => worker.attached.map(|k| (k, true)),
            WorkerState::Woken { .. } => worker.attached.map(|k| (k, false)),
            _ => None,
        };
        let waiting_on = waiting_on.filter(|_| busy);
        let asleep = matches!(worker.state, WorkerState::Asleep(_));
        let unwoken_on = worker.attached.filter(|_| busy && asleep);
        let (was_active, was_waiting) = (worker.active_on, worker.waiting_on);
        if let Some(k) = worker.unwoken_on.filter(|_| unwoken_on.is_none()) {
            self.advance(k, at_ns);
            self.cpus[k].unwoken -= 1;
        }
        if let Some(k) = unwoken_on.filter(|_| self.workers[w].unwoken_on.is_none()) {
            self.advance(k, at_ns);
            self.cpus[k].unwoken += 1;
        }
        self.workers[w].unwoken_on = unwoken_on;
        if active_on != was_active {
            if let Some(k) = was_active {
                self.advance(k, at_ns);
                self.cpus[k].active -= 1;
                if self.cpus[k].active == 0 {
                    self.cpus[k].tape.clear();
                }
            }
            if let Some(k) = active_on {
                self.advance(k, at_ns);
                self.cpus[k].active += 1;
            }
            self.workers[w].active_on = active_on;
        }
        if waiting_on != was_waiting {
            if let Some((k, preempted)) = was_waiting {
                self.advance(k, at_ns);
                self.cpus[k].waiting -= 1;
                self.cpus[k].preempted -= usize::from(preempted);
            }
            if let Some((k, preempted)) = waiting_on {
                self.advance(k, at_ns);
                self.cpus[k].waiting += 1;
                self.cpus[k].preempted += usize::from(preempted);
                self.look_ahead(k, at_ns, self.workers[w].until_ns);
            }
            self.workers[w].waiting_on = waiting_on;
        }
    }
}
