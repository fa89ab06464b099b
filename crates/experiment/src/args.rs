//! Options and values of several commands, about recorded arrivals, the load and what is recorded.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use taillab_console::args::share;
use taillab_probe::Disturbances;

use crate::time_stamps::{TimeUnit, TraceOptions};

/// The highest utilisation that a load may ask for, in every command. From 1 on queues only grow, which
/// overloads a server on purpose.
pub const MOST_UTILIZATION: f64 = 1.5;

/// The help of `--disturbances`; `default` is what is recorded without it.
pub fn disturbances_help(default: &str) -> String {
    let kinds = Disturbances::names();
    format!(
        "Kinds of disturbance to record: all, none, or a list of {kinds}; storage and lock add irq and \
         softirq [default: {default}]"
    )
}

/// A file with recorded arrivals.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceFileArgs {
    /// Recorded arrivals: a file with time stamps (text, CSV or Parquet)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// The column with the time stamps: its name, or its number from 1
    #[arg(
        hide_short_help = true,
        long,
        value_name = "COLUMN",
        requires = "trace"
    )]
    pub trace_column: Option<String>,
    /// The unit of the time stamps [default: from the column's name, as in time_us; else it is needed, unless -R or
    /// -u sets the rate, where it does not matter]
    #[arg(hide_short_help = true, long, value_name = "UNIT", requires = "trace")]
    pub trace_unit: Option<TimeUnit>,
}

impl TraceFileArgs {
    /// The file at `path`, with the given column and unit.
    pub fn options(&self, path: &Path) -> TraceOptions {
        TraceOptions {
            path: path.to_owned(),
            column: self.trace_column.clone(),
            unit: self.trace_unit,
            unit_matters: false,
        }
    }
}

/// A load as a share of the capacity: above 0 and at most [`MOST_UTILIZATION`], in every command.
pub fn load_share(text: &str) -> Result<f64, String> {
    let value = share(text)?;
    if value > 0.0 && value <= MOST_UTILIZATION {
        return Ok(value);
    }
    let without_sign = !text.contains('%') && (MOST_UTILIZATION..=100.0).contains(&value);
    let percent = match without_sign {
        true => format!("; a percentage needs its sign, e.g. {value}%"),
        false => String::new(),
    };
    Err(format!(
        "`{text}` is not a share of the capacity; it must be above 0 and at most {:.0}%{percent}",
        100.0 * MOST_UTILIZATION
    ))
}
