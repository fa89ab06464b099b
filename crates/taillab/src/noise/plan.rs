//! What is to run.

use taillab_host::noise::Policy;
use taillab_host::{CpuSet, cpus};
use taillab_model::Nanos;
use taillab_model::noise::{LoopKind, ReadStyle};

use crate::exit::Failure;
use crate::fail::host;

/// Loops that run at the same time.
#[derive(Clone, Debug)]
pub struct Phase {
    /// What it tries; empty for the plain measurement.
    pub step: String,
    pub kind: LoopKind,
    pub style: ReadStyle,
    /// Where; `None` for a single loop that is not pinned.
    pub cpus: Option<CpuSet>,
    pub policy: Policy,
    pub threshold: Nanos,
    pub length: Nanos,
    /// Interrupts and receive work are moved away from its CPUs while it runs.
    pub interrupts_away: bool,
}

/// All phases, and what they do to the machine.
#[derive(Debug)]
pub struct Plan {
    pub phases: Vec<Phase>,
    pub held: Vec<String>,
    pub notes: Vec<String>,
    /// CPUs for what we do ourselves; empty where all are measured.
    pub beside: CpuSet,
    pub usable: CpuSet,
}

impl Plan {
    /// A single loop, pinned, as an ordinary thread.
    pub fn of_one(kind: LoopKind, cpu: u32, length: Nanos) -> Result<Self, Failure> {
        let usable = cpus::allowed().map_err(host)?;
        let chosen = CpuSet::single(cpu);
        Ok(Self {
            phases: vec![Phase {
                step: String::new(),
                kind,
                style: ReadStyle::Single,
                cpus: Some(chosen.clone()),
                policy: Policy::Other,
                threshold: Nanos::from_micros(1),
                length,
                interrupts_away: false,
            }],
            held: Vec::new(),
            notes: Vec::new(),
            beside: usable.difference(&chosen),
            usable,
        })
    }
}
