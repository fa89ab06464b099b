//! Simulations of random arrivals.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use taillab_console::exit::Failure;
use taillab_host::Interrupt;
use taillab_simulator::run::Outcome;
use taillab_simulator::simulation::Simulation;

use super::refusal::refused;
use super::watch::{Gauge, watched};

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
            if flag.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    })
    .map_err(refused)
}
