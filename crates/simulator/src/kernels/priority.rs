//! Two classes on the same workers; one preempts the other, which resumes later.

use std::collections::VecDeque;

use super::kernel::Finished;
use super::per_lane::LaneQueue;
use taillab_queueing::discipline::Class;
use taillab_queueing::grid::Grid;
use taillab_queueing::isa::Isa;
use taillab_queueing::random::lanes::{LaneRng, Purpose};
use taillab_queueing::random::law::{Law, Sampler};
use taillab_queueing::service::Service;

pub(super) struct Priority {
    first: Class,
    workers: Vec<Option<Running>>,
    /// Waiting jobs of the class that is served first.
    favoured: VecDeque<Job>,
    /// Waiting jobs of the other class.
    others: VecDeque<Job>,
    background: Background,
}

#[derive(Clone, Copy)]
struct Job {
    class: Class,
    arrival: f64,
    service: f64,
    left: f64,
}

#[derive(Clone, Copy)]
struct Running {
    job: Job,
    ends: f64,
}

/// Poisson arrivals of background work.
pub(super) struct Background {
    gaps: Sampler<1>,
    services: Sampler<1>,
    block: Vec<(f64, f64)>,
    next_at: f64,
}

impl Background {
    pub(super) fn new(
        mean_gap_ns: f64,
        service: &Service,
        grid: Grid,
        seed: u64,
        replication: u64,
    ) -> Self {
        let rng = |purpose| LaneRng::new(seed, purpose, replication);
        let gaps = Law::Exponential {
            mean_ns: mean_gap_ns,
        };
        let mut background = Self {
            gaps: Sampler::new(gaps, rng(Purpose::Background), grid.rounder()),
            services: Sampler::new(
                service.law(),
                rng(Purpose::BackgroundService),
                grid.rounder(),
            ),
            block: Vec::new(),
            next_at: 0.0,
        };
        background.next_at = background.peek().0;
        background
    }

    /// The gap before the next job, and its service time.
    fn peek(&mut self) -> (f64, f64) {
        if self.block.is_empty() {
            let (mut gaps, mut services) = ([[0.0]; 64], [[0.0]; 64]);
            self.gaps.fill(Isa::BASELINE, &mut gaps);
            self.services.fill(Isa::BASELINE, &mut services);
            let pairs = gaps.iter().zip(&services).rev();
            self.block
                .extend(pairs.map(|(gap, service)| (gap[0], service[0])));
        }
        self.block.last().copied().unwrap_or((f64::INFINITY, 0.0))
    }

    /// Takes the next job.
    fn take(&mut self) -> Job {
        let (_, service) = self.peek();
        let arrival = self.next_at;
        self.block.pop();
        self.next_at += self.peek().0;
        Job {
            class: Class::Background,
            arrival,
            service,
            left: service,
        }
    }
}

impl Priority {
    pub(super) fn new(workers: usize, first: Class, background: Background) -> Self {
        Self {
            first,
            workers: vec![None; workers],
            favoured: VecDeque::new(),
            others: VecDeque::new(),
            background,
        }
    }

    fn admit(&mut self, job: Job, now: f64) {
        let run = Some(Running {
            job,
            ends: now + job.left,
        });
        if let Some(idle) = self.workers.iter_mut().find(|w| w.is_none()) {
            *idle = run;
        } else if job.class != self.first {
            self.others.push_back(job);
        } else {
            // the latest arrival among the running jobs of the other class is preempted
            let first = self.first;
            let victim = self
                .workers
                .iter_mut()
                .filter(|w| w.is_some_and(|r| r.job.class != first))
                .max_by(|a, b| {
                    let arrival =
                        |w: &Option<Running>| w.map_or(f64::NEG_INFINITY, |r| r.job.arrival);
                    arrival(a).total_cmp(&arrival(b))
                });
            match victim {
                Some(worker) => {
                    if let Some(Running { mut job, ends }) = std::mem::replace(worker, run) {
                        job.left = ends - now;
                        let place = self.others.partition_point(|o| o.arrival <= job.arrival);
                        self.others.insert(place, job);
                    }
                }
                None => self.favoured.push_back(job),
            }
        }
    }

    /// The worker whose job ends next.
    fn next_end(&self) -> Option<(usize, Running)> {
        let running = self.workers.iter().enumerate();
        running
            .filter_map(|(k, w)| w.map(|r| (k, r)))
            .min_by(|a, b| a.1.ends.total_cmp(&b.1.ends))
    }

    fn run_until(&mut self, until: f64, with_background: bool, out: &mut Finished) {
        loop {
            let end = self.next_end().filter(|(_, r)| r.ends <= until);
            let arrives = with_background && self.background.next_at <= until;
            match end {
                Some((k, Running { job, ends })) if !arrives || ends <= self.background.next_at => {
                    if job.class == Class::Requests {
                        out.push((ends - job.arrival - job.service).max(0.0), job.service);
                    }
                    let next = self
                        .favoured
                        .pop_front()
                        .or_else(|| self.others.pop_front());
                    self.workers[k] = next.map(|job| Running {
                        job,
                        ends: ends + job.left,
                    });
                }
                _ if arrives => {
                    let job = self.background.take();
                    self.admit(job, job.arrival);
                }
                _ => return,
            }
        }
    }
}

impl LaneQueue for Priority {
    const NAME: &'static str = "event loop with preemption";

    fn arrive(&mut self, at: f64, service: f64, _choice: u64, out: &mut Finished) {
        self.run_until(at, true, out);
        let job = Job {
            class: Class::Requests,
            arrival: at,
            service,
            left: service,
        };
        self.admit(job, at);
    }

    fn drain(&mut self, out: &mut Finished) {
        // without new background jobs, since there is no end of them
        self.run_until(f64::INFINITY, false, out);
    }

    fn rebase(&mut self, by: f64) {
        for running in self.workers.iter_mut().flatten() {
            running.ends -= by;
            running.job.arrival -= by;
        }
        for job in self.favoured.iter_mut().chain(&mut self.others) {
            job.arrival -= by;
        }
        self.background.next_at -= by;
    }
}
