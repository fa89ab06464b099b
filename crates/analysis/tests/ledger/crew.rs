//! A simulated kernel with several workers, each at home on one CPU. They take their requests from one socket,
//! or each from its own. It emits what the probe would. The same crew without its disturbances has the same
//! arrivals and the same demands, so what a disturbance cost each request is known. So has the same crew with the
//! other kind of queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::{
    Asleep, Event, EventKind, Interrupt, Monotonic, Nanos, PacketId, RecordingContext, RequestKey,
    ThreadName, Tid,
};

use super::kernel::{BURST, CLIENT_CPU, IPI, RECEIVE, SWITCH, Traffic, Truth, WORKER, What};

/// The system calls in which workers sleep, by their numbers on x86-64.
const EPOLL_WAIT: u16 = 232;
const CLOCK_NANOSLEEP: u16 = 230;

#[derive(Clone, Debug)]
pub(crate) struct Crew {
    pub(crate) seed: u64,
    pub(crate) requests: usize,
    /// Worker w is at home on the CPU w modulo their number.
    pub(crate) workers: usize,
    pub(crate) cpus: usize,
    /// All take from one socket; otherwise each client is bound to one worker's socket.
    pub(crate) shared: bool,
    /// The packets of each come in on one CPU.
    pub(crate) clients: usize,
    /// Of the CPUs; of the workers, where they wait for each request.
    pub(crate) utilization: f64,
    pub(crate) service: u64,
    /// The workers are virtual: besides the service, each request takes a wait on a timer, this long on average and
    /// exponential.
    pub(crate) waits: Option<u64>,
    /// Of CPU 0: a thread or an interrupt, every so often on average, for so long.
    pub(crate) disturbances: Vec<(What, u64, u64)>,
    /// One request in so many takes so much longer.
    pub(crate) slow: Option<(usize, u64)>,
}

impl Default for Crew {
    fn default() -> Self {
        Self {
            seed: 1,
            requests: 40_000,
            workers: 2,
            cpus: 2,
            shared: true,
            clients: 32,
            utilization: 0.75,
            service: 12_000,
            waits: None,
            disturbances: Vec::new(),
            slow: None,
        }
    }
}

impl Crew {
    /// Four workers on four CPUs that take from one socket, as the golden `simulated_shared_queue` has them.
    pub(crate) fn of_golden() -> Self {
        Self {
            requests: 1_500,
            workers: 4,
            cpus: 4,
            disturbances: vec![(What::Thread, 1_500_000, 700_000)],
            ..Self::default()
        }
    }

    /// What a request costs a CPU; with waits, what it costs a worker.
    pub(crate) fn service_time(&self) -> Nanos {
        Nanos::new(self.waits.unwrap_or(0) + self.service + RECEIVE + IPI)
    }

    /// The servers of the queue: the CPUs, unless the workers leave them while they serve.
    pub(crate) fn servers(&self) -> usize {
        match self.waits {
            Some(_) => self.workers,
            None => self.cpus,
        }
    }

    pub(crate) fn context(&self) -> RecordingContext {
        let name = |tid, comm: &str, server: bool| ThreadName {
            tid,
            pid: tid,
            comm: comm.to_owned(),
            server,
            real_time: server.then_some(false),
        };
        let workers = (0..self.workers).map(|w| name(tid(w), "worker", true));
        RecordingContext {
            threads: workers.chain([name(BURST, "burst", false)]).collect(),
            ..RecordingContext::default()
        }
    }

    pub(crate) fn without_disturbances(&self) -> Self {
        Self {
            disturbances: Vec::new(),
            slow: None,
            ..self.clone()
        }
    }

    pub(crate) fn run(&self) -> Traffic {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut exp = |mean: f64| 1 + (-mean * rng.random::<f64>().max(1e-12).ln()) as u64;
        let gap = self.service_time().get() as f64 / (self.utilization * self.servers() as f64);
        let mut kernel = Kernel::new(self);
        let mut at = 1_000_000;
        for number in 0..self.requests {
            at += exp(gap);
            kernel.due(at, Due::Packet(number));
            kernel.truth.push(Truth {
                key: RequestKey::default(),
                t1: at,
                t6: 0,
            });
        }
        for &(what, every, length) in &self.disturbances {
            let mut next = 2_000_000;
            while next < at {
                next += exp(every as f64) + length;
                kernel.due(next, Due::Disturbance(what, length));
            }
        }
        let mut ids = vec![0_u16; self.clients];
        for request in &mut kernel.truth {
            let client = rng.random_range(0..self.clients);
            request.key = RequestKey::hashed(0, 40_000 + client as u16, ids[client]);
            ids[client] = ids[client].wrapping_add(1);
        }
        if let Some(mean) = self.waits {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(!self.seed);
            let mut wait = || (-(mean as f64) * rng.random::<f64>().max(1e-12).ln()) as u64;
            kernel.waits = (0..self.requests).map(|_| wait()).collect();
        }
        kernel.run()
    }
}

