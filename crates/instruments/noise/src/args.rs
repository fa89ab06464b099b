//! The command line of `taillab noise`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use taillab_console::args::{Output, positive};
use taillab_host::CpuSet;
use taillab_host::doctor::Needs;
use taillab_host::doctor::capability::{BPF, PERFMON, SYS_NICE};
use taillab_host::noise::Policy;
use taillab_model::Nanos;

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed\n  2    \
    wrong command line, or a CPU that does not exist\n  5    no reliable time stamp counter, or \
    a missing privilege\n  130  interrupted; the result covers the time until then";

/// The privileges that it can use.
pub const NEEDS: Needs = Needs {
    least: &[],
    more: &[
        ("names causes", &[BPF, PERFMON]),
        ("runs in real time", &[SYS_NICE]),
    ],
};

fn help() -> String {
    format!(
        "Changes nothing on the machine, except with --move-interrupts: it sets scheduling and CPU affinity \
         only for its own threads, and no power setting. Interrupts that were moved are put back at the end, \
         or at the next start if it was killed.\n\nExamples:\n  \
         taillab noise                               what takes time from every CPU, and who\n  \
         taillab noise --cpus 1 -d 60s --policy fifo:80\n  \
         sudo taillab noise --loops all              user space, kernel, kernel with interrupts \
         off\n  \
         sudo taillab noise --improve --cpus 1       what real time, pinning … change, one by \
         one\n  \
         taillab noise --by-cpus -d 20s              is there a quota on the sum of all CPUs?\n\n\
         {}\n\n{EXIT_CODES}",
        NEEDS.said()
    )
}

/// Measure what takes CPU time from a thread that never sleeps.
///
/// A thread on each CPU does nothing but read the time stamp counter. If two reads are further apart
/// than a threshold, there is a gap: something else had the CPU. As root, each gap has a cause: the tick,
/// an interrupt, a softirq, a thread by name, another CPU's interrupt, a page fault, throttling, the
/// hypervisor.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct NoiseArgs {
    /// Measure these CPUs at the same time [default: all that this process may use]
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
    /// The loops to run, one after the other
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "user"
    )]
    pub loops: Vec<LoopName>,
    /// Read the clock once or twice in each iteration
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
    /// Load one CPU, then two, four … then all, to see whether stalls depend on their number
    #[arg(long, conflicts_with = "loops")]
    pub by_cpus: bool,
    /// Do not look for causes
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
    /// In user space
    User,
    /// In the kernel (eBPF), with interrupts on
    Kernel,
    /// In the kernel (eBPF), with interrupts off
    Masked,
    /// All three
    All,
}

/// A listing of the paper by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StyleName {
    /// One read in each iteration, compared with the previous one
    Single,
    /// Two reads in each iteration, compared with each other
    Double,
}
