//! The pass over the CPUs' stretches that gives requests their work and servers their
//! vacations.

use std::collections::{BTreeSet, HashMap, VecDeque};

use taillab_model::explanation::Cause;
use taillab_model::{RecordingContext, Tid};

use super::observed::{NONE, Observed, VacationSource};
use super::track::{CoreTimeline, Leaves, Occupant, Residence, SourceId, by_time};
use super::vacations::Vacations;
use super::work::settle;
use crate::ledger::{Labels, Who};

/// A shorter vacation holds up hardly a packet.
const HOLDS_NS: u64 = 100_000;

/// How long after a CPU is back it has received what waited: a softirq of the kernel takes
/// 2 ms at most before it lets others run (`net.core.netdev_budget_usecs`).
const BACKLOG_NS: u64 = 2_000_000;

/// Idle stretches of a CPU that are remembered: a wake-up spans a few.
const MAX_IDLE: usize = 64;

/// What the pass needs of the requests per_requests their columns, in the same order.
#[derive(Clone, Debug, Default)]
pub(super) struct PerRequest {
    /// Nanoseconds since boot at time 0 of the columns.
    pub(super) origin_ns: u64,
    /// Whose request it is.
    pub(super) clients: Vec<u32>,
    /// T4, or [`u64::MAX`].
    pub(super) read_ns: Vec<u64>,
    /// The requests in the order of T6.
    pub(super) finished: Vec<u32>,
}

/// Fills in work, vacations and wake-ups.
pub(super) fn reconstruct(
    observed: &mut Observed,
    per_request: &PerRequest,
    timeline: &impl CoreTimeline,
    cpus: &[u16],
    context: &RecordingContext,
) {
    let mut pass = Reconstruction {
        origin: per_request.origin_ns,
        read_ns: &per_request.read_ns,
        of_tid: (0..)
            .zip(&observed.workers)
            .map(|(w, &tid)| (tid, w))
            .collect(),
        workers: vec![WorkerPass::default(); observed.workers.len()],
        idle: vec![VecDeque::new(); cpus.len()],
        waiting: vec![BTreeSet::new(); cpus.len()],
        own: HashMap::new(),
        sleeps: HashMap::new(),
        shared: !observed.servers_are_workers && observed.workers.len() > cpus.len(),
        labels: Labels::new(context),
        residence: None,
        shallow: Vec::new(),
        causes: Vec::new(),
        cause_of: |id| timeline.source(id).0,
        observed,
    };
    for &i in &per_request.finished {
        let worker = pass.observed.requests[i as usize].worker;
        if let Some(worker) = pass.workers.get_mut(usize::from(worker)) {
            worker.queue.push(i);
        }
    }
    // before it has been seen on a CPU, a worker could run from its first request on
    for w in 0..pass.workers.len() {
        let first = pass.workers[w].queue.first().copied();
        if let Some(i) = first {
            let arrival = pass.observed.requests[i as usize].arrival_ns;
            pass.waits(w, 0, arrival);
        }
    }
    let servers = if pass.observed.servers_are_workers {
        let residence = Residence::of(timeline, cpus, &pass.of_tid);
        pass.residence = Some(residence);
        pass.workers.len()
    } else {
        cpus.len()
    };
    pass.observed.vacations = vec![Vacations::default(); servers.max(1)];
    let covered = covered(pass.observed, &per_request.finished);
    let mut covered = covered.into_iter().peekable();
    for (cpu, segment) in by_time(timeline, cpus) {
        let from = segment.from_ns.saturating_sub(pass.origin);
        let to = segment.to_ns.saturating_sub(pass.origin);
        while covered.next_if(|(_, end)| *end <= from).is_some() {
            pass.forget();
        }
        if covered.peek().is_some_and(|(begin, _)| *begin < to) {
            pass.take(cpu, from, to, segment.who);
        }
    }
    let Reconstruction {
        workers, shallow, ..
    } = pass;
    let queues: Vec<Vec<u32>> = workers.into_iter().map(|worker| worker.queue).collect();
    settle(observed, &queues, &per_request.read_ns, shallow);
    observed.add_sources(timeline);
}

