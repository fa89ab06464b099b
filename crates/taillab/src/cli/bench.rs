//! The command line of `taillab bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use taillab_model::Nanos;

use super::{Output, share};

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
/// that. With -o the truth is kept beside the recording. Needs root.
#[derive(Debug, Args)]
#[command(after_help = CAUSES_EXIT_CODES)]
pub struct CausesArgs {
    /// What to inject [default: all, and a run without]
    #[arg(value_name = "KIND")]
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

/// What can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub enum CauseKind {
    /// Nothing: an undisturbed run, whose excess must not be charged to what is not there
    Control,
    /// Bursts of another thread on the server's CPU
    Background,
    /// Packets of others, received on the server's CPU
    Softirq,
    /// Timer interrupts on the server's CPU
    Irq,
    /// A thread for each connection under the fair scheduler
    Order,
    /// Connections assigned to workers for ever
    Imbalance,
    /// A thread of the server that keeps the lock of all
    Lock,
    /// Page faults that wait for the disk
    Fault,
    /// First touches of memory
    MinorFault,
    /// Reads from disk
    Io,
    /// One request in 1,000 burns 500 µs
    Slow,
    /// A CPU quota of the server's control group
    Quota,
    /// A real-time server, and a real-time thread that uses up what both may have
    RtThrottle,
    /// A CPU that sleeps while it waits
    Idle,
    /// Requests that are lost once
    Loss,
    /// Background bursts and slow requests at once
    Two,
}

impl CauseKind {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
