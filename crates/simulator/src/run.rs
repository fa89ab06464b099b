//! Runs a simulation: distributes jobs over threads, collects batches, and decides when to stop.
//!
//! A job is one kernel with eight replications. The seeds of a job depend only on its number, and results are
//! merged in the order of these numbers, so that the number of threads does not influence the result.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::error::SimulationError;
use crate::kernels::LANES;
use crate::lane_job::{self, Length, RecordedLane, Recorder, Source};
use crate::sample::Sample;
use crate::simulation::{Simulation, Stop, WarmUpLength};
use taillab_queueing::grid::Grid;
use taillab_queueing::isa::Isa;
use taillab_queueing::random::lanes::{LaneRng, Purpose};
use taillab_queueing::random::law::{Law, Sampler};

/// The longest job, in requests of each replication: long enough that the warm-up is cheap, and short enough
/// that threads share the work evenly.
const LONGEST_JOB: u64 = 4_000_000;
/// The first round of a run to a precision, in requests.
const FIRST_ROUND: u64 = 4_000_000;

/// The result of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From arrival to departure.
    pub sojourn: Sample,
    /// From arrival to the start of service; with processor sharing, time slices or preemption, all time
    /// beyond the service time itself.
    pub wait: Sample,
    /// Arrival rate · mean service time ÷ capacity.
    pub utilization: f64,
    /// The requests discarded at the start of each replication.
    pub warm_up: WarmUpLength,
    /// The number of independent replications.
    pub replications: u64,
    /// The number of replications whose random assignment of connections overloads some worker, so that
    /// their waits grow with the length of the run.
    pub overloaded_replications: u64,
    /// Why the simulation stopped.
    pub stopped: Stopped,
    /// How the result was calculated.
    pub engine: Engine,
}

/// Why a simulation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All requests were simulated.
    Finished,
    /// The quantile has the wanted precision.
    Precise,
    /// The maximum number of requests was reached before the precision.
    Limit,
    /// The caller stopped it early.
    Interrupted,
}

/// How a result was calculated.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The vector instructions.
    pub isa: Isa,
    /// The number of threads.
    pub threads: usize,
    /// The number of requests simulated, including the discarded ones.
    pub simulated: u64,
    /// How long it took. Only this differs from run to run.
    pub elapsed: Duration,
}

impl Engine {
    /// Requests simulated per second of real time, including the discarded ones.
    pub fn requests_per_second(&self) -> f64 {
        self.simulated as f64 / self.elapsed.as_secs_f64()
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Requests simulated so far, including the discarded ones.
    pub done: u64,
    /// Requests to be simulated, as far as is known; a run to a precision may add more.
    pub total: u64,
}

/// What the jobs of a run share.
struct Jobs<'a> {
    simulation: &'a Simulation,
    gap_law: Law,
    grid: Grid,
    isa: Isa,
    warm_up: u64,
    done: AtomicU64,
    total: AtomicU64,
    stop: AtomicBool,
    observer: &'a (dyn Fn(Progress) -> ControlFlow<()> + Sync),
}

