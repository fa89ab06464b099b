//! The command line of `taillab burn`.

use clap::Args;
use taillab_console::args::positive;
use taillab_host::CpuSet;
use taillab_model::Nanos;

/// Use CPU time in bursts, like other programs on a machine; the same seed gives the same bursts.
///
/// This is the load of the [background] section of an experiment. It ends when it is interrupted, or when a pipe that is
/// its standard input is closed, and says how much CPU time it used.
#[derive(Clone, Debug, Args)]
pub struct BurnArgs {
    /// The CPUs that it may use [default: those of this shell]
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub cpus: Option<CpuSet>,
    /// CPU time of each burst
    #[arg(long, value_name = "TIME", value_parser = positive, default_value = "2ms")]
    pub busy: Nanos,
    /// Mean time from one burst to the next; the gaps are exponential
    #[arg(long, value_name = "TIME", value_parser = positive, default_value = "100ms")]
    pub every: Nanos,
    /// Seed of the gaps
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}
