//! Brings a CPU or a worker up to the present: what was work, and what goes onto the tape.

use taillab_model::explanation::Cause;
use taillab_model::{Interrupt, Tid};

use super::label::{Label, Who, of_storage};
use super::sweep::Sweep;
use super::trace::Raw;
use crate::timeline::{Segment, Top};

const NET_RX: u8 = 3;

/// A runnable thread that an idle CPU leaves waiting for longer is not on its way: somebody
/// holds it back. Coming out of the deepest power state takes a fraction of it.
const HELD_BACK_NS: u64 = 2_000_000;

/// The same where its group's quota is known to have held it back about then: others may have
/// the CPU for most of such a time.
const THROTTLED_NS: u64 = 500_000;

impl Sweep {
    /// Brings CPU `k` to `upto_ns`.
    #[inline]
    pub(super) fn advance(&mut self, k: usize, upto_ns: u64) {
        let cpu = &self.cpus[k];
        let ends = |segment: &Segment| segment.to.nanos_since_boot() <= upto_ns;
        if cpu.upto_ns < upto_ns || cpu.segment.as_ref().is_some_and(ends) {
            self.go_on(k, upto_ns);
        }
    }

    fn go_on(&mut self, k: usize, upto_ns: u64) {
        while self.cpus[k].upto_ns < upto_ns {
            let cpu = &mut self.cpus[k];
            let from_ns = cpu.upto_ns;
            let live = |segment: &&Segment| segment.to.nanos_since_boot() > from_ns;
            let Some(segment) = cpu.segment.as_ref().filter(live) else {
                if !self.next_segment(k) {
                    // the line has ended, or not begun
                    self.cpus[k].upto_ns = upto_ns;
                    return;
                }
                continue;
            };
            let begin_ns = segment.from.nanos_since_boot();
            if begin_ns > from_ns {
                cpu.upto_ns = begin_ns.min(upto_ns);
                continue;
            }
            let to_ns = segment.to.nanos_since_boot().min(upto_ns);
            cpu.upto_ns = to_ns;
            let (thread, top) = (segment.thread, segment.top);
            self.happened(k, thread, top, from_ns, to_ns);
        }
        // the segment that is now: the one in which `upto_ns` lies
        if let Some(segment) = self.cpus[k].segment
            && segment.to.nanos_since_boot() <= upto_ns
        {
            self.next_segment(k);
        }
    }

    fn next_segment(&mut self, k: usize) -> bool {
        let Some(place) = self.cpus[k].line else {
            return false;
        };
        if self.cpus[k].next_segment(&self.timeline.cpus()[place]) {
            self.know_worker(k);
        }
        self.cpus[k].segment.is_some()
    }

    /// Which worker the current thread of CPU `k` is.
    pub(super) fn know_worker(&mut self, k: usize) {
        let thread = self.cpus[k].segment.map_or(0, |segment| segment.thread);
        self.cpus[k].worker = (thread != 0).then(|| self.by_tid.get(thread)).flatten();
    }

    /// A part of a segment is over.
    fn happened(&mut self, k: usize, thread: Tid, top: Top, from_ns: u64, to_ns: u64) {
        let length = to_ns - from_ns;
        let active = self.cpus[k].active > 0;
        // whatever the CPU does takes nothing from a worker that may not run
        let held_back = self.cpus[k].holds_back(from_ns);
        match top {
            _ if self.receives(k, top) => {
                let work = length.min(self.tokens_ns);
                self.tokens_ns -= work;
                if active {
                    self.cpus[k].received_ns += work;
                    self.note(k, Raw::Received, work);
                    let label = match held_back {
                        true => self.fixed.throttled,
                        false => self.fixed.received,
                    };
                    self.delay(k, label, length - work, false);
                }
            }
            _ if !active => {}
            Top::Softirq { .. } | Top::Interrupt(_) if held_back => {
                self.delay(k, self.fixed.throttled, length, false);
            }
            Top::Softirq { vector } => {
                let label = self.labels.label(Cause::Softirq, Who::Softirq(vector));
                self.delay(k, label, length, false);
            }
            Top::Interrupt(interrupt) => {
                let label = self.labels.label(Cause::Irq, Who::Interrupt(interrupt));
                self.delay(k, label, length, false);
            }
            Top::KernelLock => self.delay(k, self.fixed.kernel_lock, length, false),
            Top::Storage { call } => {
                let (cause, who) = of_storage(call);
                let label = self.labels.label(cause, who);
                self.delay(k, label, length, false);
            }
            Top::Blind => self.delay(k, self.fixed.unobserved, length, false),
            Top::Stall => self.delay(k, self.fixed.hypervisor, length, false),
            Top::Idle { .. } | Top::Nothing if thread == 0 => {
                if self.cpus[k].waiting > 0 {
                    let label = self.idle_label(k, top, from_ns, to_ns);
                    self.delay(k, label, length, false);
                } else if self.cpus[k].unwoken > 0 {
                    self.delay(k, self.fixed.wakeup, length, false);
                }
            }
            Top::Idle { .. } | Top::Nothing => match self.cpus[k].worker {
                Some(w) => self.worked(k, w, length, to_ns),
                None if held_back => {
                    self.delay(k, self.fixed.throttled, length, false);
                }
                None => {
                    let who = Who::Thread(thread);
                    let label = self.labels.label(Cause::Background, who);
                    self.delay(k, label, length, true);
                }
            },
        }
    }

