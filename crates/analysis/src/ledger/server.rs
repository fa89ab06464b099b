//! The server as the attribution follows it: its CPUs, its workers, the requests in it, and the resulting
//! delay histories.
//!
//! Whenever the state of a CPU or a worker is read or changed, it is brought up to the present first
//! ([`ServerState::advance`], [`ServerState::settle`]).

mod capacity;
mod charge;
mod sending;
mod states;

use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_model::explanation::Cause;
use taillab_model::{Nanos, RecordingContext, Tid};

use super::baseline::Baseline;
use super::common::CommonQueue;
use super::cpu::CpuClock;
use super::disturbances::Disturbances;
use super::entry::{Ledger, LedgerOptions};
use super::events::{EventQueue, RequestId};
use super::history::CpuHistory;
use super::label::{CulpritId, Label, Labels};
use super::pauses::{Forks, Pauses};
use super::requests::RequestsInside;
use super::sharing::SharedQueues;
use super::worker::Worker;
use crate::heaviest::{Heaviest, WeighedSums};
use crate::id_map::{IdMap, LastFound, grow_to};
use crate::matched::Matched;
use crate::speed::Speed;
use crate::timeline::{Policies, Timeline};

/// There are tokens for at most this many packets more than there are requests.
const SPARE_TOKENS: usize = 4;

pub(super) struct ServerState {
    pub(super) baseline: Baseline,
    policies: Policies,
    /// The window of the recording that it is in.
    timeline: Timeline,
    /// When the CPUs were slower than usual in it.
    speed: Speed,
    pub(super) cpus: Vec<CpuClock>,
    /// Their places, by the numbers of the CPUs.
    places_of_cpus: Vec<Option<usize>>,
    /// The delay history of each CPU.
    pub(super) histories: Vec<CpuHistory>,
    pub(super) workers: Vec<Worker>,
    /// The places in `workers` of those that have ended; the next ones take them.
    free: Vec<usize>,
    /// For how long those that have ended served requests.
    served_ns: Heaviest<Tid>,
    /// Workers with requests whose pieces are wanted.
    traced_workers: Vec<usize>,
    /// The places of the workers by their threads.
    pub(super) by_tid: LastFound<usize>,
    pub(super) requests: RequestsInside,
    /// t, and the workers of the ideal queue.
    service_time: Nanos,
    servers: NonZeroU32,
    /// The queues that workers share, and their numbers in `queues`.
    pub(super) common: Vec<CommonQueue>,
    numbers: Vec<u32>,
    queues: SharedQueues,
    pub(super) events: EventQueue,
    /// Time of receive softirqs that counts as work: ρ for each packet that came in.
    tokens_ns: u64,
    /// When the server stood still in this window.
    pauses: Arc<Pauses>,
    forks: Forks,
    /// When threads read and wrote in this window, of those of which that was asked.
    acts_ns: IdMap<Vec<u64>>,
    disturbances: Disturbances,
    pub(super) ledger: Ledger,
}

impl ServerState {
    pub(super) fn new(
        context: &RecordingContext,
        options: &LedgerOptions,
        baseline: Baseline,
    ) -> Self {
        Self {
            baseline,
            policies: Policies::of(context),
            timeline: Timeline::default(),
            speed: Speed::default(),
            cpus: Vec::new(),
            places_of_cpus: Vec::new(),
            histories: Vec::new(),
            workers: Vec::new(),
            free: Vec::new(),
            served_ns: Heaviest::default(),
            traced_workers: Vec::new(),
            by_tid: LastFound::default(),
            requests: RequestsInside::default(),
            service_time: options.service_time,
            servers: options.workers,
            common: Vec::new(),
            numbers: Vec::new(),
            queues: options.queues.clone(),
            events: EventQueue::default(),
            tokens_ns: 0,
            pauses: Arc::default(),
            forks: Forks::default(),
            acts_ns: IdMap::default(),
            disturbances: Disturbances::since(options.measure_from.nanos_since_boot()),
            ledger: Ledger {
                labels: Labels::new(context),
                events: Vec::new(),
                served_ns: Vec::new(),
                served_by_others_ns: 0,
            },
        }
    }

