//! The command line of `taillab explain`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use taillab_console::args::{AnalysisArgs, LimitArgs, Output};

const HELP: &str = "Examples:\n  \
    taillab explain taillab-memcached-1\n  \
    taillab explain taillab-memcached-1 --slowest 3\n  \
    taillab explain capture.tlc --json | jq .verdict\n\n\
    Exit codes:\n  \
    0    everything went well\n  \
    1    something failed, e.g. there is no such file\n  \
    2    wrong command line\n  \
    3    a limit of --assert is not met\n  \
    4    no request has a response, or an --assert is not decided";

/// Analyse a recording again, on any machine, without root or the server.
///
/// Reads capture.tlc, as written by `taillab trace` (or `taillab run --save-capture`), and shows how
/// long requests were in the server, where, and why longer than in an ideal queue. If the file is damaged
/// or truncated, it analyses what can be read, and says what is missing.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ExplainArgs {
    /// The recording, or the directory of the result that has it
    #[arg(value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub recording: PathBuf,
    /// Save the result in this new directory [default: it is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Result")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
    #[command(flatten, next_help_heading = "Analysis")]
    pub analysis: AnalysisArgs,
    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitArgs,
}
