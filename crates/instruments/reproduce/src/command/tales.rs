//! Figures 1 to 4 of *Tales of the Tail*.

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

use crate::args::{FigureName, TalesArgs};
use crate::result::{JudgedClaim, ReproducedCurve, ReproducedFigure, Verdict};

const PAPER: &str = "Tales of the Tail (Li, Sharma, Ports and Gribble, 2014), section 2";

/// Simulates the figures, writes and prints them.
pub fn run(args: TalesArgs) -> Result<Exit, Failure> {
    // first: without its privileges, root may make no directory in another user's
    let dir = RunDir::create_if_asked(args.output.clone(), 0)?;
    give_up_root(&Roots::default(), Remaining::Files)?;
    let interrupt = Interrupt::register().map_err(host)?;
    let wanted = figures(&args.figures);
    let trace = match &args.recorded.trace {
        Some(path) if wanted.contains(&Figure::Fig1) => {
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
        |figure| reproduce(figure, &args, trace.as_ref(), &interrupt),
    )?;
    Ok(match (reproduction.partial, reproduction.succeeded()) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Ok,
        (false, false) => Exit::Failed,
    })
}

/// Each figure once, in the paper's order.
fn figures(names: &[FigureName]) -> Vec<Figure> {
    let named = |figure: &Figure| {
        let name = match figure {
            Figure::Fig1 => FigureName::Fig1,
            Figure::Fig2 => FigureName::Fig2,
            Figure::Fig3 => FigureName::Fig3,
            Figure::Fig4 => FigureName::Fig4,
        };
        names.contains(&name) || names.contains(&FigureName::All)
    };
    Figure::ALL.into_iter().filter(named).collect()
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
