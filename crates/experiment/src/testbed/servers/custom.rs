//! A server that the user supplies.

use std::ffi::OsString;
use std::net::SocketAddr;

use crate::definition::Experiment;

/// Its arguments, with `{address}` and `{port}` replaced by where it must listen.
pub fn args(experiment: &Experiment, address: SocketAddr) -> Vec<OsString> {
    let fill = |word: &String| {
        word.replace("{address}", &address.ip().to_string())
            .replace("{port}", &address.port().to_string())
            .into()
    };
    experiment.server.args.iter().map(fill).collect()
}
