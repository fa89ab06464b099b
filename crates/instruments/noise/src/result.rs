//! What `taillab noise` finds: what takes a CPU's time, as seen by a thread that only reads the clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taillab_model::Nanos;
use taillab_model::noise::{NoiseRow, TscClock};

/// The version of this shape.
pub const SCHEMA_VERSION: u32 = 1;

/// One call of `taillab noise`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseResult {
    /// Version of this shape: [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Always `noise`.
    #[schemars(extend("const" = "noise"))]
    pub command: String,
    /// Version of taillab.
    pub taillab_version: String,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// It was interrupted: the figures are of the time until then.
    pub partial: bool,
    /// Release of the kernel, where it is known.
    pub kernel: Option<String>,
    /// The hypervisor, where there is one.
    pub hypervisor: Option<String>,
    /// The clock that was read.
    pub clock: TscClock,
    /// What the measurement held or changed while it ran; empty if nothing.
    pub held: Vec<String>,
    /// What limits or biases the figures, in a sentence each.
    pub notes: Vec<String>,
    /// The limit on CPU time that a control group puts on the loops; `None` without one.
    pub quota: Option<NoiseQuota>,
    /// One for each loop and CPU, in the order in which they ran.
    pub rows: Vec<NoiseRow>,
    /// How the loops compare with each other, in a sentence each.
    pub comparison: Vec<String>,
}

/// A limit on the CPU time of the loops' control group, or of one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseQuota {
    /// Time for all CPUs together in each period, in nanoseconds.
    pub quota_ns: Nanos,
    /// The period, in nanoseconds.
    pub period_ns: Nanos,
    /// How often it held the group back while the loops ran.
    pub throttled: u64,
    /// For how long, summed over its CPUs, in nanoseconds.
    pub throttled_ns: Nanos,
}
