//! What every row is measured with.

use std::time::Duration;

use taillab_host::{Interrupt, Roots};
use taillab_model::Nanos;

use crate::say::Say;

/// What lacks on a machine with one CPU.
pub const ONE_CPU: &str = "it takes two CPUs, and this process may use one (taskset, cpuset)";

/// What every row is measured with.
pub struct Bench<'a> {
    pub roots: &'a Roots,
    pub interrupt: &'a Interrupt,
    pub length: Nanos,
    /// The client's CPU.
    pub here: u32,
    /// The server's; `None` on a machine with one.
    pub there: Option<u32>,
    pub say: Say,
}

impl Bench<'_> {
    /// The time for each row.
    pub const fn length(&self) -> Duration {
        Duration::from_nanos(self.length.get())
    }
}
