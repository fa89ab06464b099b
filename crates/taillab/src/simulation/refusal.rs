//! What cannot be simulated.

use taillab_simulator::error::SimulationError;

use crate::exit::{Exit, Failure};

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
