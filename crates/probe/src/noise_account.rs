//! What a loop in the kernel found.

use taillab_model::{Monotonic, Nanos};

/// What a loop in the kernel found since it was last asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelAccount {
    /// How often each time between two reads occurred, by nanoseconds from 0 on; longer ones are
    /// gaps.
    pub short: Vec<u64>,
    /// Gaps, by the last read before and the first read after.
    pub gaps: Vec<(Monotonic, Monotonic)>,
    /// Gaps for which there was no room.
    pub gaps_not_kept: u64,
    /// For how long the clock was watched.
    pub watched: Nanos,
}
