//! The pass over the CPUs' stretches that gives requests their work and servers their
//! absences.

use std::collections::{HashMap, VecDeque};

use taillab_model::explanation::{Cause, Culprit};
use taillab_model::{RecordingContext, Tid};

use super::absences::Absences;
use super::observed::{NONE, Observed, Requests, Source};
use super::track::{CoreTimeline, Leaves, Occupant, Segment, SourceId};

/// Wake-ups that are kept to draw from.
const MAX_WAKES: usize = 4_096;

/// Idle stretches of a CPU that are remembered: a wake-up spans a few.
const MAX_IDLE: usize = 64;

/// What the pass needs of the requests beside their columns, in the same order.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    /// Nanoseconds since boot at time 0 of the columns.
    pub(super) origin_ns: u64,
    /// Whose request it is.
    pub(super) clients: Vec<u32>,
    /// T4, or [`u64::MAX`].
    pub(super) read_ns: Vec<u64>,
    /// The requests in the order of T6.
    pub(super) finished: Vec<u32>,
}

/// Fills in work, absences and wake-ups.
pub(super) fn sweep(
    observed: &mut Observed,
    beside: &Beside,
    timeline: &impl CoreTimeline,
    cpus: &[u16],
    context: &RecordingContext,
) {
    let mut sweep = Sweep {
        origin: beside.origin_ns,
        read_ns: &beside.read_ns,
        of_tid: (0..)
            .zip(&observed.workers)
            .map(|(w, &tid)| (tid, w))
            .collect(),
        workers: vec![Worker::default(); observed.workers.len()],
        idle: vec![VecDeque::new(); cpus.len()],
        own: HashMap::new(),
        sleeps: HashMap::new(),
        shared: !observed.servers_are_workers && observed.workers.len() > cpus.len(),
        context,
        residence: None,
        shallow: Vec::new(),
        unobserved: Vec::new(),
        cause_of: |id| timeline.source(id).0,
        observed,
    };
    for &i in &beside.finished {
        let worker = sweep.observed.requests.worker[i as usize];
        if let Some(worker) = sweep.workers.get_mut(usize::from(worker)) {
            worker.queue.push(i);
        }
    }
    let servers = if sweep.observed.servers_are_workers {
        let residence = Residence::of(timeline, cpus, &sweep.of_tid);
        sweep.residence = Some(residence);
        sweep.workers.len()
    } else {
        cpus.len()
    };
    sweep.observed.absences = vec![Absences::default(); servers.max(1)];
    let covered = covered(sweep.observed, &beside.finished);
    let mut covered = covered.into_iter().peekable();
    for (cpu, segment) in by_time(timeline, cpus) {
        let from = segment.from_ns.saturating_sub(sweep.origin);
        let to = segment.to_ns.saturating_sub(sweep.origin);
        while covered.next_if(|(_, end)| *end <= from).is_some() {
            sweep.forget();
        }
        if covered.peek().is_some_and(|(begin, _)| *begin < to) {
            sweep.take(cpu, from, to, segment.who);
        }
    }
    sweep.finish();
    observed.add_sources(timeline);
}

/// The server's own threads stand as sources behind all of the timeline's, whose number is
/// known only in the end: until then this bit tells them.
const OWN: u16 = 0x8000;

impl Observed {
    /// Puts the timeline's sources before the server's own threads.
    fn add_sources(&mut self, timeline: &impl CoreTimeline) {
        let foreign = timeline.sources().min(usize::from(OWN)) as u16;
        let own = std::mem::take(&mut self.sources);
        self.sources = (0..foreign)
            .map(|id| {
                let (cause, culprit) = timeline.source(SourceId(id));
                Source {
                    cause,
                    culprit,
                    own: false,
                }
            })
            .chain(own)
            .collect();
        for absences in &mut self.absences {
            absences.rename(|source| match source & OWN {
                0 => source,
                _ => foreign + (source & !OWN),
            });
        }
    }
}

