//! Charges what a CPU did: as work, or as a delay with its label in the CPU's delay history.

use std::ops::Range;
use std::sync::Arc;

use taillab_model::Interrupt;
use taillab_model::explanation::Cause;

use super::ServerState;
use crate::ledger::account::keeps_its_cause;
use crate::ledger::cpu::Stretch;
use crate::ledger::disturbances::{PieceOrigin, Site};
use crate::ledger::events::RequestId;
use crate::ledger::label::{CulpritId, Label, of_top};
use crate::ledger::pauses::{Pause, PausePart};
use crate::ledger::trace::TraceEntry;
use crate::timeline::{NET_RX, Top, WorkerState, on_its_way_until};

impl ServerState {
    /// Charges what CPU `k` did up to `upto_ns`.
    #[inline]
    pub(in crate::ledger) fn advance(&mut self, k: usize, upto_ns: u64) {
        if self.cpus[k].is_behind(upto_ns) {
            self.go_on(k, upto_ns);
        }
    }

    fn go_on(&mut self, k: usize, upto_ns: u64) {
        loop {
            let cpu = &mut self.cpus[k];
            let line = cpu.line.map(|place| &self.timeline.cpus()[place]);
            let Some(stretch) = cpu.advance(line, upto_ns, &mut self.by_tid) else {
                return;
            };
            if self.pauses.is_empty() {
                self.charge(k, stretch, None);
                continue;
            }
            let parts = self.pauses_on(k, stretch.from_ns..stretch.to_ns);
            if parts.is_empty() {
                self.charge(k, stretch, None);
            }
            for PausePart { span, pause } in parts {
                let part = Stretch {
                    from_ns: span.start,
                    to_ns: span.end,
                    ..stretch
                };
                self.charge(k, part, pause);
            }
        }
    }

    /// The parts of a stretch of CPU `k` with and without a pause; none if there is no pause in it. A process
    /// that stands still alone matters where its main thread was last.
    fn pauses_on(&mut self, k: usize, span: Range<u64>) -> Vec<PausePart> {
        let pauses = Arc::clone(&self.pauses);
        pauses.parts(span, |main| {
            let worker = self.by_tid.get(main);
            worker.is_some_and(|w| self.workers[w].home == Some(k))
        })
    }

    /// Charges what CPU `k` did for a while; in a pause, if there was one.
    fn charge(&mut self, k: usize, stretch: Stretch, pause: Option<Pause>) {
        let Stretch {
            thread,
            top,
            from_ns,
            to_ns,
        } = stretch;
        let length = to_ns - from_ns;
        // nothing that the CPU does delays a worker that is held back
        let held_back = self.cpus[k].holds_back(from_ns);
        if self.receives(k, top) {
            return self.received(k, held_back, from_ns..to_ns);
        }
        let cpu = &self.cpus[k];
        if cpu.active == 0 {
            return;
        }
        if let Some(pause) = pause
            && of_top(top).is_none_or(|(cause, _)| !keeps_its_cause(cause))
        {
            let label = self.label(Cause::Pause, CulpritId::Stopped(pause.why));
            let since_ns = pause.from_ns;
            let part_of = PieceOrigin::Stay { since_ns };
            return self.delay(k, label, from_ns..to_ns, part_of, None);
        }
        // waits without a sleep are the service's own
        let of = match top {
            Top::KernelLock | Top::Storage { .. } => {
                cpu.worker.and_then(|w| self.workers[w].serving)
            }
            _ => None,
        };
        let label = match top {
            Top::Softirq { .. } | Top::Interrupt(_) if held_back => self.throttled_label(),
            Top::Interrupt(Interrupt::Reschedule) if cpu.is_on_its_way(from_ns) => cpu.on_its_way,
            Top::Idle { .. } | Top::Nothing if thread == 0 => {
                if cpu.waiting > 0 {
                    self.idle_label(k, top, from_ns)
                } else if cpu.unwoken > 0 {
                    self.label(Cause::Wakeup, CulpritId::Nobody)
                } else {
                    return;
                }
            }
            _ => match (of_top(top), cpu.worker) {
                (Some((cause, who)), _) => self.label(cause, who),
                (None, Some(w)) => return self.worked(k, w, length, to_ns),
                (None, None) if held_back => self.throttled_label(),
                (None, None) if self.cpus[k].is_on_its_way(from_ns) => self.cpus[k].on_its_way,
                (None, None) => {
                    let cause = match self.ledger.labels.is_own(thread) {
                        true => Cause::OwnThreads,
                        false => Cause::Background,
                    };
                    let label = self.label(cause, CulpritId::Thread(thread));
                    let wait = self.wait(k);
                    return self.delay(k, label, from_ns..to_ns, wait, None);
                }
            },
        };
        let part_of = match top {
            _ if self.cpus[k].is_on_its_way(from_ns) && label == self.cpus[k].on_its_way => {
                self.end_of_sleep(k, from_ns)
            }
            // it may have been like that for long when somebody came to wait
            Top::Idle { .. } | Top::Nothing => self.wait(k),
            _ => self.cpus[k].segment_at(from_ns),
        };
        self.delay(k, label, from_ns..to_ns, part_of, of);
    }

