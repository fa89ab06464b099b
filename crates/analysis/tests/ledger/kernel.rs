//! A simulated kernel with one worker on each of its CPUs: packets come in by interrupt and
//! softirq, the worker is woken, serves and sleeps, and disturbances take the CPU from it.
//! It emits what the probe would. The same plan without its disturbances has the same
//! arrivals and the same demands, so what a disturbance cost each request is known.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::{
    Asleep, Event, EventKind, Interrupt, Monotonic, Nanos, PacketId, RecordingContext, RequestKey,
    ThreadName, Tid,
};

pub(crate) const WORKER: Tid = 1_000;
pub(crate) const BURST: Tid = 77;
pub(crate) const HOLDER: Tid = 55;
pub(crate) const CLIENT_CPU: u16 = 15;
pub(crate) const IPI: u64 = 500;
pub(crate) const RECEIVE: u64 = 3_000;
pub(crate) const SWITCH: u64 = 700;
/// What a send takes.
pub(crate) const SEND: u64 = 5_000;
/// The gap between requests that come at once.
const RUSH: u64 = RECEIVE + IPI + 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Another thread is on the CPU.
    Thread,
    /// A device's interrupt.
    Interrupt,
    /// A softirq of this vector, for nobody.
    Softirq(u8),
    /// The worker may not run, and the CPU idles.
    HeldBack,
    /// The worker may not run; another thread does for a third of the time.
    HeldBackBeside,
    /// The same, but another thread does all the time, of which the group's account tells, or for
    /// four fifths of it, of which nothing tells.
    HeldBackInACrowd(bool),
    /// The worker may not run; a quarter of the time goes to softirqs.
    HeldBackInSoftirqs,
    /// The CPU stands still; whether a canary sees it.
    Stall(bool),
}

/// Which request of its queue a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Fifo,
    Lifo,
    /// Any of them, with a probability of one in so many; else the first.
    Any(u32),
}

/// Something that every request with a number divisible by `every` meets in its middle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    Slow(u64),
    /// It reads from a disk whose work is done on the time of the CPU, which stands still.
    Read(u64),
    Sleep {
        call: Option<u16>,
        uninterruptible: bool,
        length: u64,
    },
    /// It sleeps so in a page fault, and another thread has the CPU meanwhile. After so long another
    /// CPU wakes it: `way` later an interrupt tells the other thread to make room, which then keeps
    /// the CPU for `kept`.
    Fault {
        length: u64,
        way: u64,
        kept: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) requests: usize,
    /// Mean gap between arrivals, of each CPU's worker.
    pub(crate) gaps: Vec<f64>,
    pub(crate) service: u64,
    /// Of CPU 0: what, every so often on average, for so long.
    pub(crate) disturbances: Vec<(What, u64, u64)>,
    pub(crate) trouble: Option<(usize, Trouble)>,
    /// How long the CPU takes to come out of its power state.
    pub(crate) idle_exit: u64,
    /// Requests that come before all others, hardly slower than a CPU can receive them, so that
    /// the rest finds a queue.
    pub(crate) at_once: usize,
    /// Threads that disturb, and interrupts.
    pub(crate) culprits: u32,
    /// Which request the worker takes next.
    pub(crate) order: Order,
    /// The server's threads go before ordinary ones.
    pub(crate) real_time: bool,
    /// From when to when the CPUs take how many times as long for all work of the server and the kernel.
    pub(crate) slow_cpu: Option<(u64, u64, f64)>,
    /// Once in so long the client is held up for so long. Then it sends what was due, as fast as it can: one request
    /// each `SEND`.
    pub(crate) client_held_up: Option<(u64, u64)>,
    /// For how long the CPU that sends a response receives it for the client.
    pub(crate) response: u64,
    /// Another CPU receives the requests.
    pub(crate) receives_elsewhere: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            requests: 20_000,
            gaps: vec![40_000.0],
            service: 12_000,
            disturbances: Vec::new(),
            trouble: None,
            idle_exit: 0,
            at_once: 0,
            culprits: 1,
            order: Order::Fifo,
            real_time: false,
            slow_cpu: None,
            client_held_up: None,
            response: 0,
            receives_elsewhere: false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Truth {
    pub(crate) key: RequestKey,
    pub(crate) t1: u64,
    pub(crate) t6: u64,
}

pub(crate) struct Traffic {
    pub(crate) events: Vec<Event>,
    /// In order of arrival.
    pub(crate) truth: Vec<Truth>,
}

