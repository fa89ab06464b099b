//! What the analysis of gaps takes: the gaps, and who asked for interrupts.

use taillab_model::{Monotonic, Nanos};

/// A time in which the thread did not read the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Of the loop on this CPU.
    pub cpu: u16,
    /// The last read before.
    pub from: Monotonic,
    /// The first read after.
    pub to: Monotonic,
}

impl Gap {
    /// How long it is.
    pub fn length(&self) -> Nanos {
        self.to.saturating_since(self.from)
    }
}

/// One CPU asked another for an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpiSent {
    /// When.
    pub at: Monotonic,
    /// Who asks.
    pub from: u16,
    /// Who is to be interrupted.
    pub to: u16,
}