/// The stretches of all CPUs by their begin, each with its CPU's place.
fn by_time<'a, T: CoreTimeline>(
    timeline: &'a T,
    cpus: &[u16],
) -> impl Iterator<Item = (usize, Segment)> + use<'a, T> {
    let mut streams: Vec<_> = cpus
        .iter()
        .map(|&cpu| timeline.segments(cpu).peekable())
        .collect();
    std::iter::from_fn(move || {
        let begins = streams.iter_mut().enumerate();
        let (_, cpu) = begins
            .filter_map(|(cpu, stream)| Some((stream.peek()?.from_ns, cpu)))
            .min()?;
        Some((cpu, streams[cpu].next()?))
    })
}

/// The stretches of time in which there are requests to replay: all of it, or one for each
/// block. Requests of neighbouring stretches are apart by at least a hundredth of all time.
fn covered(observed: &Observed, finished: &[u32]) -> Vec<(u64, u64)> {
    let requests = &observed.requests;
    let finish = |i: &u32| requests.finish_ns(*i as usize);
    let end = finished.last().map_or(0, finish);
    let apart = (end / 1_000).max(1);
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for i in 0..requests.len() {
        let (arrival, finish) = (requests.arrival_ns[i], requests.finish_ns(i));
        match covered.last_mut() {
            Some((_, end)) if arrival <= end.saturating_add(apart) => *end = finish.max(*end),
            _ => covered.push((arrival, finish)),
        }
    }
    covered
}

/// On which CPU each worker is at home over time.
#[derive(Clone, Debug, Default)]
struct Residence {
    /// For each worker: (since when, since boot; the CPU's place), in order.
    changes: Vec<Vec<(u64, usize)>>,
    /// Where the last question was answered.
    place: Vec<usize>,
}

impl Residence {
    /// A worker is at home on the CPU on which it is or will be next.
    fn of(timeline: &impl CoreTimeline, cpus: &[u16], of_tid: &HashMap<Tid, u16>) -> Self {
        let mut changes = vec![Vec::new(); of_tid.len()];
        let mut left = vec![0_u64; of_tid.len()];
        for (cpu, segment) in by_time(timeline, cpus) {
            let Occupant::Server { tid, .. } = segment.who else {
                continue;
            };
            let Some(worker) = of_tid.get(&tid).map(|w| usize::from(*w)) else {
                continue;
            };
            let homes: &mut Vec<(u64, usize)> = &mut changes[worker];
            if homes.last().is_none_or(|(_, home)| *home != cpu) {
                homes.push((left[worker], cpu));
            }
            left[worker] = segment.to_ns;
        }
        Self {
            place: vec![0; changes.len()],
            changes,
        }
    }

    /// The workers at home on `cpu` at `at_ns` (since boot), which never decreases.
    fn at_home(&mut self, cpu: usize, at_ns: u64) -> impl Iterator<Item = usize> + '_ {
        let all = self.changes.iter().zip(&mut self.place).enumerate();
        all.filter_map(move |(worker, (homes, place))| {
            while homes
                .get(*place + 1)
                .is_some_and(|(from, _)| *from <= at_ns)
            {
                *place += 1;
            }
            (homes.get(*place)?.1 == cpu).then_some(worker)
        })
    }
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
struct Worker {
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
    /// It sleeps in the middle of a request: since when, why.
    blocked: Option<(u64, Cause)>,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            queue: Vec::new(),
            next: 0,
            slept: true,
            began: false,
            on_core_ns: 0,
            early_ns: 0,
            blocked: None,
        }
    }
}

impl Worker {
    fn sleep(&mut self, slept: bool) {
        (self.slept, self.began) = (slept, false);
        (self.on_core_ns, self.early_ns) = (0, 0);
        self.blocked = None;
    }
}

struct Sweep<'a, F> {
    /// The cause of a source of the timeline.
    cause_of: F,
    /// Whether it is [`Cause::Unobserved`], by source.
    unobserved: Vec<bool>,
    observed: &'a mut Observed,
    origin: u64,
    read_ns: &'a [u64],
    context: &'a RecordingContext,
    workers: Vec<Worker>,
    of_tid: HashMap<Tid, u16>,
    /// The last idle stretches of each CPU.
    idle: Vec<VecDeque<Idle>>,
    /// The server's threads beside its requests.
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

