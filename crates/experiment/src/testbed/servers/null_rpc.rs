//! The built-in servers: another instance of our own program, as `taillab serve`.

use std::ffi::OsString;
use std::net::SocketAddr;

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_host::{PrivateFolder, User};

use crate::definition::Experiment;

/// The subfolder of the server's folder that it may write to.
const LOG_FOLDER: &str = "log";
/// Path of the server's fault record, relative to its folder.
pub const FAULT_LOG: &str = "log/faults.json";
const FOLDER_BYTES: u64 = 64 << 20;

/// Makes a folder for the server's fault record; `None` unless the server's arguments name [`FAULT_LOG`].
pub fn folder(experiment: &Experiment, user: &User) -> Result<Option<PrivateFolder>, Failure> {
    if !experiment.server.args.iter().any(|arg| arg == FAULT_LOG) {
        return Ok(None);
    }
    let folder = PrivateFolder::new(FOLDER_BYTES).map_err(host)?;
    folder.make_folder(LOG_FOLDER, user).map_err(host)?;
    Ok(Some(folder))
}

/// The arguments: `serve ARCHITECTURE --listen …`.
pub fn args(experiment: &Experiment, address: SocketAddr) -> Vec<OsString> {
    let server = &experiment.server;
    let mut args = vec!["serve".to_owned()];
    args.extend(
        server
            .architecture
            .map(|architecture| architecture.to_string()),
    );
    let mut set = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    set("--listen", address.to_string());
    if let Some(service) = &server.service {
        set("--service", service.to_string());
    }
    if let Some(workers) = server.workers {
        set("--workers", workers.to_string());
    }
    let sizes = experiment.requests().echo;
    set("--request-bytes", sizes.request_bytes.to_string());
    set("--response-bytes", sizes.response_bytes.to_string());
    set("--seed", experiment.workload.seed.to_string());
    args.into_iter().map(OsString::from).collect()
}
