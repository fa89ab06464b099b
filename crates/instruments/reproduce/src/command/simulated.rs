//! Figures that are simulated by their files alone.

use std::num::NonZeroUsize;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_experiment::simulation::{Gauge, refused, simulate, watched};
use taillab_host::Interrupt;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::random::lanes::GOLDEN;
use taillab_report::chart::{Axis, Curve};
use taillab_report::figures::quantile_name;
use taillab_simulator::closed_loop::WaitingClients;
use taillab_simulator::error::SimulationError;
use taillab_simulator::fork_join::{ForkJoin, warm_up_requests};
use taillab_simulator::histogram::Histogram;
use taillab_simulator::sample::Sample;
use taillab_simulator::simulation::{Simulation, Stop};

use crate::declared::{
    ClosedClients, Configuration, DeclaredFigure, FanOut, Panel, Queue, Source, Statement,
};
use crate::judge::{self, BlockQuantiles, Judged, QUANTILES, RoundBlocks};
use crate::result::{JudgedClaim, ReproducedCurve, ReproducedFigure, Verdict};

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

/// What was simulated of a configuration.
struct Simulated {
    blocks: RoundBlocks,
    sojourn: Sample,
}

/// A panel of a figure, and whether it was interrupted.
pub fn reproduce(
    figure: &DeclaredFigure,
    panel: &Panel,
    effort: Effort<'_>,
) -> Result<(ReproducedFigure, bool), Failure> {
    let name = match panel.name.as_str() {
        "" => figure.name.clone(),
        panel => format!("{}-{panel}", figure.name),
    };
    let mut simulated = Vec::new();
    for configuration in &panel.configurations {
        simulated.push(of_configuration(configuration, &name, effort)?);
    }
    let curves: Vec<ReproducedCurve> = (panel.configurations.iter().zip(&simulated))
        .map(|(configuration, found)| ReproducedCurve {
            label: configuration.name.clone(),
            sojourn: found.sojourn.distribution(),
            points: found.sojourn.ccdf(),
        })
        .collect();
    let statements = figure.statements.iter();
    let claims = statements
        .filter(|statement| statement.is_about(panel))
        .filter_map(|statement| judged(statement, panel, &simulated))
        .collect();
    let along = along(panel, &curves);
    let knee = along.as_ref().and_then(|along| knee(&along.points));
    let notes = [figure.note.clone(), knee].into_iter().flatten();
    let notes: Vec<String> = notes.collect();
    let reproduced = ReproducedFigure {
        figure: name,
        title: panel.title.clone().unwrap_or_else(|| figure.title.clone()),
        axes: match along {
            Some(_) => (Axis::Utilisation, Axis::Latency),
            None => (Axis::Latency, Axis::Slower),
        },
        drawn: along.map(|along| along.curves).unwrap_or_default(),
        tabulated: true,
        curves,
        claims,
        note: (!notes.is_empty()).then(|| notes.join(" ")),
    };
    Ok((reproduced, effort.interrupt.is_raised()))
}

fn of_configuration(
    configuration: &Configuration,
    figure: &str,
    effort: Effort<'_>,
) -> Result<Simulated, Failure> {
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
    }
}

/// The seed of a round, which all configurations share.
const fn seed(effort: Effort<'_>, round: u64) -> u64 {
    effort.seed.wrapping_add(round.wrapping_mul(GOLDEN))
}

fn of_queue(queue: &Queue, name: &str, effort: Effort<'_>) -> Result<Simulated, Failure> {
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
    Ok(Simulated {
        blocks,
        sojourn: Sample::new(rounds, clustering),
    })
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
) -> Result<Simulated, Failure> {
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
    Ok(Simulated {
        blocks,
        sojourn: Sample::new(rounds, 1.0),
    })
}

fn parts(fan_out: &FanOut, seed: u64) -> Result<impl Iterator<Item = f64>, Failure> {
    let arrivals = ArrivalProcess::Poisson;
    let (parts, utilization) = (fan_out.parts.get(), fan_out.utilization);
    let series = ForkJoin::new(&arrivals, &fan_out.service, parts, utilization, seed)
        .or_exit(Exit::Failed)?;
    Ok(series.skip(warm_up_requests(utilization) as usize))
}

