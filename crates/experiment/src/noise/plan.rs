//! What runs in one phase.

use taillab_host::CpuSet;
use taillab_host::noise::Policy;
use taillab_model::Nanos;
use taillab_model::noise::{LoopKind, ReadStyle};

/// Loops that run at the same time.
#[derive(Clone, Debug)]
pub struct Phase {
    /// What it tries; empty for the plain measurement.
    pub step: String,
    /// Where it runs.
    pub kind: LoopKind,
    /// How it reads the clock.
    pub style: ReadStyle,
    /// The CPUs of the loops; `None` for a single loop that is not pinned.
    pub cpus: Option<CpuSet>,
    /// How it is scheduled.
    pub policy: Policy,
    /// Two reads further apart than this are a gap.
    pub threshold: Nanos,
    /// How long it runs.
    pub length: Nanos,
    /// Interrupts and receive work are moved away from its CPUs while it runs.
    pub interrupts_away: bool,
}