fn tid(worker: usize) -> Tid {
    WORKER + worker as Tid
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Packet(usize),
    Disturbance(What, u64),
    /// The handler of this CPU has ended a part of its work.
    Handler(usize),
    /// The thread on this CPU has ended a part of its work, unless it was interrupted since.
    Thread(usize, u32),
    /// The wait of this worker is over.
    Timer(usize),
}

/// Interrupts and softirqs, which go before all threads.
#[derive(Clone, Copy, Debug)]
enum Handler {
    /// A packet, and how many parts of its work are done.
    Packet(usize, u8),
    Interrupt(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Nobody,
    /// The worker that waits is about to come.
    Switching,
    Worker(usize),
    Burst,
}

#[derive(Debug)]
struct Cpu {
    on: On,
    /// What the one that is on it has to do until its next part, as of `since`.
    left: u64,
    since: u64,
    /// Advances whenever it is interrupted or goes on.
    turn: u32,
    /// The first one runs.
    handlers: VecDeque<Handler>,
    /// Workers that wait for it.
    runnable: VecDeque<usize>,
    /// Disturbances that wait until its handlers are done.
    disturbed_next: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    asleep: bool,
    /// The request that it serves, and how many parts of that are done.
    serving: Option<(usize, u8)>,
    /// What is left of the present part, while it is not on a CPU.
    left: u64,
}

struct Kernel<'a> {
    crew: &'a Crew,
    now: u64,
    due: BinaryHeap<Reverse<(u64, u64, Due)>>,
    dues: u64,
    cpus: Vec<Cpu>,
    workers: Vec<Worker>,
    /// Who sleeps at the common socket, the one that has slept longest first.
    sleepers: VecDeque<usize>,
    /// By socket.
    queues: Vec<VecDeque<usize>>,
    /// How long the worker waits for each request; none if it computes.
    waits: Vec<u64>,
    events: Vec<Event>,
    truth: Vec<Truth>,
}

impl<'a> Kernel<'a> {
    fn new(crew: &'a Crew) -> Self {
        let cpu = |_| Cpu {
            on: On::Nobody,
            left: 0,
            since: 0,
            turn: 0,
            handlers: VecDeque::new(),
            runnable: VecDeque::new(),
            disturbed_next: VecDeque::new(),
        };
        let mut kernel = Self {
            crew,
            now: 1_000,
            due: BinaryHeap::new(),
            dues: 0,
            cpus: (0..crew.cpus).map(cpu).collect(),
            workers: vec![Worker::default(); crew.workers],
            sleepers: VecDeque::new(),
            queues: vec![VecDeque::new(); crew.workers],
            waits: Vec::new(),
            events: Vec::new(),
            truth: Vec::new(),
        };
        for w in 0..crew.workers {
            // each is seen once, and then sleeps
            let k = w % crew.cpus;
            kernel.now = 1_000 * (w as u64 + 1);
            kernel.switch(k, 0, tid(w), false, None);
            kernel.now += 500;
            kernel.switch(k, tid(w), 0, false, Some(EPOLL_WAIT));
            kernel.falls_asleep(w);
        }
        kernel
    }

    fn due(&mut self, at: u64, due: Due) {
        self.dues += 1;
        self.due.push(Reverse((at, self.dues, due)));
    }

    fn emit_on(&mut self, cpu: u16, kind: EventKind) {
        let at = Monotonic::from_nanos_since_boot(self.now);
        self.events.push(Event { at, cpu, kind });
    }

    /// `asleep` is the call in which `prev` sleeps, if it does.
    fn switch(&mut self, k: usize, prev: Tid, next: Tid, preempted: bool, asleep: Option<u16>) {
        let asleep = asleep.map(|call| Asleep {
            call: Some(call),
            uninterruptible: false,
            stopped: false,
        });
        let kind = EventKind::Switched {
            prev,
            next,
            preempted,
            asleep,
        };
        self.emit_on(k as u16, kind);
    }

