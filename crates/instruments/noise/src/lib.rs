//! `taillab noise`: what takes CPU time from a thread that never sleeps, and who.
//!
//! A thread on each measured CPU reads the time stamp counter in a loop (`host::noise`). Where two reads are further
//! apart than a threshold, there is a gap. Four times a second, on a CPU that is not measured (where there is one), a
//! collector takes the gaps and converts them to the kernel's clock, by pairs of reads of both clocks
//! (`experiment::noise`). `analysis::gaps` then gets the gaps and the probe's events, and charges every nanosecond of
//! a gap to the innermost of what ran in it. Nothing grows with the length of the run.
//!
//! The same loop also runs in the kernel, as an eBPF program (`probe/src/bpf/noise.bpf.c`), with interrupts on or off.
//! What it loses with interrupts off comes from below this kernel, and the other loops on its CPU lose that much too
//! (`command::below_kernel`).

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
    run: |arguments, _| command::run(read(arguments)?),
    needs: args::NEEDS,
    works_everywhere: false,
    paper: None,
    output: JsonOutput {
        description: "The output of `taillab noise --json`, and `noise.json`.",
        schema: SchemaGenerator::into_root_schema_for::<result::NoiseResult>,
    },
    tables: Vec::new,
};
