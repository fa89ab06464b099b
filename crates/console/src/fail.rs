//! The exit codes of errors of the other crates.

use taillab_host::{ErrorKind, HostError};
use taillab_load::LoadError;
use taillab_probe::ProbeError;

use crate::exit::{Exit, Failure};

/// A failure of the machine or the testbed.
pub fn host(error: impl Into<HostError>) -> Failure {
    let error = error.into();
    let exit = match error.kind() {
        ErrorKind::Failed => Exit::Failed,
        ErrorKind::Usage => Exit::Usage,
        ErrorKind::Unsupported => Exit::Unsupported,
    };
    Failure::new(exit, error)
}

/// A failure of the probe.
pub fn probe(error: ProbeError) -> Failure {
    let exit = match &error {
        ProbeError::NoPrivilege
        | ProbeError::PidNamespace
        | ProbeError::NoBtf
        | ProbeError::HookRefused { .. }
        | ProbeError::NotBuilt => Exit::Unsupported,
        ProbeError::BadSpec(_) => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::new(exit, error)
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::new(Exit::Failed, error)
    }
}
