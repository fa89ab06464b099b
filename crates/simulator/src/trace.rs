//! A simulated queue with recorded arrivals.
//!
//! A trace is given part by part, so that one that is larger than memory can be read twice: once for its
//! [`TraceSummary`], and once to run it.

use std::num::NonZeroU32;
use std::time::Instant;

use taillab_model::Nanos;

use crate::error::{SimulationError, TraceError};
use crate::kernels::{Block, Finished, Kernel};
use crate::lane_job::{RecordedLane, Recorder};
use crate::run::{Engine, Outcome, Stopped};
use crate::sample::Sample;
use crate::simulation::{WarmUpLength, clustering_of_trace};
use crate::station::Station;
use taillab_queueing::discipline::Discipline;
use taillab_queueing::grid::Grid;
use taillab_queueing::isa::{Isa, multiversion};
use taillab_queueing::random::lanes::{LaneRng, Purpose};
use taillab_queueing::random::law::Sampler;
use taillab_queueing::service::Service;

/// What must be known about a trace before it can be scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// The number of time stamps.
    pub count: u64,
    /// The first time stamp.
    pub first: Nanos,
    /// The last time stamp.
    pub last: Nanos,
}

impl TraceSummary {
    /// Takes the next part of the trace.
    ///
    /// # Errors
    /// [`TraceError::Unsorted`] names the first time stamp that is out of order.
    pub fn extend(&mut self, part: &[Nanos]) -> Result<(), TraceError> {
        let (Some(&first), Some(&last)) = (part.first(), part.last()) else {
            return Ok(());
        };
        if self.count == 0 {
            self.first = first;
            self.last = first;
        }
        check_order(Isa::detect(), self.count, self.last, part)?;
        self.count += part.len() as u64;
        self.last = last;
        Ok(())
    }

    /// The mean gap.
    ///
    /// # Errors
    /// [`TraceError`] if the trace has no rate.
    pub fn mean_gap_ns(&self) -> Result<f64, TraceError> {
        match self.count {
            0 => Err(TraceError::Empty),
            n if self.last <= self.first => Err(TraceError::NoDuration(n)),
            n => Ok((self.last - self.first).get() as f64 / (n - 1) as f64),
        }
    }
}

fn check_order(isa: Isa, before: u64, previous: Nanos, part: &[Nanos]) -> Result<(), TraceError> {
    if part.first().is_none_or(|t| *t >= previous) && never_decreases(isa, part) {
        return Ok(());
    }
    let mut earlier = previous;
    for (i, &later) in part.iter().enumerate() {
        if later < earlier {
            return Err(TraceError::Unsorted {
                position: before + i as u64 + 1,
                earlier: earlier.get(),
                later: later.get(),
            });
        }
        earlier = later;
    }
    Ok(())
}

/// How fast a trace is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceSpeed {
    /// With the recorded gaps.
    AsRecorded,
    /// With all gaps multiplied by the same factor, for this utilisation.
    Utilization(f64),
}

/// A queue with recorded arrivals. It starts empty, and no requests are discarded.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSimulation {
    /// The service times.
    pub service: Service,
    /// The number of workers.
    pub workers: NonZeroU32,
    /// The discipline.
    pub discipline: Discipline,
    /// How fast the trace is played.
    pub speed: TraceSpeed,
    /// Allows an overload: the queue of a finite trace then grows until its end.
    pub allow_overload: bool,
    /// The seed of service times and choices.
    pub seed: u64,
}

/// The number of batches: successive parts of the trace, long enough to be nearly independent.
const BATCHES: u64 = 32;
/// The number of requests in a block.
const BLOCK: u64 = 512;

/// The end of the `n`-th batch of a trace.
fn batch_end(n: u64, count: u64) -> u64 {
    (u128::from(n) * u128::from(count) / u128::from(BATCHES)) as u64
}

impl TraceSimulation {
    /// FIFO, with the recorded gaps and the usual settings.
    pub fn new(service: Service, workers: NonZeroU32) -> Self {
        Self {
            service,
            workers,
            discipline: Discipline::Fifo,
            speed: TraceSpeed::AsRecorded,
            allow_overload: false,
            seed: 1,
        }
    }

