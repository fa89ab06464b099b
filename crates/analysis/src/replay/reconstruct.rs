//! The pass over the stretches of the CPUs that determines the work of requests and the vacations of
//! servers.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use taillab_model::explanation::Cause;
use taillab_model::{RecordingContext, Tid};

use super::observed::{Observed, VacationSource};
use super::peers::{Peers, SourceKind};
use super::track::{CoreTimeline, Occupant, SourceId, StretchEnd, WorkerCpus, by_time};
use super::vacations::Vacations;
use super::work::split_work;
use crate::ledger::{CulpritId, Labels};

/// Shorter vacations hardly delay a packet.
const MIN_HOLD_NS: u64 = 100_000;

/// After this time, a CPU that is back has received all packets that waited: a softirq runs for at most
/// 2 ms before it lets others run (`net.core.netdev_budget_usecs`).
const BACKLOG_NS: u64 = 2_000_000;

/// The number of idle stretches kept for each CPU; a wake-up spans only a few.
const MAX_IDLE: usize = 64;

/// Data about the requests that only this pass needs, in the order of [`Observed::requests`].
#[derive(Clone, Debug, Default)]
pub(super) struct PerRequest {
    /// Time 0 of the queue, in nanoseconds since boot.
    pub(super) origin_ns: u64,
    pub(super) clients: Vec<u32>,
    /// T4, or [`u64::MAX`].
    pub(super) read_ns: Vec<u64>,
    /// The requests in the order of T6.
    pub(super) finished: Vec<u32>,
    /// The stretches of time that have requests to replay.
    pub(super) covered: Vec<(u64, u64)>,
}

/// Fills in work, vacations and wake-ups.
pub(super) fn reconstruct(
    observed: &mut Observed,
    per_request: &PerRequest,
    timeline: &impl CoreTimeline,
    cpus: &[u16],
    context: &RecordingContext,
) {
    let asleep = WorkerPass {
        slept: true,
        ..WorkerPass::default()
    };
    let mut pass = Reconstruction {
        origin: per_request.origin_ns,
        read_ns: &per_request.read_ns,
        of_tid: (0..)
            .zip(&observed.workers)
            .map(|(w, &tid)| (tid, w))
            .collect(),
        workers: vec![asleep; observed.workers.len()],
        idle: vec![VecDeque::new(); cpus.len()],
        // at least one, since workers wait even where no CPU was recorded
        waiting: vec![BTreeSet::new(); cpus.len().max(1)],
        own_sources: HashMap::new(),
        sleep_sources: HashMap::new(),
        peers: Peers::new(cpus.len()),
        shared: !observed.servers_are_workers && observed.workers.len() > cpus.len(),
        labels: Labels::new(context),
        worker_cpus: None,
        shallow: Vec::new(),
        kinds: Vec::new(),
        kind_of: |id| SourceKind::of(&timeline.source(id)),
        observed,
    };
    for &i in &per_request.finished {
        let worker = pass.observed.requests[i as usize].worker;
        if let Some(worker) = pass.workers.get_mut(usize::from(worker)) {
            worker.queue.push(i);
        }
    }
    // a worker that has not been seen yet is runnable from its first request on
    for w in 0..pass.workers.len() {
        if let Some(&i) = pass.workers[w].queue.first() {
            let arrival = pass.observed.requests[i as usize].arrival_ns;
            pass.waits(w, 0, arrival);
        }
    }
    let servers = if pass.observed.servers_are_workers {
        pass.worker_cpus = Some(WorkerCpus::of(timeline, cpus, &pass.of_tid));
        pass.workers.len()
    } else {
        cpus.len()
    };
    pass.observed.vacations = vec![Vacations::default(); servers.max(1)];
    let mut covered = per_request.covered.iter().peekable();
    for (cpu, segment) in by_time(timeline, cpus) {
        let from = segment.from_ns.saturating_sub(pass.origin);
        let to = segment.to_ns.saturating_sub(pass.origin);
        while covered.next_if(|(_, end)| *end <= from).is_some() {
            pass.skip();
        }
        if covered.peek().is_some_and(|(begin, _)| *begin < to) {
            pass.add(cpu, from, to, segment.who);
        }
    }
    let Reconstruction {
        workers, shallow, ..
    } = pass;
    let queues: Vec<Vec<u32>> = workers.into_iter().map(|worker| worker.queue).collect();
    split_work(observed, &queues, &per_request.read_ns, shallow);
    observed.add_sources(timeline);
}

