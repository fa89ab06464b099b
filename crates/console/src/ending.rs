//! The end of a program: its exit code, and one line where something is wrong.

use std::process::ExitCode;

use crate::exit::{Exit, Failure};
use crate::help::in_one_line;
use crate::messages;

/// The exit code of a command; its error is shown first.
pub fn ended(result: Result<Exit, Failure>) -> ExitCode {
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            messages::line(&format_args!("error: {failure}"));
            failure.exit.into()
        }
    }
}

/// Help that was asked for, or in one line what is wrong with the command line.
pub fn refused(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        messages::line(&format_args!("error: {}", in_one_line(error)));
        return Exit::Usage.into();
    }
    // the reader may have closed the pipe (`| head`)
    let _ = error.print();
    Exit::Ok.into()
}