/// As sources, the server's own threads come after all of the timeline's, whose number is known
/// only in the end: until then they are marked by this bit.
const OWN: u16 = 0x8000;

impl Observed {
    /// Puts the timeline's sources before the server's own threads.
    fn add_sources(&mut self, timeline: &impl CoreTimeline) {
        let foreign = timeline.sources().min(usize::from(OWN)) as u16;
        let own = std::mem::take(&mut self.sources);
        self.sources = (0..foreign)
            .map(|id| {
                let (cause, culprit) = timeline.source(SourceId(id));
                VacationSource {
                    cause,
                    culprit,
                    own: false,
                }
            })
            .chain(own)
            .collect();
        for vacations in &mut self.vacations {
            vacations.rename(|source| match source & OWN {
                0 => source,
                _ => foreign + (source & !OWN),
            });
        }
    }
}

/// The stretches of time in which there are requests to replay: all of it, or one for each
/// block. Requests of neighbouring stretches are apart by at least a hundredth of all time.
fn covered(observed: &Observed, finished: &[u32]) -> Vec<(u64, u64)> {
    let requests = &observed.requests;
    let finish = |i: &u32| requests[*i as usize].finish_ns();
    let end = finished.last().map_or(0, finish);
    let apart = (end / 1_000).max(1);
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for job in requests {
        let (arrival, finish) = (job.arrival_ns, job.finish_ns());
        match covered.last_mut() {
            Some((_, end)) if arrival <= end.saturating_add(apart) => *end = finish.max(*end),
            _ => covered.push((arrival, finish)),
        }
    }
    covered
}

/// An idle stretch of a CPU.
#[derive(Clone, Copy, Debug)]
struct Idle {
    from: u64,
    to: u64,
    /// In a power state below the shallowest.
    deep: bool,
}

/// What a worker does.
#[derive(Clone, Debug)]
struct WorkerPass {
    /// Its requests in the order in which it finished them.
    queue: Vec<u32>,
    /// The next of them.
    next: usize,
    /// It has slept since its last response, other than in the middle of a request.
    slept: bool,
    /// It has slept, and been on its CPU for the next request since.
    began: bool,
    /// On its CPU since its last response, or for the next request since it slept.
    on_core_ns: u64,
    /// Of that, before the next request was there.
    early_ns: u64,
    /// It sleeps in the middle of a request: since when, until when, why.
    blocked: Option<(u64, u64, Cause)>,
    /// It is off its CPU and could run, from then on: the CPU's place, the time.
    waits: Option<(usize, u64)>,
}

impl Default for WorkerPass {
    fn default() -> Self {
        Self {
            queue: Vec::new(),
            next: 0,
            slept: true,
            began: false,
            on_core_ns: 0,
            early_ns: 0,
            blocked: None,
            waits: None,
        }
    }
}

impl WorkerPass {
    fn sleep(&mut self, slept: bool) {
        (self.slept, self.began) = (slept, false);
        (self.on_core_ns, self.early_ns) = (0, 0);
        self.blocked = None;
    }
}

struct Reconstruction<'a, F> {
    /// The cause of a source of the timeline.
    cause_of: F,
    /// The same, of those that have been asked for.
    causes: Vec<Cause>,
    observed: &'a mut Observed,
    origin: u64,
    read_ns: &'a [u64],
    /// Names of threads.
    labels: Labels,
    workers: Vec<WorkerPass>,
    of_tid: HashMap<Tid, u16>,
    /// The last idle stretches of each CPU.
    idle: Vec<VecDeque<Idle>>,
    /// The workers that are off each CPU, by when they could run on it again.
    waiting: Vec<BTreeSet<(u64, usize)>>,
    /// Threads of the server that do something other than requests.
    own: HashMap<Tid, SourceId>,
    /// Sleeping in the middle of requests.
    sleeps: HashMap<Cause, SourceId>,
    /// Workers share the servers of the queue.
    shared: bool,
    /// Where the workers are the servers of the queue.
    residence: Option<Residence>,
    /// Idle time before the arrival at the socket of requests that found a CPU idle, and in
    /// no power state: what it takes anyway to tell it.
    shallow: Vec<u32>,
}