    /// What was counted.
    pub(super) fn finish(self) -> Ledger {
        let mut ledger = self.ledger;
        ledger.events = self.disturbances.finish(&ledger.labels);
        let mut served_ns = self.served_ns;
        for worker in self.workers.iter().filter(|worker| worker.tid != 0) {
            served_ns.add(worker.tid, served(worker));
        }
        let (listed, others) = served_ns.finish();
        let listed = listed.into_iter();
        ledger.served_ns = listed.map(|(tid, sums)| (tid, sums.ns)).collect();
        ledger.served_by_others_ns = others.map_or(0, |others| others.ns);
        ledger.served_ns.sort_unstable();
        ledger
    }

    /// Continues with a window of the recording; the one before ended at `from_ns`.
    pub(super) fn enter(&mut self, matched: &Matched, timeline: &Timeline, from_ns: u64) {
        self.timeline = timeline.clone();
        self.speed = Speed::of(matched, &self.baseline.paces);
        self.acts_ns.clear();
        let window = (matched, timeline);
        let pauses = Pauses::of(window, &mut self.ledger.labels, &mut self.forks);
        self.pauses = Arc::new(pauses);
        let unknown = self.label(Cause::Unobserved, CulpritId::Nobody);
        for &tid in &matched.workers {
            self.follow_worker(tid, timeline, unknown);
        }
        // one without a request in this window may still take those that wait, and loses capacity of its queue
        for tid in self.queues.workers() {
            self.follow_worker(tid, timeline, unknown);
        }
        // a new worker may be current already
        for (place, line) in timeline.cpus().iter().enumerate() {
            let k = self.cpu_index(line.cpu());
            let k = k.unwrap_or_else(|| self.add_cpu(line.cpu()));
            self.cpus[k].read_on(place, line, &mut self.by_tid);
        }
        for w in 0..self.workers.len() {
            let worker = &mut self.workers[w];
            let before = (worker.state, worker.until_ns);
            let Some(place) = timeline.worker_place(worker.tid) else {
                continue;
            };
            worker.read_on(place, &timeline.workers()[place], from_ns);
            if worker.is_followed() && before != (worker.state, worker.until_ns) {
                worker.busy_period = worker.busy_period.wrapping_add(1);
                self.enter_state(w, from_ns);
                // how long it waits was not known before
                let until_ns = self.workers[w].until_ns;
                if let Some((k, _)) = self.workers[w].counted.waiting {
                    self.look_ahead(k, w, from_ns..until_ns);
                }
            }
        }
        for queue in 0..self.common.len() {
            if self.common[queue].waiting > 0 {
                self.lend(queue, from_ns);
            }
        }
    }

    /// Follows a thread from this window on, if it is a worker that is not followed yet.
    fn follow_worker(&mut self, tid: Tid, timeline: &Timeline, unknown: Label) {
        if tid == 0 || self.by_tid.contains(tid) || timeline.worker(tid).is_none() {
            return;
        }
        let worker = Worker::new(tid, unknown);
        let w = match self.free.pop() {
            Some(w) => {
                // events of the one that was there before are not for this one
                let before = std::mem::replace(&mut self.workers[w], worker);
                self.workers[w].busy_period = before.busy_period.wrapping_add(1);
                w
            }
            None => {
                self.workers.push(worker);
                self.workers.len() - 1
            }
        };
        self.by_tid.insert(tid, w);
        self.joins(w, self.queues.queue_of(tid));
    }

    /// Advances the CPUs to `least_ns`, where the next window's timelines begin, and idle workers to
    /// `upto_ns`, where this window ends.
    pub(super) fn leave(&mut self, least_ns: u64, upto_ns: u64) {
        for k in 0..self.cpus.len() {
            self.advance(k, least_ns);
        }
        for w in 0..self.workers.len() {
            if !self.workers[w].is_followed() {
                self.skim(w, upto_ns);
            }
        }
    }

