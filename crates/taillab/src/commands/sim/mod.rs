//! `taillab sim`: queues with random or recorded arrivals.

mod case;
pub mod empirical;
mod evaluate;
mod fork_join;
pub mod outputs;
mod plan;
mod random;
mod recorded;
pub mod trace;
pub mod watch;

use taillab_host::Interrupt;
use taillab_report::simulation::SimulationReport;

use self::plan::Plan;
pub use self::random::simulate;
pub use self::recorded::play;
use crate::cli::SimArgs;
use crate::exit::{Exit, Failure};
use crate::fail::host;

/// Simulates what was asked for; the result is printed, drawn and saved.
pub fn run(args: SimArgs) -> Result<Exit, Failure> {
    let interrupt = Interrupt::register().map_err(host)?;
    let (plan, wanted) = plan::plan(args)?;
    let finished = match &plan {
        Plan::Random(plan) => random::run(plan, &interrupt)?,
        Plan::Recorded(plan) => recorded::run(plan, &interrupt)?,
    };
    if finished.runs.is_empty() {
        return Err(Failure::new(
            Exit::Interrupted,
            "interrupted before there was a result",
        ));
    }
    let swept = plan.swept();
    let report = SimulationReport::new(finished.runs, swept, finished.partial);
    outputs::save(&wanted, &report)?;
    outputs::show(&wanted, &report)?;
    Ok(if report.partial {
        Exit::Interrupted
    } else {
        Exit::Ok
    })
}

/// What a plan came to.
struct Finished {
    runs: Vec<taillab_report::simulation::SimulatedRun>,
    /// It was interrupted.
    partial: bool,
}
