//! Figures that are simulated by their files alone.

use std::num::NonZeroUsize;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_experiment::simulation::{Gauge, refused, simulate, watched};
use taillab_host::Interrupt;
use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::random::lanes::GOLDEN;
use taillab_simulator::closed_loop::WaitingClients;
use taillab_simulator::error::SimulationError;
use taillab_simulator::fork_join::{ForkJoin, warm_up_requests};
use taillab_simulator::histogram::Histogram;
use taillab_simulator::sample::Sample;
use taillab_simulator::simulation::{Simulation, Stop};

use super::panel::{self, PanelData};
use crate::declared::{
    ClosedClients, Configuration, DeclaredFigure, FanOut, Panel, SimulatedQueue, Source,
};
use crate::judge::{BlockQuantiles, QUANTILES, RoundBlocks};
use crate::result::ReproducedFigure;

/// Independent rounds of a simulation, from which intervals come.
const ROUNDS: u64 = 9;
/// The most parts of requests that are simulated for a curve; more would take minutes.
const MOST_PARTS: u64 = 200_000_000;
/// The most requests of waiting clients; each takes a hundred times as long as one of a plain queue.
const MOST_WAITING: u64 = 4_000_000;
/// Requests between two looks at the interrupt.
const STRIDE: u64 = 4_096;

/// How much is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Effort<'a> {
    /// Requests for each curve.
    pub requests: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// Threads; one for each processor if it is `None`.
    pub threads: Option<NonZeroUsize>,
    /// Whether to show no progress.
    pub quiet: bool,
    /// Raised by Ctrl-C.
    pub interrupt: &'a Interrupt,
}

/// A panel of a figure, and whether it was interrupted.
pub fn reproduce(
    figure: &DeclaredFigure,
    panel: &Panel,
    effort: Effort<'_>,
) -> Result<(ReproducedFigure, bool), Failure> {
    let name = panel::name(figure, panel);
    let mut simulated = Vec::new();
    for configuration in &panel.configurations {
        simulated.push(of_configuration(configuration, &name, effort)?);
    }
    let shown = panel::shown(figure, panel, &simulated, None);
    Ok((shown, effort.interrupt.is_raised()))
}

fn of_configuration(
    configuration: &Configuration,
    figure: &str,
    effort: Effort<'_>,
) -> Result<PanelData, Failure> {
    let name = format!("{figure}: {}", configuration.name);
    match &configuration.source {
        Source::Queue(queue) => of_queue(queue, &name, effort),
        Source::FanOut(fan_out) => one_by_one(
            &name,
            effort,
            MOST_PARTS / u64::from(fan_out.parts.get()),
            |seed| parts(fan_out, seed),
        ),
        Source::Closed(clients) => {
            let think = think_time(clients, effort.seed)?;
            one_by_one(&name, effort, MOST_WAITING, |seed| {
                waiting(clients, think, seed)
            })
        }
        Source::Live(_) => Err(Failure::failed(format!("{name} is measured"))),
    }
}

/// The seed of a round, which all configurations share.
const fn seed(effort: Effort<'_>, round: u64) -> u64 {
    effort.seed.wrapping_add(round.wrapping_mul(GOLDEN))
}

fn of_queue(queue: &SimulatedQueue, name: &str, effort: Effort<'_>) -> Result<PanelData, Failure> {
    let (mut blocks, mut rounds) = (RoundBlocks::default(), Vec::new());
    let mut clustering = 1.0;
    for round in 0..ROUNDS {
        let mut simulation = Simulation::new(
            queue.arrivals,
            queue.service.clone(),
            queue.workers,
            queue.utilization,
            queue.discipline.clone(),
        );
        simulation.stop = Stop::Requests(effort.requests.div_ceil(ROUNDS).max(1));
        simulation.seed = seed(effort, round);
        simulation.threads = effort.threads;
        simulation.batches = 8;
        clustering = simulation.clustering();
        let name = format!("{name}, round {} of {ROUNDS}", round + 1);
        let outcome = simulate(&simulation, &name, effort.quiet, effort.interrupt)?;
        add(&mut blocks, &mut rounds, outcome.sojourn.pooled().clone());
    }
    Ok(shown(blocks, &Sample::new(rounds, clustering)))
}

