//! `taillab load` from the outside: every kind of target and of load, what it refuses, and
//! servers that misbehave.

#![allow(
    unreachable_pub,
    reason = "shared among the modules of one test binary"
)]

mod agent;
mod faults;
mod kinds;
mod refusals;
mod servers;
mod support;
mod withdrawn;
