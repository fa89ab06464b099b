//! Recorded arrivals.

use taillab_console::exit::Failure;
use taillab_experiment::simulation::{Gauge, play, watched};
use taillab_host::Interrupt;

use super::evaluate::{self, Described};
use super::plan::RecordedPlan;
use crate::result::SimulatedRun;

/// Plays the trace through every system at once.
pub fn run(plan: &RecordedPlan, interrupt: &Interrupt) -> Result<Vec<SimulatedRun>, Failure> {
    let name = format!("trace {}", plan.trace.name());
    let gauge = Gauge::default();
    let outcomes = watched(&name, plan.quiet, &gauge, || {
        play(&plan.trace, &plan.simulations, &gauge, interrupt)
    })?;
    Ok(plan
        .simulations
        .iter()
        .zip(outcomes)
        .map(|(simulation, outcome)| {
            let mut run = evaluate::describe(
                &Described {
                    arrivals: format!("trace:{}", plan.trace.name()),
                    service: &simulation.service,
                    workers: simulation.workers,
                    discipline: &simulation.discipline,
                    seed: simulation.seed,
                },
                &outcome,
            );
            run.fanout = plan
                .fanout
                .map(|parts| evaluate::fanout(&outcome.sojourn, parts));
            run
        })
        .collect())
}