fn shown(blocks: RoundBlocks, sojourn: &Sample) -> PanelData {
    PanelData {
        blocks,
        sojourn: sojourn.distribution(),
        points: sojourn.ccdf(),
        lacks: None,
    }
}

/// Adds a round.
fn add(blocks: &mut RoundBlocks, rounds: &mut Vec<Histogram>, round: Histogram) {
    /// A quantile needs as many requests beyond it.
    const FEWEST_BEYOND: f64 = 10.0;
    let n = round.count() as f64;
    let at = |q: f64| {
        round
            .quantile_ns(q)
            .filter(|_| (1.0 - q) * n >= FEWEST_BEYOND)
    };
    let quantiles: BlockQuantiles = QUANTILES.map(at);
    blocks.push(quantiles);
    rounds.push(round);
}

/// Rounds of at most `most` requests together, from a series of sojourns for each seed.
fn one_by_one<S: Iterator<Item = f64>>(
    name: &str,
    effort: Effort<'_>,
    most: u64,
    series: impl Fn(u64) -> Result<S, Failure> + Sync,
) -> Result<PanelData, Failure> {
    let each = effort.requests.min(most).div_ceil(ROUNDS).max(1);
    let gauge = Gauge::default();
    let found = watched(name, effort.quiet, &gauge, || -> Result<_, Failure> {
        let (mut blocks, mut rounds) = (RoundBlocks::default(), Vec::new());
        for round in 0..ROUNDS {
            let mut series = series(seed(effort, round))?;
            let mut histogram = Histogram::default();
            let mut left = each;
            while left > 0 && !effort.interrupt.is_raised() {
                let n = left.min(STRIDE);
                series
                    .by_ref()
                    .take(n as usize)
                    .for_each(|sojourn| histogram.record(sojourn));
                left -= n;
                gauge.set(round * each + each - left, ROUNDS * each);
            }
            add(&mut blocks, &mut rounds, histogram);
        }
        Ok((blocks, rounds))
    });
    let (blocks, rounds) = found?;
    Ok(shown(blocks, &Sample::new(rounds, 1.0)))
}

fn parts(fan_out: &FanOut, seed: u64) -> Result<impl Iterator<Item = f64>, Failure> {
    let arrivals = ArrivalProcess::Poisson;
    let (parts, utilization) = (fan_out.parts.get(), fan_out.utilization);
    let series = ForkJoin::new(&arrivals, &fan_out.service, parts, utilization, seed)
        .or_exit(Exit::Failed)?;
    Ok(series.skip(warm_up_requests(utilization) as usize))
}

fn think_time(clients: &ClosedClients, seed: u64) -> Result<Nanos, Failure> {
    let (n, service) = (clients.clients, &clients.service);
    WaitingClients::think_time(n, service, clients.utilization, seed)
        .map_err(|error| refused(SimulationError::from(error)))
}

fn waiting(
    clients: &ClosedClients,
    think: Nanos,
    seed: u64,
) -> Result<impl Iterator<Item = f64>, Failure> {
    /// Requests of each client before the measured ones, and of a single queue as busy as this one.
    const ROUNDS_BEFORE: usize = 20;
    let n = clients.clients.get() as usize;
    let series = WaitingClients::new(clients.clients, &clients.service, think, seed)
        .map_err(|error| refused(SimulationError::from(error)))?;
    let warm_up = ROUNDS_BEFORE * n + warm_up_requests(clients.utilization) as usize;
    Ok(series.skip(warm_up).map(|sojourn| sojourn.get() as f64))
}
