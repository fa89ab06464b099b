//! Follows the states of a worker. Its delay history is that of its CPU, or grows for a reason of its own.

use std::ops::Range;
use std::sync::Arc;

use taillab_model::explanation::{Cause, ServerStop};
use taillab_model::{Monotonic, Tid};

use super::ServerState;
use crate::chain::{ChainEnd, ChainPart, Chains};
use crate::ledger::cpu::CpuClock;
use crate::ledger::disturbances::{PieceOrigin, Site};
use crate::ledger::events::{RequestEvent, RequestId};
use crate::ledger::label::{CulpritId, Label};
use crate::ledger::pauses::PausePart;
use crate::ledger::trace::TraceEntry;
use crate::ledger::worker::{CountingCpus, LabelledPart};
use crate::timeline::{Question, Sleep, Top, WorkerState};

impl ServerState {
    /// Charges the time of worker `w` up to `upto_ns`, and that of the CPU that it is on or waits for.
    pub(in crate::ledger) fn settle(&mut self, w: usize, upto_ns: u64) {
        let worker = &mut self.workers[w];
        if let Some(k) = worker.history.attached() {
            worker.own_upto_ns = upto_ns;
            return self.advance(k, upto_ns);
        }
        let length = upto_ns.saturating_sub(worker.own_upto_ns);
        worker.own_upto_ns = worker.own_upto_ns.max(upto_ns);
        if worker.outstanding == 0 || length == 0 {
            return;
        }
        let (own, of) = (worker.own, worker.serving);
        // a sleep on a timer is service, up to the time that a service may take
        let timer = of.filter(|_| worker.state.is_timer());
        let work = timer.map_or(0, |_| length.min(worker.budget_ns));
        worker.budget_ns -= work;
        let length = length - work;
        let home = worker.home.filter(|_| timer.is_some());
        if let Some(id) = timer {
            worker.served_ns += work;
            let request = &mut self.requests[id];
            request.used_ns += work;
            request.over_ns += length;
        }
        // while a CPU is stalled, its timer does not fire
        let stalled = home.map_or(0, |k| self.stalled(k, upto_ns - length, upto_ns));
        let hypervisor = self.label(Cause::Hypervisor, CulpritId::Nobody);
        let (slept_ns, from_ns) = (upto_ns - stalled, upto_ns - length);
        let place = of.map(|id| self.requests[id].place);
        let since_ns = self.workers[w].state_since_ns;
        let sleep = match (self.ledger.labels.cause(own), place) {
            (Cause::SlowService, Some(place)) => PieceOrigin::Service(place),
            // one signal stops all threads
            (Cause::Pause, _) => PieceOrigin::Stay { since_ns },
            _ => self.sleep(w, since_ns),
        };
        self.workers[w].trace.note(TraceEntry::Work(timer), work);
        let rest_ns = self.slept_by_chain(w, of, from_ns..slept_ns);
        self.slept(w, (own, of), rest_ns..slept_ns, sleep);
        self.held_up(w, (hypervisor, None), slept_ns..upto_ns, sleep);
    }

    /// What a piece of a sleep of worker `w` is a part of, which began then: of the wait for the answer to a question, where
    /// it has asked one.
    pub(super) fn sleep(&self, w: usize, since_ns: u64) -> PieceOrigin {
        let worker = &self.workers[w];
        let place = worker.serving.map(|id| self.requests[id].place);
        let question = worker.question.map(PieceOrigin::Question);
        question.unwrap_or(PieceOrigin::Sleep(since_ns, place))
    }

    /// Charges the parts of a sleep of worker `w` to what it waited for in the end. Returns where the rest begins, of
    /// which no more is known than who woke it.
    fn slept_by_chain(&mut self, w: usize, of: Option<RequestId>, span: Range<u64>) -> u64 {
        let (mut from_ns, to_ns) = (span.start, span.end);
        while let Some(&part) = self.workers[w].chain.last()
            && from_ns < to_ns
        {
            let end_ns = part.to_ns.min(to_ns);
            if from_ns < end_ns {
                let place = of.map(|id| self.requests[id].place);
                let (of, part_of) = match self.ledger.labels.cause(part.label) {
                    // one quota or signal stops all threads
                    Cause::Throttled | Cause::Pause => {
                        let since_ns = part.from_ns;
                        (None, PieceOrigin::Stay { since_ns })
                    }
                    _ => (
                        of,
                        PieceOrigin::Chain(self.workers[w].state_since_ns, place),
                    ),
                };
                self.slept(w, (part.label, of), from_ns..end_ns, part_of);
                from_ns = end_ns;
            }
            if part.to_ns <= to_ns {
                self.workers[w].chain.pop();
            }
        }
        from_ns
    }

