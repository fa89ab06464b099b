//! The built-in servers: our own program once more, as `taillab serve`.

use std::ffi::OsString;
use std::net::SocketAddr;

use crate::experiment::{Experiment, Requests};

/// `serve null-rpc --listen …`.
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
    if let Requests::Echo {
        request_bytes,
        response_bytes,
    } = experiment.requests()
    {
        set("--request-bytes", request_bytes.to_string());
        set("--response-bytes", response_bytes.to_string());
    }
    set("--seed", experiment.workload.seed.to_string());
    args.into_iter().map(OsString::from).collect()
}
