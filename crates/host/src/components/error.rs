//! Why a component cannot be measured.

use std::io;

use crate::cpus::CpuError;
use crate::netns::NetnsError;

/// Why a component cannot be measured here.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// A namespace of its own.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// A CPU.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A step that the kernel refuses.
    #[error("cannot {doing}: {source}; {remedy}")]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
        /// What helps.
        remedy: &'static str,
    },
    /// No such device.
    #[error("there is no {0} here")]
    Missing(&'static str),
}
