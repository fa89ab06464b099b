//! The pass over a recording in order of time.
//!
//! What happens to requests (they come in, are queued, begun and answered) and to workers
//! that have requests comes from turns in order of time. CPUs need no turns: one is brought up to
//! the present ([`Sweep::advance`]) whenever anything on it is asked or changed.

use taillab_model::explanation::Cause;
use taillab_model::{Monotonic, Nanos, RecordingContext, RequestKey, Stamps, Tid};

use super::account::Split;
use super::balance::OneQueue;
use super::calibrate::Usual;
use super::cpu::CpuState;
use super::label::{Label, Labels, Who};
use super::lengths::Lengths;
use super::order::{InOrder, Late};
use super::received::{self, Pieces, Receiving};
use super::trace::Raw;
use super::turns::{Turn, Turns};
use super::worker::WorkerTrack;
use super::{Entry, Ledger, LedgerOptions};
use crate::matched::{Arrival, Matched};
use crate::matcher::LastFound;
use crate::resent::Resent;
use crate::timeline::{Sleep, Timeline, WorkerState};

/// Place of an open request in [`Sweep::opens`].
pub(super) type OpenId = u32;

/// Tokens of at most so many packets more than there are requests wait for their softirq.
const SPARE_TOKENS: usize = 4;

/// A request between T1 and T6.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    pub(super) place: usize,
    pub(super) known: Option<Known>,
    /// The thread that served it; 0 where that is not known.
    pub(super) tid: Tid,
    /// Its place among the workers.
    pub(super) worker: Option<usize>,
    pub(super) t1_ns: u64,
    /// T2, or what stands for it.
    pub(super) queued_ns: u64,
    pub(super) t6_ns: u64,
    /// Ideal waits: of all, and of its own worker.
    pub(super) wait_ns: u64,
    pub(super) own_wait_ns: u64,
    /// Positions at T2, on the worker's tape and in the receive softirqs.
    pub(super) tape: u64,
    pub(super) received: u64,
    /// What it waited longer than it would have in one queue for all workers.
    pub(super) longer_ns: u64,
    pub(super) late: Option<Late>,
    /// Work for itself.
    pub(super) used_ns: u64,
    /// The same beyond the time that a service may take.
    pub(super) over_ns: u64,
    /// Where in the list of inheritance the worker's busy period begins.
    pub(super) busy_from: u64,
    pub(super) busy_cpu: Option<(usize, u64, u64)>,
    queue: Option<Queue>,
    pub(super) overtaken_by: Option<(usize, Tid)>,
    pub(super) stack: Pieces,
    pub(super) traced: Option<Vec<(Raw, u64)>>,
}

/// What the matcher found of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) stamps: Stamps,
    pub(super) key: RequestKey,
    /// It belongs to the measurement.
    pub(super) measured: bool,
}

impl Open {
    /// T2 to T5.
    fn middle(&self) -> [Option<Monotonic>; 4] {
        self.known.map_or([None; 4], |known| known.stamps.middle)
    }

    /// Back to what holds for a request that comes in; its memory is kept for that.
    fn forget(&mut self) {
        self.known = None;
        self.late = None;
        (self.used_ns, self.over_ns) = (0, 0);
        (self.busy_cpu, self.queue, self.overtaken_by) = (None, None, None);
        self.stack.clear();
        self.traced = None;
    }

    /// T4.
    pub(super) fn t4_ns(&self) -> Option<u64> {
        self.middle()[2].map(Monotonic::nanos_since_boot)
    }

    /// T5.
    pub(super) fn t5_ns(&self) -> Option<u64> {
        self.middle()[3].map(Monotonic::nanos_since_boot)
    }
}

/// Whose requests are served in order of arrival, ideally.
#[derive(Clone, Copy, Debug)]
enum Queue {
    OfCpu(usize),
    OfWorker(usize),
}

/// A later arrival that was begun, and when.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    place: usize,
    worker: Tid,
    at_ns: u64,
}

