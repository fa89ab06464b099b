//! The `taillab` command: arguments in, exit code out.

mod cli;
mod commands;
mod exit;
mod experiment;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::exit::Exit;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => commands::run::run(*args),
        Command::Completions { shell } => commands::shell::completions(shell),
        Command::Man { directory } => commands::shell::man(&directory),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("taillab: error: {failure}");
            failure.exit.into()
        }
    }
}
