//! `taillab reproduce`: a paper's figures, and its claims next to our numbers.

mod deconstructing;
mod tales;

use super::budget;
use crate::cli::{Paper, ReproduceArgs};
use crate::exit::{Exit, Failure};

/// Reproduces what was asked for; the figures are written, the claims printed.
pub fn run(args: ReproduceArgs) -> Result<Exit, Failure> {
    match args.paper {
        Paper::Tales(args) => tales::run(args),
        // the paper's figures stand beside the budget's
        Paper::TimeGone(args) => budget::run(&args),
        Paper::Deconstructing(args) => deconstructing::run(args),
    }
}
