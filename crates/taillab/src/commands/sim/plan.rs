//! What is to be done, checked before anything runs.

use std::num::NonZeroU32;

use taillab_queueing::notation::NotationError;
use taillab_queueing::service::Service;
use taillab_report::simulation::Swept;
use taillab_simulator::simulation::{Simulation, SimulationError, Stop};
use taillab_simulator::trace::{TraceSimulation, TraceSpeed};

use super::case::{Case, Ranges};
use super::empirical;
use super::outputs::Wanted;
use super::trace::{TraceFile, TraceOptions};
use crate::cli::SimArgs;
use crate::exit::{Exit, Failure, OrExit};

/// Requests of a run that was told nothing.
const USUAL_REQUESTS: u64 = 20_000_000;
/// Where a run to a precision gives up.
const MOST_REQUESTS: u64 = 10_000_000_000;
/// The load of a queue that was told nothing.
const USUAL_UTILIZATION: f64 = 0.8;

/// The two kinds of arrivals.
pub enum Plan {
    Random(RandomPlan),
    Recorded(RecordedPlan),
}

/// Random arrivals.
pub struct RandomPlan {
    pub simulations: Vec<Simulation>,
    pub swept: Vec<Swept>,
    pub exact: bool,
    pub fanout: Option<NonZeroU32>,
    pub fork_join: bool,
    pub quiet: bool,
}

/// Arrivals from a file.
pub struct RecordedPlan {
    pub trace: TraceFile,
    pub simulations: Vec<TraceSimulation>,
    pub swept: Vec<Swept>,
    pub fanout: Option<NonZeroU32>,
    pub quiet: bool,
}

impl Plan {
    pub fn swept(&self) -> Vec<Swept> {
        match self {
            Self::Random(plan) => plan.swept.clone(),
            Self::Recorded(plan) => plan.swept.clone(),
        }
    }
}

/// The plan and the outputs that the arguments ask for.
pub fn plan(args: SimArgs) -> Result<(Plan, Wanted), Failure> {
    let service = service(&args.service)?;
    let wanted = Wanted::new(args.plot, args.parquet, args.output, args.common.json)?;
    let utilization = match (args.utilization, &args.trace) {
        (None, None) => Some(USUAL_UTILIZATION),
        (given, _) => given,
    };
    let ranges = Ranges::new(args.workers, utilization, args.discipline.0, args.sweep)
        .or_exit(Exit::Usage)?;
    let cases = ranges.cases();
    let plan = match args.trace {
        Some(path) => {
            let trace = TraceFile::open(TraceOptions {
                path,
                column: args.trace_column,
                unit: args.trace_unit,
                unit_matters: cases.iter().any(|case| case.utilization.is_none()),
            })?;
            let recorded = |case: Case| TraceSimulation {
                discipline: case.discipline,
                speed: case
                    .utilization
                    .map_or(TraceSpeed::AsRecorded, TraceSpeed::Utilization),
                allow_overload: args.allow_overload,
                seed: args.seed,
                ..TraceSimulation::new(service.clone(), case.workers)
            };
            Plan::Recorded(RecordedPlan {
                trace,
                simulations: cases.into_iter().map(recorded).collect(),
                swept: ranges.swept,
                fanout: args.fanout,
                quiet: args.common.quiet,
            })
        }
        None => {
            if args.allow_overload {
                return Err(Failure::new(
                    Exit::Usage,
                    "--allow-overload needs --trace FILE: only a trace ends, random arrivals at a \
                     utilisation of 1 or more make a queue that grows without bound",
                ));
            }
            let stop = match (args.precision, args.requests) {
                (None, requests) => Stop::Requests(requests.map_or(USUAL_REQUESTS, |n| n.0)),
                (Some(target), requests) => Stop::Precision {
                    target,
                    at_most: requests.map_or(MOST_REQUESTS, |n| n.0),
                },
            };
            let random = |case: Case| {
                let mut simulation = Simulation::new(
                    args.arrivals,
                    service.clone(),
                    case.workers,
                    case.utilization.unwrap_or(USUAL_UTILIZATION),
                    case.discipline,
                );
                simulation.stop = stop;
                simulation.seed = args.seed;
                simulation.threads = args.threads;
                simulation
            };
            let simulations: Vec<Simulation> = cases.into_iter().map(random).collect();
            for simulation in &simulations {
                simulation.check().map_err(refused)?;
            }
            Plan::Random(RandomPlan {
                simulations,
                swept: ranges.swept,
                exact: args.exact,
                fanout: args.fanout,
                fork_join: args.fork_join,
                quiet: args.common.quiet,
            })
        }
    };
    Ok((plan, wanted))
}

/// The service times; `empirical:FILE` is read here, because the library reads no files.
fn service(text: &str) -> Result<Service, Failure> {
    match text.trim().strip_prefix("empirical:") {
        Some(file) => empirical::read(file),
        None => text.parse().map_err(|error| match error {
            // the library does not know of files
            NotationError::Unknown { .. } => {
                Failure::new(Exit::Usage, format!("{error}, empirical:FILE"))
            }
            _ => Failure::new(Exit::Usage, error),
        }),
    }
}

/// A specification that cannot be run, with the option that helps.
pub fn refused(error: SimulationError) -> Failure {
    let message = match &error {
        SimulationError::Overload { load, .. } => {
            // a share that was meant as a percentage
            let percent = if (2.0..=99.0).contains(load) {
                format!("; a percentage needs its sign, e.g. --utilization {load:.0}%")
            } else {
                String::new()
            };
            let text = error.to_string().replace(
                "(a finite trace can be run with overload allowed)",
                "(a trace, which ends, can be run with --trace FILE --allow-overload)",
            );
            format!("{text}{percent}")
        }
        _ => error.to_string(),
    };
    let exit = match error {
        SimulationError::Threads { .. } => Exit::Failed,
        _ => Exit::Usage,
    };
    Failure::new(exit, message)
}
