//! The command line of `taillab reproduce`.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use taillab_console::args::{Count, Output, count, wrapped};
use taillab_experiment::args::TraceFileArgs;
use taillab_host::CpuSet;
use taillab_simulator::paper::Figure;

use crate::declared;

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed, or \
    simulated figures do not reproduce a claim\n  2    wrong command line or trace\n  \
    130  interrupted; what was finished is printed";

/// Reproduce the figures of a paper and check its claims.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ReproduceArgs {
    #[command(subcommand)]
    pub paper: Paper,
}

#[derive(Debug, Subcommand)]
pub enum Paper {
    /// Every figure, table and claim of the papers: what this machine can show of it, how, and how long it takes
    #[command(display_order = 0)]
    List(ListArgs),
    /// Tales of the Tail (Li, Sharma, Ports, Gribble 2014): queueing theory, and questions that it left open
    #[command(display_order = 0)]
    Tales(TalesArgs),
    /// All figures of the papers that this machine can show, on one page
    #[command(display_order = 3)]
    All(AllArgs),
    // the place of a paper in between is that of an instrument (`budget`)
    /// Deconstructing the Tail at Scale Effect (Sriraman et al. 2016): figures 4 to 12, round trips
    #[command(display_order = 2)]
    Deconstructing(DeconstructingArgs),
}

/// Every figure, table and claim of the papers, and what this machine can show of it.
#[derive(Clone, Copy, Debug, Args)]
#[command(
    after_help = "It says whether each runs here, is only a model, or needs more CPUs, other hardware or a program, and \
    what stands in for that.\n\nExit codes:\n  0    everything went well\n  1    something failed"
)]
pub struct ListArgs {
    #[command(flatten)]
    pub common: Output,
}

/// All figures of the papers that this machine can show, on one page.
///
/// Simulates figures of theory, measures servers and round trips, and compares what they show with what the papers say:
/// ratios and orders with intervals, never absolute times. Some statements differ, since kernels have changed, and
/// some cannot be decided on a noisy machine; each says why. Where Has My Time Gone? has a page of its own: taillab reproduce
/// time-gone.
#[derive(Clone, Debug, Args)]
#[command(after_help = ALL_HELP)]
pub struct AllArgs {
    /// A quarter of an hour at most: fewer rounds, shorter blocks, fewer panels
    #[arg(long)]
    pub quick: bool,
    /// The seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Save the result in this new directory: the figures (SVG), the page and the JSON
    /// [default: it is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
}

const ALL_HELP: &str = "Examples:\n  sudo taillab reproduce all --quick -o figures\n\nExit codes:\n  0    \
    reproduced, whether or not it agrees\n  1    something failed\n  2    wrong command line\n  130  \
    interrupted; what was reproduced is kept";

fn tales_help() -> String {
    let names = FigureName::known().map_or_else(|_| String::new(), |names| names.join(", "));
    format!("Figures: {}\n\n{EXIT_CODES}", wrapped(&names, 9))
}

/// Figures of Tales of the Tail, and of slides and a thread about it.
///
/// Simulates or measures every curve, draws the figures (in the terminal; SVG and HTML with -o), and checks
/// what the paper says about them. It says where the paper's text disagrees with exact theory. Figures 5, 6, 7, 8, 10
/// and headline measure servers, as taillab run does, in rounds: each configuration has a block in every round, in
/// random order. They need root.
#[derive(Debug, Args)]
#[command(after_help = tales_help())]
pub struct TalesArgs {
    /// The figures; all are those that are simulated
    #[arg(value_name = "FIGURE", required = true)]
    pub figures: Vec<FigureName>,
    /// Requests for each curve, e.g. 20M or 1e9
    #[arg(short = 'n', long, value_name = "N", default_value = "20M")]
    pub requests: Count,
    /// The seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Fewer rounds and shorter blocks of measured servers
    #[arg(long)]
    pub quick: bool,
    /// Threads; the result does not depend on them [default: one for each processor]
    #[arg(short, long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub recorded: TraceFileArgs,
    /// Save the result in this new directory: fig1.svg ... and tales.html [default: it
    /// is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
}

/// A figure by its name, or all that are simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FigureName {
    /// All that are simulated.
    All,
    /// This one.
    One(String),
}

impl FigureName {
    /// The names that there are.
    fn known() -> Result<Vec<String>, String> {
        let declared = declared::all().map_err(|failure| failure.message)?;
        let declared = declared
            .into_iter()
            .filter_map(|file| Some(file.figure?.name));
        let theory = Figure::ALL.iter().map(Figure::to_string);
        Ok(theory.chain(declared).chain(["all".to_owned()]).collect())
    }

    /// Whether it names this figure, which is simulated or measured.
    pub fn names(&self, figure: &str, is_live: bool) -> bool {
        match self {
            Self::All => !is_live,
            Self::One(name) => name == figure,
        }
    }
}

impl FromStr for FigureName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::known()?;
        match text {
            "all" => Ok(Self::All),
            _ if known.iter().any(|name| name == text) => Ok(Self::One(text.to_owned())),
            _ => Err(format!("it is none of {}", known.join(", "))),
        }
    }
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
    /// Save the result in this new directory: the figures (SVG), the page and the JSON
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
