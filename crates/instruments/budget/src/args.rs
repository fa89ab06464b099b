//! The command line of `taillab budget`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use taillab_console::args::{Output, count, positive};
use taillab_host::CpuSet;
use taillab_host::doctor::Needs;
use taillab_host::doctor::capability::{DAC_OVERRIDE, NET_ADMIN, NET_RAW, SYS_ADMIN};
use taillab_model::Nanos;

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed\n  2    \
    wrong command line or topology file\n  130  interrupted; the rows so far are shown";

/// The documented example, which a test reads.
pub const TOPOLOGY: &str = "A topology file (TOML), for --topology; every key but name has a default:\n  \
    name = \"two racks\"\n  hops = 3                          # switches, one way\n  \
    switch = \"lognormal:600ns,cv=0.2\" # law of one traversal, as in taillab sim\n  \
    fibre_m = 40                      # one way, at 5 ns/m\n  \
    nic = \"deterministic:470ns\"       # law of one traversal, four in a round trip\n  \
    host = \"kernel\"                   # or bypass: which rows both hosts are taken from";

/// The privileges that it can use.
pub const NEEDS: Needs = Needs {
    least: &[],
    more: &[(
        "measures every row",
        &[SYS_ADMIN, NET_ADMIN, NET_RAW, DAC_OVERRIDE],
    )],
};

fn help() -> String {
    format!(
        "Without root, the rows that need it are marked as unavailable. Namespaces and devices that \
         it creates are removed at the end; no setting is changed.\n\n{TOPOLOGY}\n\nExamples:\n  \
         sudo taillab budget\n  \
         sudo taillab budget -d 10s --cpus 2,3 -o budget/\n  \
         sudo taillab budget --topology racks.toml\n\n{}\n\n{EXIT_CODES}",
        NEEDS.said()
    )
}

/// Measure where the time goes between two programs on a network, component by component.
///
/// The rows of the paper “Where Has My Time Gone?” (Zilberman et al., 2017): reading the clock,
/// user space and the kernel, the host, kernel bypass, PCIe, client and server. Each row is measured,
/// replaced by a named substitute, or unavailable for a stated reason. From these rows and stated
/// constants it computes the round trips through a rack, an exchange and two data centres.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct BudgetArgs {
    /// How long each row is measured
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = positive)]
    pub duration: Nanos,
    /// Two CPUs: for the client and for the server [default: the first two of different cores]
    #[arg(long, short = 'C', value_name = "CPUS")]
    pub cpus: Option<CpuSet>,
    /// A topology of your own (TOML); may be repeated
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub topology: Vec<PathBuf>,
    /// Round trips drawn for each topology
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 200_000, value_parser = draws)]
    pub draws: u32,
    /// Seed of the draws
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Save the result in this new directory: budget.json and budget.html [default: it is printed
    /// only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
}

/// Enough for the tail, and no more than memory holds.
fn draws(text: &str) -> Result<u32, String> {
    let draws: u32 = count(text)?;
    match (10_000..=5_000_000).contains(&draws) {
        true => Ok(draws),
        false => Err(format!("{draws} is not in 10000..=5000000")),
    }
}