    fn run(mut self) -> Traffic {
        while let Some(Reverse((at, _, due))) = self.due.pop() {
            self.now = at;
            match due {
                Due::Packet(number) => self.comes(number),
                Due::Disturbance(What::Interrupt, length) => {
                    self.interrupts(0, Handler::Interrupt(length));
                }
                Due::Disturbance(_, length) => {
                    self.cpus[0].disturbed_next.push_back(length);
                    if self.cpus[0].handlers.is_empty() && self.cpus[0].on != On::Burst {
                        self.pause(0);
                        self.goes_on(0);
                    }
                }
                Due::Handler(k) => self.handled(k),
                Due::Thread(k, turn) => {
                    if self.cpus[k].turn == turn {
                        self.done(k);
                    }
                }
                Due::Timer(w) => self.wait_is_over(w),
            }
        }
        self.events.sort_by_key(|event| event.at);
        Traffic {
            events: self.events,
            truth: self.truth,
        }
    }

    fn client(&self, number: usize) -> usize {
        usize::from(self.truth[number].key.connection as u16) - 40_000
    }

    fn comes(&mut self, number: usize) {
        let (packet, key) = (PacketId(number as u32), self.truth[number].key);
        self.emit_on(CLIENT_CPU, EventKind::PacketIn { packet, key });
        let k = self.client(number) % self.cpus.len();
        self.interrupts(k, Handler::Packet(number, 0));
    }

    fn interrupts(&mut self, k: usize, handler: Handler) {
        self.cpus[k].handlers.push_back(handler);
        if self.cpus[k].handlers.len() == 1 {
            self.pause(k);
            self.handles(k);
        }
    }

    /// The first handler of a CPU begins.
    fn handles(&mut self, k: usize) {
        let length = match self.cpus[k].handlers[0] {
            Handler::Packet(..) => IPI,
            Handler::Interrupt(length) => length,
        };
        self.due(self.now + length, Due::Handler(k));
    }

    fn handled(&mut self, k: usize) {
        let Some(handler) = self.cpus[k].handlers.front_mut() else {
            return;
        };
        match handler {
            Handler::Packet(number, parts) => {
                *parts += 1;
                let (number, parts) = (*number, *parts);
                if self.receives(k, number, parts) {
                    return;
                }
            }
            Handler::Interrupt(length) => {
                let lasted = Nanos::new(*length);
                let interrupt = Interrupt::Device(5);
                self.emit_on(k as u16, EventKind::Interrupt { interrupt, lasted });
            }
        }
        self.cpus[k].handlers.pop_front();
        match self.cpus[k].handlers.is_empty() {
            true => self.goes_on(k),
            false => self.handles(k),
        }
    }

    /// A part of receiving a packet is done; `false` after the last.
    fn receives(&mut self, k: usize, number: usize, parts: u8) -> bool {
        let until_queued = RECEIVE * 4 / 5;
        match parts {
            1 => {
                let lasted = Nanos::new(IPI);
                let interrupt = Interrupt::CallFunction;
                self.emit_on(k as u16, EventKind::Interrupt { interrupt, lasted });
                self.due(self.now + until_queued, Due::Handler(k));
                true
            }
            2 => {
                let packet = PacketId(number as u32);
                self.emit_on(k as u16, EventKind::Enqueued { packet });
                self.queued(k, number);
                self.due(self.now + RECEIVE - until_queued, Due::Handler(k));
                true
            }
            _ => {
                let lasted = Nanos::new(RECEIVE);
                self.emit_on(k as u16, EventKind::Softirq { vector: 3, lasted });
                false
            }
        }
    }

    /// A request is at its socket: one who sleeps there is woken.
    fn queued(&mut self, k: usize, number: usize) {
        let own = self.client(number) % self.workers.len();
        let socket = if self.crew.shared { 0 } else { own };
        self.queues[socket].push_back(number);
        let woken = match self.crew.shared {
            true => self.sleepers.pop_front(),
            false => Some(own).filter(|&w| self.workers[w].asleep),
        };
        let Some(w) = woken else {
            return;
        };
        self.workers[w].asleep = false;
        let by = match self.cpus[k].on {
            On::Worker(w) => tid(w),
            On::Burst => BURST,
            On::Nobody | On::Switching => 0,
        };
        self.emit_on(k as u16, EventKind::Woken { tid: tid(w), by });
        self.wants_cpu(w);
    }

    /// The wait of a worker is over, which is an interrupt of its own CPU.
    fn wait_is_over(&mut self, w: usize) {
        let home = (w % self.cpus.len()) as u16;
        self.emit_on(home, EventKind::Woken { tid: tid(w), by: 0 });
        self.wants_cpu(w);
    }

