//! The `taillab` command: arguments in, exit code out.

#![allow(
    unreachable_pub,
    reason = "in a binary, `pub` says what a module offers to the others"
)]
#![warn(
    clippy::print_stderr,
    reason = "it panics where stderr is closed: `console::messages` does not"
)]

mod cli;
mod commands;
#[cfg(test)]
mod documents;
mod instruments;
#[cfg(test)]
mod schemas;

use std::process::ExitCode;

use taillab_console::ending::{ended, refused};
use taillab_experiment::serve;

use crate::cli::Command;

fn main() -> ExitCode {
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let result = match cli.command {
        Command::Run(args) => commands::run::run(*args),
        Command::Trace(args) => commands::trace::run(*args),
        Command::Explain(args) => commands::explain::run(args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Serve(args) => serve::run(*args),
        Command::Load(args) => commands::load::run(*args),
        Command::Agent(args) => commands::load::run_agent(args),
        Command::Instrument(invocation) => invocation.run(),
        Command::Tune(args) => commands::tune::run(args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Burn(args) => commands::burn::run(&args),
        Command::Completions { shell } => commands::shell::completions(shell),
        Command::Man { directory } => commands::shell::man(&directory),
    };
    ended(result)
}
