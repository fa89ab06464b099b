//! `taillab-testkit`: proves taillab with known causes of latency. It is no part of `taillab`.

#![allow(
    unreachable_pub,
    reason = "in a binary, `pub` says what a module offers to the others"
)]
#![warn(
    clippy::print_stderr,
    reason = "it panics where stderr is closed: `console::messages` does not"
)]

mod args;
mod bench;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use taillab_console::ending::{ended, refused};
use taillab_console::help::dressed;
use taillab_experiment::serve::{self, ServeArgs};

use self::args::CausesArgs;

/// Measure taillab itself against known truths.
#[derive(Debug, Parser)]
#[command(name = "taillab-testkit", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Causes(CausesArgs),
    // the testbed starts a built-in server as another instance of this program
    #[command(hide = true)]
    Serve(Box<ServeArgs>),
}

fn main() -> ExitCode {
    let matches = dressed(Cli::command()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let result = match cli.command {
        Command::Causes(args) => bench::causes(&args),
        Command::Serve(args) => serve::run(*args),
    };
    ended(result)
}
