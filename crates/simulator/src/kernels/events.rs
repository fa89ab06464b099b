//! The general event loop: every non-preemptive discipline. It is slower than the special kernels, but simple;
//! they are tested against it.

use std::collections::VecDeque;

use super::kernel::Finished;
use super::per_lane::LaneQueue;
use super::shortest_queue::{shortest, stretch};
use taillab_queueing::discipline::Discipline;
use taillab_queueing::random::law::index_below;

/// The specification of the queue for the event loop.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) discipline: Discipline,
    pub(crate) workers: usize,
    /// The worker of each connection.
    pub(crate) connections: Vec<u32>,
    /// The n-th service that starts takes the n-th service time, as in the matching kernel. Otherwise, a
    /// service time belongs to its request.
    pub(crate) services_by_start: bool,
}

/// A served request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Served {
    pub(crate) arrival: f64,
    pub(crate) start: f64,
    pub(crate) departure: f64,
}

pub(crate) struct EventQueue {
    rules: Rules,
    workers: Vec<Worker>,
    /// Requests in the shared queue.
    waiting: VecDeque<Request>,
    /// The number of requests in the workers' own queues that may still be stolen.
    stealable: usize,
    /// The random choices of the next services that start, and their service times by start.
    choices: VecDeque<u64>,
    services: VecDeque<f64>,
    now: f64,
    arrived: u64,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    arrival: f64,
    service: f64,
}

struct Worker {
    free_at: f64,
    /// For disciplines with a queue per worker: when the requests in it depart.
    departures: VecDeque<f64>,
    /// For work stealing: the worker's own waiting requests.
    queue: VecDeque<Request>,
}

impl EventQueue {
    pub(crate) fn new(rules: &Rules) -> Self {
        let workers = (0..rules.workers)
            .map(|_| Worker {
                free_at: 0.0,
                departures: VecDeque::new(),
                queue: VecDeque::new(),
            })
            .collect();
        Self {
            rules: rules.clone(),
            workers,
            waiting: VecDeque::new(),
            stealable: 0,
            choices: VecDeque::new(),
            services: VecDeque::new(),
            now: 0.0,
            arrived: 0,
        }
    }

    /// Simulates everything up to an arrival, and the arrival.
    pub(crate) fn request(
        &mut self,
        at: f64,
        service: f64,
        choice: u64,
        served: &mut impl FnMut(Served),
    ) {
        self.start_until(at, served);
        self.now = at;
        let request = Request {
            arrival: at,
            service,
        };
        self.arrived += 1;
        if let Some(k) = self.own_worker(at, choice) {
            served(self.serve(k, request, at));
            return;
        }
        self.choices.push_back(choice);
        self.services.push_back(service);
        if let Discipline::WorkStealing { .. } = self.rules.discipline {
            let k = index_below(choice, self.workers.len() as u64) as usize;
            self.workers[k].queue.push_back(request);
            self.stealable += 1;
        } else {
            self.waiting.push_back(request);
        }
        self.start_until(at, served);
    }

    /// The worker whose queue an arrival joins at once, for disciplines with a queue per worker.
    fn own_worker(&mut self, at: f64, choice: u64) -> Option<usize> {
        let n = self.workers.len();
        match self.rules.discipline {
            Discipline::RandomWorker => Some(index_below(choice, n as u64) as usize),
            Discipline::RoundRobin => Some(((self.arrived - 1) % n as u64) as usize),
            Discipline::Static { .. } => {
                let connections = &self.rules.connections;
                Some(connections[index_below(choice, connections.len() as u64) as usize] as usize)
            }
            Discipline::PowerOfD { d } if (d as usize) < n => {
                let mut left: Vec<usize> = (0..n).collect();
                let mut drawn = Vec::new();
                let mut bits = choice;
                for _ in 0..d {
                    drawn.push(left.remove(index_below(bits, left.len() as u64) as usize));
                    bits = stretch(bits);
                }
                drawn.sort_unstable();
                let lengths: Vec<_> = drawn.iter().map(|k| self.workers[*k].present(at)).collect();
                Some(drawn[shortest(lengths.into_iter(), bits)])
            }
            Discipline::JoinShortestQueue | Discipline::PowerOfD { .. } => Some(shortest(
                self.workers.iter_mut().map(|w| w.present(at)),
                choice,
            )),
            _ => None,
        }
    }

