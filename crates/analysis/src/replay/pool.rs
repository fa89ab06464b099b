//! Replays a queue whose workers share CPUs: each request goes to a worker, and each CPU passes from one
//! worker to the next.
//!
//! A worker that sleeps in the middle of a request leaves its CPU to the others, and its own next
//! requests wait. How long a runnable worker waits for its CPU is not taken from the measurement; it
//! follows from what the other workers do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::change::{Change, Order, Sharing};
use super::observed::{Job, NONE, Observed};
use super::vacations::{Cursor, Vacations};

/// The work that a worker has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// None: it takes its next request.
    Between,
    /// The work until it sleeps, or until its response.
    First(usize),
    /// The work from its sleep until its response.
    Rest(usize),
    /// The work after its response.
    After(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Without work.
    Asleep,
    /// With work, but not able to run yet: it sleeps in a request, or is being woken.
    Held,
    /// Waiting for its CPU.
    Runnable,
    Running,
}

#[derive(Debug)]
struct PooledWorker {
    /// Requests that wait for it, by rank.
    waiting: BinaryHeap<Reverse<(u32, u32)>>,
    phase: Phase,
    state: State,
    /// Remaining work of the phase.
    left_ns: u64,
    cpu: usize,
    /// When it last became runnable, as the number of such events of all workers up to then.
    turn: u32,
    /// Its priority among the workers that wait for its CPU; the lowest goes first.
    key: u32,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    worker: usize,
    since_ns: u64,
    /// The place in the vacations at the end of the phase.
    then: Cursor,
}

struct Cpu<'a> {
    vacations: &'a Vacations,
    cursor: Cursor,
    running: Option<Running>,
    /// Advances whenever a worker starts here or is preempted; events with an older value are void.
    time: u32,
    /// The workers that wait for it, by key; some entries are out of date.
    runnable: BinaryHeap<Reverse<(u32, u32)>>,
    /// When it was last given to the next worker.
    free_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PoolEvent {
    /// The worker on a CPU has finished its phase. Void unless `time` is still the CPU's.
    Done { cpu: u32, time: u32 },
    /// A worker becomes runnable.
    Ready { worker: u32 },
}

pub(super) struct Pool<'a, F> {
    requests: &'a [Job],
    observed: &'a Observed,
    change: &'a Change,
    keeps_awake: Vec<bool>,
    workers: Vec<PooledWorker>,
    cpus: Vec<Cpu<'a>>,
    /// Requests that wait for any worker.
    common: BinaryHeap<Reverse<(u32, u32)>>,
    /// Workers without work, the one that became idle last on top; used only with a shared queue.
    idle: Vec<usize>,
    events: BinaryHeap<Reverse<(u64, PoolEvent)>>,
    turns: u32,
    done: F,
}

impl<'a, F: FnMut(usize, u64)> Pool<'a, F> {
    pub(super) fn new(observed: &'a Observed, change: &'a Change, done: F) -> Self {
        let cpus = observed.vacations.len();
        let cpus = cpus.saturating_sub(change.fewer_servers).max(1);
        let worker = |_| PooledWorker {
            waiting: BinaryHeap::new(),
            phase: Phase::Between,
            state: State::Asleep,
            left_ns: 0,
            cpu: 0,
            turn: 0,
            key: 0,
        };
        let cpu = |vacations| Cpu {
            vacations,
            cursor: Cursor::default(),
            running: None,
            time: 0,
            runnable: BinaryHeap::new(),
            free_ns: 0,
        };
        Self {
            requests: &observed.requests,
            observed,
            change,
            keeps_awake: observed.sources.iter().map(|s| s.keeps_awake()).collect(),
            workers: (0..observed.workers.len()).map(worker).collect(),
            cpus: observed.vacations[..cpus].iter().map(cpu).collect(),
            common: BinaryHeap::new(),
            idle: (0..observed.workers.len()).rev().collect(),
            events: BinaryHeap::new(),
            turns: 0,
            done,
        }
    }

    pub(super) fn run(mut self) {
        for i in 0..self.requests.len() {
            let arrival = self.requests[i].arrival_ns;
            self.until(arrival);
            self.arrive(i, arrival);
        }
        self.until(u64::MAX);
    }

    /// Handles the events until `now_ns`.
    fn until(&mut self, now_ns: u64) {
        while let Some(Reverse((at, event))) = self.events.peek().copied() {
            if at > now_ns {
                return;
            }
            self.events.pop();
            match event {
                PoolEvent::Done { cpu, time } => {
                    let cpu = cpu as usize;
                    if self.cpus[cpu].time == time {
                        self.finished(cpu, at);
                    }
                }
                PoolEvent::Ready { worker } => self.runnable(worker as usize, at),
            }
        }
    }

    fn is_shared(&self) -> bool {
        self.change.discipline.sharing == Sharing::Shared
    }

    fn rank(&self, i: usize) -> u32 {
        self.requests[i].rank(i, self.change)
    }

