//! The command line of `taillab agent`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use taillab_console::args::Output;

/// A plan, as the help shows it.
pub const EXAMPLE: &str = concat!(
    "{\n    \"taillab\": \"",
    env!("CARGO_PKG_VERSION"),
    r#"",
    "client": 0,
    "clients": 3,
    "target": "memcached+tcp://192.0.2.7",
    "rate_per_s": 5000,
    "arrivals": "poisson",
    "seed": 17,
    "warmup_ns": 1000000000,
    "duration_ns": 10000000000,
    "start": {"clock": "realtime", "at_ns": 1796000000000000000, "offset_ns": -1200, "error_ns": 300},
    "options": ["--connections=16", "--no-prefill"]
  }"#
);

fn help() -> String {
    format!(
        "A plan:\n  {EXAMPLE}\n\n  \"taillab\"     the version of the program, the same on all hosts\n  \
         rate_per_s    this client's share of the load, or \"max\": a closed loop\n  \
         start.clock   realtime or tai, kept together by NTP or PTP, or monotonic\n  \
         at_ns         the start by that clock of whoever made the plan\n  \
         offset_ns     that clock on this host minus that clock there, known within error_ns\n  \
         options       other options of `taillab load`\n\n\
         Examples:\n  \
         taillab agent plan.json -o client-0\n  \
         taillab agent - --json\n\n\
         Exit codes:\n  \
         0    everything went well\n  \
         1    something failed, e.g. the server died, or the start had passed\n  \
         2    wrong command line or plan\n  \
         4    no request was answered\n  \
         5    a privilege or a feature is missing, e.g. CLOCK_TAI was never set\n  \
         130  interrupted; what was measured is kept"
    )
}

/// Be one client of an experiment with several: wait for its start, send as planned, write the records.
///
/// `python -m taillab.cluster` makes the plans and starts an agent on each host; docs/cluster.md shows it. An agent sleeps until
/// shortly before the start, and measures as `taillab load` does: its own floor, lateness and verdict are in its result.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct AgentArgs {
    /// The plan, a JSON file, or - for standard input
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    #[command(flatten)]
    pub common: Output,
    /// Save the result in this new directory, with the files of `taillab load` [default: it is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
}
