//! Why a server does not run.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::exit::ServerExit;
use crate::programs::MissingProgram;

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The program is not installed.
    #[error(transparent)]
    Missing(#[from] MissingProgram),
    /// It could not be started.
    #[error("cannot start {program}: {reason}")]
    Start {
        /// The program.
        program: String,
        /// Which step failed and how.
        reason: String,
    },
    /// It ended before it was ready, or while it was needed.
    #[error("{0}")]
    Exited(ServerExit),
    /// It runs but does not answer.
    #[error("{program} did not answer within {} s{}", waited.as_secs(), said(last_lines))]
    NotReady {
        /// The program.
        program: String,
        /// How long taillab asked whether it is ready.
        waited: Duration,
        /// The last lines that it wrote, with ` | ` between them.
        last_lines: Option<String>,
    },
    /// Another process holds its port.
    #[error(
        "{transport} port {} at {} is taken: stop the process that holds it (ss -lntup shows it) or \
         choose another port", address.port(), address.ip()
    )]
    PortTaken {
        /// `TCP` or `UDP`.
        transport: &'static str,
        /// The address and port wanted.
        address: SocketAddr,
    },
    /// The address cannot be used at all.
    #[error(
        "cannot use {transport} port {} at {}: {source}; choose another port, or run as root (sudo) for \
         one below 1024", address.port(), address.ip()
    )]
    Port {
        /// `TCP` or `UDP`.
        transport: &'static str,
        /// The address and port wanted.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel does not say whether it still runs, or does not let us end it.
    #[error("cannot watch {program}: {source}")]
    Watch {
        /// The program.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn said(last_lines: &Option<String>) -> String {
    match last_lines {
        Some(lines) => format!("; it last wrote: {lines}"),
        None => String::new(),
    }
}