    /// Forgets the workers that have ended: those without requests of which the timeline knows nothing any more. A
    /// server may start one for each connection. Returns their places, which later workers take, and their threads.
    pub(super) fn forget_ended(&mut self) -> Vec<(usize, Tid)> {
        let has_ended = |worker: &Worker| {
            let is_in_use = worker.is_followed() || worker.queue.is_some();
            worker.tid != 0 && !is_in_use && self.timeline.worker(worker.tid).is_none()
        };
        let places = self.workers.iter().enumerate();
        let ended: Vec<(usize, Tid)> = places
            .filter(|(_, worker)| has_ended(worker))
            .map(|(w, worker)| (w, worker.tid))
            .collect();
        for &(w, _) in &ended {
            let worker = std::mem::take(&mut self.workers[w]);
            self.workers[w].busy_period = worker.busy_period;
            self.by_tid.remove(worker.tid);
            self.served_ns.add(worker.tid, served(&worker));
        }
        if !ended.is_empty() {
            let workers = &self.workers;
            let is_there = |w: usize| workers[w].tid != 0;
            self.disturbances.forget(&self.ledger.labels, is_there);
            for cpu in &mut self.cpus {
                cpu.worker = cpu.worker.filter(|&w| is_there(w));
            }
        }
        self.free.extend(ended.iter().map(|(w, _)| w));
        ended
    }

    /// How many entries the largest of its tables has.
    pub(super) fn remembered(&self) -> usize {
        let tables = [
            self.workers.len(),
            self.by_tid.len(),
            self.served_ns.len(),
            self.ledger.labels.len(),
            self.disturbances.len(),
        ];
        tables.into_iter().max().unwrap_or_default()
    }

    /// A packet comes in: its receive softirq is work.
    pub(super) fn add_token(&mut self) {
        let receive_ns = self.baseline.receive_ns;
        // tokens of requests that have left are dropped
        let packets = (self.requests.len() + SPARE_TOKENS) as u64;
        self.tokens_ns = (self.tokens_ns + receive_ns).min(packets * receive_ns);
    }

    /// Begins the trace of a request of worker `w`.
    pub(super) fn begin_trace(&mut self, w: usize, id: RequestId) {
        let trace = &mut self.workers[w].trace;
        if !trace.is_wanted() {
            self.traced_workers.push(w);
        }
        self.requests[id].traced = Some(trace.begin());
    }

    /// Ends the trace of a request of worker `w`, if it has one.
    pub(super) fn end_trace(&mut self, w: usize, id: RequestId) {
        let Some(traced) = self.requests[id].traced else {
            return;
        };
        let trace = &mut self.workers[w].trace;
        trace.end_of(traced);
        if !trace.is_wanted() {
            self.traced_workers.retain(|&other| other != w);
        }
    }

    fn add_cpu(&mut self, cpu: u16) -> usize {
        let k = self.cpus.len();
        self.cpus.push(CpuClock::new(cpu));
        self.histories.push(CpuHistory::default());
        *grow_to(&mut self.places_of_cpus, cpu.into()) = Some(k);
        k
    }

    /// The place of a CPU. Every change of a worker's state needs it, and there may be hundreds of CPUs.
    fn cpu_index(&self, cpu: u16) -> Option<usize> {
        self.places_of_cpus.get(usize::from(cpu)).copied().flatten()
    }

    /// For how long worker `w` has waited for its CPU while others of the server worked there.
    pub(super) fn behind_ns(&self, w: usize) -> u64 {
        let worker = &self.workers[w];
        let now = worker
            .behind_since
            .map(|(k, from)| self.cpus[k].worked_ns - from);
        worker.behind_ns + now.unwrap_or(0)
    }

    /// The label of the wait of worker `w` for others on its CPU.
    pub(super) fn behind_others(&mut self, w: usize) -> Option<Label> {
        let cpu = self.cpus[self.workers[w].home?].number;
        Some(self.label(Cause::OwnThreads, CulpritId::OnCpu(cpu)))
    }

    fn label(&mut self, cause: Cause, who: CulpritId) -> Label {
        self.ledger.labels.label(cause, who)
    }

    /// The label of services of worker `w` that take too long.
    pub(super) fn slow_service(&mut self, w: usize) -> Label {
        let (worker, labels) = (&mut self.workers[w], &mut self.ledger.labels);
        let by = CulpritId::Worker(worker.tid);
        let label = || labels.label(Cause::SlowService, by);
        *worker.slow_service.get_or_insert_with(label)
    }
}

/// For how long a worker served.
const fn served(worker: &Worker) -> WeighedSums {
    WeighedSums {
        weight: worker.served_ns,
        ns: worker.served_ns,
    }
}