    /// The requests that worker `w` takes its next one from.
    fn queue(&self, w: usize) -> &BinaryHeap<Reverse<(u32, u32)>> {
        match self.is_shared() {
            true => &self.common,
            false => &self.workers[w].waiting,
        }
    }

    /// The order among runnable workers: the lowest takes the CPU.
    fn key(&self, w: usize) -> u32 {
        let worker = &self.workers[w];
        if self.change.discipline.order == Order::ByWorker {
            return worker.turn;
        }
        match worker.phase {
            Phase::First(i) | Phase::Rest(i) | Phase::After(i) => self.rank(i),
            Phase::Between => self.queue(w).peek().map_or(u32::MAX, |first| first.0.0),
        }
    }

    fn arrive(&mut self, i: usize, now_ns: u64) {
        let entry = Reverse((self.rank(i), i as u32));
        let own = usize::from(self.requests[i].worker);
        if self.is_shared() {
            self.common.push(entry);
            // the worker of the measurement if it is idle; otherwise, the one that became idle last
            let asleep = |w: &usize| self.workers[*w].state == State::Asleep;
            let chosen = (own < self.workers.len()).then_some(own).filter(asleep);
            while let Some(last) = self.idle.last()
                && !asleep(last)
            {
                self.idle.pop();
            }
            if let Some(w) = chosen.or_else(|| self.idle.pop()) {
                self.wake(w, i, now_ns);
            }
            return;
        }
        let w = if own < self.workers.len() {
            own
        } else {
            i % self.workers.len()
        };
        self.workers[w].waiting.push(entry);
        match self.workers[w].state {
            State::Asleep => self.wake(w, i, now_ns),
            State::Runnable => self.queue_up(w),
            State::Held | State::Running => {}
        }
    }

    /// Request `i` wakes worker `w`.
    fn wake(&mut self, w: usize, i: usize, now_ns: u64) {
        let place = self.place(i);
        let measured = self.requests[i].wake_ns;
        self.workers[w].cpu = place;
        let cpu = &mut self.cpus[place];
        if cpu.running.is_none() {
            let wake = self.observed.wake_ns(
                self.change,
                &self.keeps_awake,
                i,
                (cpu.vacations, &mut cpu.cursor),
                cpu.free_ns,
            );
            self.workers[w].left_ns = wake;
            self.runnable(w, now_ns);
        } else if measured == NONE || measured == 0 || self.change.no_wake {
            self.runnable(w, now_ns);
        } else {
            self.workers[w].state = State::Held;
            let exit = match self.change.no_exit {
                true => self.requests[i].exit_wake_ns,
                false => 0,
            };
            let ready = now_ns + measured.saturating_sub(exit);
            let worker = w as u32;
            self.events
                .push(Reverse((ready, PoolEvent::Ready { worker })));
        }
    }

    /// The CPU for request `i`: that of the measurement, or, with a shared queue, an idle one.
    fn place(&self, i: usize) -> usize {
        let own = usize::from(self.requests[i].server) % self.cpus.len();
        let idle = |cpu: &Cpu<'_>| cpu.running.is_none();
        if !self.is_shared() || idle(&self.cpus[own]) {
            return own;
        }
        self.cpus.iter().position(idle).unwrap_or(own)
    }

    /// Worker `w` is runnable from now on.
    fn runnable(&mut self, w: usize, now_ns: u64) {
        self.turns += 1;
        let turn = self.turns;
        let worker = &mut self.workers[w];
        (worker.state, worker.turn) = (State::Runnable, turn);
        let place = worker.cpu;
        self.queue_up(w);
        let Some(running) = self.cpus[place].running else {
            return self.dispatch(place, now_ns);
        };
        let preempts = self.change.discipline.order == Order::AsMeasuredPreemptive;
        if preempts && self.key(w) < self.key(running.worker) {
            self.stop(place, now_ns);
            self.queue_up(running.worker);
            self.dispatch(place, now_ns);
        }
    }

    fn queue_up(&mut self, w: usize) {
        let key = self.key(w);
        let worker = &mut self.workers[w];
        worker.key = key;
        self.cpus[worker.cpu]
            .runnable
            .push(Reverse((key, w as u32)));
    }

    /// Preempts the worker that runs on a CPU.
    fn stop(&mut self, place: usize, now_ns: u64) {
        let cpu = &mut self.cpus[place];
        let Some(running) = cpu.running.take() else {
            return;
        };
        cpu.time += 1;
        let limits = &self.change.limits;
        let did = cpu
            .vacations
            .available(cpu.cursor, limits, running.since_ns, now_ns);
        let worker = &mut self.workers[running.worker];
        worker.left_ns = worker.left_ns.saturating_sub(did);
        worker.state = State::Runnable;
    }

