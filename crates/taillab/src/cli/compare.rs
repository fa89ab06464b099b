//! The command line of `taillab compare`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use taillab_console::args::{Output, count};
use taillab_model::threshold::Threshold;

const HELP: &str = "Examples:\n  \
    taillab compare before after\n  \
    taillab compare before/summary.json after/summary.json --assert 'p99<=110%'\n  \
    sudo taillab compare before after --again 10\n\n\
    Exit codes:\n  \
    0    compared\n  \
    1    something failed, e.g. there is no such file\n  \
    2    wrong command line\n  \
    3    a limit of --assert is not met\n  \
    4    a result is invalid, or the intervals do not decide";

/// Compare two results: percentiles side by side, and their ratio with its interval.
///
/// Reads the results that run, trace, explain and load have saved (summary.json, result.json). Compares the
/// sojourn in the server, of all requests; where one is of load, the client's response time. Two
/// measurements one after the other also differ because the machine changes, and one start of a server
/// differs from the next: the intervals, each of one measurement, do not contain that. With --again both
/// experiments are started again and again, in turn, and each start is one unit. `taillab run --fix` measures
/// in pairs, too, of one server.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct CompareArgs {
    /// The first result: its directory or its file
    #[arg(value_name = "BEFORE", value_hint = ValueHint::AnyPath)]
    pub before: PathBuf,
    /// The second result
    #[arg(value_name = "AFTER", value_hint = ValueHint::AnyPath)]
    pub after: PathBuf,
    /// A limit that the second result must meet: p99<=110% of the first, p99.9<=2ms, max<=20ms or
    /// errors<0.1%; may be repeated. Exit code 3: not met; 4: the interval does not decide
    ///
    /// max and errors<=0% are limits on the measured requests, without an interval
    #[arg(long = "assert", value_name = "LIMIT", help_heading = "Limits")]
    pub limits: Vec<Threshold>,
    /// Start both experiments, which taillab run has saved, so many times each (at least 6), in pairs whose order is
    /// drawn, and compare the starts
    ///
    /// A load by utilisation is held at the rate of the first result
    #[arg(long, value_name = "N", help_heading = "Starts in turn", value_parser = count::<u32>)]
    pub again: Option<u32>,
    /// Save the result in this new directory, with a result of each start [default: taillab-again]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "again", help_heading = "Starts in turn")]
    pub output: Option<PathBuf>,
    /// Seed of the order, and of the first pair's load
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        requires = "again",
        help_heading = "Starts in turn"
    )]
    pub seed: u64,
    #[command(flatten)]
    pub common: Output,
}
