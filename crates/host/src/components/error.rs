//! Why a component cannot be measured.

use std::io;

use crate::cpus::CpuError;
use crate::netns::NetnsError;
use crate::private_folder::PrivateFolderError;
use crate::programs::MissingProgram;
use crate::server::ServerError;
use crate::testbed::TestbedError;

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
    /// A program that is not installed.
    #[error(transparent)]
    Missing(#[from] MissingProgram),
    /// A program that does not run.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A folder for its files.
    #[error(transparent)]
    Folder(#[from] PrivateFolderError),
    /// The namespaces and the link between them.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
}
