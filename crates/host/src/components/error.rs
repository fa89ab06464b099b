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
    /// A network namespace cannot be made or entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The thread cannot be pinned to its CPU.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The kernel refuses a step.
    #[error("cannot {doing}: {source}; {remedy}")]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
        /// What helps.
        remedy: &'static str,
    },
    /// The program is not installed.
    #[error(transparent)]
    Missing(#[from] MissingProgram),
    /// The program does not run.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The folder for the program's files cannot be made.
    #[error(transparent)]
    Folder(#[from] PrivateFolderError),
    /// The two namespaces or the link between them cannot be made.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
}
