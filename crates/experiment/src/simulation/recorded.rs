//! Simulations of recorded arrivals: the file is read twice, once to know its rate and once to
//! play it.

use std::sync::atomic::{AtomicU64, Ordering};

use taillab_console::exit::{Exit, Failure};
use taillab_host::Interrupt;
use taillab_simulator::error::SimulationError;
use taillab_simulator::run::Outcome;
use taillab_simulator::trace::{TraceSimulation, TraceSummary};

use super::refusal::{overloaded, refused};
use super::watch::Gauge;
use crate::time_stamps::TraceFile;

/// One pass for the summary, one for all simulations together.
pub fn play(
    trace: &TraceFile,
    simulations: &[TraceSimulation],
    gauge: &Gauge,
    interrupt: &Interrupt,
) -> Result<Vec<Outcome>, Failure> {
    let passes = 2 * trace.size();
    let read = AtomicU64::new(0);
    let step = |part: u64| -> Result<(), Failure> {
        gauge.set(read.fetch_add(part, Ordering::Relaxed), passes);
        if interrupt.is_raised() {
            return Err(Failure::new(
                Exit::Interrupted,
                "interrupted; a trace gives no result before its end",
            ));
        }
        Ok(())
    };
    let mut summary = TraceSummary::default();
    trace.read(|part, size| {
        step(size)?;
        summary
            .extend(part)
            .map_err(|error| refused(SimulationError::Trace(error)))
    })?;
    let mut runs = Vec::new();
    for simulation in simulations {
        runs.push(
            simulation
                .start(&summary)
                .map_err(|error| overload(trace, error))?,
        );
    }
    trace.read(|part, size| {
        step(size)?;
        for run in &mut runs {
            run.push(part)
                .map_err(|error| refused(SimulationError::Trace(error)))?;
        }
        Ok(())
    })?;
    runs.into_iter()
        .map(|run| run.finish().map_err(refused))
        .collect()
}

/// Adds to an overload that the trace can be played nevertheless.
fn overload(trace: &TraceFile, error: SimulationError) -> Failure {
    match error {
        SimulationError::Overload { what, load } => {
            let way_out = ", or play the trace to its end with --allow-overload";
            Failure::usage(overloaded(&what, load, way_out))
        }
        SimulationError::Trace(error) => Failure::usage(format!("{}: {error}", trace.name())),
        other => refused(other),
    }
}
