//! The command line of `taillab tune`.

use std::num::NonZeroU32;

use clap::{Args, Subcommand};
use taillab_host::CpuSet;
use taillab_host::tune::Scope;

use super::shared::Output;

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed; nothing is left changed, or the \
    message says what\n  2    wrong command line, no such process or CPU, a harmful combination, or no terminal to ask on \
    and no --yes\n  3    verify: a setting no longer has our value; revert: not all could be put back\n  5    a \
    privilege or a feature of the machine is missing\n  130  interrupted; what was held is put back";

fn help() -> String {
    format!(
        "Old values are on the disk before anything is changed (/var/lib/taillab/tune for root), so `taillab tune \
         revert` puts them back after a crash too. A reboot undoes everything.\n\nExamples:\n  \
         taillab tune list -v                                   what there is, what it needs, its risk\n  \
         taillab tune plan -p 4711 -C 1                         what is possible for this server on CPU 1\n  \
         sudo taillab tune apply irq-affinity softirq-cpu -C 1  nothing but the server on CPU 1\n  \
         sudo taillab tune apply rt-priority -p 4711 -C 1 --dry-run\n  \
         sudo taillab tune apply cpu-dma-latency --hold         no deep idle states until Ctrl-C\n  \
         taillab tune verify && echo all of it still holds\n  \
         sudo taillab tune revert                               everything as it was\n\n{EXIT_CODES}"
    )
}

/// Change settings of the machine against tail latency, and put them back.
///
/// A mitigation is a plan: which files and system calls, their old and new values, and why. It
/// works out the values itself: which interrupts, which mask, which other threads. Settings that
/// somebody else has changed meanwhile are left alone and reported.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct TuneArgs {
    #[command(subcommand)]
    pub command: TuneCommand,
}

#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// List all mitigations; with -v what each treats, needs, changes and risks
    List {
        #[command(flatten)]
        common: Output,
    },
    Plan(PlanArgs),
    Apply(ApplyArgs),
    /// Say what is changed, by whom and when
    #[command(after_help = EXIT_CODES)]
    Status {
        #[command(flatten)]
        common: Output,
    },
    /// Like status; the exit code says whether everything still holds
    #[command(after_help = EXIT_CODES)]
    Verify {
        #[command(flatten)]
        common: Output,
    },
    /// Put back what was changed, and report what somebody else has changed meanwhile
    #[command(after_help = EXIT_CODES)]
    Revert {
        /// The number of what was applied, from `taillab tune status` [default: all, the latest
        /// first]
        #[arg(value_name = "NUMBER")]
        number: Option<u32>,
        #[command(flatten)]
        common: Output,
    },
}

/// Say what mitigations would change here, and why, without changing anything.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PlanArgs {
    /// Which [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub scope: ScopeArgs,
    #[command(flatten)]
    pub common: Output,
}

/// Apply mitigations: all of their changes, or none.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ApplyArgs {
    /// Mitigations, by the names of `taillab tune list`
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Only print each write: the path or system call, the old value and the new one
    #[arg(long, conflicts_with_all = ["yes", "hold"])]
    pub dry_run: bool,
    /// Stay, and put everything back on Ctrl-C
    #[arg(long)]
    pub hold: bool,
    /// Apply them even where they do harm, or where somebody will overwrite them
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub common: Output,
}

/// What is tuned.
#[derive(Debug, Args)]
pub struct ScopeArgs {
    /// The server's process, or any one of them
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<NonZeroU32>,
    /// The network device [default: those that have received anything]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// The CPUs to keep free [default: the server's, else all]
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub cpus: Option<CpuSet>,
}

impl ScopeArgs {
    /// As the library takes it.
    pub fn scope(&self) -> Scope {
        Scope {
            pid: self.pid.map(NonZeroU32::get),
            device: self.device.clone(),
            cpus: self.cpus.clone(),
        }
    }
}