/// Marks sources that are not in the timeline. At the end of the pass they are numbered after those of the
/// timeline, whose number is not known earlier.
const ADDED: u16 = 0x8000;

impl Observed {
    /// Puts the timeline's sources before the added ones.
    fn add_sources(&mut self, timeline: &impl CoreTimeline) {
        let foreign = timeline.sources().min(usize::from(ADDED)) as u16;
        let added = std::mem::take(&mut self.sources);
        self.sources = (0..foreign)
            .map(|id| {
                let (cause, culprit) = timeline.source(SourceId(id));
                VacationSource {
                    cause,
                    culprit,
                    own: false,
                }
            })
            .chain(added)
            .collect();
        for vacations in &mut self.vacations {
            vacations.renumber(|source| match source & ADDED {
                0 => source,
                _ => foreign + (source & !ADDED),
            });
        }
    }
}

/// An idle stretch of a CPU.
#[derive(Clone, Copy, Debug)]
struct Idle {
    from: u64,
    to: u64,
    /// The CPU is in a power state deeper than the shallowest one.
    deep: bool,
}

/// The state of a worker during the pass.
#[derive(Clone, Debug, Default)]
struct WorkerPass {
    /// Its requests in the order in which it finished them.
    queue: Vec<u32>,
    /// The place in `queue` of its next request.
    next: usize,
    /// It has slept since its last response, and not in the middle of a request.
    slept: bool,
    /// It has slept, and has run for the next request since.
    began: bool,
    /// Time on its CPU since its last response, or, if it has slept since, for the next request.
    on_core_ns: u64,
    /// The part of `on_core_ns` before the next request had arrived.
    early_ns: u64,
    /// Since when and until when it sleeps in the middle of a request, and the cause.
    blocked: Option<(u64, u64, Cause)>,
    /// The place of the CPU that it waits for, and since when.
    waits: Option<(usize, u64)>,
    /// Until when its wake-up was under way.
    woken_ns: u64,
    /// Up to when it counts as hidden. The probe may be blind on several CPUs at once.
    hidden_to: u64,
}

impl WorkerPass {
    fn sleep(&mut self, slept: bool) {
        (self.slept, self.began) = (slept, false);
        (self.on_core_ns, self.early_ns) = (0, 0);
        self.blocked = None;
    }
}

struct Reconstruction<'a, F> {
    /// What kind of source of the timeline it is.
    kind_of: F,
    /// The kinds of the first sources, as far as they were needed.
    kinds: Vec<SourceKind>,
    observed: &'a mut Observed,
    origin: u64,
    read_ns: &'a [u64],
    labels: Labels,
    workers: Vec<WorkerPass>,
    of_tid: HashMap<Tid, u16>,
    /// The last idle stretches of each CPU.
    idle: Vec<VecDeque<Idle>>,
    /// The workers that wait for each CPU, by since when.
    waiting: Vec<BTreeSet<(u64, usize)>>,
    /// The server's own threads that do other work than requests.
    own_sources: HashMap<Tid, SourceId>,
    /// Sleeps in the middle of requests.
    sleep_sources: HashMap<Cause, SourceId>,
    /// What receives responses on the server's CPUs.
    peers: Peers,
    /// Workers share the servers of the queue.
    shared: bool,
    /// The CPU of each worker, if the workers are the servers of the queue.
    worker_cpus: Option<WorkerCpus>,
    /// Idle time from T1 to T2 of requests that found a CPU idle, but not in a deep power state: it takes
    /// this long in any case.
    shallow: Vec<u64>,
}