impl Jobs<'_> {
    /// Runs job `index`, with `rows` recorded requests in each of its replications.
    fn run(&self, index: u64, rows: u64) -> RecordedLane {
        let simulation = self.simulation;
        let station = simulation.station();
        let first = index * LANES as u64;
        let mut kernel = station.kernel::<LANES>(self.grid, first);
        let rng = |purpose| LaneRng::new(simulation.seed, purpose, first);
        let rounder = self.grid.rounder();
        let constant = simulation.service.constant();
        let mut source = Source::new(
            Sampler::new(self.gap_law.clone(), rng(Purpose::Arrivals), rounder),
            Sampler::new(simulation.service.law(), rng(Purpose::Service), rounder),
            constant.is_some(),
        );
        let constant = constant.filter(|_| station.keeps_service_times());
        let mut recorder = Recorder::new(constant.map(|s| s.get() as f64));
        let length = Length {
            warm_up: self.warm_up,
            recorded: rows,
        };
        lane_job::run(
            self.isa,
            kernel.as_mut(),
            &mut source,
            length,
            self.grid.horizon_ns(),
            &mut recorder,
            |rows| self.watch(rows * LANES as u64),
        );
        recorder.take()
    }

    fn watch(&self, requests: u64) -> ControlFlow<()> {
        let done = self.done.fetch_add(requests, Ordering::Relaxed) + requests;
        let total = self.total.load(Ordering::Relaxed);
        if (self.observer)(Progress { done, total }).is_break() {
            self.stop.store(true, Ordering::Relaxed);
        }
        if self.stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The results so far, by batch.
struct Batches {
    recorded: Vec<RecordedLane>,
    next_job: u64,
}

impl Batches {
    /// Simulates at least `requests` more requests, the same number in each batch.
    fn extend(&mut self, jobs: &Jobs, requests: u64, threads: usize) {
        let batches = self.recorded.len() as u64;
        let per_lane = requests.div_ceil(batches * LANES as u64);
        let parts = per_lane.div_ceil(LONGEST_JOB);
        let rows = per_lane.div_ceil(parts);
        let simulated = parts * batches * (rows + jobs.warm_up) * LANES as u64;
        jobs.total.fetch_add(simulated, Ordering::Relaxed);
        // Enough jobs at a time to keep all threads busy, and few enough to keep their results small. Their
        // number does not change the order of merging.
        let together = (2 * threads as u64).div_ceil(batches).max(1) * batches;
        let end = self.next_job + parts * batches;
        while self.next_job < end && !jobs.is_stopped() {
            let range = self.next_job..end.min(self.next_job + together);
            self.next_job = range.end;
            let results: Vec<RecordedLane> = if threads == 1 {
                range.clone().map(|j| jobs.run(j, rows)).collect()
            } else {
                range
                    .clone()
                    .into_par_iter()
                    .map(|j| jobs.run(j, rows))
                    .collect()
            };
            for (job, result) in range.zip(results) {
                self.recorded[(job % batches) as usize].merge(&result);
            }
        }
    }

    fn sojourn(&self, clustering: f64) -> Sample {
        let batches = self.recorded.iter().map(|r| r.sojourn.clone());
        Sample::new(batches.collect(), clustering)
    }

    fn wait(&self, clustering: f64) -> Sample {
        let batches = self.recorded.iter().map(|r| r.wait.clone());
        Sample::new(batches.collect(), clustering)
    }
}

impl Simulation {
    /// Runs the simulation.
    ///
    /// # Errors
    /// [`SimulationError`] if the specification is invalid.
    pub fn run(&self) -> Result<Outcome, SimulationError> {
        self.run_observed(&|_| ControlFlow::Continue(()))
    }

    /// Runs the simulation. Each thread reports its progress to `observer` some thousand times a second. If
    /// the observer breaks, the simulation ends with the result so far.
    ///
    /// # Errors
    /// [`SimulationError`] if the specification is invalid.
    pub fn run_observed(
        &self,
        observer: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
    ) -> Result<Outcome, SimulationError> {
        self.run_on(Isa::detect(), observer)
    }

    /// Runs the simulation with these vector instructions, which do not change the result.
    ///
    /// # Errors
    /// [`SimulationError`] if the specification is invalid.
    pub fn run_on(
        &self,
        isa: Isa,
        observer: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
    ) -> Result<Outcome, SimulationError> {
        self.check()?;
        let started = Instant::now();
        let threads = self.threads.map_or_else(
            || std::thread::available_parallelism().map_or(1, usize::from),
            usize::from,
        );
        let mean_gap_ns = self.mean_gap_ns();
        let warm_up = self.warm_up_requests();
        let jobs = Jobs {
            simulation: self,
            gap_law: self.arrivals.law(mean_gap_ns),
            grid: Grid::for_mean_gap(mean_gap_ns),
            isa,
            warm_up: warm_up.requests,
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            observer,
        };
        let mut batches = Batches {
            recorded: vec![RecordedLane::default(); self.batches as usize],
            next_job: 0,
        };
        let stopped = if threads == 1 {
            self.simulate(&jobs, &mut batches, 1)
        } else {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .map_err(|e| SimulationError::Threads {
                    threads,
                    reason: e.to_string(),
                })?;
            pool.install(|| self.simulate(&jobs, &mut batches, threads))
        };
        let replications = batches.next_job * LANES as u64;
        Ok(Outcome {
            sojourn: batches.sojourn(self.clustering()),
            wait: batches.wait(self.clustering()),
            utilization: self.utilization,
            warm_up,
            replications,
            overloaded_replications: self.station().overloaded(self.utilization, replications),
            stopped,
            engine: Engine {
                kernel: self.station().kernel::<LANES>(jobs.grid, 0).name(),
                isa,
                threads,
                simulated: jobs.done.into_inner(),
                elapsed: started.elapsed(),
            },
        })
    }

    fn simulate(&self, jobs: &Jobs, batches: &mut Batches, threads: usize) -> Stopped {
        let stopped = match self.stop {
            Stop::Requests(n) => {
                batches.extend(jobs, n, threads);
                Stopped::Finished
            }
            Stop::Precision { target, at_most } => {
                let mut requests = 0;
                let mut round = FIRST_ROUND.min(at_most);
                loop {
                    batches.extend(jobs, round, threads);
                    requests += round;
                    let reached = batches
                        .sojourn(self.clustering())
                        .quantile(target.quantile)
                        .is_some_and(|q| q.relative_half_width() <= target.relative);
                    if reached {
                        break Stopped::Precise;
                    }
                    if requests >= at_most || jobs.is_stopped() {
                        break Stopped::Limit;
                    }
                    // Grow by half, so that the overshoot is small. There are few rounds, so an interval
                    // that is narrow by chance is unlikely.
                    round = (requests / 2).max(1).min(at_most - requests);
                }
            }
        };
        if jobs.is_stopped() {
            Stopped::Interrupted
        } else {
            stopped
        }
    }
}