    /// A worker that is awake wants its CPU, and gets it if nobody has it.
    fn wants_cpu(&mut self, w: usize) {
        let home = w % self.cpus.len();
        self.cpus[home].runnable.push_back(w);
        if self.cpus[home].on == On::Nobody {
            self.cpus[home].on = On::Switching;
            self.cpus[home].left = SWITCH;
            if self.cpus[home].handlers.is_empty() {
                self.goes_on(home);
            }
        }
    }

    /// What is on a CPU is interrupted.
    fn pause(&mut self, k: usize) {
        let now = self.now;
        let cpu = &mut self.cpus[k];
        cpu.turn += 1;
        if cpu.on != On::Nobody {
            cpu.left -= now - cpu.since;
        }
        cpu.since = now;
    }

    /// What is on a CPU goes on, or makes room for a disturbance that waits.
    fn goes_on(&mut self, k: usize) {
        if self.cpus[k].on != On::Burst
            && let Some(length) = self.cpus[k].disturbed_next.pop_front()
        {
            self.disturb(k, length);
        }
        let now = self.now;
        let cpu = &mut self.cpus[k];
        cpu.turn += 1;
        cpu.since = now;
        if cpu.on != On::Nobody {
            let (until, turn) = (now + cpu.left, cpu.turn);
            self.due(until, Due::Thread(k, turn));
        }
    }

    fn disturb(&mut self, k: usize, length: u64) {
        match self.cpus[k].on {
            On::Worker(w) => {
                self.workers[w].left = self.cpus[k].left;
                self.cpus[k].runnable.push_front(w);
                self.switch(k, tid(w), BURST, true, None);
            }
            _ => self.switch(k, 0, BURST, false, None),
        }
        self.cpus[k].on = On::Burst;
        self.cpus[k].left = length;
    }

    /// What is on a CPU has done its part.
    fn done(&mut self, k: usize) {
        match self.cpus[k].on {
            On::Nobody => return,
            On::Switching => self.next(k, 0, None),
            On::Burst => self.next(k, BURST, None),
            On::Worker(w) => self.served(k, w),
        }
        self.goes_on(k);
    }

    /// The next worker comes to a CPU after `prev`, or nobody.
    fn next(&mut self, k: usize, prev: Tid, asleep: Option<u16>) {
        let Some(w) = self.cpus[k].runnable.pop_front() else {
            self.switch(k, prev, 0, false, asleep);
            self.cpus[k].on = On::Nobody;
            self.cpus[k].left = 0;
            return;
        };
        self.switch(k, prev, tid(w), false, asleep);
        self.cpus[k].on = On::Worker(w);
        self.cpus[k].left = self.workers[w].left;
        if self.workers[w].serving.is_none() {
            self.takes(k, w);
        }
    }

    /// A worker on a CPU takes its next request, or sleeps.
    fn takes(&mut self, k: usize, w: usize) {
        let socket = if self.crew.shared { 0 } else { w };
        match self.queues[socket].pop_front() {
            Some(number) => {
                self.workers[w].serving = Some((number, 0));
                self.cpus[k].left = self.crew.service / 4;
            }
            None => {
                self.falls_asleep(w);
                self.next(k, tid(w), Some(EPOLL_WAIT));
            }
        }
    }

    fn falls_asleep(&mut self, w: usize) {
        self.workers[w].asleep = true;
        self.workers[w].left = 0;
        self.sleepers.push_back(w);
    }

    /// A worker has done a part of its request.
    fn served(&mut self, k: usize, w: usize) {
        let Some((number, parts)) = self.workers[w].serving else {
            return;
        };
        let (service, part) = (self.crew.service, self.crew.service / 4);
        self.workers[w].serving = Some((number, parts + 1));
        let tid = tid(w);
        self.cpus[k].left = match parts {
            0 => {
                self.emit_on(k as u16, EventKind::ReadReturned { tid, returned: 64 });
                let slow = self.crew.slow.filter(|(every, _)| number % every == 0);
                let left = 2 * part + slow.map_or(0, |(_, longer)| longer);
                if let Some(&wait) = self.waits.get(number) {
                    self.workers[w].left = left;
                    self.due(self.now + wait, Due::Timer(w));
                    return self.next(k, tid, Some(CLOCK_NANOSLEEP));
                }
                left
            }
            1 => {
                self.emit_on(k as u16, EventKind::WriteCalled { tid });
                service - 3 * part
            }
            _ => {
                let key = self.truth[number].key;
                self.emit_on(k as u16, EventKind::PacketOut { tid, key });
                self.truth[number].t6 = self.now;
                self.workers[w].serving = None;
                return self.takes(k, w);
            }
        };
    }
}
