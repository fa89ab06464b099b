//! The server as the attribution follows it: its CPUs, its workers, the requests in it, and the
//! delay histories that follow.
//!
//! CPUs and workers are brought up to the present ([`Server::advance`], [`Server::settle`])
//! whenever anything of them is asked or changed.

use taillab_model::explanation::Cause;
use taillab_model::{Interrupt, RecordingContext};

use super::baseline::Baseline;
use super::cpu::{CpuClock, Stretch};
use super::entry::Ledger;
use super::events::{Event, EventQueue, RequestId};
use super::history::CpuHistory;
use super::label::{Label, Labels, Who, of_top};
use super::pieces::Moment;
use super::requests::OpenRequests;
use super::worker::{CountedOn, Worker};
use crate::id_map::LastFound;
use crate::matched::Matched;
use crate::timeline::{NET_RX, Sleep, Timeline, Top, WorkerState};

/// A runnable thread that an idle CPU leaves waiting for longer is not on its way: somebody
/// holds it back. Coming out of the deepest power state takes a fraction of it.
const HELD_BACK_NS: u64 = 2_000_000;

/// The same where its group's quota is known to have held it back about then: others may have
/// the CPU for most of such a time.
const THROTTLED_NS: u64 = 500_000;

/// Tokens of at most this many packets more than there are requests wait for their softirq.
const SPARE_TOKENS: usize = 4;

pub(super) struct Server {
    pub(super) baseline: Baseline,
    /// The kernel may hold a thread of the server back for its policy's sake.
    real_time: bool,
    /// The window of the recording that it is in.
    timeline: Timeline,
    pub(super) cpus: Vec<CpuClock>,
    /// The delay history of each CPU.
    pub(super) histories: Vec<CpuHistory>,
    pub(super) workers: Vec<Worker>,
    /// The places of the workers by their threads.
    pub(super) by_tid: LastFound<usize>,
    pub(super) requests: OpenRequests,
    pub(super) events: EventQueue,
    /// Time of receive softirqs that counts as work: ρ for each packet that came in.
    tokens_ns: u64,
    pub(super) ledger: Ledger,
}

/// A thread of the server is under a real-time policy, or nobody knows of any.
fn may_be_real_time(context: &RecordingContext) -> bool {
    let servers = context.threads.iter().filter(|thread| thread.server);
    let mut known = servers.filter_map(|thread| thread.real_time).peekable();
    known.peek().is_none() || known.any(|real_time| real_time)
}

impl Server {
    pub(super) fn new(context: &RecordingContext, baseline: Baseline) -> Self {
        Self {
            baseline,
            real_time: may_be_real_time(context),
            timeline: Timeline::default(),
            cpus: Vec::new(),
            histories: Vec::new(),
            workers: Vec::new(),
            by_tid: LastFound::default(),
            requests: OpenRequests::default(),
            events: EventQueue::default(),
            tokens_ns: 0,
            ledger: Ledger {
                labels: Labels::new(context),
                episodes: Vec::new(),
                held_up_ns: Vec::new(),
                served_ns: Vec::new(),
            },
        }
    }

    /// What was counted.
    pub(super) fn finish(self) -> Ledger {
        let mut ledger = self.ledger;
        ledger.episodes.resize(ledger.labels.len(), 0);
        ledger.held_up_ns.resize(ledger.labels.len(), 0);
        let workers = self.workers.iter();
        ledger.served_ns = workers.map(|w| (w.tid, w.served_ns)).collect();
        ledger
    }

