//! A server of the user's own.

use std::ffi::OsString;
use std::net::SocketAddr;

use crate::experiment::Experiment;

/// Its arguments, with `{address}` and `{port}` for where it is to listen.
pub fn args(experiment: &Experiment, address: SocketAddr) -> Vec<OsString> {
    let fill = |word: &String| {
        word.replace("{address}", &address.ip().to_string())
            .replace("{port}", &address.port().to_string())
            .into()
    };
    experiment.server.args.iter().map(fill).collect()
}

/// The words of a command line, by the quoting rules of a POSIX shell; nothing else of a shell
/// is understood, and none is started.
pub fn words(command: &str) -> Result<Vec<String>, String> {
    let words = shlex::split(command).ok_or("a quote is not closed, or a \\ ends the line")?;
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => Err("it names no program".to_owned()),
    }
}
