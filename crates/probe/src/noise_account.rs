//! The account of a loop in the kernel.

use taillab_model::{Monotonic, Nanos};

/// What a loop in the kernel has found since the last account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelAccount {
    /// How often each time between two reads occurred: index n counts those of n nanoseconds, gaps
    /// included. Longer times are in `gaps` only.
    pub short: Vec<u64>,
    /// Gaps: the last read before and the first read after.
    pub gaps: Vec<(Monotonic, Monotonic)>,
    /// The number of further gaps, for which there was no room.
    pub gaps_not_kept: u64,
    /// How long the loop ran.
    pub watched: Nanos,
}
