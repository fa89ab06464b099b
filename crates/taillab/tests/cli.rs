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
mod noise;
mod reproduce;
mod rtt;
mod serve;
mod sim;
mod structure;
mod support;
mod trace;
mod tune;
