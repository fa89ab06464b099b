//! The input of the analysis of gaps: the gaps, and interrupts between CPUs.

use taillab_model::{Monotonic, Nanos};

/// A stretch of time in which the thread did not read the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The CPU on which the loop runs.
    pub cpu: u16,
    /// The last read before it.
    pub from: Monotonic,
    /// The first read after it.
    pub to: Monotonic,
}

impl Gap {
    /// The time between the two reads.
    pub fn length(&self) -> Nanos {
        self.to.saturating_since(self.from)
    }
}

/// An interrupt that one CPU sent to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpiSent {
    /// When it was sent.
    pub at: Monotonic,
    /// The sending CPU.
    pub from: u16,
    /// The interrupted CPU.
    pub to: u16,
}