    /// Goes on with a window of the recording; the one before was left at `from_ns`.
    pub(super) fn enter(&mut self, matched: &Matched, timeline: &Timeline, from_ns: u64) {
        self.timeline = timeline.clone();
        for (place, line) in timeline.cpus().iter().enumerate() {
            let k = self.cpu_index(line.cpu()).unwrap_or_else(|| {
                self.cpus.push(CpuClock::new(line.cpu()));
                self.histories.push(CpuHistory::default());
                self.cpus.len() - 1
            });
            self.cpus[k].read_on(place, line, &mut self.by_tid);
        }
        let mut last = 0;
        let unknown = self.label(Cause::Unobserved, Who::Nobody);
        for &tid in &matched.workers {
            if tid == last || tid == 0 || self.by_tid.contains(tid) {
                continue;
            }
            last = tid;
            if timeline.worker(tid).is_some() {
                self.by_tid.insert(tid, self.workers.len());
                self.workers.push(Worker::new(tid, unknown));
            }
        }
        for w in 0..self.workers.len() {
            let worker = &mut self.workers[w];
            let before = (worker.state, worker.until_ns);
            let Some(place) = timeline.worker_place(worker.tid) else {
                continue;
            };
            worker.read_on(place, &timeline.workers()[place], from_ns);
            if worker.outstanding > 0 && before != (worker.state, worker.until_ns) {
                worker.busy_period = worker.busy_period.wrapping_add(1);
                self.enter_state(w, from_ns);
            }
        }
    }

    /// Reads on to where the next window's lines begin, at `least_ns`, and where idle workers
    /// are at `upto_ns`, where this window ends.
    pub(super) fn leave(&mut self, least_ns: u64, upto_ns: u64) {
        for k in 0..self.cpus.len() {
            self.advance(k, least_ns);
        }
        for w in 0..self.workers.len() {
            if self.workers[w].outstanding == 0 {
                self.skim(w, upto_ns);
            }
        }
    }

    /// A packet comes in: its receive softirq is work.
    pub(super) fn add_token(&mut self) {
        let receive_ns = self.baseline.receive_ns;
        // those of requests that are gone are gone
        let packets = (self.requests.len() + SPARE_TOKENS) as u64;
        self.tokens_ns = (self.tokens_ns + receive_ns).min(packets * receive_ns);
    }

    fn cpu_index(&self, cpu: u16) -> Option<usize> {
        self.cpus.iter().position(|clock| clock.cpu == cpu)
    }

    fn label(&mut self, cause: Cause, who: Who) -> Label {
        self.ledger.labels.label(cause, who)
    }

