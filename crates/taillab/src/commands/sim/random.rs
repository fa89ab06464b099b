//! Random arrivals.

use std::ops::ControlFlow;

use taillab_host::Interrupt;
use taillab_report::simulation::SimulatedRun;
use taillab_simulator::run::{Outcome, Stopped};
use taillab_simulator::simulation::Simulation;

use super::evaluate::{self, Described};
use super::plan::{RandomPlan, refused};
use super::watch::{Gauge, watched};
use super::{Finished, fork_join};
use crate::exit::{Exit, Failure, OrExit};

/// Runs every simulation of the plan, one after the other.
pub fn run(plan: &RandomPlan, interrupt: &Interrupt) -> Result<Finished, Failure> {
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
    let cut = runs.iter().any(|run| run.stopped == "interrupted");
    Ok(Finished {
        partial: cut || runs.len() < all,
        runs,
    })
}

/// One simulation, with a progress bar when it takes its time.
pub fn simulate(
    simulation: &Simulation,
    name: &str,
    quiet: bool,
    interrupt: &Interrupt,
) -> Result<Outcome, Failure> {
    let gauge = Gauge::default();
    let flag = interrupt.flag();
    watched(name, quiet, &gauge, || {
        simulation.run_observed(&|progress| {
            gauge.set(progress.done, progress.total);
            if flag.load(std::sync::atomic::Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    })
    .map_err(refused)
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