struct Cpu<'a> {
    plan: &'a Plan,
    number: u16,
    now: u64,
    events: Vec<Event>,
    /// Arrivals to come: their numbers and T1.
    packets: VecDeque<(usize, u64)>,
    disturbances: VecDeque<(u64, What, u64)>,
    disturbed: bool,
    /// Disturbances so far.
    turn: u32,
    rng: Xoshiro256PlusPlus,
    queue: VecDeque<usize>,
    truth: &'a mut Vec<Truth>,
    current: Tid,
    awake: bool,
    idle_since: u64,
}

impl Plan {
    /// What a request costs its CPU.
    pub(crate) fn service_time(&self) -> Nanos {
        let receive = if self.receives_elsewhere {
            0
        } else {
            RECEIVE + IPI
        };
        Nanos::new(self.service + self.response + receive)
    }

    pub(crate) fn context(&self) -> RecordingContext {
        let name = |tid, comm: &str, server| ThreadName {
            tid,
            pid: tid,
            comm: comm.to_owned(),
            server,
            real_time: server.then_some(self.real_time),
        };
        let mut threads = vec![name(BURST, "burst", false), name(HOLDER, "holder", true)];
        for cpu in 0..self.gaps.len() {
            threads.push(name(WORKER + cpu as Tid, "worker", true));
        }
        RecordingContext {
            threads,
            ..RecordingContext::default()
        }
    }

    pub(crate) fn without_disturbances(&self) -> Self {
        Self {
            disturbances: Vec::new(),
            trouble: None,
            idle_exit: 0,
            order: Order::Fifo,
            slow_cpu: None,
            ..self.clone()
        }
    }

    pub(crate) fn run(&self) -> Traffic {
        let mut truth = Vec::new();
        let mut events = Vec::new();
        let share: Vec<f64> = self.gaps.iter().map(|gap| 1.0 / gap).collect();
        let total: f64 = share.iter().sum();
        for (cpu, gap) in self.gaps.iter().enumerate() {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed + cpu as u64);
            let mut exp = |mean: f64| 1 + (-mean * rng.random::<f64>().max(1e-12).ln()) as u64;
            let count = (self.requests as f64 * share[cpu] / total) as usize;
            let (mut due, mut at) = (1_000_000, 1_000_000);
            let mut packets = VecDeque::new();
            let mut sent = 0;
            for i in 0..count {
                due += if i < self.at_once { RUSH } else { exp(*gap) };
                at = match self.client_held_up {
                    Some((every, length)) if due % every < length => {
                        (due - due % every + length).max(sent + SEND)
                    }
                    Some(_) => due.max(sent + SEND),
                    None => due,
                };
                sent = at;
                packets.push_back((truth.len(), at));
                let key = RequestKey::hashed(0, 40_000 + cpu as u16, i as u16);
                truth.push(Truth { key, t1: at, t6: 0 });
            }
            let mut disturbances = Vec::new();
            if cpu == 0 {
                for &(what, every, length) in &self.disturbances {
                    let mut next = 2_000_000;
                    while next < at {
                        next += exp(every as f64) + length;
                        disturbances.push((next, what, length));
                    }
                }
                disturbances.sort_by_key(|&(at, ..)| at);
            }
            let mut cpu = Cpu {
                plan: self,
                number: cpu as u16,
                now: 1_000,
                events: Vec::new(),
                packets,
                disturbances: disturbances.into(),
                disturbed: false,
                turn: 0,
                rng: Xoshiro256PlusPlus::seed_from_u64(!self.seed),
                queue: VecDeque::new(),
                truth: &mut truth,
                current: WORKER + cpu as Tid,
                awake: false,
                idle_since: 1_000,
            };
            cpu.run();
            events.append(&mut cpu.events);
        }
        events.sort_by_key(|event| event.at);
        truth.sort_by_key(|truth| truth.t1);
        Traffic { events, truth }
    }
}