fn think_time(clients: &ClosedClients, seed: u64) -> Result<taillab_model::Nanos, Failure> {
    let (n, service) = (clients.clients, &clients.service);
    WaitingClients::think_time(n, service, clients.utilization, seed)
        .map_err(|error| refused(SimulationError::from(error)))
}

fn waiting(
    clients: &ClosedClients,
    think: taillab_model::Nanos,
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

/// A statement about a panel whose configurations were simulated.
fn judged(statement: &Statement, panel: &Panel, simulated: &[Simulated]) -> Option<JudgedClaim> {
    let found = |name: &str| Some(&simulated.get(panel.place(name)?)?.blocks);
    let of = (found(&statement.of)?, statement.at);
    let to = (found(&statement.to)?, statement.second_at());
    Some(claim(statement, of, to))
}

/// A statement with the verdict on it.
fn claim(statement: &Statement, of: (&RoundBlocks, f64), to: (&RoundBlocks, f64)) -> JudgedClaim {
    let lacking = format!(
        "too few requests for an interval of {} ÷ {} in six rounds",
        quantile_name(of.1),
        quantile_name(to.1)
    );
    let judgement = judge::judge(statement.agrees, &judge::ratios(of, to), &lacking);
    let ratio = judgement.ratio;
    JudgedClaim {
        statement: statement.says.clone(),
        source: statement.source.clone(),
        paper: statement.paper.clone(),
        ours: ratio.map(|ratio| ratio.value),
        lo: ratio.map(|ratio| ratio.lo),
        hi: ratio.map(|ratio| ratio.hi),
        unit: "×",
        verdict: match judgement.judged {
            Judged::Agrees => Verdict::Agrees,
            Judged::Differs => Verdict::Disagrees,
            Judged::Undecided => Verdict::Undecided,
        },
        explanation: statement.explanation.clone(),
        why: Some(judgement.why),
    }
}

/// Quantiles along a parameter.
struct Sweep {
    curves: Vec<Curve>,
    /// Utilisation and p99.
    points: Vec<(f64, f64)>,
}

fn along(panel: &Panel, curves: &[ReproducedCurve]) -> Option<Sweep> {
    /// The quantiles that are drawn.
    const DRAWN: [f64; 3] = [0.5, 0.99, 0.999];
    panel.along?;
    let points = |q: f64| -> Vec<(f64, f64)> {
        let pairs = panel.configurations.iter().zip(curves);
        pairs
            .filter_map(|(configuration, curve)| {
                let Source::Queue(queue) = &configuration.source else {
                    return None;
                };
                Some((queue.utilization, curve.sojourn.quantile(q)?.get() as f64))
            })
            .collect()
    };
    Some(Sweep {
        curves: DRAWN
            .map(|q| Curve::new(quantile_name(q), points(q)).marked())
            .to_vec(),
        points: points(0.99),
    })
}

/// Where a rising curve bends most: the point farthest below the line between its ends (Satopää et al. 2011, *Finding a “Kneedle”
/// in a Haystack*), in a sentence with what it costs to go there and beyond.
fn knee(points: &[(f64, f64)]) -> Option<String> {
    let ((x0, y0), (x1, y1)) = (*points.first()?, *points.last()?);
    let below = |&(x, y): &(f64, f64)| (x - x0) / (x1 - x0) - (y - y0) / (y1 - y0);
    let &(x, y) = points.iter().max_by(|a, b| below(a).total_cmp(&below(b)))?;
    (below(&(x, y)) > 0.0).then(|| {
        format!(
            "p99 bends most at {:.0} %: up to there it grows {:.1} times, from there to {:.0} % another {:.1} times.",
            100.0 * x,
            y / y0,
            100.0 * x1,
            y1 / y
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_the_curve_bends() {
        let points = [
            (0.1, 1.0),
            (0.5, 2.0),
            (0.8, 5.0),
            (0.9, 11.0),
            (0.95, 23.0),
        ];
        let text = knee(&points).unwrap();
        assert!(
            text.starts_with("p99 bends most at 80 %: up to there it grows 5.0 times"),
            "{text}"
        );
        assert_eq!(knee(&points[..1]), None);
        assert_eq!(knee(&[]), None);
        // a straight line has none
        assert_eq!(knee(&[(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)]), None);
    }
}