    /// Charges a sleep of worker `w` to this label, except for pauses of the whole server in it.
    fn slept(
        &mut self,
        w: usize,
        (label, of): (Label, Option<RequestId>),
        span: Range<u64>,
        sleep: PieceOrigin,
    ) {
        if self.pauses.is_empty() {
            return self.held_up(w, (label, of), span, sleep);
        }
        let pauses = Arc::clone(&self.pauses);
        let tid = self.workers[w].tid;
        let parts = pauses.parts(span.clone(), |main| main == tid);
        if parts.is_empty() {
            self.held_up(w, (label, of), span, sleep);
        }
        for PausePart { span, pause } in parts {
            match pause {
                Some(pause) => {
                    let paused = self.label(Cause::Pause, CulpritId::Stopped(pause.why));
                    let since_ns = pause.from_ns;
                    self.held_up(w, (paused, None), span, PieceOrigin::Stay { since_ns });
                }
                None => self.held_up(w, (label, of), span, sleep),
            }
        }
    }

    /// Adds a delay to worker `w`, which is not attached to a CPU; `of` is the request whose own service brought
    /// it about.
    fn held_up(
        &mut self,
        w: usize,
        (label, of): (Label, Option<RequestId>),
        span: Range<u64>,
        part_of: PieceOrigin,
    ) {
        let length = span.end - span.start;
        if length == 0 {
            return;
        }
        let worker = &mut self.workers[w];
        worker.history.held_up(label, length, &self.histories);
        if self.ledger.labels.cause(label) == Cause::Upstream {
            worker.asked = Some((label, worker.history.end(&self.histories).delay_ns));
        }
        if let Some(queue) = worker.queue {
            self.common[queue].sleeps(label, length);
        }
        worker.trace.note(TraceEntry::Delay(label, of), length);
        self.brought_about(of, label, length);
        let of_label = (self.ledger.labels.cause(label), label);
        (self.disturbances).add(of_label, Site::Worker(w), span, part_of);
    }

    /// For how long CPU `k` stood still between the two times.
    fn stalled(&self, k: usize, from_ns: u64, to_ns: u64) -> u64 {
        let Some(place) = self.cpus[k].line else {
            return 0;
        };
        let stalls = self.timeline.cpus()[place].stalls();
        let first = stalls.partition_point(|stall| stall.to.nanos_since_boot() <= from_ns);
        let within = stalls[first..].iter();
        let within = within.take_while(|stall| stall.from.nanos_since_boot() < to_ns);
        let lengths = within.map(|stall| {
            let from_ns = stall.from.nanos_since_boot().max(from_ns);
            let to_ns = stall.to.nanos_since_boot().min(to_ns);
            to_ns - from_ns
        });
        lengths.sum()
    }

    /// A worker gets the first request of a busy period: finds its present state.
    pub(in crate::ledger) fn catch_up(&mut self, w: usize, at_ns: u64) {
        self.workers[w].history.forget();
        self.skim(w, at_ns);
        // a wake-up in progress is for this request
        self.workers[w].own = self.label(Cause::Wakeup, CulpritId::Nobody);
        self.enter_state(w, at_ns);
    }

    /// Reads on to a worker's state at `at_ns`, while it has no requests.
    pub(super) fn skim(&mut self, w: usize, at_ns: u64) {
        while self.workers[w].until_ns <= at_ns
            && self.workers[w].next_state(self.timeline.workers())
        {
            if let Some(cpu) = self.workers[w].state.cpu() {
                self.workers[w].home = self.cpu_index(cpu);
            }
        }
    }

    /// A worker's state ends.
    pub(in crate::ledger) fn state_ends(&mut self, w: usize, at_ns: u64) {
        self.settle(w, at_ns);
        let slept = matches!(self.workers[w].state, WorkerState::Asleep(_));
        self.workers[w].next_state(self.timeline.workers());
        self.enter_state(w, at_ns);
        let worker = &self.workers[w];
        if slept
            && worker.outstanding > 0
            && worker.serving.is_none()
            && let Some(queue) = worker.queue
        {
            self.workers[w].woken = self.is_free(w, queue, at_ns);
        }
    }

