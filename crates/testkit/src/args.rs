//! The command line of `taillab-testkit causes`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use taillab_console::args::{Output, count};
use taillab_experiment::args::load_share;
use taillab_host::doctor::TESTKIT;
use taillab_model::Nanos;
use taillab_testkit::causes::CauseKind;

const CAUSES_EXIT_CODES: &str = "Exit codes:\n  0    every kind that can be injected here passed\n  1    \
    something failed\n  2    wrong command line\n  3    a kind failed: see the table\n  4    none \
    failed, but some results are not precise enough to pass\n  5    a privilege is missing, or none of \
    the kinds can be injected here\n  130  interrupted; what was measured is kept";

/// Inject known causes of latency into a server, and check which causes the analysis finds.
///
/// For each kind, a built-in server runs under Poisson load in the testbed of `taillab run`, in
/// pairs of blocks with the same arrivals, with and without the disturbance. The truth is how much
/// longer the client waited with it. The time that the ledger charges to the right cause and culprit
/// must match that within 10 %, for certain: pairs are added until that is decided. With -o every block is
/// kept.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  sudo taillab-testkit causes background lock\n\n{}\n\n{CAUSES_EXIT_CODES}", TESTKIT.said()))]
pub struct CausesArgs {
    /// What to inject [default: every kind, and a run without one]
    #[arg(value_name = "KIND")]
    pub kinds: Vec<CauseKind>,
    /// Length of each block
    #[arg(short, long, value_name = "TIME", default_value = "1500ms")]
    pub duration: Nanos,
    /// Load as a share of the server's capacity; some kinds use a higher one
    #[arg(short, long, value_name = "SHARE", value_parser = load_share, default_value = "55%", allow_negative_numbers = true)]
    pub utilization: f64,
    /// Also compare the forecasts without the cause with the measurement without it
    #[arg(long)]
    pub fix_check: bool,
    /// Pairs of blocks, with and without the cause; half as many again, where these do not decide
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count::<u32>)]
    pub pairs: u32,
    /// No more pairs than this [default: four times --pairs]
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    pub most_pairs: Option<u32>,
    /// The server's CPU
    #[arg(short = 'C', long, value_name = "CPU", default_value_t = 0)]
    pub server_cpu: u32,
    /// The generator's CPU
    #[arg(long, value_name = "CPU", default_value_t = 1)]
    pub client_cpu: u32,
    /// Instead of measuring, analyse the blocks that an earlier -o kept in this directory; needs no root
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        conflicts_with_all = ["duration", "utilization", "pairs", "most_pairs", "server_cpu", "client_cpu"]
    )]
    pub again: Option<PathBuf>,
    /// Save the result in this new directory: recordings, truths and the verdicts [default: it is
    /// printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
}