    fn station(&self) -> Station<'_> {
        Station {
            service: &self.service,
            workers: self.workers,
            discipline: &self.discipline,
            seed: self.seed,
        }
    }

    /// Runs a trace that is in memory.
    ///
    /// # Errors
    /// [`SimulationError`] if the specification or the trace is invalid.
    pub fn run(&self, trace: &[Nanos]) -> Result<Outcome, SimulationError> {
        // the order is checked later; this is only for the rate
        let mut summary = TraceSummary::default();
        if let (Some(first), Some(last)) = (trace.first(), trace.last()) {
            summary = TraceSummary {
                count: trace.len() as u64,
                first: *first,
                last: *last,
            };
        }
        let mut run = self.start(&summary).or_else(|error| {
            // a trace out of order can look like one that is too fast; report the real error
            check_order(Isa::detect(), 0, summary.first, trace)?;
            Err(error)
        })?;
        run.push(trace)?;
        run.finish()
    }

    /// Starts a run that gets the trace part by part.
    ///
    /// # Errors
    /// [`SimulationError`] if the specification or the trace is invalid.
    pub fn start(&self, summary: &TraceSummary) -> Result<TraceRun, SimulationError> {
        let station = self.station();
        station.check()?;
        let recorded_gap_ns = summary.mean_gap_ns()?;
        let busy_ns = self.service.mean_ns() / station.capacity();
        let (utilization, scale) = match self.speed {
            TraceSpeed::AsRecorded => (busy_ns / recorded_gap_ns, 1.0),
            TraceSpeed::Utilization(u) if u > 0.0 && u.is_finite() => {
                (u, busy_ns / u / recorded_gap_ns)
            }
            TraceSpeed::Utilization(u) => return Err(SimulationError::Utilization(u)),
        };
        if !self.allow_overload {
            station.check_load(utilization)?;
        }
        let grid = Grid::for_mean_gap(recorded_gap_ns * scale);
        let rng = LaneRng::<1>::new(self.seed, Purpose::Service, 0);
        let mut services = Sampler::new(self.service.law(), rng, grid.rounder());
        let block = (summary.count / BATCHES).clamp(1, BLOCK) as usize;
        let isa = Isa::detect();
        let mut service_block = vec![[0.0]; block];
        services.fill(isa, &mut service_block);
        let constant = self.service.constant().map(|s| s.get() as f64);
        Ok(TraceRun {
            kernel: station.kernel(grid, 0),
            recorder: Recorder::new(constant.filter(|_| station.keeps_service_times())),
            services: constant.is_none().then_some(services),
            service_block,
            arrival_block: vec![[0.0]; block],
            finished: Finished::default(),
            batches: Vec::new(),
            batch_end: batch_end(1, summary.count),
            utilization,
            clustering: clustering_of_trace(station.load(utilization), &self.service),
            overloaded: station.overloaded(utilization, 1),
            scale,
            rounder: grid.rounder(),
            horizon_ns: grid.horizon_ns(),
            origin_ns: 0.0,
            summary: *summary,
            seen: TraceSummary::default(),
            isa,
            started: Instant::now(),
        })
    }
}

/// A trace that is being run.
pub struct TraceRun {
    kernel: Box<dyn Kernel<1>>,
    recorder: Recorder,
    /// `None` if all service times are equal; the block then has them.
    services: Option<Sampler<1>>,
    service_block: Vec<[f64; 1]>,
    arrival_block: Vec<[f64; 1]>,
    finished: Finished,
    batches: Vec<RecordedLane>,
    /// The end of the current batch.
    batch_end: u64,
    utilization: f64,
    /// How strongly slow requests come together.
    clustering: f64,
    /// 1 if the random assignment of connections overloads some worker, otherwise 0.
    overloaded: u64,
    scale: f64,
    rounder: f64,
    horizon_ns: f64,
    origin_ns: f64,
    summary: TraceSummary,
    seen: TraceSummary,
    isa: Isa,
    started: Instant,
}

impl TraceRun {
    /// Takes the next part of the trace.
    ///
    /// # Errors
    /// [`TraceError::Unsorted`] names the first time stamp that is out of order.
    pub fn push(&mut self, part: &[Nanos]) -> Result<(), TraceError> {
        let mut previous = if self.seen.count == 0 {
            self.summary.first
        } else {
            self.seen.last
        };
        let length = self.arrival_block.len();
        for (i, block) in part.chunks(length).enumerate() {
            // The processor prefetches only within a page. So the block after next is requested here,
            // in as many parts as the processor can have requests outstanding.
            let ahead = part.get((i + 2) * length..).unwrap_or_default();
            let ahead = &ahead[..ahead.len().min(length)];
            let mut parts = ahead.chunks(length.div_ceil(4));
            prefetch(parts.next());
            check_order(self.isa, self.seen.count, previous, block)?;
            previous = block.last().copied().unwrap_or(previous);
            self.push_block(block, parts);
        }
        self.seen.last = previous;
        Ok(())
    }