    /// Attaches the worker to its CPU or detaches it, according to its new state.
    pub(super) fn enter_state(&mut self, w: usize, at_ns: u64) {
        let cpu = match self.workers[w].state {
            WorkerState::Asleep(_) if !self.workers[w].lent && self.is_unwoken(w, at_ns) => {
                self.workers[w].home
            }
            state => state.cpu().and_then(|cpu| self.cpu_index(cpu)),
        };
        let lent = self.workers[w].lent;
        self.workers[w].chain.clear();
        if !lent && (cpu.is_none() || self.workers[w].state.cpu().is_none()) {
            self.explain_absence(w, at_ns);
        }
        match cpu {
            Some(k) => {
                if self.workers[w].history.attached() != Some(k) {
                    self.advance(k, at_ns);
                    self.workers[w].history.attach(k, &self.histories);
                    self.workers[w].home = Some(k);
                }
            }
            None => {
                self.workers[w].history.detach(&self.histories);
                self.workers[w].own_upto_ns = at_ns;
            }
        }
        self.recount(w, at_ns);
        let worker = &self.workers[w];
        if worker.until_ns < u64::MAX {
            let event = RequestEvent::StateEnds(w as u32, worker.busy_period);
            self.events.push(worker.until_ns.max(at_ns), event);
        }
    }

    /// When the state of worker `w` ends, if the worker is off its core and that time is known.
    pub(in crate::ledger) fn comes_to_core(&self, w: usize) -> Option<u64> {
        let worker = &self.workers[w];
        let is_off = !matches!(
            worker.state,
            WorkerState::OnCore { .. } | WorkerState::Unknown
        );
        (is_off && worker.until_ns < u64::MAX).then_some(worker.until_ns)
    }

    /// Whether it sleeps as if waiting for requests, although it has one that it has not read. Then it is
    /// about to be woken, or its wake-up was not seen, and whatever its CPU does holds it up. An idle thread of
    /// a pool sleeps in `futex`.
    fn is_unwoken(&self, w: usize, at_ns: u64) -> bool {
        let worker = &self.workers[w];
        let WorkerState::Asleep(Sleep::Work | Sleep::Unknown | Sleep::Lock { call: Some(_) }) =
            worker.state
        else {
            return false;
        };
        let has_read = |id: RequestId| {
            let t4_ns = self.requests[id].t4_ns();
            t4_ns.is_none_or(|t4_ns| t4_ns <= at_ns)
        };
        !worker.serving.is_some_and(has_read)
    }

    /// Finds why a worker that is not on a CPU and does not wait for one holds up its requests, and what it waits for
    /// in the end.
    fn explain_absence(&mut self, w: usize, at_ns: u64) {
        let own = self.own_label(w, at_ns);
        self.workers[w].own = own;
        let (cause, who) = (self.ledger.labels.cause(own), self.ledger.labels.who(own));
        let until_ns = self.workers[w].until_ns;
        let waits = matches!(cause, Cause::BlockedLock | Cause::BlockedOther);
        self.workers[w].chain = match who {
            CulpritId::Thread(by) if waits && until_ns < u64::MAX => {
                self.chain((cause, by), at_ns..until_ns)
            }
            _ => Vec::new(),
        };
    }

    /// The parts of a sleep between these times that thread `by` ended, the last one first, and their labels; `cause` is
    /// that of the sleep. Empty where `by` ran all the time.
    fn chain(&mut self, (cause, by): (Cause, Tid), span: Range<u64>) -> Vec<LabelledPart> {
        let labels = &mut self.ledger.labels;
        let asks_others = labels.upstream(None) != CulpritId::Nobody;
        let chains = Chains::new(&self.timeline, asks_others);
        if !chains.runs_at(by, span.end) {
            return Vec::new();
        }
        let parts = chains.parts(span.clone(), by);
        if parts.iter().all(|part| part.end == ChainEnd::Thread(by)) {
            return Vec::new();
        }
        let mut from_ns = span.start;
        let mut labelled: Vec<LabelledPart> = (parts.into_iter())
            .map(|ChainPart { to_ns, end }| {
                let (cause, who) = match end {
                    ChainEnd::Thread(tid) => (cause, CulpritId::Thread(tid)),
                    ChainEnd::Storage(call) => (Cause::BlockedIo, CulpritId::Call(call)),
                    ChainEnd::Fault => (Cause::BlockedFault, CulpritId::Nobody),
                    ChainEnd::Upstream(asked) => (Cause::Upstream, labels.upstream(asked)),
                    ChainEnd::OnCpu(tid) if labels.is_own(tid) => {
                        (Cause::OwnThreads, CulpritId::Thread(tid))
                    }
                    ChainEnd::OnCpu(tid) => (Cause::Background, CulpritId::Thread(tid)),
                    ChainEnd::Throttled => (Cause::Throttled, CulpritId::Nobody),
                    ChainEnd::Stopped => (Cause::Pause, CulpritId::Stopped(ServerStop::Signal)),
                };
                let who = match end {
                    ChainEnd::Throttled | ChainEnd::Stopped => who,
                    ChainEnd::Thread(tid) if tid == by => who,
                    _ => labels.chain_to(by, who),
                };
                let label = labels.label(cause, who);
                let part = LabelledPart {
                    from_ns,
                    to_ns,
                    label,
                };
                from_ns = to_ns;
                part
            })
            .collect();
        labelled.reverse();
        labelled
    }