impl<F: Fn(SourceId) -> Cause> Sweep<'_, F> {
    fn take(&mut self, cpu: usize, from: u64, to: u64, who: Occupant) {
        match who {
            Occupant::Idle { deep } => {
                let recent = &mut self.idle[cpu];
                if recent.len() == MAX_IDLE {
                    recent.pop_front();
                }
                recent.push_back(Idle { from, to, deep });
            }
            Occupant::Other(source) if self.is_unobserved(source) => self.unobserved(from, to),
            Occupant::Other(source) => self.absent(cpu, from, to, source, None),
            Occupant::Server { tid, leaves } => match self.of_tid.get(&tid).copied() {
                Some(worker) => self.on_core(usize::from(worker), cpu, (from, to), tid, leaves),
                None => {
                    let source = self.own(tid);
                    self.absent(cpu, from, to, source, None);
                }
            },
        }
    }

    fn is_unobserved(&mut self, source: SourceId) -> bool {
        let place = usize::from(source.0);
        while self.unobserved.len() <= place {
            let next = SourceId(self.unobserved.len() as u16);
            let cause = (self.cause_of)(next);
            self.unobserved.push(cause == Cause::Unobserved);
        }
        self.unobserved[place]
    }

    /// Nobody knows who was on the CPU: nobody, a worker, or another thread. It is no
    /// absence; only where a worker had a request to serve did it take that request so much
    /// longer.
    fn unobserved(&mut self, from: u64, to: u64) {
        let requests = &mut self.observed.requests;
        for worker in &mut self.workers {
            let previous = worker.next.checked_sub(1).map(|last| worker.queue[last]);
            let mut free = previous.map_or(0, |last| requests.finish_ns(last as usize));
            for &i in &worker.queue[worker.next..] {
                let i = i as usize;
                let begin = requests.arrival_ns[i].max(free).max(from);
                let finish = requests.finish_ns(i);
                if begin >= to {
                    break;
                }
                let hidden = finish.min(to).saturating_sub(begin);
                if hidden > 0 {
                    let all = requests.blocked_ns[i].saturating_add(short(hidden));
                    requests.blocked_ns[i] = all;
                    requests.blocked_cause[i] = Cause::Unobserved as u8;
                    requests.hidden[i] = true;
                }
                free = finish;
                if finish > to {
                    break;
                }
            }
        }
    }

    /// The source of a thread of the server that does something beside requests.
    fn own(&mut self, tid: Tid) -> SourceId {
        let (context, sources) = (self.context, &mut self.observed.sources);
        *self.own.entry(tid).or_insert_with(|| {
            if sources.len() >= usize::from(OWN - 1) {
                return SourceId(OWN);
            }
            let known = context.threads.iter().find(|thread| thread.tid == tid);
            sources.push(Source {
                cause: Cause::Background,
                culprit: Some(Culprit::Thread {
                    name: known.map_or_else(|| format!("thread {tid}"), |t| t.comm.clone()),
                    pid: known.map(|thread| thread.pid).filter(|pid| *pid != 0),
                    tid: Some(tid),
                }),
                own: true,
            });
            SourceId(OWN | (sources.len() - 1) as u16)
        })
    }

    /// The source of sleeping in the middle of requests for a cause.
    fn asleep(&mut self, cause: Cause) -> SourceId {
        let sources = &mut self.observed.sources;
        *self.sleeps.entry(cause).or_insert_with(|| {
            sources.push(Source {
                cause,
                culprit: None,
                own: false,
            });
            SourceId(OWN | (sources.len() - 1) as u16)
        })
    }

    /// The servers of the queue on `cpu`, without worker `but`, are away.
    fn absent(&mut self, cpu: usize, from: u64, to: u64, source: SourceId, but: Option<usize>) {
        let absences = &mut self.observed.absences;
        match &mut self.residence {
            // while its only worker sleeps in a request, nothing else takes the CPU from it
            None if !self.shared && self.workers.iter().any(|w| w.blocked.is_some()) => {}
            None => absences[cpu].push(from, to, source),
            Some(residence) => {
                for worker in residence.at_home(cpu, from + self.origin) {
                    if Some(worker) != but && self.workers[worker].blocked.is_none() {
                        absences[worker].push(from, to, source);
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
        if self.residence.is_some() {
            // a worker that shares another's CPU takes it away
            let source = self.own(tid);
            self.absent(cpu, from, to, source, Some(w));
        }
        while let Some(&i) = self.workers[w].queue.get(self.workers[w].next) {
            let i = i as usize;
            let arrival = self.observed.requests.arrival_ns[i];
            let finish = self.observed.requests.finish_ns(i);
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
                let woke = self.first_of_batch(w, i);
                let requests = &mut self.observed.requests;
                let (i, arrival) = (woke, requests.arrival_ns[woke]);
                let (shallow, deep) = idle_ns(&self.idle[cpu], arrival, from);
                if shallow + deep > 0 {
                    requests.wake_ns[i] = short(shallow + deep);
                    // a CPU in a power state is told to come out of it by what arrives
                    let t1 = arrival - requests.stack_ns[i].min(arrival);
                    let (shallow_before, deep_before) = idle_ns(&self.idle[cpu], t1, arrival);
                    if deep + deep_before > 0 {
                        requests.exit_stack_ns[i] = short(deep_before);
                        requests.exit_wake_ns[i] = short(deep);
                    } else {
                        self.shallow.push(short(shallow_before));
                    }
                }
            }
            let worker = &mut self.workers[w];
            let blocked = worker.blocked.take();
            if let (Some((since, cause)), false) = (blocked, self.shared) {
                // others on its CPU meanwhile do not hold it up: it is away as a whole
                let source = self.asleep(cause);
                let server = if self.residence.is_some() { w } else { cpu };
                self.observed.absences[server].push(since, from, source);
            } else if let Some((since, cause)) = blocked {
                let requests = &mut self.observed.requests;
                let slept = short(from.saturating_sub(since));
                requests.blocked_ns[i] = requests.blocked_ns[i].saturating_add(slept);
                requests.blocked_cause[i] = cause as u8;
            }
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
        let Leaves::Sleeps(cause) = leaves else {
            return;
        };
        let begun = worker.began || !worker.slept;
        if begun && next.is_some_and(|i| self.read_ns[i] <= to) {
            worker.blocked = Some((to, cause));
            return;
        }
        if !worker.slept && worker.next > 0 {
            let last = worker.queue[worker.next - 1] as usize;
            self.observed.requests.after_ns[last] = short(worker.on_core_ns);
        }
        worker.sleep(true);
    }

    /// The request that came first among those that worker `w` reads before it answers
    /// request `i`, its next one.
    fn first_of_batch(&self, w: usize, i: usize) -> usize {
        let requests = &self.observed.requests;
        let answered = requests.finish_ns(i);
        let worker = &self.workers[w];
        let batch = worker.queue[worker.next..].iter().map(|i| *i as usize);
        let batch = batch.take_while(|&j| j == i || self.read_ns[j] < answered);
        batch.min_by_key(|&j| requests.arrival_ns[j]).unwrap_or(i)
    }

    /// Request `i` of worker `w` has been answered.
    fn close(&mut self, w: usize, cpu: usize, i: usize) {
        let requests = &mut self.observed.requests;
        let worker = &mut self.workers[w];
        if !worker.slept {
            requests.before_ns[i] = short(worker.on_core_ns);
            requests.awake[i] = true;
            if worker.next > 0 {
                let last = worker.queue[worker.next - 1] as usize;
                requests.after_ns[last] = short(worker.early_ns);
            }
        } else if worker.began {
            requests.before_ns[i] = short(worker.on_core_ns);
        }
        if let Some((since, _)) = worker.blocked {
            // the kernel sent it later, by itself: the worker had long done with it
            let late = requests.finish_ns(i).saturating_sub(since);
            requests.blocked_ns[i] = requests.blocked_ns[i].saturating_add(short(late));
            requests.blocked_cause[i] = Cause::StackTx as u8;
        }
        requests.server[i] = if self.residence.is_some() { w } else { cpu } as u16;
        worker.next += 1;
        worker.sleep(false);
    }

    /// A stretch of time that is not replayed begins.
    fn forget(&mut self) {
        for worker in &mut self.workers {
            worker.sleep(true);
        }
    }

    /// Splits the work of workers that did not sleep between two requests, and puts the
    /// usual work where none is known.
    fn finish(mut self) {
        let usual_shallow = median(&mut self.shallow).unwrap_or(0);
        let requests = &mut self.observed.requests;
        let n = requests.len();
        let (mut awake, mut asleep, mut after) = (Vec::new(), Vec::new(), Vec::new());
        let mut wakes = Vec::new();
        for worker in &self.workers {
            for (place, &i) in worker.queue.iter().enumerate() {
                let i = i as usize;
                let (before, wake) = (requests.before_ns[i], requests.wake_ns[i]);
                let is_awake = requests.awake[i];
                let previous = place.checked_sub(1).map(|p| worker.queue[p] as usize);
                if before == NONE {
                    continue;
                }
                if is_awake {
                    let waited = |p: usize| requests.after_ns[p] == 0;
                    if previous.is_some_and(waited) {
                        awake.push(before);
                    }
                } else {
                    asleep.push(before);
                    if wake != NONE {
                        wakes.push(wake);
                    }
                    let slept = previous.map_or(NONE, |p| requests.after_ns[p]);
                    if slept != NONE {
                        after.push(slept);
                    }
                }
            }
        }
        let usual_asleep = median(&mut asleep);
        let usual_after = median(&mut after).unwrap_or(0);
        let linger = match (median(&mut awake), usual_asleep) {
            (Some(awake), Some(asleep)) => awake.saturating_sub(asleep).min(usual_after),
            _ => 0,
        };
        for worker in &self.workers {
            for pair in worker.queue.windows(2) {
                let (last, i) = (pair[0] as usize, pair[1] as usize);
                if requests.awake[i] {
                    let total = requests.before_ns[i];
                    let after = requests.after_ns[last].max(linger).min(total);
                    requests.after_ns[last] = after;
                    requests.before_ns[i] = total - after;
                }
            }
        }
        self.observed.batched = batches(&self.workers, requests, self.read_ns);
        let known = requests.before_ns.iter().filter(|before| **before != NONE);
        let usual = median(&mut known.copied().collect::<Vec<u32>>()).unwrap_or(0);
        for i in 0..n {
            let exit = &mut requests.exit_stack_ns[i];
            *exit = exit.saturating_sub(usual_shallow);
            if requests.before_ns[i] == NONE {
                requests.before_ns[i] = usual;
                requests.compute_ns[i] = usual;
            }
            if requests.after_ns[i] == NONE {
                requests.after_ns[i] = usual_after;
            }
            if requests.hidden[i] && requests.wake_ns[i] == NONE {
                requests.wake_ns[i] = 0;
            }
        }
        let step = wakes.len().div_ceil(MAX_WAKES).max(1);
        self.observed.wakes_ns = wakes.into_iter().step_by(step).collect();
        self.observed.wakes_ns.sort_unstable();
        self.observed.linger_ns = u64::from(linger);
    }
}

/// Splits the work of requests that are read together and answered together: each reads
/// and computes its part, then they are answered one after the other. It returns how many
/// requests were answered after another of their batch.
fn batches(workers: &[Worker], requests: &mut Requests, read_ns: &[u64]) -> u64 {
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    let mut replies = Vec::new();
    for (w, worker) in workers.iter().enumerate() {
        let mut first = 0;
        while first < worker.queue.len() {
            let answered = requests.finish_ns(worker.queue[first] as usize);
            let rest = worker.queue[first + 1..].iter();
            let more = rest.take_while(|&&j| read_ns[j as usize] < answered);
            let end = first + 1 + more.count();
            for &j in &worker.queue[first + 1..end] {
                replies.push(requests.before_ns[j as usize]);
            }
            found.push((w, first, end));
            first = end;
        }
    }
    replies.retain(|reply| *reply != NONE);
    let batched = replies.len() as u64;
    let usual = median(&mut replies).unwrap_or(0);
    for (w, first, end) in found {
        let batch = &workers[w].queue[first..end];
        let before = requests.before_ns[batch[0] as usize];
        if before == NONE {
            continue;
        }
        let compute = before - usual.min(before / 2);
        let size = batch.len() as u32;
        for (place, &j) in (0..).zip(batch) {
            let j = j as usize;
            // what does not divide is the first's
            let rest = if place == 0 { compute % size } else { 0 };
            requests.compute_ns[j] = compute / size + rest;
            let reply = requests.before_ns[j];
            let reply = if place == 0 { before - compute } else { reply };
            requests.reply_ns[j] = if reply == NONE { usual } else { reply };
        }
    }
    batched
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

fn median(values: &mut [u32]) -> Option<u32> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}
