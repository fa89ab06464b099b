//! Figures of *Tales of the Tail* that are simulated: 1 to 4, and those of files.

use std::num::NonZeroU32;

use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::rights::{Remaining, give_up_root};
use taillab_console::rundir::RunDir;
use taillab_experiment::simulation::{Gauge, play, simulate, watched};
use taillab_experiment::time_stamps::TraceFile;
use taillab_host::{Interrupt, Roots};
use taillab_queueing::discipline::Discipline;
use taillab_queueing::service::Service;
use taillab_report::chart::Axis;
use taillab_simulator::paper::{self, Curve, Figure, Measure, Specification};
use taillab_simulator::run::{Outcome, Stopped};
use taillab_simulator::sample::Sample;
use taillab_simulator::simulation::{Simulation, Stop};
use taillab_simulator::trace::{TraceSimulation, TraceSpeed};

use super::simulated::{self, Effort};
use crate::args::TalesArgs;
use crate::declared::{self, DeclaredFigure};
use crate::result::{JudgedClaim, ReproducedCurve, ReproducedFigure, Verdict};

const PAPER: &str = "Tales of the Tail (Li, Sharma, Ports and Gribble, 2014)";

/// What is reproduced as one pair of axes.
enum Item {
    /// A figure of queueing theory.
    Theory(Figure),
    /// The panel of a file's figure.
    Panel(DeclaredFigure, usize),
}

/// Simulates the figures, writes and prints them.
pub fn run(args: TalesArgs) -> Result<Exit, Failure> {
    // first: without its privileges, root may make no directory in another user's
    let dir = RunDir::create_if_asked(args.output.clone(), 0)?;
    give_up_root(&Roots::default(), Remaining::Files)?;
    let interrupt = Interrupt::register().map_err(host)?;
    let wanted = wanted(&args)?;
    let has_trace = |item: &Item| matches!(item, Item::Theory(Figure::Fig1));
    let trace = match &args.recorded.trace {
        Some(path) if wanted.iter().any(has_trace) => {
            Some(TraceFile::open(args.recorded.options(path))?)
        }
        Some(_) => {
            return Err(Failure::usage(
                "only fig1 has a recorded trace; leave --trace out or add fig1",
            ));
        }
        None => None,
    };
    let reproduction = super::reproduce(
        ("tales", PAPER),
        wanted,
        (dir, args.common),
        &interrupt,
        |item| match item {
            Item::Theory(figure) => reproduce(figure, &args, trace.as_ref(), &interrupt),
            Item::Panel(figure, panel) => {
                let effort = Effort {
                    requests: args.requests.0,
                    seed: args.seed,
                    threads: args.threads,
                    quiet: args.common.quiet,
                    interrupt: &interrupt,
                };
                simulated::reproduce(&figure, &figure.panels[panel], effort)
            }
        },
    )?;
    Ok(match (reproduction.partial, reproduction.succeeded()) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Ok,
        (false, false) => Exit::Failed,
    })
}

/// Each figure once: those of theory in the paper's order, then those of files.
fn wanted(args: &TalesArgs) -> Result<Vec<Item>, Failure> {
    let is_wanted = |name: &str| args.figures.iter().any(|figure| figure.names(name));
    let theory = Figure::ALL.into_iter();
    let theory = theory.filter(|figure| is_wanted(&figure.to_string()));
    let mut items: Vec<Item> = theory.map(Item::Theory).collect();
    for figure in declared::all()?.into_iter().filter_map(|file| file.figure) {
        if is_wanted(&figure.name) {
            let panels = 0..figure.panels.len();
            items.extend(panels.map(|panel| Item::Panel(figure.clone(), panel)));
        }
    }
    Ok(items)
}

/// One figure, and whether it was interrupted.
fn reproduce(
    figure: Figure,
    args: &TalesArgs,
    trace: Option<&TraceFile>,
    interrupt: &Interrupt,
) -> Result<(ReproducedFigure, bool), Failure> {
    let specification = figure.specification();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for curve in &specification.curves {
        let mut simulation = Simulation::new(
            curve.arrivals,
            curve.service(),
            workers(curve),
            curve.utilization,
            curve.discipline.clone(),
        );
        simulation.stop = Stop::Requests(args.requests.0);
        simulation.seed = args.seed;
        simulation.threads = args.threads;
        let name = format!("{figure}: {}", curve.label);
        outcomes.push(simulate(&simulation, &name, args.common.quiet, interrupt)?);
    }
    let mut partial = outcomes
        .iter()
        .any(|outcome| outcome.stopped == Stopped::Interrupted);
    let claims = judged(&specification, &outcomes);
    let mut curves: Vec<ReproducedCurve> = (specification.curves.iter())
        .zip(&outcomes)
        .map(|(curve, outcome)| reproduced(&curve.label, &outcome.sojourn))
        .collect();
    if let (Some(trace), Some(utilization)) = (trace, specification.trace_utilization) {
        let service = Service::deterministic(paper::SERVICE_TIME);
        let simulation = TraceSimulation {
            discipline: Discipline::Fifo,
            speed: TraceSpeed::Utilization(utilization),
            seed: args.seed,
            ..TraceSimulation::new(service, NonZeroU32::MIN)
        };
        let gauge = Gauge::default();
        let name = format!("{figure}: trace");
        let played = watched(&name, args.common.quiet, &gauge, || {
            play(trace, &[simulation], &gauge, interrupt)
        });
        let played = match played {
            // only the curve of the trace is missing
            Err(failure) if failure.exit == Exit::Interrupted => {
                partial = true;
                Vec::new()
            }
            played => played?,
        };
        let label = format!("trace {}", trace.name());
        curves.extend(
            played
                .iter()
                .map(|outcome| reproduced(&label, &outcome.sojourn)),
        );
    }
    let reproduced = ReproducedFigure {
        figure: figure.to_string(),
        title: specification.title.to_owned(),
        curves,
        claims,
        note: specification.note.map(str::to_owned),
        axes: (Axis::Latency, Axis::Slower),
        drawn: Vec::new(),
        tabulated: false,
    };
    Ok((reproduced, partial))
}

fn workers(curve: &Curve) -> NonZeroU32 {
    NonZeroU32::new(curve.workers).unwrap_or(NonZeroU32::MIN)
}

fn reproduced(label: &str, sojourn: &Sample) -> ReproducedCurve {
    ReproducedCurve {
        label: label.to_owned(),
        sojourn: sojourn.distribution(),
        points: sojourn.ccdf(),
    }
}

fn judged(specification: &Specification, outcomes: &[Outcome]) -> Vec<JudgedClaim> {
    let quantile_us = |curve: usize, q: f64| {
        let estimate = outcomes.get(curve)?.sojourn.quantile(q)?;
        Some(estimate.value_ns / 1e3)
    };
    let is_simulated = |outcome: &Outcome| outcome.sojourn.pooled().count() > 0;
    let missing = match outcomes.iter().all(is_simulated) {
        true => Verdict::Unsupported,
        false => Verdict::NotMeasured,
    };
    (specification.claims.iter())
        .map(|claim| {
            let curves = specification.curves.len();
            let ours = claim.measure.evaluate(curves, quantile_us);
            super::judged(claim, ours, unit(&claim.measure), missing)
        })
        .collect()
}

const fn unit(measure: &Measure) -> &'static str {
    match measure {
        Measure::QuantileUs { .. } => "µs",
        _ => "×",
    }
}
