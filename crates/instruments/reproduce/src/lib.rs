//! `taillab reproduce`: papers' figures, and their claims next to our numbers.

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
mod declared;
mod judge;
mod listed;
mod page;
mod result;
mod terminal;
#[cfg(test)]
mod tests;

use clap::Args;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use taillab_console::instrument::{Instrument, JsonOutput, read};
use taillab_host::doctor::Needs;

/// `taillab reproduce`.
pub const INSTRUMENT: Instrument = Instrument {
    name: "reproduce",
    arguments: args::ReproduceArgs::augment_args,
    run: |arguments, built_in| {
        command::run(read::<args::ReproduceArgs>(arguments)?.paper, built_in)
    },
    needs: Needs::NOTHING,
    works_everywhere: true,
    paper: None,
    output: JsonOutput {
        description: "The output of `taillab reproduce --json`: of a paper `figures` is there, of `list` `rows`.",
        schema: SchemaGenerator::into_root_schema_for::<ReproduceOutput>,
    },
    tables: Vec::new,
};

/// What is printed with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ReproduceOutput {
    /// Of a paper.
    Figures(result::Reproduction),
    /// Of `list`.
    List(listed::FigureList),
}
