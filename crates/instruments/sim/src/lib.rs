//! `taillab sim`: queues with random or recorded arrivals, simulated and compared with exact results.

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
mod figure;
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
use taillab_host::doctor::Needs;

/// `taillab sim`.
pub const INSTRUMENT: Instrument = Instrument {
    name: "sim",
    arguments: args::SimArgs::augment_args,
    run: |arguments, _| command::run(read(arguments)?),
    needs: Needs::NOTHING,
    works_everywhere: true,
    paper: None,
    output: JsonOutput {
        description: "The output of `taillab sim --json`, and `sim.json`. With `--exact` the keys `exact` \
                      and `z` are there.",
        schema: SchemaGenerator::into_root_schema_for::<result::SimulationReport>,
    },
    tables: || vec![parquet::TABLE.text()],
};
