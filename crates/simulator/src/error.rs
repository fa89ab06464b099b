//! Why a simulation or a recorded trace is refused.

use taillab_queueing::arrivals::ArrivalError;
use taillab_queueing::service::ServiceError;

/// Why a trace is unusable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// It is empty.
    #[error("the trace is empty; it needs at least two time stamps")]
    Empty,
    /// All requests arrive at once.
    #[error(
        "the trace has no rate: all its {0} time stamps are equal; give at least two that differ"
    )]
    NoDuration(u64),
    /// It is not in order of time.
    #[error(
        "the trace is not in order: time stamp {position} ({later} ns) comes before the one above it ({earlier} ns); sort it by time"
    )]
    Unsorted {
        /// The number of the time stamp, from 1.
        position: u64,
        /// The time stamp before it.
        earlier: u64,
        /// The time stamp at `position`.
        later: u64,
    },
    /// It differs from its summary.
    #[error(
        "the trace changed while it was read: {expected} time stamps at first, {found} now; run \
         again when nothing writes to it"
    )]
    Changed {
        /// The number of time stamps in the summary.
        expected: u64,
        /// The number found in the second reading.
        found: u64,
    },
}

/// Why a simulation cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// The utilisation is not a number above 0.
    #[error(
        "the utilisation must be between 0 and 1, not {0}; 0.8 means that the workers are busy 80 % of the time"
    )]
    Utilization(f64),
    /// Requests arrive faster than they can be served.
    #[error(
        "{what} would be {load:.4} of the capacity: at 1 and above the queue grows without \
         bound and has no latency distribution; lower the utilisation (a finite trace can \
         be run with overload allowed)"
    )]
    Overload {
        /// What is loaded.
        what: String,
        /// Load ÷ capacity.
        load: f64,
    },
    /// The arrival process is invalid.
    #[error(transparent)]
    Arrivals(#[from] ArrivalError),
    /// The service times are invalid.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A number is out of range.
    #[error("{what} must be {wanted}, not {value}")]
    Parameter {
        /// The parameter's name, with its article.
        what: &'static str,
        /// The range that it must be in.
        wanted: &'static str,
        /// The value given.
        value: f64,
    },
    /// The trace is unusable.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Threads could not be started.
    #[error("cannot start {threads} threads: {reason}; use fewer")]
    Threads {
        /// The number of threads wanted.
        threads: usize,
        /// The operating system's error.
        reason: String,
    },
}

/// An error if the value of a parameter is not `good`.
pub(crate) fn parameter(
    what: &'static str,
    wanted: &'static str,
    value: f64,
    good: bool,
) -> Result<(), SimulationError> {
    good.then_some(()).ok_or(SimulationError::Parameter {
        what,
        wanted,
        value,
    })
}