    /// Takes a block that is in order; `ahead` will be needed soon.
    fn push_block<'a>(&mut self, block: &[Nanos], mut ahead: impl Iterator<Item = &'a [Nanos]>) {
        let n = block.len();
        let arrivals = &mut self.arrival_block[..n];
        let first = self.summary.first.get();
        scaled(
            self.isa,
            block,
            first,
            self.scale,
            self.rounder,
            self.origin_ns,
            arrivals.as_flattened_mut(),
        );
        prefetch(ahead.next());
        if let Some(services) = &mut self.services {
            services.fill(self.isa, &mut self.service_block[..n]);
        }
        let services = &self.service_block[..n];
        self.finished.clear();
        let block = Block {
            isa: self.isa,
            arrivals,
            services,
        };
        self.kernel.advance(block, &mut self.finished);
        prefetch(ahead.next());
        let of_block = self.kernel.in_order().then_some(services.as_flattened());
        self.recorder.record(self.isa, &self.finished, of_block);
        prefetch(ahead.next());
        let last = arrivals.last().map_or(0.0, |row| row[0]);
        if last > self.horizon_ns {
            self.kernel.rebase(&[last]);
            self.origin_ns += last;
        }
        self.seen.count += n as u64;
        if self.seen.count >= self.batch_end && self.seen.count < self.summary.count {
            self.batches.push(self.recorder.take());
            let done = self.batches.len() as u64 + 1;
            self.batch_end = batch_end(done, self.summary.count);
        }
    }

    /// Serves the requests that still wait, and returns the result.
    ///
    /// # Errors
    /// [`TraceError::Changed`] if the number of time stamps differs from the summary.
    pub fn finish(mut self) -> Result<Outcome, SimulationError> {
        if self.seen.count != self.summary.count {
            return Err(SimulationError::Trace(TraceError::Changed {
                expected: self.summary.count,
                found: self.seen.count,
            }));
        }
        self.finished.clear();
        self.kernel.finish(&mut self.finished);
        if !self.kernel.in_order() {
            self.recorder.record(self.isa, &self.finished, None);
        }
        self.batches.push(self.recorder.take());
        let sample = |of: fn(&RecordedLane) -> &crate::histogram::Histogram| {
            let batches = self.batches.iter().map(|r| of(r).clone());
            Sample::new(batches.collect(), self.clustering)
        };
        Ok(Outcome {
            sojourn: sample(|r| &r.sojourn),
            wait: sample(|r| &r.wait),
            utilization: self.utilization,
            warm_up: WarmUpLength {
                requests: 0,
                capped: false,
            },
            replications: 1,
            overloaded_replications: self.overloaded,
            stopped: Stopped::Finished,
            engine: Engine {
                kernel: self.kernel.name(),
                isa: self.isa,
                threads: 1,
                simulated: self.seen.count,
                elapsed: self.started.elapsed(),
            },
        })
    }
}

/// Prefetches these time stamps into the cache.
fn prefetch(stamps: Option<&[Nanos]>) {
    #[cfg(target_arch = "x86_64")]
    for line in stamps.unwrap_or_default().chunks(8) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has this instruction, and it affects only the cache.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = stamps;
}

multiversion! {
    /// Like `is_sorted`, but without a branch for each time stamp.
    fn never_decreases(stamps: &[Nanos]) -> bool {
        let later = stamps.get(1..).unwrap_or_default();
        let falls = |(a, b): (&Nanos, &Nanos)| u64::from(a > b);
        stamps.iter().zip(later).map(falls).fold(0, |all, one| all | one) == 0
    }

    /// Converts time stamps to scaled times since the first, on the grid, relative to a moving origin.
    fn scaled(
        stamps: &[Nanos],
        first_ns: u64,
        scale: f64,
        rounder: f64,
        origin_ns: f64,
        out: &mut [f64],
    ) {
        for (x, t) in out.iter_mut().zip(stamps) {
            let at = (t.get() - first_ns) as f64 * scale;
            *x = ((at + rounder) - rounder) - origin_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_that_overloads_a_worker_is_noted() {
        let trace: Vec<Nanos> = (1..=1_000).map(Nanos::from_micros).collect();
        let service = Service::deterministic(Nanos::from_micros(50));
        let mut simulation = TraceSimulation::new(service, NonZeroU32::new(2).unwrap());
        simulation.speed = TraceSpeed::Utilization(0.8);
        // one connection, so one of the two workers gets everything
        for (discipline, overloaded) in [("fifo", 0), ("static:1,random", 1)] {
            simulation.discipline = discipline.parse().unwrap();
            let outcome = simulation.run(&trace).unwrap();
            assert_eq!(outcome.overloaded_replications, overloaded, "{discipline}");
        }
    }
}
