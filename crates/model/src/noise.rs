//! What takes a CPU's time, as seen by a thread that only reads
//! the clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::explanation::Share;
use crate::{Distribution, Monotonic, Nanos};

/// The time stamp counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TscClock {
    /// Ticks per second, measured against the kernel's clock.
    pub frequency_hz: f64,
    /// The least step between two reads that differ, in ticks.
    pub quantum_ticks: u64,
    /// The same in nanoseconds (a fraction).
    pub quantum_fractional_ns: f64,
    /// It counts at one rate, whatever the CPU's frequency and power state.
    pub invariant: bool,
    /// The clock that the kernel uses now.
    pub clocksource: String,
}

/// Where the loop runs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LoopKind {
    /// In user space, reading the time stamp counter.
    User,
    /// In an eBPF program, reading the kernel's clock.
    Kernel,
    /// In an eBPF program, with the CPU's interrupts off.
    Masked,
}

impl LoopKind {
    /// What a person reads.
    pub const fn label(self) -> &'static str {
        match self {
            Self::User => "user space",
            Self::Kernel => "kernel",
            Self::Masked => "kernel, interrupts off",
        }
    }
}

/// How a loop reads the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadStyle {
    /// Once in each turn, compared with the turn before: nothing escapes.
    Single,
    /// Twice in each turn, compared with each other: the turn's own work is left out, and so is
    /// what happens during it.
    Double,
}

/// One loop on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseRow {
    /// What is special about this row, in a few words; empty for the plain measurement.
    pub step: String,
    /// Where the loop ran.
    #[serde(rename = "loop")]
    pub kind: LoopKind,
    /// How it read the clock.
    pub reads_clock: ReadStyle,
    /// The CPU that it was pinned to; `None` where it was not pinned.
    pub cpu: Option<u16>,
    /// CPUs that were busy with such a loop at the same time, this one included.
    pub busy_cpus: u32,
    /// The scheduling policy: `other` or `fifo:PRIORITY`.
    pub policy: String,
    /// Where two reads are further apart than this, there is a gap.
    pub threshold_ns: Nanos,
    /// When it began, in nanoseconds since boot.
    pub began_ns: Monotonic,
    /// For how long the clock was watched, in nanoseconds.
    pub watched_ns: Nanos,
    /// How often the thread was found on another CPU than at the read before; the time between two such
    /// reads is not a gap.
    pub migrations: u64,
    /// The time between two reads, of all reads.
    pub reads: Distribution,
    /// (nanoseconds, share of reads that took longer), for figures.
    pub ccdf: Vec<(u64, f64)>,
    /// How often two reads were more than 1, 10 and 100 µs apart.
    pub above: Above,
    /// Number of gaps.
    pub gaps: u64,
    /// Time in gaps, in nanoseconds.
    pub stolen_ns: Nanos,
    /// The same as a share of the time watched.
    pub stolen_share: f64,
    /// Gaps that came faster than they could be kept one by one: they are counted, but have no
    /// cause.
    pub gaps_not_kept: u64,
    /// What took the time, the largest first; `None` where nothing recorded it.
    pub causes: Option<Vec<NoiseCause>>,
    /// Share of the stolen time that something in this kernel is known to have taken; `None`
    /// without causes.
    pub attributed_share: Option<f64>,
    /// Share of the stolen time that nothing in this kernel took and that is shown to come from below
    /// it (hypervisor, firmware, hardware): as much is lost on this CPU with interrupts off. `None`
    /// where no loop with interrupts off ran on this CPU in the same step.
    pub below_share: Option<Share>,
    /// The longest gaps, in order of time.
    pub longest: Vec<LongGap>,
    /// Stolen time over time.
    pub over_time: OverTime,
}

/// How often per second something was longer than some lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Above {
    /// Longer than 1 µs, per second.
    pub us_1_per_s: f64,
    /// Longer than 10 µs, per second.
    pub us_10_per_s: f64,
    /// Longer than 100 µs, per second.
    pub us_100_per_s: f64,
}

/// A kind of thing that takes time from a thread.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NoiseKind {
    /// The CPU's own timer: the tick, and timers that end with it.
    Tick,
    /// An interrupt of a device.
    Interrupt,
    /// A softirq.
    Softirq,
    /// Another thread.
    Thread,
    /// An interrupt of another CPU.
    Ipi,
    /// A page fault of the loop's own thread.
    PageFault,
    /// The kernel held the real-time thread back, so that ordinary threads can run.
    RtThrottling,
    /// The quota of a control group held the thread back.
    Quota,
    /// The virtual CPU did not run: nothing of this kernel ran on it in the meantime.
    Hypervisor,
    /// Nothing that is known.
    Unexplained,
}

impl NoiseKind {
    /// What a person reads.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tick => "tick",
            Self::Interrupt => "interrupt",
            Self::Softirq => "softirq",
            Self::Thread => "thread",
            Self::Ipi => "IPI",
            Self::PageFault => "page fault",
            Self::RtThrottling => "RT throttling",
            Self::Quota => "CPU quota",
            Self::Hypervisor => "hypervisor",
            Self::Unexplained => "unexplained",
        }
    }

    /// Whether something in this kernel is known to have taken the time.
    pub const fn is_attributed(self) -> bool {
        !matches!(self, Self::Hypervisor | Self::Unexplained)
    }
}

/// What one cause took from the thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseCause {
    /// What kind of cause.
    pub cause: NoiseKind,
    /// Which thread, interrupt, softirq or CPU; for a cause without one, how it is known.
    pub culprit: Option<String>,
    /// The thread is one of taillab's own.
    pub own: bool,
    /// Gaps in which it took the largest part.
    pub gaps: u64,
    /// The length of these gaps.
    pub length: Distribution,
    /// The time that it took in all gaps, even where something else took more, in nanoseconds.
    pub stolen_ns: Nanos,
    /// The same as a share of all time in gaps with a known beginning and end.
    pub share: f64,
}

/// One long gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LongGap {
    /// When it began, in nanoseconds since boot.
    pub from_ns: Monotonic,
    /// How long it was, in nanoseconds.
    pub length_ns: Nanos,
    /// The causes with their nanoseconds, the largest part first.
    pub parts: Vec<(String, Nanos)>,
}

/// Time in gaps, window by window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverTime {
    /// Length of a window, in nanoseconds.
    pub window_ns: Nanos,
    /// Time in gaps that ended in each window, in nanoseconds.
    pub stolen_ns: Vec<Nanos>,
    /// Windows in a row that lost more than three times the median, as (first, last, share lost).
    pub spells: Vec<(u32, u32, f64)>,
}
