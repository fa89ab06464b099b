//! The command line of `taillab noise`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use taillab_host::CpuSet;
use taillab_host::doctor::privileges_of;
use taillab_host::noise::Policy;
use taillab_model::Nanos;

use super::shared::{Output, positive};

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed\n  2    \
    wrong command line, or a CPU that is not there\n  5    no trustworthy time stamp counter, or \
    no privilege for what was asked\n  130  interrupted; the result is of the time until then";

fn help() -> String {
    format!(
        "Changes nothing on the machine, except with --move-interrupts: scheduling and CPU affinity are set \
         only for its own threads, and it holds no power setting. The result says what it held. What is \
         moved is put back at the end; after a kill, at the next start.\n\nExamples:\n  \
         taillab noise                               what takes time from every CPU, and who\n  \
         taillab noise --cpus 1 -d 60s --policy fifo:80\n  \
         sudo taillab noise --loops all              user space, kernel, kernel with interrupts \
         off\n  \
         sudo taillab noise --improve --cpus 1       what real time, pinning … change, one by \
         one\n  \
         taillab noise --by-cpus -d 20s              is there a quota on the sum of all CPUs?\n\n\
         {}\n\n{EXIT_CODES}",
        privileges_of("noise")
    )
}

/// Measure what takes time from a thread that wants to run, and who took it.
///
/// A thread on each CPU does nothing but read the time stamp counter. When two reads are further
/// apart than a threshold, that is a gap: something else had the CPU. With privilege (root) each
/// gap has a cause: the tick, an interrupt, a softirq, a thread by name, another CPU's interrupt, a
/// page fault, throttling, the hypervisor.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct NoiseArgs {
    /// Measure these CPUs, all at once [default: all that this process may use]
    #[arg(long, short = 'C', value_name = "CPUS")]
    pub cpus: Option<CpuSet>,
    /// How long each loop runs
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = positive)]
    pub duration: Nanos,
    /// How the loops in user space are scheduled: other, or fifo:PRIORITY for real time
    #[arg(long, value_name = "POLICY", default_value = "other")]
    pub policy: Policy,
    /// Two reads further apart than this are a gap; at most 4us for the loops in the kernel
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = positive)]
    pub threshold: Nanos,
    /// Which loops run, one after the other
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "user"
    )]
    pub loops: Vec<LoopName>,
    /// Read the clock once or twice in each turn
    #[arg(
        hide_short_help = true,
        long,
        value_name = "STYLE",
        default_value = "single"
    )]
    pub style: StyleName,
    /// Try improvements one by one: pinning, real time, interrupts off, and how the loop is coded
    #[arg(long, conflicts_with_all = ["loops", "style", "by_cpus"])]
    pub improve: bool,
    /// With --improve: also move interrupts and receive work off the CPU for one loop, and put them back
    #[arg(hide_short_help = true, long, requires = "improve")]
    pub move_interrupts: bool,
    /// Load one CPU, then two … then all, and see whether stalls depend on the sum
    #[arg(long, conflicts_with = "loops")]
    pub by_cpus: bool,
    /// Do not look for causes, even where that is possible
    #[arg(hide_short_help = true, long)]
    pub no_causes: bool,
    /// Save the result in this new directory: noise.json and noise.html [default: it is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
}

/// A loop by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoopName {
    /// In user space, by the time stamp counter
    User,
    /// In the kernel (eBPF), interrupts on
    Kernel,
    /// In the kernel (eBPF), interrupts off
    Masked,
    /// All three
    All,
}

/// A listing of the paper by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StyleName {
    /// One read in each turn, compared with the turn before
    Single,
    /// Two reads in each turn, compared with each other
    Double,
}
