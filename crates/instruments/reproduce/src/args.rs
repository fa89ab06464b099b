//! The command line of `taillab reproduce`.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use taillab_console::args::{Count, Output, count};
use taillab_experiment::args::TraceFileArgs;
use taillab_host::CpuSet;

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed, or a \
    claim was not reproduced\n  2    wrong command line or trace\n  130  interrupted; what was \
    simulated is printed";

/// Reproduce the figures of a paper and check its claims.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ReproduceArgs {
    #[command(subcommand)]
    pub paper: Paper,
}

#[derive(Debug, Subcommand)]
pub enum Paper {
    /// Tales of the Tail (Li, Sharma, Ports, Gribble 2014): figures 1 to 4, queueing theory
    Tales(TalesArgs),
    // the place of a paper in between is that of an instrument (`budget`)
    /// Deconstructing the Tail at Scale Effect (Sriraman et al. 2016): figures 4 to 12, round trips
    #[command(display_order = 2)]
    Deconstructing(DeconstructingArgs),
}

/// Figures 1 to 4 of Tales of the Tail.
///
/// Simulates every curve, draws the figures (in the terminal; SVG, PNG and HTML with -o), and checks the
/// paper's statements about them. It says where the paper's text disagrees with exact theory.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct TalesArgs {
    /// The figures
    #[arg(value_name = "FIGURE", required = true)]
    pub figures: Vec<FigureName>,
    /// Requests for each curve, e.g. 20M or 1e9
    #[arg(short = 'n', long, value_name = "N", default_value = "20M")]
    pub requests: Count,
    /// The seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Threads; the result does not depend on them [default: one for each processor]
    #[arg(short, long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub recorded: TraceFileArgs,
    /// Save the result in this new directory: fig1.svg, fig1.png ... and tales.html [default: it
    /// is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FigureName {
    /// Arrival processes
    Fig1,
    /// Utilisation
    Fig2,
    /// Workers on one queue
    Fig3,
    /// Queueing disciplines
    Fig4,
    /// All four
    All,
}

/// Figures 4 to 12 of Deconstructing the Tail at Scale Effect.
///
/// Measures the round trips of every curve on this machine, over loopback, and compares them with the
/// paper, which used two hosts and 10 Gbit/s Ethernet. Figures 10 to 12 need an RDMA device; without one,
/// shared memory is measured instead.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taillab reproduce deconstructing fig4 fig8\n  \
    taillab reproduce deconstructing all --runs 3 -o figures\n\nExit codes:\n  0    measured, \
    whether or not it agrees\n  1    something failed\n  2    wrong command line\n  130  interrupted; what was \
    measured is kept"
)]
pub struct DeconstructingArgs {
    /// The figures
    #[arg(value_name = "FIGURE", required = true)]
    pub figures: Vec<RoundTripFigure>,
    /// Round trips in a run
    #[arg(long, value_name = "N", default_value = "100000", value_parser = count::<NonZeroU64>)]
    pub count: NonZeroU64,
    /// Runs of each curve
    #[arg(long, value_name = "N", default_value = "10", value_parser = count::<NonZeroU32>)]
    pub runs: NonZeroU32,
    /// CPUs of the client, e.g. 1 or 2-3 [default: one that the server does not use]
    #[arg(long, value_name = "CPUS")]
    pub client_cpus: Option<CpuSet>,
    /// CPUs of the server [default: the first one]
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub server_cpus: Option<CpuSet>,
    /// Save the result in this new directory: the figures (SVG, PNG), the page and the JSON
    /// [default: it is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
}

/// A figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoundTripFigure {
    /// TCP, 1 KB
    Fig4,
    /// TCP, 64 B to 512 KB
    Fig5,
    /// TCP, 1 to 8 connections
    Fig6,
    /// TCP, non-blocking
    Fig7,
    /// UDP, 1 KB
    Fig8,
    /// UDP, 64 B to 1472 B, 8 connections
    Fig9,
    /// RDMA read, 64 B to 8 KB
    Fig10,
    /// RDMA write, 64 B to 8 KB
    Fig11,
    /// RDMA read, round trips one by one
    Fig12,
    /// All of them
    All,
}
