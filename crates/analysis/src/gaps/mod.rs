//! The gaps of a thread that only reads the clock, and their causes.
//!
//! A gap begins with the last read before it and ends with the first read after it. Whatever the probe
//! recorded on the same CPU in between is charged with its part of the gap, to the nanosecond (`pieces`):
//! where events nest, the innermost one; for the remaining time, the thread that was current. The time
//! that is charged to nothing is the **rest**:
//!
//! - If something was recorded, the rest is mainly the way into it and out of it (saving registers, the
//!   hypervisor's exit for the interrupt), and belongs to it. The length of that way is learnt: it is the
//!   median rest of gaps of the same kind. If a rest exceeds four times the median, the part beyond is
//!   not charged to that cause.
//! - If nothing was recorded, nothing ran in this kernel, as far as the probe can see. In a virtual machine
//!   the gap is charged to the hypervisor; otherwise it is unexplained.
//!
//! Gaps and events are added as they are found; [`GapAnalysis::settle`] handles those for which all events
//! have arrived. Memory does not grow with their number.

mod account;
mod cause;
mod gap;
mod pieces;
mod summary;
#[cfg(test)]
mod tests;

pub use self::account::{GapAnalysis, GapOptions};
pub use self::cause::GapCause;
pub use self::gap::{Gap, IpiSent};
pub use self::summary::{CauseSum, CpuSum, LongestGap};
