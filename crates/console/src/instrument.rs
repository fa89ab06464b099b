//! The item by which an instrument registers: a command that is a whole of its own, beside the pipeline.

use clap::{ArgMatches, Command, FromArgMatches};
use schemars::{Schema, SchemaGenerator};
use taillab_host::doctor::Needs;
use taillab_report::columns::TableText;

use crate::exit::{Exit, Failure};
use crate::help::in_one_line;

/// A command with its arguments, its measurement and its result.
#[derive(Clone, Copy, Debug)]
pub struct Instrument {
    /// The name of its command.
    pub name: &'static str,
    /// Adds its help and its arguments to the command of this name.
    pub arguments: fn(Command) -> Command,
    /// Runs it with the arguments that were given. The second argument is all instruments that are built in.
    pub run: fn(&ArgMatches, &[Self]) -> Result<Exit, Failure>,
    /// The privileges that it needs or can use.
    pub needs: Needs,
    /// It needs nothing of the machine that it runs on.
    pub works_everywhere: bool,
    /// The paper that it reproduces as a whole, for `taillab reproduce`.
    pub paper: Option<Paper>,
    /// What it prints with `--json`.
    pub output: JsonOutput,
    /// Its files of columns, for the documents.
    pub tables: fn() -> Vec<TableText>,
}

/// A paper whose results are those of an instrument.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The name of the paper below `taillab reproduce`.
    pub name: &'static str,
    /// Its place among the papers in the help.
    pub place: usize,
    /// Adds its help and its arguments to the command of this name.
    pub arguments: fn(Command) -> Command,
    /// Runs the instrument, and compares with the paper.
    pub run: fn(&ArgMatches) -> Result<Exit, Failure>,
}

/// The shape of what a command prints with `--json`.
#[derive(Clone, Copy, Debug)]
pub struct JsonOutput {
    /// Which outputs have it.
    pub description: &'static str,
    /// Its JSON Schema.
    pub schema: fn(SchemaGenerator) -> Schema,
}

/// The arguments as data.
///
/// # Errors
/// [`Exit::Usage`]: one is missing.
pub fn read<A: FromArgMatches>(matches: &ArgMatches) -> Result<A, Failure> {
    A::from_arg_matches(matches).map_err(|error| Failure::usage(in_one_line(&error)))
}