/// Labels that are needed at every step.
pub(super) struct Fixed {
    /// What is work in the ideal queue as well, in the order in which the ideal sojourn is taken
    /// off it.
    pub(super) work: [Label; 4],
    pub(super) service: Label,
    pub(super) stack_tx: Label,
    pub(super) queue: Label,
    pub(super) received: Label,
    pub(super) unexplained: Label,
    pub(super) unobserved: Label,
    pub(super) wakeup: Label,
    pub(super) throttled: Label,
    pub(super) hypervisor: Label,
    pub(super) fault: Label,
    pub(super) kernel_lock: Label,
    pub(super) retransmit: Label,
}

pub(super) struct Sweep {
    /// The part of the recording that it is in.
    pub(super) timeline: Timeline,
    pub(super) options: LedgerOptions,
    pub(super) usual: Usual,
    pub(super) labels: Labels,
    /// The kernel may hold a thread of the server back for its policy's sake.
    pub(super) real_time: bool,
    pub(super) fixed: Fixed,
    pub(super) cpus: Vec<CpuState>,
    pub(super) workers: Vec<WorkerTrack>,
    /// Matched requests of the parts before.
    pub(super) requests_before: usize,
    /// What came before is settled.
    pub(super) upto_ns: u64,
    pub(super) by_tid: LastFound<usize>,
    pub(super) opens: Vec<Open>,
    free_opens: Vec<OpenId>,
    pub(super) turns: Turns,
    /// Time of receive softirqs that counts as work: ρ for each packet that came in.
    pub(super) tokens_ns: u64,
    /// When each ideal worker is done, and whose turn it is.
    ideal_free_ns: Vec<u64>,
    ideal_next: usize,
    one_queue: OneQueue,
    latest: Option<Begun>,
    last_receiver: usize,
    /// Requests that are taken apart in order of time.
    pub(super) traced: Vec<OpenId>,
    pub(super) episodes: Vec<u64>,
    pub(super) held_up_ns: Vec<u64>,
    pub(super) resent: Resent,
    pub(super) parts: Lengths,
    pub(super) excess: Vec<(Label, u64)>,
    pub(super) held: Lengths,
    pub(super) split: Split,
}

/// A thread of the server is under a real-time policy, or nobody knows of any.
fn may_be_real_time(context: &RecordingContext) -> bool {
    let servers = context.threads.iter().filter(|thread| thread.server);
    let mut known = servers.filter_map(|thread| thread.real_time).peekable();
    known.peek().is_none() || known.any(|real_time| real_time)
}

impl Sweep {
    pub(super) fn new(context: &RecordingContext, options: &LedgerOptions, usual: Usual) -> Self {
        let mut labels = Labels::new(context);
        let mut plain = |cause| labels.label(cause, Who::Nobody);
        let work = [Cause::Service, Cause::StackTx, Cause::Queue, Cause::StackRx];
        let work = work.map(&mut plain);
        let [service, stack_tx, queue, _] = work;
        let fixed = Fixed {
            work,
            service,
            stack_tx,
            queue,
            unexplained: plain(Cause::Unexplained),
            unobserved: plain(Cause::Unobserved),
            wakeup: plain(Cause::Wakeup),
            throttled: plain(Cause::Throttled),
            hypervisor: plain(Cause::Hypervisor),
            fault: plain(Cause::BlockedFault),
            kernel_lock: plain(Cause::BlockedLock),
            retransmit: plain(Cause::Retransmit),
            received: labels.label(Cause::Softirq, Who::Softirq(3)),
        };
        Self {
            timeline: Timeline::default(),
            options: options.clone(),
            usual,
            labels,
            real_time: may_be_real_time(context),
            fixed,
            cpus: Vec::new(),
            workers: Vec::new(),
            requests_before: 0,
            upto_ns: 0,
            by_tid: LastFound::default(),
            opens: Vec::new(),
            free_opens: Vec::new(),
            turns: Turns::default(),
            tokens_ns: 0,
            ideal_free_ns: vec![0; options.workers.get() as usize],
            ideal_next: 0,
            one_queue: OneQueue::new(options.workers.get() as usize),
            latest: None,
            last_receiver: 0,
            traced: Vec::new(),
            episodes: Vec::new(),
            held_up_ns: Vec::new(),
            resent: Resent::default(),
            parts: Lengths::default(),
            excess: Vec::new(),
            held: Lengths::default(),
            split: Split::new(),
        }
    }

