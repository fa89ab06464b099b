//! The servers that can be measured: how each is started and how its readiness is checked.

mod custom;
mod memcached;
mod nginx;
mod null_rpc;
mod ready;

use std::ffi::OsString;
use std::net::SocketAddr;

use taillab_console::exit::Failure;
use taillab_host::environment::ServerFacts;
use taillab_host::{PrivateFolder, Roots, User, server};

use crate::definition::{Experiment, ServerKind};

pub use self::null_rpc::FAULT_LOG;
pub use self::ready::Question;

/// The command-line arguments with which the experiment's server listens at `address` as `user`, and its
/// working directory, if it needs files of its own.
///
/// # Errors
/// A usage failure if the server cannot do this; another failure if its files cannot be created.
pub fn launch(
    experiment: &Experiment,
    address: SocketAddr,
    user: &User,
) -> Result<(Vec<OsString>, Option<PrivateFolder>), Failure> {
    let (mut args, folder) = match experiment.server.kind {
        ServerKind::NullRpc => (
            null_rpc::args(experiment, address),
            null_rpc::folder(experiment, user)?,
        ),
        ServerKind::Memcached => (memcached::args(experiment, address), None),
        ServerKind::Nginx => (
            nginx::args(),
            Some(nginx::folder(experiment, address, user)?),
        ),
        ServerKind::Custom => (custom::args(experiment, address), None),
    };
    if experiment.server.kind != ServerKind::Custom {
        args.extend(experiment.server.args.iter().map(OsString::from));
    }
    Ok((args, folder))
}

/// Checks that the server supports the experiment, before anything is created.
///
/// # Errors
/// A usage failure that says what it cannot do.
pub fn check(experiment: &Experiment) -> Result<(), Failure> {
    match experiment.server.kind {
        ServerKind::Nginx => nginx::page(experiment).map(drop),
        _ => Ok(()),
    }
}

/// How many descriptors the server may need: two for each connection (nginx opens the file for each
/// request), plus its own and those of its workers.
pub fn open_files(experiment: &Experiment) -> u64 {
    let connections = u64::from(experiment.client.all_connections());
    let workers = u64::from(experiment.server.workers.unwrap_or(0));
    2 * connections + 256 + 8 * workers
}

/// The server's program and the version that it reports.
pub fn facts(experiment: &Experiment) -> ServerFacts {
    let program = &experiment.server.program;
    // its user runs it here, too
    let user = User::find(&Roots::default(), &experiment.server.user).ok();
    let version = |flag| server::version(program, flag, user.as_ref()?);
    let version = match experiment.server.kind {
        ServerKind::NullRpc => Some(format!("taillab {}", env!("CARGO_PKG_VERSION"))),
        ServerKind::Memcached => version("-V"),
        ServerKind::Nginx => version("-v"),
        // an unknown option might start the server
        ServerKind::Custom => None,
    };
    ServerFacts {
        program: program.clone(),
        version,
    }
}