    /// Starts all services that can start until `until`.
    fn start_until(&mut self, until: f64, served: &mut impl FnMut(Served)) {
        while !self.waiting.is_empty() || self.stealable > 0 {
            // the worker that can take a request first; of equals, the one that has been idle longest
            let mut first = (f64::INFINITY, f64::INFINITY, 0);
            for (k, worker) in self.workers.iter().enumerate() {
                let ready = worker.free_at.max(self.now);
                if (ready, worker.free_at) < (first.0, first.1) {
                    first = (ready, worker.free_at, k);
                }
            }
            let (start, _, k) = first;
            if start > until {
                return;
            }
            self.now = start;
            let choice = self.choices.pop_front().unwrap_or(0);
            let by_start = self.services.pop_front();
            let Some(mut request) = self.pick(k, choice) else {
                return;
            };
            if self.rules.services_by_start {
                request.service = by_start.unwrap_or(request.service);
            }
            served(self.serve(k, request, start));
        }
    }

    /// The waiting request that worker `k` takes.
    fn pick(&mut self, k: usize, choice: u64) -> Option<Request> {
        match self.rules.discipline {
            Discipline::Lifo => self.waiting.pop_back(),
            Discipline::RandomRequest => {
                let i = index_below(choice, self.waiting.len() as u64);
                self.waiting.swap_remove_back(i as usize)
            }
            Discipline::WorkStealing { cost } => {
                self.stealable -= 1;
                if let Some(own) = self.workers[k].queue.pop_front() {
                    return Some(own);
                }
                let n = self.workers.len();
                // the lower half of the bits; the upper half has chosen the queue
                let from = index_below(choice << 32, n as u64) as usize;
                let victim = (from..from + n)
                    .map(|v| v % n)
                    .find(|v| !self.workers[*v].queue.is_empty())?;
                let mut stolen = self.workers[victim].queue.pop_front()?;
                stolen.service += cost.get() as f64;
                Some(stolen)
            }
            _ => self.waiting.pop_front(),
        }
    }

    /// Serves `request` on worker `k`, not before `from`.
    fn serve(&mut self, k: usize, request: Request, from: f64) -> Served {
        let worker = &mut self.workers[k];
        let start = worker.free_at.max(from);
        let departure = start + request.service;
        worker.free_at = departure;
        worker.departures.push_back(departure);
        worker.forget_departed(request.arrival);
        Served {
            arrival: request.arrival,
            start,
            departure,
        }
    }

    /// Serves all remaining requests.
    pub(crate) fn serve_rest(&mut self, served: &mut impl FnMut(Served)) {
        self.start_until(f64::MAX, served);
    }
}

impl Worker {
    fn forget_departed(&mut self, at: f64) {
        while self.departures.front().is_some_and(|d| *d <= at) {
            self.departures.pop_front();
        }
    }

    fn present(&mut self, at: f64) -> usize {
        self.forget_departed(at);
        self.departures.len()
    }
}

impl LaneQueue for EventQueue {
    const NAME: &'static str = "event loop";

    fn arrive(&mut self, at: f64, service: f64, choice: u64, out: &mut Finished) {
        self.request(at, service, choice, &mut |s| {
            out.push(s.start - s.arrival, s.departure - s.start);
        });
    }

    fn drain(&mut self, out: &mut Finished) {
        self.serve_rest(&mut |s| out.push(s.start - s.arrival, s.departure - s.start));
    }

    fn rebase(&mut self, by: f64) {
        self.now -= by;
        for request in &mut self.waiting {
            request.arrival -= by;
        }
        for worker in &mut self.workers {
            worker.free_at -= by;
            for departure in &mut worker.departures {
                *departure -= by;
            }
            for request in &mut worker.queue {
                request.arrival -= by;
            }
        }
    }
}
