//! `taillab rtt`: round trips of single messages over network protocols, up to p99.999.

#![allow(
    unreachable_pub,
    reason = "`pub` says what a module offers to the others"
)]
#![warn(
    clippy::print_stderr,
    reason = "it panics where stderr is closed: `console::messages` does not"
)]

mod args;
mod command;
mod explained;
mod figure;
mod hlog;
mod page;
mod parquet;
mod result;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;

use clap::Args;
use schemars::SchemaGenerator;
use taillab_console::instrument::{Instrument, JsonOutput, read};

/// `taillab rtt`.
pub const INSTRUMENT: Instrument = Instrument {
    name: "rtt",
    arguments: args::RttArgs::augment_args,
    run: |arguments, _| command::run(read(arguments)?),
    needs: args::NEEDS,
    works_everywhere: false,
    paper: None,
    output: JsonOutput {
        description: "The output of `taillab rtt --json`, and `result.json` of its directory.",
        schema: SchemaGenerator::into_root_schema_for::<result::RttResult>,
    },
    tables: || vec![parquet::TABLE.text()],
};
