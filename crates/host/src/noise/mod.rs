//! Threads that only read the time stamp counter, and so notice when they were held up.
//!
//! A [`Loop`] runs on one CPU under one [`Policy`]. It counts the time between each two reads,
//! and hands out those that are longer than a threshold as [`RawGap`]s while it runs. Nothing
//! here changes the machine: the policy and the affinity are the thread's own.

mod counts;
mod error;
mod policy;
mod spin;
pub mod tsc;

pub use counts::TickCounts;
pub use error::NoiseError;
pub use policy::{Policy, RtThrottle};
pub use spin::{Loop, LoopEnd, LoopSpec, RawGap, RunningLoops, start};
