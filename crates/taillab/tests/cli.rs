//! The commands from the outside, without root: what they print, write and refuse.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod burn;
mod compare;
mod docs;
mod doctor;
mod faults;
mod hostile;
#[path = "load/main.rs"]
mod load;
mod serve;
mod structure;
mod support;
mod trace;
mod tune;

#[path = "../../instruments/budget/tests/cli.rs"]
mod budget;
#[path = "../../instruments/noise/tests/cli.rs"]
mod noise;
#[path = "../../instruments/reproduce/tests/cli.rs"]
mod reproduce;
#[path = "../../instruments/rtt/tests/cli.rs"]
mod rtt;
#[path = "../../instruments/sim/tests/cli.rs"]
mod sim;
