//! `taillab reproduce`: papers' figures, and their claims next to our numbers.

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
mod page;
mod result;
mod terminal;

use clap::Args;
use schemars::SchemaGenerator;
use taillab_console::instrument::{Instrument, JsonOutput, read};

/// `taillab reproduce`.
pub const INSTRUMENT: Instrument = Instrument {
    name: "reproduce",
    arguments: args::ReproduceArgs::augment_args,
    run: |arguments| command::run(read::<args::ReproduceArgs>(arguments)?.paper),
    paper: None,
    output: JsonOutput {
        description: "The output of `taillab reproduce --json`.",
        schema: SchemaGenerator::into_root_schema_for::<result::Reproduction>,
    },
};
