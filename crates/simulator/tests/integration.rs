//! Simulated queues, compared with exact results, and the simulator as a whole.

// in test helpers, too, a panic is a test failure
#![allow(clippy::unwrap_used)]

mod coverage;
mod reference;
mod simulation;