impl<F: Fn(SourceId) -> SourceKind> Reconstruction<'_, F> {
    fn add(&mut self, cpu: usize, from: u64, to: u64, who: Occupant) {
        let responded = self.peers.responded[cpu].take();
        let from = match who {
            Occupant::Other(source) if self.kind(source).receives => {
                self.received(cpu, from..to, responded)
            }
            _ => from,
        };
        if from == to {
            return;
        }
        match who {
            Occupant::Idle { deep } => {
                let recent = &mut self.idle[cpu];
                if recent.len() == MAX_IDLE {
                    recent.pop_front();
                }
                recent.push_back(Idle { from, to, deep });
            }
            Occupant::Other(source) => {
                // a throttled worker does not keep its CPU from receiving packets
                let cause = self.kind(source).cause;
                if cause != Cause::Throttled {
                    self.delay_receive(from, to, source);
                }
                match cause {
                    Cause::Unobserved if !self.shared || self.waiting.len() > 1 => {
                        self.unobserved(cpu, from, to);
                    }
                    Cause::Background | Cause::Unobserved => {
                        self.other_thread(cpu, from, to, source);
                    }
                    _ => self.unavailable(cpu, from, to, source, None),
                }
            }
            Occupant::Server { tid, end } => match self.of_tid.get(&tid).copied() {
                Some(worker) => self.on_core(usize::from(worker), cpu, from..to, tid, end),
                None => {
                    let source = self.own_source(tid);
                    self.other_thread(cpu, from, to, source);
                }
            },
        }
    }

    /// Packets that had come in, but had not reached their socket when a CPU became available again, are
    /// assumed to have waited for it. (Packets of other CPUs reach their socket within the usual time, so
    /// the error is at most that.)
    fn delay_receive(&mut self, from: u64, to: u64, source: SourceId) {
        if to - from < MIN_HOLD_NS {
            return;
        }
        let requests = &mut self.observed.requests;
        let first = requests.partition_point(|job| job.arrival_ns < to);
        for job in &mut requests[first..] {
            if job.arrival_ns - to > BACKLOG_NS {
                break;
            }
            let t1 = job.arrival_ns.saturating_sub(job.stack_ns);
            let held = to.saturating_sub(t1.max(from));
            if held > job.held_ns && job.lost_ns == 0 {
                (job.held_ns, job.held_by) = (held, source.0);
            }
        }
    }

    fn kind(&mut self, source: SourceId) -> SourceKind {
        let place = usize::from(source.0);
        while self.kinds.len() <= place {
            let next = SourceId(self.kinds.len() as u16);
            self.kinds.push((self.kind_of)(next));
        }
        self.kinds[place]
    }

    /// A receive softirq on a CPU, where the worker that `responded` has just sent a response. To receive that is a part
    /// of the worker's own work after it. Returns when the rest begins, which receives requests.
    fn received(&mut self, cpu: usize, span: Range<u64>, responded: Option<(usize, Tid)>) -> u64 {
        let (from, to) = (span.start, span.end);
        let requests = &self.observed.requests;
        let first = requests.partition_point(|job| job.arrival_ns < from);
        let arrived = requests[first..].partition_point(|job| job.arrival_ns <= to) as u64;
        let Some((worker, tid)) = responded.filter(|_| self.peers.are_here()) else {
            self.peers.requests += arrived;
            return from;
        };
        let until = from + self.peers.part_of_response(to - from, arrived);
        if until > from {
            self.observed.receives_responses_ns += until - from;
            self.on_core(worker, cpu, from..until, tid, StretchEnd::Interrupted);
            // what follows does not follow the response
            self.peers.responded[cpu] = None;
        }
        until
    }

    /// Another thread runs on a CPU. It delays the server only while a worker is runnable there: otherwise
    /// it fills idle time, and gives way at once when a worker is woken.
    fn other_thread(&mut self, cpu: usize, from: u64, to: u64, source: SourceId) {
        if self.waiting.len() > 1 {
            // the worker that it delays may come from another CPU
            return self.unavailable(cpu, from, to, source, None);
        }
        let since = self.waiting[cpu]
            .first()
            .map_or(u64::MAX, |(since, _)| *since);
        if since < to {
            self.unavailable(cpu, from.max(since), to, source, None);
        }
    }

    /// Worker `w` has left `cpu`, and waits for it from `since` on.
    fn waits(&mut self, w: usize, cpu: usize, since: u64) {
        if self.waiting.len() > 1 {
            return;
        }
        self.runs(w);
        self.workers[w].waits = Some((cpu, since));
        self.waiting[cpu].insert((since, w));
    }

    /// Worker `w` has a CPU.
    fn runs(&mut self, w: usize) {
        if let Some((cpu, since)) = self.workers[w].waits.take() {
            self.waiting[cpu].remove(&(since, w));
        }
    }

    /// It is unknown what ran on the CPU: nothing, a worker, or another thread. This is not a vacation: it
    /// delays only the requests that a worker had to serve then. (If workers share one CPU, it delays all
    /// that are runnable, as another thread does.)
    fn unobserved(&mut self, cpu: usize, from: u64, to: u64) {
        let requests = &mut self.observed.requests;
        let span = [from, to].map(|at| at + self.origin);
        let cpus = self.worker_cpus.as_ref();
        let may_be_there = |w| cpus.is_none_or(|cpus| cpus.may_be_on(w, cpu, span));
        let workers = self.workers.iter_mut().enumerate();
        // a worker that sleeps in a request is unavailable anyway
        for (_, worker) in workers.filter(|(w, it)| it.blocked.is_none() && may_be_there(*w)) {
            let from = from.max(worker.hidden_to);
            worker.hidden_to = worker.hidden_to.max(to);
            let previous = worker.next.checked_sub(1).map(|last| worker.queue[last]);
            let mut free = previous.map_or(0, |last| requests[last as usize].finish_ns());
            for &i in &worker.queue[worker.next..] {
                let job = &mut requests[i as usize];
                let begin = job.arrival_ns.max(free).max(from);
                let finish = job.finish_ns();
                if begin >= to {
                    break;
                }
                let hidden = finish.min(to).saturating_sub(begin);
                if hidden > 0 {
                    job.blocked_ns = job.blocked_ns.saturating_add(hidden);
                    job.blocked_cause = Cause::Unobserved as u8;
                    job.hidden = true;
                }
                free = finish;
                if finish > to {
                    break;
                }
            }
        }
    }

    /// The source for one of the server's own threads that does other work than requests.
    fn own_source(&mut self, tid: Tid) -> SourceId {
        let (labels, sources) = (&self.labels, &mut self.observed.sources);
        *self.own_sources.entry(tid).or_insert_with(|| {
            if sources.len() >= usize::from(ADDED - 1) {
                return SourceId(ADDED);
            }
            sources.push(VacationSource {
                cause: Cause::Background,
                culprit: labels.named(CulpritId::Thread(tid)),
                own: true,
            });
            SourceId(ADDED | (sources.len() - 1) as u16)
        })
    }

    /// The source for sleeps in the middle of requests for a cause.
    fn sleep_source(&mut self, cause: Cause) -> SourceId {
        let sources = &mut self.observed.sources;
        *self.sleep_sources.entry(cause).or_insert_with(|| {
            sources.push(VacationSource {
                cause,
                culprit: None,
                own: false,
            });
            SourceId(ADDED | (sources.len() - 1) as u16)
        })
    }

    /// The servers of the queue on `cpu`, apart from worker `but`, are unavailable.
    fn unavailable(
        &mut self,
        cpu: usize,
        from: u64,
        to: u64,
        source: SourceId,
        but: Option<usize>,
    ) {
        let vacations = &mut self.observed.vacations;
        match &mut self.worker_cpus {
            // while its only worker sleeps in a request, nothing else takes the CPU from it
            None if !self.shared && self.workers.iter().any(|w| w.blocked.is_some()) => {}
            None => vacations[cpu].push(from, to, source),
            Some(worker_cpus) => {
                for &worker in worker_cpus.workers_on(cpu, from + self.origin) {
                    if Some(worker) != but && self.workers[worker].blocked.is_none() {
                        vacations[worker].push(from, to, source);
                    }
                }
            }
        }
    }

    /// Worker `w` ran on `cpu` for a stretch that ended with `stretch_end`.
    fn on_core(
        &mut self,
        w: usize,
        cpu: usize,
        span: Range<u64>,
        tid: Tid,
        stretch_end: StretchEnd,
    ) {
        self.runs(w);
        let (mut from, to) = (span.start, span.end);
        if self.worker_cpus.is_some() {
            // for other workers on this CPU, this is a vacation
            let source = self.own_source(tid);
            self.unavailable(cpu, from, to, source, Some(w));
        }
        while let Some(&i) = self.workers[w].queue.get(self.workers[w].next) {
            let i = i as usize;
            let arrival = self.observed.requests[i].arrival_ns;
            let finish = self.observed.requests[i].finish_ns();
            if finish <= from {
                self.peers.sent(cpu, (w, tid), finish >= span.start);
                self.answered(w, cpu, i);
                continue;
            }
            let end = to.min(finish);
            let worker = &mut self.workers[w];
            if worker.slept && !worker.began {
                let early = end.min(arrival);
                if early > from {
                    // not for a request: a timer, or a spurious wake-up
                    let source = self.own_source(tid);
                    self.unavailable(cpu, from, early, source, None);
                    from = early;
                }
                if from == end {
                    break;
                }
                self.workers[w].began = true;
                self.woken(w, cpu, i, from);
            }
            self.slept_in(w, cpu, i, from);
            let worker = &mut self.workers[w];
            worker.on_core_ns += end - from;
            if !worker.slept {
                worker.early_ns += end.min(arrival).saturating_sub(from);
            }
            from = end;
            if finish > to {
                break;
            }
            self.peers.sent(cpu, (w, tid), finish >= span.start);
            self.answered(w, cpu, i);
        }
        let worker = &mut self.workers[w];
        let next = worker.queue.get(worker.next).map(|i| *i as usize);
        if next.is_none() && !worker.slept {
            worker.on_core_ns += to - from;
        }
        let (cause, until) = match stretch_end {
            StretchEnd::Interrupted | StretchEnd::Preempted => return self.waits(w, cpu, to),
            StretchEnd::Sleeps { cause, until_ns } => {
                (cause, until_ns.saturating_sub(self.origin).max(to))
            }
        };
        let begun = worker.began || !worker.slept;
        if begun && next.is_some_and(|i| self.read_ns[i] <= to) {
            worker.blocked = Some((to, until, cause));
            return self.waits(w, cpu, until);
        }
        if !worker.slept && worker.next > 0 {
            let last = worker.queue[worker.next - 1] as usize;
            self.observed.requests[last].after_ns = worker.on_core_ns;
        }
        worker.sleep(true);
        worker.woken_ns = until;
        // even if its wake-up is not recorded, it is runnable when the next request has arrived
        let wanted = next.map_or(until, |i| self.observed.requests[i].arrival_ns.max(to));
        self.waits(w, cpu, until.min(wanted));
    }

    /// Worker `w` gets `cpu` at `from` for request `i`. If the CPU was idle, this is a wake-up; otherwise another
    /// thread had it, and at first did not delay the worker, whose wake-up was under way.
    fn woken(&mut self, w: usize, cpu: usize, i: usize, from: u64) {
        let first = self.first_of_batch(w, i);
        let job = &mut self.observed.requests[first];
        let (shallow, deep) = idle_ns(&self.idle[cpu], job.arrival_ns, from);
        if shallow + deep == 0 {
            let until = self.workers[w].woken_ns;
            let is_known = (job.arrival_ns..=from).contains(&until);
            job.way_ns = if is_known { until - job.arrival_ns } else { 0 };
            return;
        }
        job.wake_ns = shallow + deep;
        // the packet itself makes the CPU leave its power state
        let t1 = job.arrival_ns.saturating_sub(job.stack_ns);
        let (shallow_before, deep_before) = idle_ns(&self.idle[cpu], t1, job.arrival_ns);
        if deep + deep_before > 0 {
            job.exit_stack_ns = deep_before;
            job.exit_wake_ns = deep;
        } else {
            self.shallow.push(shallow_before);
        }
    }

    /// Worker `w` continues with request `i` on `cpu` at `from`; it may have slept in it.
    fn slept_in(&mut self, w: usize, cpu: usize, i: usize, from: u64) {
        let Some((since, until, cause)) = self.workers[w].blocked.take() else {
            return;
        };
        self.observed.requests[i].slept |= 1 << cause as u32;
        let slept = if self.shared {
            // how long it then waits for its CPU follows from what others do there
            let (shallow, deep) = idle_ns(&self.idle[cpu], until, from);
            until.saturating_sub(since) + shallow + deep
        } else if self.worker_cpus.is_some() {
            // what ran on its CPU meanwhile does not matter; another worker may sleep as long for it, at another time
            from.saturating_sub(since)
        } else {
            // there is no other worker: the whole sleep is one vacation
            let source = self.sleep_source(cause);
            return self.observed.vacations[cpu].push(since, from, source);
        };
        let job = &mut self.observed.requests[i];
        if job.blocked_ns == 0 {
            job.first_ns = self.workers[w].on_core_ns;
        }
        job.blocked_ns = job.blocked_ns.saturating_add(slept);
        job.blocked_cause = cause as u8;
    }

    /// The request that arrived first among those that worker `w` reads before it answers request `i`,
    /// its next one.
    fn first_of_batch(&self, w: usize, i: usize) -> usize {
        let requests = &self.observed.requests;
        let answered = requests[i].finish_ns();
        let worker = &self.workers[w];
        let batch = worker.queue[worker.next..].iter().map(|i| *i as usize);
        let batch = batch.take_while(|&j| j == i || self.read_ns[j] < answered);
        batch.min_by_key(|&j| requests[j].arrival_ns).unwrap_or(i)
    }

    /// Request `i` of worker `w` has been answered.
    fn answered(&mut self, w: usize, cpu: usize, i: usize) {
        let requests = &mut self.observed.requests;
        let worker = &mut self.workers[w];
        if !worker.slept {
            requests[i].before_ns = worker.on_core_ns;
            requests[i].awake = true;
            if worker.next > 0 {
                let last = worker.queue[worker.next - 1] as usize;
                requests[last].after_ns = worker.early_ns;
            }
        } else if worker.began {
            requests[i].before_ns = worker.on_core_ns;
        }
        if let Some((since, ..)) = worker.blocked {
            // the worker had finished it long before the kernel sent it
            let late = requests[i].finish_ns().saturating_sub(since);
            requests[i].blocked_ns = requests[i].blocked_ns.saturating_add(late);
            requests[i].blocked_cause = Cause::StackTx as u8;
        }
        requests[i].server = if self.worker_cpus.is_some() { w } else { cpu } as u16;
        worker.next += 1;
        worker.sleep(false);
    }

    /// The next stretch of time is not replayed: resets the workers.
    fn skip(&mut self) {
        for worker in &mut self.workers {
            worker.sleep(true);
        }
    }
}

/// The idle time from `from` to `to`, shallow and deep.
fn idle_ns(recent: &VecDeque<Idle>, from: u64, to: u64) -> (u64, u64) {
    let (mut shallow, mut deep) = (0, 0);
    for idle in recent.iter().rev().take_while(|idle| idle.to > from) {
        let time = idle.to.min(to).saturating_sub(idle.from.max(from));
        *(if idle.deep { &mut deep } else { &mut shallow }) += time;
    }
    (shallow, deep)
}
