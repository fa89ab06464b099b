//! Fan-out to parts that share their arrivals.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_experiment::simulation::{Gauge, watched};
use taillab_host::Interrupt;
use taillab_model::Distribution;
use taillab_queueing::random::lanes::GOLDEN;
use taillab_simulator::fork_join::{ForkJoin, warm_up_requests};
use taillab_simulator::histogram::Histogram;
use taillab_simulator::sample::Sample;
use taillab_simulator::simulation::{Simulation, Stop};

/// Independent batches, from which the intervals come.
const BATCHES: u64 = 32;
/// The most requests of all parts together, which take some seconds.
const MOST_PARTS: u64 = 2_000_000_000;
/// Requests between two looks at the interrupt.
const STRIDE: u64 = 4_096;

/// The sojourn of the last of `parts`, each a station of one worker in arrival order at the
/// simulation's utilisation; `None` when interrupted before there was anything.
pub fn simulate(
    simulation: &Simulation,
    parts: NonZeroU32,
    quiet: bool,
    interrupt: &Interrupt,
) -> Result<Option<Distribution>, Failure> {
    let wanted = match simulation.stop {
        Stop::Requests(n) => n,
        Stop::Precision { at_most, .. } => at_most,
    };
    let requests = wanted.min(MOST_PARTS / u64::from(parts.get())).max(BATCHES);
    let each = requests.div_ceil(BATCHES);
    let threads = simulation
        .threads
        .or_else(|| thread::available_parallelism().ok())
        .map_or(1, |n| n.get() as u64)
        .min(BATCHES);
    // refuse before the threads start
    station(simulation, parts, 0)?;
    let gauge = Gauge::default();
    let done = AtomicU64::new(0);
    let batch = |number: u64| -> Result<Histogram, Failure> {
        let mut histogram = Histogram::default();
        let mut series = station(simulation, parts, number)?;
        for _ in 0..warm_up_requests(simulation.utilization) {
            series.next_sojourn_ns();
        }
        let mut left = each;
        while left > 0 && !interrupt.is_raised() {
            let n = left.min(STRIDE);
            for _ in 0..n {
                histogram.record(series.next_sojourn_ns());
            }
            left -= n;
            let done = done.fetch_add(n, Ordering::Relaxed) + n;
            gauge.set(done, each * BATCHES);
        }
        Ok(histogram)
    };
    let batches = watched("fork-join", quiet, &gauge, || {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let mine = (0..BATCHES).filter(move |number| number % threads == thread);
                    scope.spawn(|| mine.map(|number| Ok((number, batch(number)?))).collect())
                })
                .collect();
            let mut all: Vec<(u64, Histogram)> = Vec::new();
            for worker in workers {
                let result: Result<Vec<_>, Failure> = match worker.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                all.extend(result?);
            }
            // in the order of their numbers: threads do not show in the result
            all.sort_by_key(|(number, _)| *number);
            Ok::<_, Failure>(all)
        })
    })?;
    let batches = batches.into_iter().map(|(_, batch)| batch);
    let sample = Sample::new(batches.collect(), simulation.clustering());
    Ok((sample.pooled().count() > 0).then(|| sample.distribution()))
}

fn station(simulation: &Simulation, parts: NonZeroU32, batch: u64) -> Result<ForkJoin, Failure> {
    // an odd constant spreads the batches' seeds
    let seed = simulation.seed.wrapping_add(batch.wrapping_mul(GOLDEN));
    ForkJoin::new(
        &simulation.arrivals,
        &simulation.service,
        parts.get(),
        simulation.utilization,
        seed,
    )
    .or_exit(Exit::Usage)
}
