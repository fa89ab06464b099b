//! The options of `--fix`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use taillab_console::args::positive;
use taillab_model::Nanos;

/// The options of `--fix` for every server.
#[derive(Clone, Debug, Args)]
pub struct FixArgs {
    /// After the measurement, try the mitigations with the best forecasts, the best first: apply one, measure
    /// pairs of blocks with and without it, and keep it only if p99.9 is significantly better, by at
    /// least 5 % (p99 where p99.9 cannot decide, p50 where both lack requests). Everything is put back at the
    /// end; after a crash, `taillab tune revert` does that
    #[arg(long)]
    pub fix: bool,
    /// Leave the winners applied; `taillab tune revert` puts them back
    #[arg(long, requires = "fix")]
    pub keep: bool,
    /// Time for these trials
    #[arg(long, value_name = "TIME", value_parser = positive, requires = "fix", default_value = "3m")]
    pub fix_budget: Nanos,
    /// Also write the winners into a directory: a systemd drop-in, a file for sysctl.d and a shell script
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "fix")]
    pub export: Option<PathBuf>,
}

/// The options of `--fix` for a server that taillab starts and loads.
#[derive(Clone, Debug, Args)]
pub struct FactorialArgs {
    /// Try these mitigations in all combinations instead of one after the other, and show the effect of
    /// each and how they interact, e.g. rt-priority,irq-affinity
    #[arg(
        hide_short_help = true,
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "fix",
        conflicts_with_all = ["keep", "export"]
    )]
    pub factorial: Vec<String>,
}

/// The options of `--fix` for a live server.
#[derive(Clone, Copy, Debug, Args)]
pub struct ConsentArgs {
    /// Make changes without asking
    #[arg(long, requires = "fix")]
    pub yes: bool,
}
