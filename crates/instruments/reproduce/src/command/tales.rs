//! Figures of *Tales of the Tail*: 1 to 4, which are simulated, and those of files.

use std::num::NonZeroU32;

use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::rights::{Remaining, give_up_root, recover};
use taillab_console::rundir::RunDir;
use taillab_experiment::simulation::{Gauge, play, simulate, watched};
use taillab_experiment::time_stamps::TraceFile;
use taillab_host::{Interrupt, Roots, cpus};
use taillab_queueing::discipline::Discipline;
use taillab_queueing::service::Service;
use taillab_report::chart::Axis;
use taillab_simulator::paper::{self, Curve, Figure, Measure, Specification};
use taillab_simulator::run::{Outcome, Stopped};
use taillab_simulator::sample::Sample;
use taillab_simulator::simulation::{Simulation, Stop};
use taillab_simulator::trace::{TraceSimulation, TraceSpeed};

use super::live::{self, LiveEffort};
use super::simulated::{self, Effort};
use super::{Made, PaperPage, panel};
use crate::args::TalesArgs;
use crate::declared::{self, DeclaredFigure};
use crate::result::{JudgedClaim, ReproducedCurve, ReproducedFigure, Verdict};

const PAPER: &str = "Tales of the Tail (Li, Sharma, Ports and Gribble, 2014)";

/// What is reproduced as one pair of axes.
pub enum Item {
    /// A figure of queueing theory.
    Theory(Figure),
    /// The panel of a file's figure.
    Panel(DeclaredFigure, usize),
}

impl Item {
    /// Its name on the command line.
    pub fn name(&self) -> String {
        match self {
            Self::Theory(figure) => figure.to_string(),
            Self::Panel(figure, panel) => panel::name(figure, &figure.panels[*panel]),
        }
    }

    fn is_live(&self) -> bool {
        match self {
            Self::Theory(_) => false,
            Self::Panel(figure, panel) => figure.panels[*panel].is_live(),
        }
    }

    /// Simulates or measures it.
    ///
    /// # Errors
    /// What cannot be simulated or measured, or Ctrl-C.
    pub fn make(
        self,
        args: &TalesArgs,
        trace: Option<&TraceFile>,
        interrupt: &Interrupt,
    ) -> Result<Made, Failure> {
        let (figure, panel) = match self {
            Self::Theory(figure) => return Ok(reproduce(figure, args, trace, interrupt)?.into()),
            Self::Panel(figure, panel) => (figure, panel),
        };
        let panel = &figure.panels[panel];
        let name = panel::name(&figure, panel);
        if panel.is_live() {
            let here = cpus::online(&Roots::default()).map_or(1, |cpus| cpus.len());
            if panel.cpus > here {
                return Ok(Made::Omitted(format!(
                    "{name} needs {} CPUs, and {here} are here",
                    panel.cpus
                )));
            }
            if args.quick && panel.full_only {
                return Ok(Made::Omitted(format!(
                    "{name} is not measured with --quick"
                )));
            }
            let effort = LiveEffort::new(args.quick, args.seed);
            let messages = Messages::of(args.common);
            let (mut made, partial) =
                live::reproduce(&figure, panel, effort, (interrupt, messages))?;
            if args.quick {
                made.show.push_str(" --quick");
            }
            return Ok((made, partial).into());
        }
        let effort = Effort {
            requests: args.requests.0,
            seed: args.seed,
            threads: args.threads,
            quiet: args.common.quiet,
            interrupt,
        };
        Ok(simulated::reproduce(&figure, panel, effort)?.into())
    }
}

/// Simulates or measures the figures, writes and prints them.
pub fn run(args: TalesArgs) -> Result<Exit, Failure> {
    let roots = Roots::default();
    let wanted = wanted(|name, is_live| {
        let mut figures = args.figures.iter();
        figures.any(|figure| figure.names(name, is_live))
    })?;
    let is_live = wanted.iter().any(Item::is_live);
    if is_live {
        recover(&roots, Messages::of(args.common))?;
    }
    // first: without its privileges, root may make no directory in another user's
    let dir = RunDir::create_if_asked(args.output.clone(), 0)?;
    if !is_live {
        give_up_root(&roots, Remaining::Files)?;
    }
    let interrupt = Interrupt::register().map_err(host)?;
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
        PaperPage {
            name: "tales",
            paper: PAPER,
        },
        wanted,
        (dir, args.common),
        &interrupt,
        |item| item.make(&args, trace.as_ref(), &interrupt),
    )?;
    Ok(match (reproduction.partial, reproduction.succeeded()) {
        (true, _) => Exit::Interrupted,
        // what is measured may differ from the paper: kernels have changed
        (false, succeeded) if succeeded || is_live => Exit::Ok,
        (false, _) => Exit::Failed,
    })
}

/// Each figure that is wanted, once: those of theory in the paper's order, then those of files, panel by panel. `is_wanted` is asked
/// for its name, and whether it is measured.
pub fn wanted(is_wanted: impl Fn(&str, bool) -> bool) -> Result<Vec<Item>, Failure> {
    let theory = Figure::ALL.into_iter();
    let theory = theory.filter(|figure| is_wanted(&figure.to_string(), false));
    let mut items: Vec<Item> = theory.map(Item::Theory).collect();
    for figure in declared::all()?.into_iter().filter_map(|file| file.figure) {
        for (place, panel) in figure.panels.iter().enumerate() {
            if is_wanted(&figure.name, panel.is_live()) {
                items.push(Item::Panel(figure.clone(), place));
            }
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
        show: format!("taillab reproduce tales {figure}"),
        took_s: 0.0,
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
