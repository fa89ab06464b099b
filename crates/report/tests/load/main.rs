//! Every output of `taillab load`, from invented loads.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of a test may panic, as the test itself may"
)]

mod files;
mod page;
mod samples;
mod schema;
mod terminal;