    /// Brings CPU `k` to `upto_ns`.
    #[inline]
    pub(super) fn advance(&mut self, k: usize, upto_ns: u64) {
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
            self.charge(k, stretch);
        }
    }

    /// Charges what CPU `k` did for a while.
    fn charge(&mut self, k: usize, stretch: Stretch) {
        let Stretch {
            thread,
            top,
            from_ns,
            to_ns,
        } = stretch;
        let length = to_ns - from_ns;
        // whatever the CPU does takes nothing from a worker that may not run
        let held_back = self.cpus[k].holds_back(from_ns);
        if self.receives(k, top) {
            return self.received(k, held_back, length);
        }
        let cpu = &self.cpus[k];
        if cpu.active == 0 {
            return;
        }
        let label = match top {
            Top::Softirq { .. } | Top::Interrupt(_) if held_back => self.throttled_label(),
            Top::Idle { .. } | Top::Nothing if thread == 0 => {
                if cpu.waiting > 0 {
                    self.idle_label(k, top, from_ns, to_ns)
                } else if cpu.unwoken > 0 {
                    self.label(Cause::Wakeup, Who::Nobody)
                } else {
                    return;
                }
            }
            _ => match (of_top(top), cpu.worker) {
                (Some((cause, who)), _) => self.label(cause, who),
                (None, Some(w)) => return self.worked(k, w, length, to_ns),
                (None, None) if held_back => self.throttled_label(),
                (None, None) => {
                    let label = self.label(Cause::Background, Who::Thread(thread));
                    return self.delay(k, label, length, true);
                }
            },
        };
        self.delay(k, label, length, false);
    }

    /// It is the receive softirq, or the interrupt that raised it.
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

    /// CPU `k` received packets: within the tokens that is work.
    fn received(&mut self, k: usize, held_back: bool, length: u64) {
        let work = length.min(self.tokens_ns);
        self.tokens_ns -= work;
        if self.cpus[k].active == 0 {
            return;
        }
        self.histories[k].received(work);
        self.note(k, Moment::Received, work);
        if length > work {
            let label = match held_back {
                true => self.throttled_label(),
                false => self.label(Cause::Softirq, Who::Softirq(NET_RX)),
            };
            self.delay(k, label, length - work, false);
        }
    }

    fn throttled_label(&mut self) -> Label {
        self.label(Cause::Throttled, Who::Nobody)
    }

    /// Why a worker waits for a CPU that idles.
    fn idle_label(&mut self, k: usize, top: Top, from_ns: u64, to_ns: u64) -> Label {
        let throttled = self.throttled(from_ns, to_ns);
        let cpu = &self.cpus[k];
        let preempted = cpu.preempted > 0 && self.may_be_held_back();
        if preempted || throttled || cpu.holds_back(from_ns) {
            return self.throttled_label();
        }
        match top {
            Top::Idle { state } => self.label(Cause::IdleExit, Who::Idle(state)),
            _ => self.label(Cause::Wakeup, Who::Nobody),
        }
    }

    /// A quota or the limit of real-time threads can hold the server back: where neither can, a
    /// worker that waits for an idle CPU was woken slowly.
    fn may_be_held_back(&self) -> bool {
        self.real_time || self.timeline.seen().throttling
    }

    /// The server's group was held back about then, by its own account.
    fn throttled(&self, from_ns: u64, to_ns: u64) -> bool {
        let windows = self.timeline.throttled();
        let next = windows.partition_point(|window| window.to.nanos_since_boot() <= from_ns);
        (windows.get(next)).is_some_and(|window| window.from.nanos_since_boot() < to_ns)
    }

    /// A worker begins to wait for CPU `k`, until `until_ns`: if the CPU idles for long
    /// meanwhile, the worker may not run, whoever else does.
    fn look_ahead(&mut self, k: usize, at_ns: u64, until_ns: u64) {
        if !self.may_be_held_back() {
            return;
        }
        let enough_ns = match self.throttled(at_ns, until_ns) {
            true => THROTTLED_NS,
            false => HELD_BACK_NS,
        };
        let cpu = &mut self.cpus[k];
        if let Some(place) = cpu.line
            && until_ns.saturating_sub(at_ns) > enough_ns
            && cpu.idle_ns(&self.timeline.cpus()[place], at_ns, until_ns) > enough_ns
        {
            cpu.held_back_until_ns = cpu.held_back_until_ns.max(until_ns);
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
        let over = length - work;
        let tid = worker.tid;
        let Some(id) = worker.serving else {
            self.note(k, Moment::Others, work);
            if over > 0 {
                let label = self.label(Cause::Background, Who::Thread(tid));
                self.delay(k, label, over, true);
            }
            return;
        };
        worker.served_ns += length;
        let request = &mut self.requests[id];
        request.used_ns += work;
        request.over_ns += over;
        self.note(k, Moment::Own, work);
        if over == 0 {
            return;
        }
        let cost_ns = self.baseline.fault_ns;
        let fault = self.workers[w].faults.charge(to_ns, over, cost_ns);
        if fault > 0 {
            let label = self.label(Cause::BlockedFault, Who::Nobody);
            self.delay(k, label, fault, false);
        }
        let label = self.slow_service(w);
        self.delay(k, label, over - fault, true);
    }

    /// The CPU was held up.
    fn delay(&mut self, k: usize, label: Label, length: u64, by_thread: bool) {
        if length == 0 {
            return;
        }
        self.histories[k].push(label, length);
        let cpu = &mut self.cpus[k];
        let counted = match by_thread {
            true => &mut cpu.counted_thread,
            false => &mut cpu.counted_segment,
        };
        let again = std::mem::replace(counted, true);
        self.count(label, length, !again);
        self.note(k, Moment::Delay(label), length);
    }

    fn count(&mut self, label: Label, length: u64, new: bool) {
        let ledger = &mut self.ledger;
        let place = label as usize;
        if place >= ledger.episodes.len() {
            ledger.episodes.resize(place + 1, 0);
            ledger.held_up_ns.resize(place + 1, 0);
        }
        ledger.episodes[place] += u64::from(new);
        ledger.held_up_ns[place] += length;
    }

    /// Tells the traced requests on this CPU.
    #[inline]
    fn note(&mut self, k: usize, what: Moment, length: u64) {
        if !self.requests.traced.is_empty() && length > 0 {
            self.note_traced(k, what, length);
        }
    }

    fn note_traced(&mut self, k: usize, what: Moment, length: u64) {
        let serving = self.cpus[k].worker.and_then(|w| self.workers[w].serving);
        for place in 0..self.requests.traced.len() {
            let id = self.requests.traced[place];
            let request = &mut self.requests[id];
            let worker = request.worker.map(|w| &self.workers[w]);
            let here = worker.is_some_and(|worker| worker.history.attached() == Some(k));
            let Some(moments) = request.moments.as_mut().filter(|_| here) else {
                continue;
            };
            let labels = &mut self.ledger.labels;
            let what = match (what, request.late) {
                (Moment::Own, _) if serving != Some(id) => Moment::Others,
                (Moment::Delay(label), Some(late)) if labels.cause(label) != Cause::SlowService => {
                    Moment::Delay(labels.label(Cause::Order, Who::Worker(late.by)))
                }
                _ => what,
            };
            moments.push((what, length));
        }
    }

    /// Brings worker `w` to `upto_ns`, and the CPU that it is on or waits for.
    pub(super) fn settle(&mut self, w: usize, upto_ns: u64) {
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
        let own = worker.own;
        // a sleep on a timer is what the service consists of, as far as its time reaches
        let timer = worker.serving.filter(|_| worker.state.is_timer());
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
        // a CPU that stands still does not hear its timer
        let stalled = home.map_or(0, |k| self.stalled(k, upto_ns - length, upto_ns));
        let hypervisor = self.label(Cause::Hypervisor, Who::Nobody);
        let delays = [(own, length - stalled), (hypervisor, stalled)];
        let delays = delays.into_iter().filter(|delay| delay.1 > 0);
        for (label, length) in delays.clone() {
            self.workers[w].history.held_up(label, length);
            self.count(label, length, true);
        }
        for place in 0..self.requests.traced.len() {
            let id = self.requests.traced[place];
            let request = &mut self.requests[id];
            if let Some(moments) = request
                .moments
                .as_mut()
                .filter(|_| request.worker == Some(w))
            {
                if work > 0 {
                    let own = timer == Some(id);
                    moments.push((if own { Moment::Own } else { Moment::Others }, work));
                }
                let delays = delays.clone();
                moments.extend(delays.map(|(label, ns)| (Moment::Delay(label), ns)));
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

    /// A worker gets its first request: its state is looked up.
    pub(super) fn catch_up(&mut self, w: usize, at_ns: u64) {
        self.skim(w, at_ns);
        self.enter_state(w, at_ns);
    }

    /// Reads on to a worker's state at `at_ns`, while it has no requests.
    fn skim(&mut self, w: usize, at_ns: u64) {
        while self.workers[w].until_ns <= at_ns
            && self.workers[w].next_state(self.timeline.workers())
        {
            if let Some(cpu) = self.workers[w].state.cpu() {
                self.workers[w].home = self.cpu_index(cpu);
            }
        }
    }

    /// A worker's state ends.
    pub(super) fn state_ends(&mut self, w: usize, at_ns: u64) {
        self.settle(w, at_ns);
        self.workers[w].next_state(self.timeline.workers());
        self.enter_state(w, at_ns);
    }

    /// Attaches the worker to its CPU or takes it off, as its new state says.
    fn enter_state(&mut self, w: usize, at_ns: u64) {
        let cpu = match self.workers[w].state {
            WorkerState::Asleep(_) if self.is_unwoken(w, at_ns) => self.workers[w].home,
            state => state.cpu().and_then(|cpu| self.cpu_index(cpu)),
        };
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
                self.workers[w].own = self.own_label(w);
                self.workers[w].own_upto_ns = at_ns;
            }
        }
        self.recount(w, at_ns);
        let worker = &self.workers[w];
        if worker.until_ns < u64::MAX {
            let event = Event::StateEnds(w as u32, worker.busy_period);
            self.events.push(worker.until_ns.max(at_ns), event);
        }
    }

    /// It sleeps where it waits for requests, though it has one that it has not read: it is
    /// about to be woken, or nobody saw that it was. What its CPU does holds it up.
    fn is_unwoken(&self, w: usize, at_ns: u64) -> bool {
        let worker = &self.workers[w];
        let WorkerState::Asleep(Sleep::Work | Sleep::Unknown) = worker.state else {
            return false;
        };
        let has_read = |id: RequestId| {
            let t4_ns = self.requests[id].t4_ns();
            t4_ns.is_none_or(|t4_ns| t4_ns <= at_ns)
        };
        !worker.serving.is_some_and(has_read)
    }

    /// Why a worker that is not on a CPU and does not wait for one holds up its requests.
    fn own_label(&mut self, w: usize) -> Label {
        let worker = &self.workers[w];
        let call = |call: Option<u16>| call.map_or(Who::Nobody, Who::Call);
        let (cause, who) = match worker.state {
            WorkerState::Asleep(sleep) => match sleep {
                Sleep::Lock { call: number } => {
                    let by = worker.waker().map(Who::Thread);
                    (Cause::BlockedLock, by.unwrap_or(call(number)))
                }
                Sleep::Fault => (Cause::BlockedFault, Who::Nobody),
                Sleep::Io { call: number } => (Cause::BlockedIo, call(number)),
                Sleep::Other { .. } if self.baseline.virtual_workers && worker.state.is_timer() => {
                    (Cause::SlowService, Who::Worker(worker.tid))
                }
                Sleep::Other { call: number } => (Cause::BlockedOther, Who::Call(number)),
                // in the middle of a request it waits for somebody else's answer
                Sleep::Work | Sleep::Unknown if worker.serving.is_some() => {
                    (Cause::BlockedOther, Who::Nobody)
                }
                Sleep::Work | Sleep::Unknown => (Cause::Wakeup, Who::Nobody),
            },
            _ => (Cause::Unobserved, Who::Nobody),
        };
        self.label(cause, who)
    }

    /// The label of services of worker `w` that take too long.
    pub(super) fn slow_service(&mut self, w: usize) -> Label {
        let (worker, labels) = (&mut self.workers[w], &mut self.ledger.labels);
        let by = Who::Worker(worker.tid);
        let label = || labels.label(Cause::SlowService, by);
        *worker.slow_service.get_or_insert_with(label)
    }

    /// Worker `w` begins to serve a request.
    pub(super) fn serve(&mut self, w: usize, id: RequestId, at_ns: u64) {
        let worker = &mut self.workers[w];
        worker.serving = Some(id);
        worker.budget_ns = self.baseline.service_ns;
        worker.spare_ns = self.baseline.receive_ns;
        worker.faults.begin_service(at_ns);
        if let WorkerState::Asleep(Sleep::Work) = worker.state {
            let own = self.own_label(w);
            self.workers[w].own = own;
        }
    }

    /// Brings the counts of its CPUs up to date with the state and the requests of worker `w`.
    pub(super) fn recount(&mut self, w: usize, at_ns: u64) {
        let worker = &mut self.workers[w];
        let busy = worker.outstanding > 0;
        let attached = worker.history.attached().filter(|_| busy);
        let now = CountedOn {
            active: worker.home.filter(|_| busy),
            waiting: match worker.state {
                WorkerState::Preempted { .. } => attached.map(|k| (k, true)),
                WorkerState::Woken { .. } => attached.map(|k| (k, false)),
                _ => None,
            },
            unwoken: attached.filter(|_| matches!(worker.state, WorkerState::Asleep(_))),
        };
        let until_ns = worker.until_ns;
        let was = std::mem::replace(&mut worker.counted, now);
        if now.unwoken != was.unwoken {
            self.change(was.unwoken, at_ns, |cpu| cpu.unwoken -= 1);
            self.change(now.unwoken, at_ns, |cpu| cpu.unwoken += 1);
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
                self.look_ahead(k, at_ns, until_ns);
            }
        }
    }

    /// Changes a CPU from `at_ns` on.
    #[inline]
    fn change(&mut self, k: Option<usize>, at_ns: u64, change: impl FnOnce(&mut CpuClock)) {
        if let Some(k) = k {
            self.advance(k, at_ns);
            change(&mut self.cpus[k]);
        }
    }
}

/// Packets come with interrupts of devices, and from other CPUs.
fn raises_receive(interrupt: Interrupt) -> bool {
    !matches!(interrupt, Interrupt::LocalTimer | Interrupt::IrqWork)
}
