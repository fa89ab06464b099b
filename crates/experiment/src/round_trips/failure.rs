//! Exit codes of the errors of round trips.

use taillab_console::exit::{Exit, Failure};
use taillab_load::rtt::RttError;

/// The failure with its exit code.
pub fn failure(error: &RttError) -> Failure {
    let exit = match error {
        RttError::BusyPoll { .. } | RttError::IoUring { .. } | RttError::Unavailable { .. } => {
            Exit::Unsupported
        }
        RttError::Mode { .. } | RttError::Size { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::new(exit, error)
}
