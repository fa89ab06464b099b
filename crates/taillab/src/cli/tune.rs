//! The command line of `taillab tune`.

use std::num::NonZeroU32;

use clap::{Args, Subcommand};
use taillab_console::args::Output;
use taillab_host::CpuSet;
use taillab_host::tune::Scope;

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed; nothing is changed, unless the \
    message says so\n  2    wrong command line, no such process or CPU, a harmful combination, or no terminal to ask on \
    and no --yes\n  3    verify: a setting no longer has our value; revert, apply --hold: some could not be put back\n  5    a \
    privilege or a feature of the machine is missing\n  130  interrupted; with --hold everything is put back";

fn help() -> String {
    format!(
        "Old values are saved on disk before anything is changed (in /var/lib/taillab/tune for root), so `taillab \
         tune revert` also puts them back after a crash. A reboot undoes everything.\n\nExamples:\n  \
         taillab tune list -v                                   all mitigations, their needs and risks\n  \
         taillab tune plan -p 4711 -C 1                         what is possible for this server on CPU 1\n  \
         sudo taillab tune apply irq-affinity softirq-cpu -C 1  nothing but the server on CPU 1\n  \
         sudo taillab tune apply rt-priority -p 4711 -C 1 --dry-run\n  \
         sudo taillab tune apply cpu-dma-latency --hold         no deep idle states until Ctrl-C\n  \
         taillab tune verify && echo all of it still holds\n  \
         sudo taillab tune revert                               put everything back\n\n{EXIT_CODES}"
    )
}

/// Change settings of the machine to reduce tail latency, and put them back.
///
/// A mitigation is a plan: files and system calls, their old and new values, and the reason. taillab
/// determines the values: which interrupts, which mask, which other threads. Settings that somebody else
/// has changed meanwhile are left alone and reported.
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
    /// Show what is changed, by whom and when
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

/// Show what mitigations would change here, and why, without changing anything.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PlanArgs {
    /// The mitigations [default: all]
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
    /// Apply without asking
    #[arg(short, long)]
    pub yes: bool,
    /// Only print each write: the path or system call, the old value and the new one
    #[arg(long, conflicts_with_all = ["yes", "hold"])]
    pub dry_run: bool,
    /// Keep running, and put everything back on Ctrl-C
    #[arg(long)]
    pub hold: bool,
    /// Apply them even if they do harm, or if somebody will overwrite them
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub common: Output,
}

/// The server, device and CPUs to tune.
#[derive(Debug, Args)]
pub struct ScopeArgs {
    /// The server's process, or one of its processes
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<NonZeroU32>,
    /// The network device [default: all that have received anything]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// The CPUs to keep free [default: the server's, else all]
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub cpus: Option<CpuSet>,
}

impl ScopeArgs {
    /// The scope for the library.
    pub fn scope(&self) -> Scope {
        Scope {
            pid: self.pid.map(NonZeroU32::get),
            device: self.device.clone(),
            cpus: self.cpus.clone(),
        }
    }
}
