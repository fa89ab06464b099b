//! What took the time of a thread that only reads the clock: its gaps, each with its causes.
//!
//! A gap begins with the last read before and ends with the first read after. What the probe
//! recorded on the same CPU in between takes its own part of it, to the nanosecond
//! (`pieces`): the innermost of what nests, and of what is left the thread that was current.
//! What nobody takes is the **rest**:
//!
//! - Where something was recorded, the rest is first of all the way into it and out of it
//!   (saving registers, the hypervisor's exit for the interrupt), and belongs to it. How long
//!   that way is, is learnt: the median rest of gaps of the same kind. A rest of more than
//!   four times the median has more in it, which is no longer the cause's.
//! - Where nothing was recorded, nothing of this kernel ran that the probe knows. In a virtual
//!   machine that is the hypervisor; else it is unexplained.
//!
//! Gaps and events come as they are found; [`GapAnalysis::settle`] works off those of which all
//! is known. Memory does not grow with their number.

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