impl Cpu<'_> {
    fn emit(&mut self, kind: EventKind) {
        self.emit_on(self.number, self.now, kind);
    }

    fn emit_on(&mut self, cpu: u16, at: u64, kind: EventKind) {
        let at = Monotonic::from_nanos_since_boot(at);
        self.events.push(Event { at, cpu, kind });
    }

    fn worker(&self) -> Tid {
        WORKER + Tid::from(self.number)
    }

    fn switch(&mut self, next: Tid, preempted: bool, asleep: Option<Asleep>) {
        let kind = EventKind::Switched {
            prev: self.current,
            next,
            preempted,
            asleep,
        };
        self.emit(kind);
        self.current = next;
        if next == 0 {
            self.idle_since = self.now;
        }
    }

    fn due(&self) -> u64 {
        let packet = self.packets.front().map_or(u64::MAX, |packet| packet.1);
        let other = self.disturbances.front().map_or(u64::MAX, |other| other.0);
        if self.disturbed {
            packet
        } else {
            packet.min(other)
        }
    }

    /// The current thread runs for so long; what interrupts it comes on top.
    fn work(&mut self, mut length: u64) {
        while self.due() < self.now + length {
            let until = self.due().max(self.now);
            length -= until - self.now;
            self.now = until;
            self.interrupted();
        }
        self.now += length;
    }

    /// The packet or the disturbance that is due.
    fn interrupted(&mut self) {
        let packet = self.packets.front().map_or(u64::MAX, |packet| packet.1);
        let due = self.due();
        if packet == due {
            let (number, t1) = self.packets.pop_front().expect("it is due");
            self.receive(number, t1);
        } else {
            let (_, what, length) = self.disturbances.pop_front().expect("it is due");
            self.disturbed = true;
            self.turn = (self.turn + 1) % self.plan.culprits;
            self.disturb(what, length);
            self.disturbed = false;
        }
    }

    /// How long work takes now that usually takes so long.
    fn at_this_speed(&self, usual: u64) -> u64 {
        match self.plan.slow_cpu {
            Some((from, to, factor)) if (from..to).contains(&self.now) => {
                (usual as f64 * factor) as u64
            }
            _ => usual,
        }
    }

    fn receive(&mut self, number: usize, t1: u64) {
        let key = self.truth[number].key;
        let packet = PacketId((u32::from(self.number) << 20) + number as u32 % (1 << 20));
        self.emit_on(CLIENT_CPU, t1, EventKind::PacketIn { packet, key });
        if self.plan.receives_elsewhere {
            return self.receive_elsewhere(number, packet);
        }
        if self.current == 0 && self.plan.idle_exit > 0 {
            self.now += self.plan.idle_exit;
            let lasted = Nanos::new(self.now - self.idle_since);
            self.emit(EventKind::IdleLeft { state: 2, lasted });
        }
        let ipi = self.at_this_speed(IPI);
        self.now += ipi;
        let lasted = Nanos::new(ipi);
        let interrupt = Interrupt::CallFunction;
        self.emit(EventKind::Interrupt { interrupt, lasted });
        let receive = self.at_this_speed(RECEIVE);
        self.now += receive * 4 / 5;
        self.emit(EventKind::Enqueued { packet });
        self.queue.push_back(number);
        if !self.awake {
            self.awake = true;
            let (tid, by) = (self.worker(), self.current);
            self.emit(EventKind::Woken { tid, by });
        }
        self.now += receive / 5;
        let lasted = Nanos::new(receive);
        self.emit(EventKind::Softirq { vector: 3, lasted });
    }

    /// The CPU only wakes its worker, if that sleeps.
    fn receive_elsewhere(&mut self, number: usize, packet: PacketId) {
        self.emit_on(CLIENT_CPU, self.now, EventKind::Enqueued { packet });
        self.queue.push_back(number);
        if self.awake {
            return;
        }
        self.awake = true;
        let (tid, by) = (self.worker(), self.current);
        self.emit(EventKind::Woken { tid, by });
        self.now += IPI;
        let (interrupt, lasted) = (Interrupt::Reschedule, Nanos::new(IPI));
        self.emit(EventKind::Interrupt { interrupt, lasted });
    }

    fn disturb(&mut self, what: What, length: u64) {
        let before = self.current;
        let lasted = Nanos::new(length);
        match what {
            What::Thread => {
                self.switch(BURST + self.turn, before == self.worker(), None);
                self.work(length);
                let next = if self.awake { self.worker() } else { 0 };
                self.switch(next, false, None);
            }
            What::Interrupt => {
                self.now += length;
                let interrupt = Interrupt::Device(5 + self.turn);
                self.emit(EventKind::Interrupt { interrupt, lasted });
            }
            What::Softirq(vector) => {
                self.now += length;
                self.emit(EventKind::Softirq { vector, lasted });
            }
            What::HeldBack if before == self.worker() => {
                self.switch(0, true, None);
                self.work(length);
                self.switch(before, false, None);
            }
            What::HeldBackBeside if before == self.worker() => {
                self.switch(BURST + self.turn, true, None);
                self.work(length / 3);
                self.switch(0, false, None);
                self.work(length - length / 3);
                self.switch(before, false, None);
            }
            What::HeldBackInACrowd(told) if before == self.worker() => {
                self.switch(BURST + self.turn, true, None);
                let idle = if told { 0 } else { length / 5 };
                self.work(length - idle);
                if idle > 0 {
                    self.switch(0, false, None);
                    self.work(idle);
                }
                if told {
                    self.emit(EventKind::Throttled { lasted });
                }
                self.switch(before, false, None);
            }
            What::HeldBackInSoftirqs if before == self.worker() => {
                self.switch(0, true, None);
                for _ in 0..10 {
                    self.work(length * 3 / 40);
                    self.now += length / 40;
                    let lasted = Nanos::new(length / 40);
                    self.emit(EventKind::Softirq { vector: 1, lasted });
                }
                self.switch(before, false, None);
            }
            What::HeldBack
            | What::HeldBackBeside
            | What::HeldBackInACrowd(_)
            | What::HeldBackInSoftirqs => {}
            What::Stall(canary) => {
                self.now += length;
                if canary {
                    self.emit_on(CLIENT_CPU, self.now, EventKind::Stalled { lasted });
                }
            }
        }
    }

    fn run(&mut self) {
        let asleep = Some(Asleep {
            call: Some(232),
            uninterruptible: false,
            stopped: false,
        });
        loop {
            if self.current != self.worker() {
                if self.awake {
                    self.work(SWITCH);
                    if self.current == 0 {
                        self.switch(self.worker(), false, None);
                    }
                } else if self.due() == u64::MAX || self.packets.is_empty() {
                    return;
                } else {
                    self.now = self.now.max(self.due());
                    self.interrupted();
                }
                continue;
            }
            match self.take() {
                Some(number) => self.serve(number),
                None => {
                    self.awake = false;
                    self.switch(0, false, asleep);
                }
            }
        }
    }

    /// Takes the next request out of the queue.
    fn take(&mut self) -> Option<usize> {
        match self.plan.order {
            Order::Any(one_in) if !self.queue.is_empty() => {
                let any = self.rng.random_range(0..one_in) == 0;
                let place = if any {
                    self.rng.random_range(0..self.queue.len())
                } else {
                    0
                };
                self.queue.remove(place)
            }
            Order::Lifo => self.queue.pop_back(),
            _ => self.queue.pop_front(),
        }
    }

    fn serve(&mut self, number: usize) {
        let tid = self.worker();
        let service = self.at_this_speed(self.plan.service);
        let part = service / 4;
        self.work(part);
        self.emit(EventKind::ReadReturned { tid, returned: 64 });
        self.work(part);
        if let Some((every, trouble)) = self.plan.trouble
            && number.is_multiple_of(every)
        {
            self.meet(trouble);
        }
        self.work(part);
        self.emit(EventKind::WriteCalled { tid });
        self.work(service - 3 * part);
        let key = self.truth[number].key;
        self.emit(EventKind::PacketOut { tid, key });
        self.truth[number].t6 = self.now;
        let response = self.at_this_speed(self.plan.response);
        if response > 0 {
            self.now += response;
            let lasted = Nanos::new(response);
            self.emit(EventKind::Softirq { vector: 3, lasted });
        }
    }

    fn meet(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Slow(length) => self.work(length),
            Trouble::Read(length) => {
                self.now += length;
                self.emit(EventKind::StorageWaited {
                    tid: self.worker(),
                    call: 17,
                    waited: Nanos::new(length),
                });
            }
            Trouble::Fault { length, way, kept } => {
                let asleep = Some(Asleep {
                    call: None,
                    uninterruptible: true,
                    stopped: false,
                });
                let tid = self.worker();
                self.switch(BURST, false, asleep);
                self.now += length;
                self.emit_on(CLIENT_CPU, self.now, EventKind::Woken { tid, by: 0 });
                self.now += way + IPI;
                let (interrupt, lasted) = (Interrupt::Reschedule, Nanos::new(IPI));
                self.emit(EventKind::Interrupt { interrupt, lasted });
                self.now += kept;
                self.switch(tid, false, None);
            }
            Trouble::Sleep {
                call,
                uninterruptible,
                length,
            } => {
                let asleep = Some(Asleep {
                    call,
                    uninterruptible,
                    stopped: false,
                });
                self.switch(0, false, asleep);
                self.work(length);
                let tid = self.worker();
                self.emit(EventKind::Woken { tid, by: HOLDER });
                self.work(SWITCH);
                if self.current == 0 {
                    self.switch(tid, false, None);
                }
            }
        }
    }
}