    /// It is the receive softirq, or the interrupt that raised it.
    fn receives(&self, k: usize, top: Top) -> bool {
        let softirq = Top::Softirq { vector: NET_RX };
        match top {
            Top::Softirq { vector } => vector == NET_RX,
            Top::Interrupt(interrupt) if self.tokens_ns > 0 && raises_receive(interrupt) => {
                let cpu = &self.cpus[k];
                let line = cpu.line.map(|place| &self.timeline.cpus()[place]);
                let next = line.and_then(|line| cpu.cursor.peek(line));
                next.is_some_and(|next| next.top == softirq)
            }
            _ => false,
        }
    }

    /// A worker begins to wait for CPU `k`, until `until_ns`: if the CPU idles for long
    /// meanwhile, the worker may not run, whoever else does. A power state that it was in before
    /// is none of that: it is left late.
    pub(super) fn look_ahead(&mut self, k: usize, at_ns: u64, until_ns: u64) {
        if !self.may_be_held_back() {
            return;
        }
        let enough_ns = match self.throttled(at_ns, until_ns) {
            true => THROTTLED_NS,
            false => HELD_BACK_NS,
        };
        if until_ns.saturating_sub(at_ns) <= enough_ns {
            return;
        }
        let cpu = &mut self.cpus[k];
        let Some(line) = cpu.line.map(|place| &self.timeline.cpus()[place]) else {
            return;
        };
        let mut cursor = cpu.cursor.clone();
        let mut next = cpu.segment;
        let mut idle_ns = 0;
        while let Some(segment) = next
            && segment.from.nanos_since_boot() < until_ns
        {
            let before = segment.from.nanos_since_boot() < at_ns;
            let idle = match segment.top {
                Top::Idle { .. } => !before,
                top => top == Top::Nothing,
            };
            if segment.thread == 0 && idle {
                let to_ns = segment.to.nanos_since_boot().min(until_ns);
                let from_ns = segment.from.nanos_since_boot().max(at_ns);
                idle_ns += to_ns.saturating_sub(from_ns);
            }
            next = cursor.next(line);
        }
        if idle_ns > enough_ns {
            cpu.held_back_until_ns = cpu.held_back_until_ns.max(until_ns);
        }
    }

    /// A quota or the limit of real-time threads can hold the server back: where neither can, a
    /// worker that waits beside an idle CPU was woken slowly.
    fn may_be_held_back(&self) -> bool {
        self.real_time || self.timeline.seen().throttling
    }

    /// The server's group was held back about then, by its own account.
    fn throttled(&self, from_ns: u64, to_ns: u64) -> bool {
        let windows = self.timeline.throttled();
        let next = windows.partition_point(|window| window.to.nanos_since_boot() <= from_ns);
        (windows.get(next)).is_some_and(|window| window.from.nanos_since_boot() < to_ns)
    }

    /// Why a worker waits for a CPU that idles.
    fn idle_label(&mut self, k: usize, top: Top, from_ns: u64, to_ns: u64) -> Label {
        let throttled = self.throttled(from_ns, to_ns);
        let cpu = &self.cpus[k];
        let preempted = cpu.preempted > 0 && self.may_be_held_back();
        if preempted || throttled || cpu.holds_back(from_ns) {
            return self.fixed.throttled;
        }
        match top {
            Top::Idle { state } => self.labels.label(Cause::IdleExit, Who::Idle(state)),
            _ => self.fixed.wakeup,
        }
    }

    /// A worker was on the CPU, nothing on top of it.
    fn worked(&mut self, k: usize, w: usize, length: u64, to_ns: u64) {
        let worker = &mut self.workers[w];
        let mut work = length.min(worker.budget_ns);
        worker.budget_ns -= work;
        // what the stack has not used of t
        let spare = (length - work).min(worker.spare_ns).min(self.tokens_ns);
        worker.spare_ns -= spare;
        self.tokens_ns -= spare;
        work += spare;
        let mut over = length - work;
        let tid = worker.tid;
        let Some(open) = worker.serving else {
            self.note(k, Raw::Others, work);
            if over > 0 {
                let label = self.labels.label(Cause::Background, Who::Thread(tid));
                self.delay(k, label, over, true);
            }
            return;
        };
        worker.served_ns += length;
        self.opens[open as usize].used_ns += work;
        self.opens[open as usize].over_ns += over;
        self.note(k, Raw::Own, work);
        if over == 0 {
            return;
        }
        let worker = &mut self.workers[w];
        while worker
            .faults
            .get(worker.next_fault)
            .is_some_and(|&f| f < to_ns)
        {
            worker.next_fault += 1;
            worker.fault_ns += self.usual.fault_ns;
        }
        let fault = over.min(worker.fault_ns);
        worker.fault_ns -= fault;
        over -= fault;
        self.delay(k, self.fixed.fault, fault, false);
        let label = self.slow_service(w);
        self.delay(k, label, over, true);
    }

