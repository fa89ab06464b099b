//! `taillab noise`: what takes CPU time from a thread that never sleeps, and who.

#![allow(
    unreachable_pub,
    reason = "`pub` says what a module offers to the others"
)]
#![warn(
    clippy::print_stderr,
    reason = "it panics where stderr is closed: `say` does not"
)]

mod args;
mod command;
mod figure;
mod page;
mod result;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;
mod texts;
mod worst;

use clap::Args;
use schemars::SchemaGenerator;
use taillab_console::instrument::{Instrument, JsonOutput, read};

/// `taillab noise`.
pub const INSTRUMENT: Instrument = Instrument {
    name: "noise",
    arguments: args::NoiseArgs::augment_args,
    run: |arguments| command::run(read(arguments)?),
    paper: None,
    output: JsonOutput {
        description: "The output of `taillab noise --json`, and `noise.json`.",
        schema: SchemaGenerator::into_root_schema_for::<result::NoiseResult>,
    },
};