    /// Gives an idle CPU to the first worker that waits for it, if any.
    fn dispatch(&mut self, place: usize, now_ns: u64) {
        self.cpus[place].free_ns = now_ns;
        while let Some(Reverse((key, w))) = self.cpus[place].runnable.pop() {
            let w = w as usize;
            let worker = &self.workers[w];
            let is_runnable = worker.state == State::Runnable && worker.cpu == place;
            if is_runnable && worker.key == key && self.proceed(w, now_ns) {
                return;
            }
        }
    }

    /// Worker `w` runs on its idle CPU; `false` if it has nothing to do.
    fn proceed(&mut self, w: usize, now_ns: u64) -> bool {
        if self.workers[w].phase == Phase::Between {
            let queue = if self.is_shared() {
                &mut self.common
            } else {
                &mut self.workers[w].waiting
            };
            let Some(Reverse((_, i))) = queue.pop() else {
                // another worker took the request
                self.workers[w].left_ns = 0;
                self.falls_asleep(w);
                return false;
            };
            let i = i as usize;
            let first = self.first_ns(i);
            let worker = &mut self.workers[w];
            worker.phase = Phase::First(i);
            // after the wake-up
            worker.left_ns += first;
        }
        let worker = &mut self.workers[w];
        worker.state = State::Running;
        let left = worker.left_ns;
        let place = worker.cpu;
        let cpu = &mut self.cpus[place];
        let mut then = cpu.cursor;
        let limits = &self.change.limits;
        let until = cpu.vacations.finish(&mut then, limits, now_ns, left);
        cpu.time += 1;
        cpu.running = Some(Running {
            worker: w,
            since_ns: now_ns,
            then,
        });
        let (cpu, time) = (place as u32, cpu.time);
        let done = PoolEvent::Done { cpu, time };
        self.events.push(Reverse((until, done)));
        true
    }

    fn falls_asleep(&mut self, w: usize) {
        self.workers[w].state = State::Asleep;
        if self.is_shared() {
            self.idle.push(w);
        }
    }

    /// The worker on a CPU has finished its phase.
    fn finished(&mut self, place: usize, now_ns: u64) {
        let cpu = &mut self.cpus[place];
        let Some(running) = cpu.running.take() else {
            return;
        };
        cpu.cursor = running.then;
        let w = running.worker;
        self.workers[w].left_ns = 0;
        match self.workers[w].phase {
            Phase::First(i) => {
                let blocked = self.blocked_ns(i);
                if blocked == 0 {
                    self.respond(w, i, now_ns, now_ns);
                } else if self.requests[i].is_sent_late() {
                    self.respond(w, i, now_ns + blocked, now_ns);
                } else {
                    let all = self.requests[i].before_ns(self.change);
                    let rest = all - self.first_ns(i);
                    let worker = &mut self.workers[w];
                    (worker.phase, worker.left_ns) = (Phase::Rest(i), rest);
                    worker.state = State::Held;
                    let ready = PoolEvent::Ready { worker: w as u32 };
                    self.events.push(Reverse((now_ns + blocked, ready)));
                    self.dispatch(place, now_ns);
                }
            }
            Phase::Rest(i) => self.respond(w, i, now_ns, now_ns),
            Phase::After(_) | Phase::Between => self.next(w, now_ns),
        }
    }

    /// Worker `w` has answered request `i`.
    fn respond(&mut self, w: usize, i: usize, departure_ns: u64, now_ns: u64) {
        (self.done)(i, departure_ns);
        let worker = &mut self.workers[w];
        worker.phase = Phase::After(i);
        worker.left_ns = self.requests[i].after_ns;
        if worker.left_ns == 0 {
            self.next(w, now_ns);
        } else {
            self.proceed(w, now_ns);
        }
    }

    /// Worker `w` looks for another request.
    fn next(&mut self, w: usize, now_ns: u64) {
        let place = self.workers[w].cpu;
        self.workers[w].phase = Phase::Between;
        match self.queue(w).peek().copied() {
            None => self.falls_asleep(w),
            Some(Reverse((_, i))) => {
                self.workers[w].state = State::Runnable;
                if !self.is_shared() {
                    // it moves to the CPU on which it served that request
                    self.workers[w].cpu = self.place(i as usize);
                }
                // with `Order::ByWorker` it keeps its turn, and continues
                self.queue_up(w);
                let home = self.workers[w].cpu;
                if home != place && self.cpus[home].running.is_none() {
                    self.dispatch(home, now_ns);
                }
            }
        }
        self.dispatch(place, now_ns);
    }

    /// The work for request `i` until the worker sleeps in it, or until the response.
    fn first_ns(&self, i: usize) -> u64 {
        let job = &self.requests[i];
        let all = job.before_ns(self.change);
        if self.blocked_ns(i) == 0 || job.is_sent_late() {
            all
        } else {
            all.min(job.first_ns)
        }
    }

    fn blocked_ns(&self, i: usize) -> u64 {
        self.requests[i].blocked_ns(self.change)
    }
}
