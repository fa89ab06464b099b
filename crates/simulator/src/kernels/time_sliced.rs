//! Time-sliced processor sharing: one run queue, a quantum, a cost of switching.

use std::collections::VecDeque;

use super::kernel::Finished;
use super::per_lane::LaneQueue;

pub(super) struct TimeSliced {
    quantum: f64,
    switch: f64,
    workers: Vec<Option<Slice>>,
    ready: VecDeque<Job>,
}

#[derive(Clone, Copy)]
struct Job {
    arrival: f64,
    service: f64,
    left: f64,
}

/// What a worker is doing.
#[derive(Clone, Copy)]
struct Slice {
    job: Job,
    ends: f64,
}

impl TimeSliced {
    pub(super) fn new(workers: usize, quantum: f64, switch: f64) -> Self {
        Self {
            quantum,
            switch,
            workers: vec![None; workers],
            ready: VecDeque::new(),
        }
    }

    /// The next slice of `job`; its time is charged in advance.
    fn slice(&self, mut job: Job, from: f64) -> Slice {
        let run = job.left.min(self.quantum);
        job.left -= run;
        Slice {
            job,
            ends: from + run,
        }
    }

    fn run_until(&mut self, until: f64, out: &mut Finished) {
        loop {
            let mut next: Option<(usize, Slice)> = None;
            for (k, slice) in self.workers.iter().enumerate() {
                if let Some(slice) = slice
                    && next.is_none_or(|(_, n)| slice.ends < n.ends)
                {
                    next = Some((k, *slice));
                }
            }
            let Some((k, slice)) = next.filter(|(_, slice)| slice.ends <= until) else {
                return;
            };
            let (job, now) = (slice.job, slice.ends);
            let finished = job.left <= 0.0;
            if finished {
                out.push((now - job.arrival - job.service).max(0.0), job.service);
            }
            self.workers[k] = match self.ready.pop_front() {
                Some(next) => {
                    if !finished {
                        self.ready.push_back(job);
                    }
                    // only a direct change from one request to another costs time
                    Some(self.slice(next, now + self.switch))
                }
                None if finished => None,
                None => Some(self.slice(job, now)),
            };
        }
    }
}

impl LaneQueue for TimeSliced {
    const NAME: &'static str = "event loop by time slices";

    fn arrive(&mut self, at: f64, service: f64, _choice: u64, out: &mut Finished) {
        self.run_until(at, out);
        let job = Job {
            arrival: at,
            service,
            left: service,
        };
        match self.workers.iter().position(Option::is_none) {
            Some(idle) => self.workers[idle] = Some(self.slice(job, at)),
            None => self.ready.push_back(job),
        }
    }

    fn drain(&mut self, out: &mut Finished) {
        self.run_until(f64::INFINITY, out);
    }

    fn rebase(&mut self, by: f64) {
        for slice in self.workers.iter_mut().flatten() {
            slice.ends -= by;
            slice.job.arrival -= by;
        }
        for job in &mut self.ready {
            job.arrival -= by;
        }
    }
}
