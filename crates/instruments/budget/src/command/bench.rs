//! What every row is measured with.

use std::time::Duration;

use taillab_console::messages::Messages;
use taillab_host::components::Bounds;
use taillab_host::{Interrupt, Roots};
use taillab_model::Nanos;

/// The most samples of a row: all of them are kept in memory to the end.
pub const MOST: usize = 400_000;

/// What every row is measured with.
pub struct Bench<'a> {
    pub roots: &'a Roots,
    pub interrupt: &'a Interrupt,
    pub length: Nanos,
    /// The client's CPU.
    pub here: u32,
    /// The server's CPU; `None` on a machine with only one CPU.
    pub there: Option<u32>,
    pub messages: Messages,
}

impl Bench<'_> {
    /// When a row of samples ends.
    pub fn bounds(&self) -> Bounds<'_> {
        Bounds {
            most: MOST,
            length: Duration::from_nanos(self.length.get()),
            stop: self.interrupt.flag(),
        }
    }
}
