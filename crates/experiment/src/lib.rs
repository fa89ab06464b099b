//! What `run`, `trace` and the instruments are made of: an experiment with all its settings, the testbed that it needs,
//! the way of a recording to its report, the trials of mitigations, and measurements that several of them share.
//!
//! Of commands it knows only [`serve`], which the testbed starts as another instance of the program. Options that several
//! commands have are in [`args`].

#![allow(
    unreachable_pub,
    reason = "`pub` says what a module offers to the others"
)]
#![warn(
    clippy::print_stderr,
    reason = "it panics where stderr is closed: `console::messages` does not"
)]

pub mod addresses;
pub mod args;
pub mod capacity;
pub mod changes;
pub mod definition;
pub mod fix;
pub mod known_servers;
pub mod noise;
pub mod pipeline;
pub mod rings;
pub mod round_trips;
pub mod rows;
pub mod serve;
pub mod simulation;
pub mod testbed;
pub mod time_stamps;
