//! What is simulated, checked before anything runs.

use std::num::NonZeroU32;
use std::path::Path;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_experiment::simulation::refused;
use taillab_experiment::time_stamps::{TraceFile, TraceOptions, empirical};
use taillab_queueing::notation::NotationError;
use taillab_queueing::service::Service;
use taillab_simulator::simulation::{Simulation, Stop};
use taillab_simulator::trace::{TraceSimulation, TraceSpeed};

use super::case::{Case, cases};
use crate::args::SimArgs;
use crate::result::SweepAxis;

/// The default number of requests.
const DEFAULT_REQUESTS: u64 = 20_000_000;
/// A run to a precision gives up after this many requests.
const MOST_REQUESTS: u64 = 10_000_000_000;
/// The default utilisation.
const DEFAULT_UTILIZATION: f64 = 0.8;

/// The two kinds of arrivals.
pub enum SimPlan {
    Random(RandomPlan),
    Recorded(RecordedPlan),
}

/// Random arrivals.
pub struct RandomPlan {
    pub simulations: Vec<Simulation>,
    pub exact: bool,
    pub fanout: Option<NonZeroU32>,
    pub fork_join: bool,
    pub quiet: bool,
}

/// Arrivals from a file.
pub struct RecordedPlan {
    pub trace: TraceFile,
    pub simulations: Vec<TraceSimulation>,
    pub fanout: Option<NonZeroU32>,
    pub quiet: bool,
}

/// The plan, and what is swept.
pub fn plan(args: SimArgs) -> Result<(SimPlan, Vec<SweepAxis>), Failure> {
    let service = service(&args.system.service)?;
    let trace = args.recorded.file.trace.clone();
    let utilization = match (args.system.utilization, &trace) {
        (None, None) => Some(DEFAULT_UTILIZATION),
        (given, _) => given,
    };
    let (cases, swept) = cases(
        args.system.workers,
        utilization,
        args.system.discipline.0.clone(),
        args.sample.sweep.clone(),
    )
    .or_exit(Exit::Usage)?;
    let plan = match trace {
        Some(path) => SimPlan::Recorded(recorded(&args, &path, &service, cases)?),
        None => SimPlan::Random(random(&args, &service, cases)?),
    };
    Ok((plan, swept))
}

fn recorded(
    args: &SimArgs,
    path: &Path,
    service: &Service,
    cases: Vec<Case>,
) -> Result<RecordedPlan, Failure> {
    let trace = TraceFile::open(TraceOptions {
        unit_matters: cases.iter().any(|case| case.utilization.is_none()),
        ..args.recorded.file.options(path)
    })?;
    let simulation = |case: Case| TraceSimulation {
        discipline: case.discipline,
        speed: case
            .utilization
            .map_or(TraceSpeed::AsRecorded, TraceSpeed::Utilization),
        allow_overload: args.recorded.allow_overload,
        seed: args.sample.seed,
        ..TraceSimulation::new(service.clone(), case.workers)
    };
    Ok(RecordedPlan {
        trace,
        simulations: cases.into_iter().map(simulation).collect(),
        fanout: args.system.fanout,
        quiet: args.common.quiet,
    })
}

fn random(args: &SimArgs, service: &Service, cases: Vec<Case>) -> Result<RandomPlan, Failure> {
    if args.recorded.allow_overload {
        return Err(Failure::usage(
            "--allow-overload needs --trace FILE: only a trace ends, random arrivals at a \
             utilisation of 1 or more make a queue that grows without bound",
        ));
    }
    let requests = args.sample.requests.map(|count| count.0);
    let stop = match args.sample.precision {
        None => Stop::Requests(requests.unwrap_or(DEFAULT_REQUESTS)),
        Some(target) => Stop::Precision {
            target,
            at_most: requests.unwrap_or(MOST_REQUESTS),
        },
    };
    let simulation = |case: Case| {
        let mut simulation = Simulation::new(
            args.system.arrivals,
            service.clone(),
            case.workers,
            case.utilization.unwrap_or(DEFAULT_UTILIZATION),
            case.discipline,
        );
        simulation.stop = stop;
        simulation.seed = args.sample.seed;
        simulation.threads = args.sample.threads;
        simulation
    };
    let simulations: Vec<Simulation> = cases.into_iter().map(simulation).collect();
    for simulation in &simulations {
        simulation.check().map_err(refused)?;
    }
    Ok(RandomPlan {
        simulations,
        exact: args.result.exact,
        fanout: args.system.fanout,
        fork_join: args.system.fork_join,
        quiet: args.common.quiet,
    })
}

/// The service times; `empirical:FILE` is read here, because the library reads no files.
fn service(text: &str) -> Result<Service, Failure> {
    match text.trim().strip_prefix("empirical:") {
        Some(file) => empirical::read(file),
        None => text.parse().map_err(|error| match error {
            // the library does not know of files
            NotationError::Unknown { .. } => Failure::usage(format!("{error}, empirical:FILE")),
            _ => Failure::usage(error),
        }),
    }
}