    /// The CPU was held up.
    fn delay(&mut self, k: usize, label: Label, length: u64, by_thread: bool) {
        if length == 0 {
            return;
        }
        let cpu = &mut self.cpus[k];
        cpu.tape.push(label, length);
        let counted = if by_thread {
            &mut cpu.counted_thread
        } else {
            &mut cpu.counted_segment
        };
        let again = std::mem::replace(counted, true);
        self.count(label, length, !again);
        self.note(k, Raw::Delay(label), length);
    }

    fn count(&mut self, label: Label, length: u64, new: bool) {
        let place = label as usize;
        if place >= self.episodes.len() {
            self.episodes.resize(place + 1, 0);
            self.held_up_ns.resize(place + 1, 0);
        }
        self.episodes[place] += u64::from(new);
        self.held_up_ns[place] += length;
    }

    /// Tells the traced requests on this CPU.
    #[inline]
    fn note(&mut self, k: usize, what: Raw, length: u64) {
        if !self.traced.is_empty() && length > 0 {
            self.note_traced(k, what, length);
        }
    }

    fn note_traced(&mut self, k: usize, what: Raw, length: u64) {
        let serving = self.cpus[k].worker.and_then(|w| self.workers[w].serving);
        for &id in &self.traced {
            let open = &mut self.opens[id as usize];
            let here = open
                .worker
                .is_some_and(|w| self.workers[w].attached == Some(k));
            if let Some(list) = open.traced.as_mut().filter(|_| here) {
                let what = match what {
                    Raw::Own if serving != Some(id) => Raw::Others,
                    Raw::Delay(label) => match open.late {
                        Some(late) if self.labels.cause(label) != Cause::SlowService => {
                            let by = Who::Worker(self.workers[late.by].tid);
                            Raw::Delay(self.labels.label(Cause::Order, by))
                        }
                        _ => what,
                    },
                    what => what,
                };
                list.push((what, length));
            }
        }
    }

    /// Brings worker `w` to `upto_ns`, and the CPU that it is on or waits for.
    pub(super) fn settle(&mut self, w: usize, upto_ns: u64) {
        if let Some(k) = self.workers[w].attached {
            self.advance(k, upto_ns);
            self.workers[w].own_upto_ns = upto_ns;
            return;
        }
        let worker = &mut self.workers[w];
        let length = upto_ns.saturating_sub(worker.own_upto_ns);
        worker.own_upto_ns = worker.own_upto_ns.max(upto_ns);
        if worker.outstanding == 0 || length == 0 {
            return;
        }
        let label = worker.own;
        // a sleep on a timer is what the service consists of, as far as its time reaches
        let timer = worker.serving.filter(|_| worker.state.is_timer());
        let work = timer.map_or(0, |_| length.min(worker.budget_ns));
        worker.budget_ns -= work;
        let length = length - work;
        let home = worker.home.filter(|_| timer.is_some());
        if let Some(open) = timer {
            worker.served_ns += work;
            self.opens[open as usize].used_ns += work;
            self.opens[open as usize].over_ns += length;
        }
        // a CPU that stands still does not hear its timer
        let stalled = home.map_or(0, |k| self.stalled(k, upto_ns - length, upto_ns));
        let delays = [(label, length - stalled), (self.fixed.hypervisor, stalled)];
        for (label, length) in delays {
            if length > 0 {
                self.workers[w].held_up(label, length);
                self.count(label, length, true);
            }
        }
        for &id in &self.traced {
            let open = &mut self.opens[id as usize];
            if let Some(list) = open.traced.as_mut().filter(|_| open.worker == Some(w)) {
                if work > 0 {
                    let own = timer == Some(id);
                    list.push((if own { Raw::Own } else { Raw::Others }, work));
                }
                let delays = delays.iter().filter(|(_, length)| *length > 0);
                list.extend(delays.map(|(label, length)| (Raw::Delay(*label), *length)));
            }
        }
    }

    /// For how long CPU `k` stood still between the two.
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
}

/// Packets come with interrupts of devices, and from other CPUs.
fn raises_receive(interrupt: Interrupt) -> bool {
    !matches!(interrupt, Interrupt::LocalTimer | Interrupt::IrqWork)
}