impl<F: Fn(SourceId) -> Cause> Reconstruction<'_, F> {
    fn take(&mut self, cpu: usize, from: u64, to: u64, who: Occupant) {
        match who {
            Occupant::Idle { deep } => {
                let recent = &mut self.idle[cpu];
                if recent.len() == MAX_IDLE {
                    recent.pop_front();
                }
                recent.push_back(Idle { from, to, deep });
            }
            Occupant::Other(source) => {
                // a worker that may not run does not keep its CPU from receiving
                if self.cause(source) != Cause::Throttled {
                    self.hold(from, to, source);
                }
                match self.cause(source) {
                    Cause::Unobserved if !self.shared || self.waiting.len() > 1 => {
                        self.unobserved(from, to);
                    }
                    Cause::Background | Cause::Unobserved => self.thread(cpu, from, to, source),
                    _ => self.absent(cpu, from, to, source, None),
                }
            }
            Occupant::Server { tid, leaves } => match self.of_tid.get(&tid).copied() {
                Some(worker) => self.on_core(usize::from(worker), cpu, (from, to), tid, leaves),
                None => {
                    let source = self.own(tid);
                    self.thread(cpu, from, to, source);
                }
            },
        }
    }

    /// Packets that had come and were not at the socket when a CPU was back waited for that. Those
    /// of other CPUs are there within the usual time, and lose that at most.
    fn hold(&mut self, from: u64, to: u64, source: SourceId) {
        if to - from < HOLDS_NS {
            return;
        }
        let requests = &mut self.observed.requests;
        let first = requests.partition_point(|job| job.arrival_ns < to);
        for job in &mut requests[first..] {
            let arrival = job.arrival_ns;
            if arrival - to > BACKLOG_NS {
                break;
            }
            let t1 = arrival.saturating_sub(job.stack_ns);
            let held = short(to.saturating_sub(t1.max(from)));
            if held > job.held_ns && job.lost_ns == 0 {
                (job.held_ns, job.held_by) = (held, source.0);
            }
        }
    }

    fn cause(&mut self, source: SourceId) -> Cause {
        let place = usize::from(source.0);
        while self.causes.len() <= place {
            let next = SourceId(self.causes.len() as u16);
            self.causes.push((self.cause_of)(next));
        }
        self.causes[place]
    }

    /// Another thread is on a CPU. It takes that away only while a worker could run there: it
    /// may fill the time in which no worker does, and makes room at once when one is woken.
    fn thread(&mut self, cpu: usize, from: u64, to: u64, source: SourceId) {
        if self.waiting.len() > 1 {
            // the worker that it keeps waiting may be one that comes from another CPU
            return self.absent(cpu, from, to, source, None);
        }
        let since = self.waiting[cpu]
            .first()
            .map_or(u64::MAX, |(since, _)| *since);
        if since < to {
            self.absent(cpu, from.max(since), to, source, None);
        }
    }

    /// Worker `w` has left `cpu`, and could run there again from `since` on.
    fn waits(&mut self, w: usize, cpu: usize, since: u64) {
        if self.waiting.len() > 1 {
            return;
        }
        self.runs(w);
        self.workers[w].waits = Some((cpu, since));
        self.waiting[cpu].insert((since, w));
    }

    /// Worker `w` is on a CPU.
    fn runs(&mut self, w: usize) {
        if let Some((cpu, since)) = self.workers[w].waits.take() {
            self.waiting[cpu].remove(&(since, w));
        }
    }

    /// Nobody knows who was on the CPU: nobody, a worker, or another thread. It is no
    /// vacation; only where a worker had a request to serve did it take that request so much
    /// longer. (Of workers that share one CPU it holds up all that could run, as a thread does.)
    fn unobserved(&mut self, from: u64, to: u64) {
        let requests = &mut self.observed.requests;
        // one that sleeps in a request is away for as long as it sleeps
        for worker in self.workers.iter().filter(|w| w.blocked.is_none()) {
            let previous = worker.next.checked_sub(1).map(|last| worker.queue[last]);
            let mut free = previous.map_or(0, |last| requests[last as usize].finish_ns());
            for &i in &worker.queue[worker.next..] {
                let i = i as usize;
                let begin = requests[i].arrival_ns.max(free).max(from);
                let finish = requests[i].finish_ns();
                if begin >= to {
                    break;
                }
                let hidden = finish.min(to).saturating_sub(begin);
                if hidden > 0 {
                    let all = requests[i].blocked_ns.saturating_add(short(hidden));
                    requests[i].blocked_ns = all;
                    requests[i].blocked_cause = Cause::Unobserved as u8;
                    requests[i].hidden = true;
                }
                free = finish;
                if finish > to {
                    break;
                }
            }
        }
    }

    /// The source of a thread of the server that does something other than requests.
    fn own(&mut self, tid: Tid) -> SourceId {
        let (labels, sources) = (&self.labels, &mut self.observed.sources);
        *self.own.entry(tid).or_insert_with(|| {
            if sources.len() >= usize::from(OWN - 1) {
                return SourceId(OWN);
            }
            sources.push(VacationSource {
                cause: Cause::Background,
                culprit: labels.named(Who::Thread(tid)),
                own: true,
            });
            SourceId(OWN | (sources.len() - 1) as u16)
        })
    }

    /// The source of sleeping in the middle of requests for a cause.
    fn asleep(&mut self, cause: Cause) -> SourceId {
        let sources = &mut self.observed.sources;
        *self.sleeps.entry(cause).or_insert_with(|| {
            sources.push(VacationSource {
                cause,
                culprit: None,
                own: false,
            });
            SourceId(OWN | (sources.len() - 1) as u16)
        })
    }

    /// The servers of the queue on `cpu`, without worker `but`, are away.
    fn absent(&mut self, cpu: usize, from: u64, to: u64, source: SourceId, but: Option<usize>) {
        let vacations = &mut self.observed.vacations;
        match &mut self.residence {
            // while its only worker sleeps in a request, nothing else takes the CPU from it
            None if !self.shared && self.workers.iter().any(|w| w.blocked.is_some()) => {}
            None => vacations[cpu].push(from, to, source),
            Some(residence) => {
                for worker in residence.at_home(cpu, from + self.origin) {
                    if Some(worker) != but && self.workers[worker].blocked.is_none() {
                        vacations[worker].push(from, to, source);
                    }
                }
            }
        }
    }

    /// A worker was on a CPU.
    fn on_core(
        &mut self,
        w: usize,
        cpu: usize,
        (mut from, to): (u64, u64),
        tid: Tid,
        leaves: Leaves,
    ) {
        self.runs(w);
        if self.residence.is_some() {
            // a worker that shares another's CPU takes it away
            let source = self.own(tid);
            self.absent(cpu, from, to, source, Some(w));
        }
        while let Some(&i) = self.workers[w].queue.get(self.workers[w].next) {
            let i = i as usize;
            let arrival = self.observed.requests[i].arrival_ns;
            let finish = self.observed.requests[i].finish_ns();
            if finish <= from {
                self.close(w, cpu, i);
                continue;
            }
            let end = to.min(finish);
            let worker = &mut self.workers[w];
            if worker.slept && !worker.began {
                let early = end.min(arrival);
                if early > from {
                    // not for a request: a timer, or a wake-up in vain
                    let source = self.own(tid);
                    self.absent(cpu, from, early, source, None);
                    from = early;
                }
                if from == end {
                    break;
                }
                self.workers[w].began = true;
                self.woke(w, cpu, i, from);
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
            self.close(w, cpu, i);
        }
        let worker = &mut self.workers[w];
        let next = worker.queue.get(worker.next).map(|i| *i as usize);
        if next.is_none() && !worker.slept {
            worker.on_core_ns += to - from;
        }
        let (cause, until) = match leaves {
            Leaves::Stays | Leaves::Preempted => return self.waits(w, cpu, to),
            Leaves::Sleeps { cause, until_ns } => {
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
            self.observed.requests[last].after_ns = short(worker.on_core_ns);
        }
        worker.sleep(true);
        // woken or not yet said to be: what it sleeps for is there
        let wanted = next.map_or(until, |i| self.observed.requests[i].arrival_ns.max(to));
        self.waits(w, cpu, until.min(wanted));
    }

    /// Worker `w` comes onto `cpu` at `from` for request `i`: a wake-up, if the CPU was idle.
    fn woke(&mut self, w: usize, cpu: usize, i: usize, from: u64) {
        let first = self.first_of_batch(w, i);
        let job = &mut self.observed.requests[first];
        let (shallow, deep) = idle_ns(&self.idle[cpu], job.arrival_ns, from);
        if shallow + deep == 0 {
            return;
        }
        job.wake_ns = short(shallow + deep);
        // a CPU in a power state is told to come out of it by what arrives
        let t1 = job.arrival_ns.saturating_sub(job.stack_ns);
        let (shallow_before, deep_before) = idle_ns(&self.idle[cpu], t1, job.arrival_ns);
        if deep + deep_before > 0 {
            job.exit_stack_ns = short(deep_before);
            job.exit_wake_ns = short(deep);
        } else {
            self.shallow.push(short(shallow_before));
        }
    }

    /// Worker `w` goes on with request `i` on `cpu` at `from`, in which it may have slept.
    fn slept_in(&mut self, w: usize, cpu: usize, i: usize, from: u64) {
        let Some((since, until, cause)) = self.workers[w].blocked.take() else {
            return;
        };
        self.observed.requests[i].slept |= 1 << cause as u32;
        if !self.shared {
            // others on its CPU meanwhile do not hold it up: it is away as a whole
            let source = self.asleep(cause);
            let server = if self.residence.is_some() { w } else { cpu };
            return self.observed.vacations[server].push(since, from, source);
        }
        // that it then waits for its CPU follows from what others do there
        let (shallow, deep) = idle_ns(&self.idle[cpu], until, from);
        let slept = short(until.saturating_sub(since) + shallow + deep);
        let job = &mut self.observed.requests[i];
        if job.blocked_ns == 0 {
            job.first_ns = short(self.workers[w].on_core_ns);
        }
        job.blocked_ns = job.blocked_ns.saturating_add(slept);
        job.blocked_cause = cause as u8;
    }

    /// The request that came first among those that worker `w` reads before it answers
    /// request `i`, its next one.
    fn first_of_batch(&self, w: usize, i: usize) -> usize {
        let requests = &self.observed.requests;
        let answered = requests[i].finish_ns();
        let worker = &self.workers[w];
        let batch = worker.queue[worker.next..].iter().map(|i| *i as usize);
        let batch = batch.take_while(|&j| j == i || self.read_ns[j] < answered);
        batch.min_by_key(|&j| requests[j].arrival_ns).unwrap_or(i)
    }

    /// Request `i` of worker `w` has been answered.
    fn close(&mut self, w: usize, cpu: usize, i: usize) {
        let requests = &mut self.observed.requests;
        let worker = &mut self.workers[w];
        if !worker.slept {
            requests[i].before_ns = short(worker.on_core_ns);
            requests[i].awake = true;
            if worker.next > 0 {
                let last = worker.queue[worker.next - 1] as usize;
                requests[last].after_ns = short(worker.early_ns);
            }
        } else if worker.began {
            requests[i].before_ns = short(worker.on_core_ns);
        }
        if let Some((since, ..)) = worker.blocked {
            // the kernel sent it later, by itself: the worker had long done with it
            let late = requests[i].finish_ns().saturating_sub(since);
            requests[i].blocked_ns = requests[i].blocked_ns.saturating_add(short(late));
            requests[i].blocked_cause = Cause::StackTx as u8;
        }
        requests[i].server = if self.residence.is_some() { w } else { cpu } as u16;
        worker.next += 1;
        worker.sleep(false);
    }

    /// A stretch of time that is not replayed begins.
    fn forget(&mut self) {
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

/// As the columns hold lengths; what does not fit (4.3 s) is the longest that does.
fn short(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(NONE).min(NONE - 1)
}
