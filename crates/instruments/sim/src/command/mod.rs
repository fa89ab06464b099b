//! `taillab sim`: queues with random or recorded arrivals.

mod case;
mod evaluate;
mod fork_join;
mod outputs;
mod plan;
mod random;
mod recorded;

use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::rights::{Remaining, give_up_root};
use taillab_console::rundir::with_files;
use taillab_host::{Interrupt, Roots};

use self::outputs::Outputs;
use self::plan::SimPlan;
use crate::args::SimArgs;
use crate::result::SimulationReport;

/// Runs the simulations; the result is printed, drawn and saved.
pub fn run(args: SimArgs) -> Result<Exit, Failure> {
    // first: without its privileges, root may make no directory in another user's
    let mut wanted = Outputs::of(&args)?;
    give_up_root(&Roots::default(), Remaining::Files)?;
    let interrupt = Interrupt::register().map_err(host)?;
    let (plan, swept) = plan::plan(args)?;
    let (runs, partial) = match &plan {
        SimPlan::Random(plan) => random::run(plan, &interrupt)?,
        SimPlan::Recorded(plan) => (recorded::run(plan, &interrupt)?, false),
    };
    if runs.is_empty() {
        return Err(Failure::new(
            Exit::Interrupted,
            "interrupted before there was a result",
        ));
    }
    let report = SimulationReport::new(runs, swept, partial);
    let written = outputs::save(&mut wanted, &report);
    outputs::show(&wanted, &report)?;
    let exit = match report.partial {
        true => Exit::Interrupted,
        false => Exit::Ok,
    };
    with_files(Ok(exit), written)
}
