//! What cannot be simulated.

use taillab_console::exit::{Exit, Failure};
use taillab_simulator::error::SimulationError;

/// A specification that cannot be run, with the option that helps.
pub fn refused(error: SimulationError) -> Failure {
    let message = match &error {
        SimulationError::Overload { what, load } => {
            // a share that was meant as a percentage
            let percent = if (2.0..=99.0).contains(load) {
                format!("; a percentage needs its sign, e.g. --utilization {load:.0}%")
            } else {
                String::new()
            };
            let way_out = " (a trace, which ends, can be run with --trace FILE --allow-overload)";
            format!("{}{percent}", overloaded(what, *load, way_out))
        }
        _ => error.to_string(),
    };
    let exit = match error {
        SimulationError::Threads { .. } => Exit::Failed,
        _ => Exit::Usage,
    };
    Failure::new(exit, message)
}

/// The sentence of an overload; `way_out` follows the advice to lower the utilisation.
pub fn overloaded(what: &str, load: f64, way_out: &str) -> String {
    format!(
        "{what} would be {load:.4} of the capacity: at 1 and above the queue grows without bound \
         and has no latency distribution; lower the utilisation{way_out}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overload_says_what_helps() {
        let message = |load| {
            let what = "the utilisation".to_owned();
            refused(SimulationError::Overload { what, load }).message
        };
        let text = message(1.2);
        assert!(
            text.starts_with("the utilisation would be 1.2000 of the capacity"),
            "{text}"
        );
        assert!(text.ends_with("--trace FILE --allow-overload)"), "{text}");
        assert!(message(75.0).ends_with("--utilization 75%"), "{text}");
    }
}