    /// Whether this is the receive softirq, or the interrupt that raised it.
    fn receives(&self, k: usize, top: Top) -> bool {
        match top {
            Top::Softirq { vector } => vector == NET_RX,
            Top::Interrupt(interrupt) if self.tokens_ns > 0 && raises_receive(interrupt) => {
                let cpu = &self.cpus[k];
                let line = cpu.line.map(|place| &self.timeline.cpus()[place]);
                let next = cpu.following(line);
                next.is_some_and(|next| next.top == Top::Softirq { vector: NET_RX })
            }
            _ => false,
        }
    }

    /// CPU `k` received packets. Within the tokens, that is work, as far as a slower CPU did not prolong it.
    fn received(&mut self, k: usize, held_back: bool, span: Range<u64>) {
        let (from_ns, to_ns) = (span.start, span.end);
        let length = to_ns - from_ns;
        let slower = self.speed.shorter_ns(from_ns, length);
        let work = (length - slower).min(self.tokens_ns);
        self.tokens_ns -= work;
        if self.cpus[k].active == 0 {
            return;
        }
        self.histories[k].received(work);
        for capacity in &self.cpus[k].capacities {
            self.common[capacity.queue].receives(work);
        }
        self.note(k, TraceEntry::Received, work);
        let segment = self.cpus[k].segment_at(from_ns);
        let worked_ns = from_ns + work;
        if held_back {
            let label = self.throttled_label();
            return self.delay(k, label, worked_ns..to_ns, segment, None);
        }
        let slower_ns = worked_ns + slower;
        if slower > 0 {
            let label = self.label(Cause::SlowCpu, CulpritId::Nobody);
            self.delay(k, label, worked_ns..slower_ns, segment, None);
        }
        if slower_ns < to_ns {
            let label = self.label(Cause::Softirq, CulpritId::Softirq(NET_RX));
            self.delay(k, label, slower_ns..to_ns, segment, None);
        }
    }

    fn throttled_label(&mut self) -> Label {
        self.label(Cause::Throttled, CulpritId::Nobody)
    }

    /// The label of a wait for an idle CPU: throttling, leaving a power state, or a wake-up.
    fn idle_label(&mut self, k: usize, top: Top, from_ns: u64) -> Label {
        let cpu = &self.cpus[k];
        let preempted = cpu.preempted > 0 && self.policies.may_hold_back(&self.timeline);
        if preempted || cpu.holds_back(from_ns) {
            return self.throttled_label();
        }
        match top {
            Top::Idle { state } => self.label(Cause::IdleExit, CulpritId::Idle(state)),
            _ if cpu.is_on_its_way(from_ns) => cpu.on_its_way,
            _ => self.label(Cause::Wakeup, CulpritId::Nobody),
        }
    }

    /// Worker `w` waits for CPU `k`. Determines whether it is held back, and until when its wake-up is in progress.
    pub(super) fn look_ahead(&mut self, k: usize, w: usize, wait: Range<u64>) {
        let Some(place) = self.cpus[k].line else {
            return;
        };
        let line = &self.timeline.cpus()[place];
        let worker = &self.workers[w];
        let cpu = &mut self.cpus[k];
        let ahead = cpu.ahead(line);
        let (at_ns, until_ns) = (wait.start, wait.end);
        if (self.policies).hold_back(&self.timeline, worker.tid, wait.clone(), ahead) {
            // of a wait that has not ended in this window, no more is known
            let until_ns = until_ns.min(self.timeline.to().nanos_since_boot());
            cpu.held_back_until_ns = cpu.held_back_until_ns.max(until_ns);
        }
        // if others wait too, the thread that has the CPU keeps them waiting
        if let WorkerState::Woken { .. } = worker.state
            && until_ns < u64::MAX
            && cpu.waiting == 1
            && (!worker.lent || worker.state_since_ns == at_ns)
        {
            cpu.on_its_way_until_ns = on_its_way_until(cpu.ahead(line), wait);
            cpu.on_its_way_of = w;
            let slept_for = self.ledger.labels.cause(worker.own);
            cpu.on_its_way = match slept_for {
                Cause::BlockedLock
                | Cause::BlockedFault
                | Cause::BlockedIo
                | Cause::BlockedOther
                | Cause::Upstream
                | Cause::Client
                | Cause::Pause => worker.own,
                _ => self.ledger.labels.label(Cause::Wakeup, CulpritId::Nobody),
            };
        }
    }