    pub(super) fn finish(mut self) -> Ledger {
        self.episodes.resize(self.labels.len(), 0);
        self.held_up_ns.resize(self.labels.len(), 0);
        let served = self.workers.iter();
        Ledger {
            served_ns: served
                .map(|worker| (worker.tid, worker.served_ns))
                .collect(),
            labels: self.labels,
            episodes: self.episodes,
            held_up_ns: self.held_up_ns,
        }
    }

    /// Handles what happens before `until_ns`.
    pub(super) fn until(&mut self, until_ns: u64, sink: &mut impl FnMut(&Entry<'_>, &Labels)) {
        while let Some((at_ns, turn)) = self.turns.pop_before(until_ns) {
            match turn {
                Turn::Worker(w, number) => {
                    let worker = &self.workers[w as usize];
                    if worker.turn == number && worker.outstanding > 0 {
                        self.worker_changes(w as usize, at_ns);
                    }
                }
                Turn::Queued(open) => self.queued(open, at_ns),
                Turn::Begun(open) => self.begun(open, at_ns),
                Turn::Answered(open) => {
                    self.answered(open, at_ns, sink);
                    self.opens[open as usize].forget();
                    self.free_opens.push(open);
                }
            }
        }
    }

    /// T1: the ideal queues get it, and it is followed if it was answered.
    pub(super) fn came_in(&mut self, matched: &Matched, arrival: &Arrival, t1_ns: u64) {
        let t = self.options.service_time.get();
        let free = &mut self.ideal_free_ns[self.ideal_next];
        let wait_ns = free.saturating_sub(t1_ns);
        *free = t1_ns + wait_ns + t;
        self.ideal_next = (self.ideal_next + 1) % self.ideal_free_ns.len();
        let tokens = self.tokens_ns + self.usual.receive_ns;
        // those of requests that are gone are gone
        let packets = self.opens.len() - self.free_opens.len() + SPARE_TOKENS;
        self.tokens_ns = tokens.min(packets as u64 * self.usual.receive_ns);
        let Some(place) = arrival.matched else {
            return;
        };
        let tid = matched.workers[place];
        let worker = self.by_tid.get(tid);
        let mut own_wait_ns = wait_ns;
        if let Some(w) = worker {
            let free = &mut self.workers[w].ideal_free_ns;
            own_wait_ns = free.saturating_sub(t1_ns);
            *free = t1_ns + own_wait_ns + t;
        }
        let stamps = matched.requests.stamps(place);
        let t6_ns = stamps.t6.nanos_since_boot().max(t1_ns);
        let longer_ns = self.longer_ns(worker, t1_ns, t6_ns);
        let [t2, t3, t4, _] = stamps.middle;
        let queued = t2.unwrap_or_else(|| {
            let read = t3.or(t4);
            let client = matched.keys[place].client();
            let came = read.and_then(|read| {
                let read_ns = read.nanos_since_boot();
                let came_ns = self.resent.last_within(client, t1_ns, read_ns);
                came_ns.map(Monotonic::from_nanos_since_boot)
            });
            let usual = came.unwrap_or(stamps.t1) + Nanos::new(self.usual.stack_ns);
            usual.min(read.unwrap_or(usual))
        });
        let queued_ns = queued.nanos_since_boot().clamp(t1_ns, t6_ns);
        let sojourn = Nanos::new(t6_ns - t1_ns);
        let id = self.free_opens.pop().unwrap_or_else(|| {
            self.opens.push(Open::default());
            (self.opens.len() - 1) as OpenId
        });
        let open = &mut self.opens[id as usize];
        open.place = self.requests_before + place;
        open.known = Some(Known {
            stamps,
            key: matched.keys[place],
            measured: matched.is_measured(place, self.options.measure_from),
        });
        open.tid = tid;
        open.worker = worker;
        (open.t1_ns, open.queued_ns, open.t6_ns) = (t1_ns, queued_ns, t6_ns);
        (open.wait_ns, open.own_wait_ns) = (wait_ns, own_wait_ns);
        open.longer_ns = longer_ns;
        open.traced = (sojourn >= self.options.trace_from).then(Vec::new);
        self.turns.push(queued_ns, Turn::Queued(id));
    }

    /// How much longer a request waited than in one queue for all workers.
    fn longer_ns(&mut self, worker: Option<usize>, t1_ns: u64, t6_ns: u64) -> u64 {
        let Some(w) = worker else {
            return 0;
        };
        let usual = self.options.service_time;
        let demand_ns = self.workers[w].own_queue.demand_ns(t1_ns, t6_ns, usual);
        let wait_ns = self.one_queue.wait_ns(t1_ns, demand_ns);
        (t6_ns - t1_ns - demand_ns).saturating_sub(wait_ns)
    }

    /// T2.
    fn queued(&mut self, id: OpenId, at_ns: u64) {
        let Some(w) = self.opens[id as usize].worker else {
            self.receive(None, id, at_ns);
            self.turns
                .push(self.opens[id as usize].t6_ns, Turn::Answered(id));
            return;
        };
        if self.workers[w].outstanding == 0 {
            self.catch_up(w, at_ns);
        } else {
            self.settle(w, at_ns);
        }
        let home = self.workers[w].home;
        if let Some(k) = home {
            self.advance(k, at_ns);
        }
        self.receive(home, id, at_ns);
        let first = self.workers[w].outstanding == 0;
        if first {
            self.workers[w].forget(&self.cpus);
            self.workers[w].own_upto_ns = at_ns;
            if let Some(k) = home
                && self.cpus[k].active == 0
            {
                self.cpus[k].tape.clear();
                self.cpus[k].busy_floor = self.cpus[k].tape.end();
                self.held_up_before(k, id);
                // what was pushed is not this request's own
                self.workers[w].forget(&self.cpus);
            }
            let (position, _) = self.workers[w].position(&self.cpus);
            self.workers[w].busy_from = position;
            self.workers[w].busy_cpu =
                home.map(|k| (k, self.cpus[k].tape.end(), self.cpus[k].busy_floor));
        }
        self.workers[w].outstanding += 1;
        self.recount(w, at_ns);
        let (tape, received) = self.workers[w].position(&self.cpus);
        let worker = &self.workers[w];
        let (busy_from, busy_cpu) = (worker.busy_from, worker.busy_cpu);
        let open = &mut self.opens[id as usize];
        (open.tape, open.received) = (tape, received);
        (open.busy_from, open.busy_cpu) = (busy_from, busy_cpu);
        if open.traced.is_some() {
            self.traced.push(id);
        }
        let [_, t3, t4, _] = open.middle();
        let previous = worker.previous_t6_ns;
        let begin_ns = match t3 {
            Some(t3) => t3.nanos_since_boot(),
            None => previous.min(t4.map_or(u64::MAX, |t4| t4.nanos_since_boot())),
        };
        let begin_ns = begin_ns.clamp(at_ns, open.t6_ns.max(at_ns));
        // virtual workers share no CPU: each has an order of its own
        let queue = match home.filter(|_| !self.usual.virtual_workers) {
            Some(k) => Queue::OfCpu(k),
            None => Queue::OfWorker(w),
        };
        open.queue = Some(queue);
        let place = open.place;
        self.order_of(queue).came(place, id);
        self.turns.push(begin_ns, Turn::Begun(id));
    }

    /// [T1, T2], on the CPU that received the packet, which is most likely `home`.
    fn receive(&mut self, home: Option<usize>, id: OpenId, at_ns: u64) {
        let t1_ns = self.opens[id as usize].t1_ns;
        let likely = home.into_iter().chain([self.last_receiver]);
        let mut found = None;
        for k in likely.chain(0..self.cpus.len()) {
            if k < self.cpus.len() {
                self.advance(k, at_ns);
                if received::receives(&self.cpus[k]) {
                    found = Some(k);
                    break;
                }
            }
        }
        let by_tid = &self.by_tid;
        let is_server = |tid| by_tid.contains(tid);
        let mut receiving = Receiving {
            labels: &mut self.labels,
            usual_ns: 2 * self.usual.stack_ns,
            is_server: &is_server,
        };
        let stack = &mut self.opens[id as usize].stack;
        match found {
            Some(k) => {
                self.last_receiver = k;
                receiving.split(&self.cpus[k], t1_ns, at_ns, stack);
                self.cpus[k].last_queued_ns = at_ns;
            }
            None => receiving.unseen(t1_ns, at_ns, stack),
        }
    }

    /// What the first request of a busy period lost on its way, beyond ρ, is a delay for
    /// those behind it.
    fn held_up_before(&mut self, k: usize, id: OpenId) {
        let mut work = self.usual.receive_ns;
        for &(label, ns) in &self.opens[id as usize].stack {
            let taken = ns.min(work);
            work -= taken;
            self.cpus[k].tape.push(label, ns - taken);
        }
    }

    /// T3.
    fn begun(&mut self, id: OpenId, at_ns: u64) {
        let open = &self.opens[id as usize];
        let (place, queued_ns, t6_ns) = (open.place, open.queued_ns, open.t6_ns);
        if let Some(w) = open.worker {
            if self.workers[w].serving.is_none() {
                self.settle(w, at_ns);
                self.serve(w, id, at_ns);
            } else {
                self.workers[w].pending.push_back(id);
            }
            let tid = self.workers[w].tid;
            if let Some(latest) = self.latest
                && latest.place > place
                && latest.at_ns >= queued_ns
            {
                self.opens[id as usize].overtaken_by = Some((latest.place, latest.worker));
            }
            if self.latest.is_none_or(|latest| latest.place < place) {
                self.latest = Some(Begun {
                    place,
                    worker: tid,
                    at_ns,
                });
            }
        }
        self.turns.push(t6_ns.max(at_ns), Turn::Answered(id));
    }

    fn serve(&mut self, w: usize, id: OpenId, at_ns: u64) {
        let worker = &mut self.workers[w];
        worker.serving = Some(id);
        worker.budget_ns = self.usual.service_ns;
        worker.spare_ns = self.usual.receive_ns;
        worker.fault_ns = 0;
        while worker
            .faults
            .get(worker.next_fault)
            .is_some_and(|&f| f < at_ns)
        {
            worker.next_fault += 1;
        }
        if let WorkerState::Asleep(Sleep::Work) = worker.state {
            let own = self.own_label(w);
            self.workers[w].own = own;
        }
    }

    /// T6.
    fn answered(&mut self, id: OpenId, at_ns: u64, sink: &mut impl FnMut(&Entry<'_>, &Labels)) {
        if let Some(w) = self.opens[id as usize].worker {
            self.settle(w, at_ns);
        }
        let open = &self.opens[id as usize];
        let (worker, queue, place) = (open.worker, open.queue, open.place);
        if open.traced.is_some() {
            self.traced.retain(|&other| other != id);
        }
        self.account(id, sink);
        let Some(w) = worker else {
            return;
        };
        if let Some(queue) = queue
            && let Some((due, by)) = self.order_of(queue).left(place, w)
        {
            self.late(due, by, at_ns);
        }
        let worker = &mut self.workers[w];
        worker.requests += 1;
        worker.previous_t6_ns = at_ns;
        worker.outstanding -= 1;
        if worker.serving == Some(id) {
            worker.serving = None;
            if let Some(next) = worker.pending.pop_front() {
                self.serve(w, next, at_ns);
            }
        } else {
            worker.pending.retain(|&other| other != id);
        }
        self.recount(w, at_ns);
        if self.workers[w].outstanding == 0 {
            self.workers[w].turn = self.workers[w].turn.wrapping_add(1);
        }
    }

    fn order_of(&mut self, queue: Queue) -> &mut InOrder {
        match queue {
            Queue::OfCpu(k) => &mut self.cpus[k].order,
            Queue::OfWorker(w) => &mut self.workers[w].order,
        }
    }

    /// In the order of arrival request `id` would have left now.
    fn late(&mut self, id: OpenId, by: usize, at_ns: u64) {
        let Some(w) = self.opens[id as usize].worker else {
            return;
        };
        self.settle(w, at_ns);
        let (tape, received) = self.workers[w].position(&self.cpus);
        self.opens[id as usize].late = Some(Late {
            since_ns: at_ns,
            tape,
            received,
            by,
        });
    }
}
