//! The command line of `taillab bench`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use taillab_host::doctor::privileges_of;
use taillab_model::Nanos;
use taillab_testkit::causes::CauseKind;

use super::shared::{Output, share};

const CAUSES_EXIT_CODES: &str = "Exit codes:\n  0    every cause that can be injected here was \
    found\n  1    something failed\n  2    wrong command line\n  3    a cause was charged wrongly: \
    the table says which\n  5    a privilege is missing, or none of the kinds can be injected \
    here\n  130  interrupted; what was measured is kept";

/// Measure taillab itself against truths that are known.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    Causes(CausesArgs),
}

/// Inject known causes of latency into a server and see what they are charged to.
///
/// For each kind a built-in server runs under Poisson load in the testbed of `taillab run`,
/// something disturbs it by a schedule and stamps by itself when it did, and the recording is
/// explained as any other. What each disturbance cost each request follows from its time and
/// the request's first and last stamp alone; the table says to which cause the ledger charged
/// that. With -o the ground truth is kept with the recording.
#[derive(Debug, Args)]
#[command(after_help = format!("{}\n\n{CAUSES_EXIT_CODES}", privileges_of("bench")))]
pub struct CausesArgs {
    /// What to inject [default: all, and a run without]
    #[arg(value_name = "KIND", value_parser = kinds())]
    pub kinds: Vec<CauseKind>,
    /// Length of each measurement
    #[arg(short, long, value_name = "TIME", default_value = "5s")]
    pub duration: Nanos,
    /// Load as a share of the server's capacity
    #[arg(short, long, value_name = "SHARE", value_parser = share, default_value = "30%", allow_negative_numbers = true)]
    pub utilization: f64,
    /// Also measure without the cause, in turn with it, and compare that with what was
    /// predicted
    #[arg(long)]
    pub fix_check: bool,
    /// Pairs of measurements for that, with and without the cause
    #[arg(long, value_name = "N", default_value_t = 6, requires = "fix_check")]
    pub pairs: u32,
    /// The server's CPU
    #[arg(short = 'C', long, value_name = "CPU", default_value_t = 0)]
    pub server_cpu: u32,
    /// The generator's CPU
    #[arg(long, value_name = "CPU", default_value_t = 1)]
    pub client_cpu: u32,
    /// Explain what an earlier -o kept in this directory, and measure nothing; needs no root
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        conflicts_with_all = ["duration", "utilization", "fix_check", "server_cpu", "client_cpu"]
    )]
    pub again: Option<PathBuf>,
    /// Directory for recordings, truths and the result; nothing is kept without
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
}

fn kinds() -> impl TypedValueParser<Value = CauseKind> {
    let values = CauseKind::ALL.map(|kind| PossibleValue::new(kind.name()).help(kind.about()));
    PossibleValuesParser::new(values).try_map(|name| {
        let mut kinds = CauseKind::ALL.into_iter();
        kinds
            .find(|kind| kind.name() == name)
            .ok_or("no kind has this name")
    })
}
