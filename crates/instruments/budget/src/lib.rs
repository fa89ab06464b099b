//! `taillab budget`: where the time goes between two programs on a network, component by component.

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
mod network;
mod page;
mod result;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;

use clap::Args;
use schemars::SchemaGenerator;
use taillab_console::instrument::{Instrument, JsonOutput, Paper, read};

/// `taillab budget`.
pub const INSTRUMENT: Instrument = Instrument {
    name: "budget",
    arguments: args::BudgetArgs::augment_args,
    run: |arguments, _| command::run(&read(arguments)?, "budget"),
    needs: args::NEEDS,
    works_everywhere: false,
    paper: Some(TIME_GONE),
    output: JsonOutput {
        description: "The output of `taillab budget --json` and `taillab reproduce time-gone --json`, and \
                      `budget.json`.",
        schema: SchemaGenerator::into_root_schema_for::<result::BudgetResult>,
    },
    tables: Vec::new,
};

/// The paper whose rows these are.
const TIME_GONE: Paper = Paper {
    name: "time-gone",
    place: 1,
    arguments: |command| {
        args::BudgetArgs::augment_args(command)
            .about(TITLE)
            .long_about(None)
    },
    run: |arguments| command::run(&read(arguments)?, "reproduce"),
};

const TITLE: &str = "Where Has My Time Gone? (Zilberman et al. 2017): every row of its tables next to ours; the same as \
                     `taillab budget`";
