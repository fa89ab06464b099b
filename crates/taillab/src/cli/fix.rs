//! The options of `--fix`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use taillab_model::Nanos;

use super::shared::positive;

/// What is tried after the measurement.
#[derive(Clone, Debug, Args)]
pub struct FixArgs {
    /// After the measurement, try what the forecasts promise, the best first: apply it, measure pairs of
    /// blocks without and with it, and keep it only if p99.9 is significantly and at least 5 % better.
    /// Everything is put back at the end, after a crash by `taillab tune revert`
    #[arg(long)]
    pub fix: bool,
    /// Leave the winners applied; `taillab tune revert` puts them back
    #[arg(long, requires = "fix")]
    pub keep: bool,
    /// For how long to try
    #[arg(long, value_name = "TIME", value_parser = positive, requires = "fix", default_value = "3m")]
    pub fix_budget: Nanos,
    /// Also write the winners into a directory: a systemd drop-in, a file for sysctl.d and a shell script
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "fix")]
    pub export: Option<PathBuf>,
}