    /// Why a worker that is not on a CPU and does not wait for one holds up its requests.
    fn own_label(&mut self, w: usize, at_ns: u64) -> Label {
        self.workers[w].question = None;
        if let WorkerState::Asleep(sleep) = self.workers[w].state
            && let Some(label) = self.waits_to_send(w, sleep)
        {
            return label;
        }
        let worker = &self.workers[w];
        let (cause, who) = match worker.state {
            _ if self.is_unwoken(w, at_ns) => (Cause::Wakeup, CulpritId::Nobody),
            WorkerState::Asleep(sleep) => match sleep {
                Sleep::Lock { call } => {
                    let by = worker.waker().map(CulpritId::Thread);
                    let by = by.or(call.map(CulpritId::Call));
                    (Cause::BlockedLock, by.unwrap_or(CulpritId::Nobody))
                }
                Sleep::Fault => (Cause::BlockedFault, CulpritId::Nobody),
                Sleep::Io { call } => (Cause::BlockedIo, CulpritId::Call(call)),
                Sleep::Other { .. } if self.baseline.virtual_workers && worker.state.is_timer() => {
                    (Cause::SlowService, CulpritId::Worker(worker.tid))
                }
                Sleep::Other { call } => (Cause::BlockedOther, CulpritId::Call(call)),
                Sleep::Work => match self.hands_over(w) {
                    Some(by) => (Cause::BlockedOther, CulpritId::Thread(by)),
                    None => {
                        let question = self.question_of(w, at_ns);
                        self.workers[w].question = question;
                        let server = question.map(|question| question.server);
                        (Cause::Upstream, self.ledger.labels.upstream(server))
                    }
                },
                Sleep::Stopped => (Cause::Pause, CulpritId::Stopped(ServerStop::Signal)),
                Sleep::Unknown => (Cause::BlockedOther, CulpritId::Nobody),
            },
            _ => (Cause::Unobserved, CulpritId::Nobody),
        };
        self.label(cause, who)
    }

    /// The question to another server whose answer worker `w` waits for, for the request that it serves.
    fn question_of(&self, w: usize, at_ns: u64) -> Option<Question> {
        let worker = &self.workers[w];
        let since_ns = worker.serving.and_then(|id| self.requests[id].t4_ns());
        let line = self.timeline.worker(worker.tid)?;
        (line.questions()).waits_for(at_ns, since_ns.unwrap_or(at_ns))
    }

    /// The label of the server that worker `w` asked for this request; `None` where that was not seen.
    pub(in crate::ledger) fn upstream_of(&mut self, w: usize, id: RequestId) -> Option<Label> {
        let t4_ns = self.requests[id].t4_ns()?;
        let line = self.timeline.worker(self.workers[w].tid)?;
        let asked = line.questions().first_since(t4_ns)?;
        let who = self.ledger.labels.upstream(Some(asked));
        Some(self.label(Cause::Upstream, who))
    }

    /// The thread of the server that will wake worker `w`, if it does so itself: it is on a CPU then, and
    /// neither a softirq nor an interrupt runs on top of it.
    pub(super) fn hands_over(&self, w: usize) -> Option<Tid> {
        let worker = &self.workers[w];
        let by = worker.waker()?;
        let at = Monotonic::from_nanos_since_boot(worker.until_ns);
        let mut lines = self.timeline.cpus().iter();
        let wakes = lines.any(|line| {
            let segment = line.segments_from(at).next();
            segment.is_some_and(|segment| {
                segment.from <= at && segment.thread == by && segment.top == Top::Nothing
            })
        });
        wakes.then_some(by)
    }

