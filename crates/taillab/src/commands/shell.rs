//! `taillab completions` and `taillab man`.

use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{Exit, Failure, OrExit};

/// Prints the completion script of `shell`.
pub fn completions(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    clap_complete::generate(shell, &mut Cli::command(), "taillab", &mut io::stdout());
    Ok(Exit::Ok)
}

/// Writes `taillab.1`, `taillab-run.1` … into `directory`.
pub fn man(directory: &Path) -> Result<Exit, Failure> {
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("cannot make the directory {}: {error}", directory.display()),
        )
    })?;
    clap_mangen::generate_to(Cli::command(), directory).or_exit(Exit::Failed)?;
    Ok(Exit::Ok)
}
