//! Random arrivals.

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_experiment::simulation::simulate;
use taillab_host::Interrupt;
use taillab_simulator::run::{Outcome, Stopped};
use taillab_simulator::simulation::Simulation;

use super::evaluate::{self, Described};
use super::fork_join;
use super::plan::RandomPlan;
use crate::result::SimulatedRun;

/// Runs every simulation of the plan, one after the other; the runs, and whether an interrupt cut
/// them short.
pub fn run(plan: &RandomPlan, interrupt: &Interrupt) -> Result<(Vec<SimulatedRun>, bool), Failure> {
    let mut runs = Vec::new();
    let all = plan.simulations.len();
    for (i, simulation) in plan.simulations.iter().enumerate() {
        if interrupt.is_raised() {
            break;
        }
        let name = match all {
            1 => simulation.discipline.to_string(),
            _ => format!("{} of {all}: {}", i + 1, simulation.discipline),
        };
        let outcome = simulate(simulation, &name, plan.quiet, interrupt)?;
        if outcome.sojourn.pooled().count() == 0 {
            break;
        }
        runs.push(described(plan, simulation, &outcome, interrupt)?);
    }
    let cut = runs.iter().any(|run| run.stopped == "interrupted")
        // a fork-join that was cut short does not show in its run
        || plan.fork_join && interrupt.is_raised();
    let partial = cut || runs.len() < all;
    Ok((runs, partial))
}

fn described(
    plan: &RandomPlan,
    simulation: &Simulation,
    outcome: &Outcome,
    interrupt: &Interrupt,
) -> Result<SimulatedRun, Failure> {
    let mut run = evaluate::describe(
        &Described {
            arrivals: simulation.arrivals.to_string(),
            service: &simulation.service,
            workers: simulation.workers,
            discipline: &simulation.discipline,
            seed: simulation.seed,
        },
        outcome,
    );
    if let Some(parts) = plan.fanout {
        let mut fanout = evaluate::fanout(&outcome.sojourn, parts);
        if plan.fork_join {
            fanout.fork_join = fork_join::simulate(simulation, parts, plan.quiet, interrupt)?;
        }
        run.fanout = Some(fanout);
    }
    if plan.exact && outcome.stopped != Stopped::Interrupted {
        let (exact, z) = evaluate::exact(simulation, &outcome.sojourn).or_exit(Exit::Failed)?;
        run.exact = Some(exact);
        run.z = z;
    }
    Ok(run)
}