    /// Worker `w` begins to serve a request.
    pub(in crate::ledger) fn serve(&mut self, w: usize, id: RequestId, at_ns: u64) {
        self.wait_ends(w, id);
        let worker = &mut self.workers[w];
        worker.serving = Some(id);
        worker.budget_ns = self.baseline.service_ns;
        worker.spare_ns = self.baseline.receive_ns;
        worker.slower_ns = (self.speed).longer_ns(at_ns, self.baseline.service_ns);
        worker.faults.begin_service(at_ns);
        if let WorkerState::Asleep(Sleep::Work) = worker.state {
            self.explain_absence(w, at_ns);
        }
    }

    /// Updates the counters of the CPUs of worker `w`, after a change of its state or of its requests.
    pub(in crate::ledger) fn recount(&mut self, w: usize, at_ns: u64) {
        let worker = &mut self.workers[w];
        let busy = worker.is_followed();
        let attached = worker.history.attached().filter(|_| busy);
        let is_asleep = matches!(worker.state, WorkerState::Asleep(_));
        let now = CountingCpus {
            active: worker.home.filter(|_| busy),
            waiting: match worker.state {
                WorkerState::Preempted { .. } => attached.map(|k| (k, true)),
                WorkerState::Woken { .. } => attached.map(|k| (k, false)),
                _ => None,
            },
            unwoken: attached.filter(|_| is_asleep),
            capacity: attached
                .filter(|_| worker.queue.is_some() && !is_asleep)
                .map(|k| (k, worker.lent)),
        };
        let (until_ns, queue) = (worker.until_ns, worker.queue);
        let was = std::mem::replace(&mut worker.counted, now);
        if now.unwoken != was.unwoken {
            self.change(was.unwoken, at_ns, |cpu| cpu.unwoken -= 1);
            self.change(now.unwoken, at_ns, |cpu| cpu.unwoken += 1);
        }
        if now.capacity != was.capacity {
            self.move_capacity(queue, was.capacity, now.capacity, at_ns);
        }
        if now.active != was.active {
            self.change(was.active, at_ns, |cpu| cpu.active -= 1);
            if let Some(k) = was.active.filter(|&k| self.cpus[k].active == 0) {
                self.histories[k].clear();
            }
            self.change(now.active, at_ns, |cpu| cpu.active += 1);
        }
        if now.waiting != was.waiting {
            if let Some((k, preempted)) = was.waiting {
                self.advance(k, at_ns);
                self.waited_behind(k, w, at_ns);
                self.change(Some(k), at_ns, |cpu| {
                    cpu.waiting -= 1;
                    cpu.preempted -= usize::from(preempted);
                });
            }
            if let Some((k, preempted)) = now.waiting {
                self.change(Some(k), at_ns, |cpu| {
                    cpu.waiting += 1;
                    cpu.preempted += usize::from(preempted);
                });
                self.workers[w].behind_since = Some((k, self.cpus[k].worked_ns));
                self.look_ahead(k, w, at_ns..until_ns);
            }
        }
    }

    /// Worker `w` no longer waits for CPU `k`. What others of the server worked there meanwhile is an event of
    /// its own.
    fn waited_behind(&mut self, k: usize, w: usize, at_ns: u64) {
        let before_ns = self.workers[w].behind_ns;
        let behind_ns = self.behind_ns(w);
        let worker = &mut self.workers[w];
        worker.behind_ns = behind_ns;
        worker.behind_since = None;
        if behind_ns == before_ns {
            return;
        }
        self.shares(k, w);
        let label = self.label(Cause::OwnThreads, CulpritId::OnCpu(self.cpus[k].number));
        let span = at_ns.saturating_sub(behind_ns - before_ns)..at_ns;
        let wait = PieceOrigin::Stay {
            since_ns: span.start,
        };
        let of_label = (Cause::OwnThreads, label);
        (self.disturbances).add(of_label, Site::Worker(w), span, wait);
    }

    /// Worker `w` is one of those that share CPU `k`.
    pub(super) fn shares(&mut self, k: usize, w: usize) {
        let worker = &mut self.workers[w];
        if worker.shares != Some(k) {
            worker.shares = Some(k);
            let (cpu, tid) = (self.cpus[k].number, worker.tid);
            self.ledger.labels.shares(cpu, tid);
        }
    }

    /// Charges what a CPU did up to `at_ns`, then changes its counters.
    #[inline]
    pub(super) fn change(
        &mut self,
        k: Option<usize>,
        at_ns: u64,
        change: impl FnOnce(&mut CpuClock),
    ) {
        if let Some(k) = k {
            self.advance(k, at_ns);
            change(&mut self.cpus[k]);
        }
    }
}