    /// Worker `w` ran on CPU `k` without interruption for `length` nanoseconds, until `to_ns`.
    fn worked(&mut self, k: usize, w: usize, length: u64, to_ns: u64) {
        let worker = &mut self.workers[w];
        let mut work = length.min(worker.budget_ns);
        worker.budget_ns -= work;
        // before the spare time of the stack: a slower CPU takes longer to receive, too
        let mut slower = worker.slower_ns.min(length - work);
        if worker.serving.is_none() {
            slower = 0;
        }
        worker.slower_ns -= slower;
        // the part of t that the stack has not used
        let spare = (length - work - slower).min(worker.spare_ns);
        let spare = spare.min(self.tokens_ns);
        worker.spare_ns -= spare;
        self.tokens_ns -= spare;
        work += spare;
        let over = length - work - slower;
        let (tid, serving) = (worker.tid, worker.serving);
        self.cpus[k].worked_ns += work;
        if self.cpus[k].waiting > 0 {
            self.shares(k, w);
        }
        let Some(id) = serving else {
            self.note(k, TraceEntry::Work(None), work);
            if over > 0 {
                let label = self.label(Cause::OwnThreads, CulpritId::Thread(tid));
                let since_ns = to_ns - over;
                let part_of = PieceOrigin::Stay { since_ns };
                self.delay(k, label, since_ns..to_ns, part_of, None);
            }
            return;
        };
        self.workers[w].served_ns += length;
        let request = &mut self.requests[id];
        request.used_ns += work;
        request.over_ns += over + slower;
        self.note(k, TraceEntry::Work(Some(id)), work);
        let service = PieceOrigin::Service(self.requests[id].place);
        let over_ns = to_ns - over;
        if slower > 0 {
            let label = self.label(Cause::SlowCpu, CulpritId::Nobody);
            self.delay(k, label, over_ns - slower..over_ns, service, Some(id));
        }
        if over == 0 {
            return;
        }
        let cost_ns = self.baseline.fault_ns;
        let fault = self.workers[w].faults.charge(to_ns, over, cost_ns);
        let fault_ns = over_ns + fault;
        if fault > 0 {
            let label = self.label(Cause::BlockedFault, CulpritId::Nobody);
            self.delay(k, label, over_ns..fault_ns, service, Some(id));
        }
        let label = self.slow_service(w);
        self.delay(k, label, fault_ns..to_ns, service, Some(id));
    }

    /// Adds the delay of this span to CPU `k`; `of` is the request whose own service brought it
    /// about.
    fn delay(
        &mut self,
        k: usize,
        label: Label,
        span: Range<u64>,
        part_of: PieceOrigin,
        of: Option<RequestId>,
    ) {
        let length = span.end.saturating_sub(span.start);
        if length == 0 {
            return;
        }
        self.histories[k].push(label, length);
        self.lose(k, label, length);
        let of_label = (self.ledger.labels.cause(label), label);
        let cpu = &self.cpus[k];
        let site = match (part_of, cpu.worker) {
            (PieceOrigin::Sleep(..) | PieceOrigin::Question(_), _) => {
                Site::Worker(cpu.on_its_way_of)
            }
            // it may go on asleep, or on another CPU
            (PieceOrigin::Service(_), Some(w)) => Site::Worker(w),
            _ => Site::Cpu(k),
        };
        (self.disturbances).add(of_label, site, span, part_of);
        self.note(k, TraceEntry::Delay(label, of), length);
        self.brought_about(of, label, length);
    }

    /// The sleep of the worker that is on its way to CPU `k`.
    fn end_of_sleep(&self, k: usize, at_ns: u64) -> PieceOrigin {
        self.sleep(self.cpus[k].on_its_way_of, at_ns)
    }

    /// A wait for CPU `k` during the stay of the thread that is there.
    fn wait(&self, k: usize) -> PieceOrigin {
        let since_ns = self.cpus[k].thread_since_ns;
        PieceOrigin::Wait { since_ns }
    }

    /// Notes that the service of the request `of` brought about a delay itself.
    pub(super) fn brought_about(&mut self, of: Option<RequestId>, label: Label, length: u64) {
        let Some(id) = of else {
            return;
        };
        let request = &mut self.requests[id];
        if self.ledger.labels.cause(label) == Cause::SlowService {
            request.slow_ns += length;
        }
        if let Some(late) = &mut request.late {
            late.add_own(label, length);
        }
    }

    /// Adds an entry to the wanted traces of workers that are on CPU `k` or wait for it.
    #[inline]
    fn note(&mut self, k: usize, what: TraceEntry, length: u64) {
        for &w in &self.traced_workers {
            let worker = &mut self.workers[w];
            if worker.history.attached() == Some(k) {
                worker.trace.note(what, length);
            }
        }
    }
}

/// Whether an interrupt may raise the receive softirq. Packets come from devices and from other CPUs.
fn raises_receive(interrupt: Interrupt) -> bool {
    !matches!(interrupt, Interrupt::LocalTimer | Interrupt::IrqWork)
}
