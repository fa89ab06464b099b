//! The commands that measure, on this machine: real servers, real load, the real probe.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    unreachable_pub,
    reason = "shared among the modules of one test binary"
)]

mod bench_causes;
mod chains;
mod cluster;
mod compare;
mod doctor;
mod fix;
mod hardware;
mod rights;
mod run;
mod run_servers;
#[path = "../support/mod.rs"]
mod support;
mod systemd;
mod trace;
mod tune;

#[path = "../../../instruments/budget/tests/live.rs"]
mod budget;
#[path = "../../../instruments/noise/tests/live.rs"]
mod noise;
#[path = "../../../instruments/rtt/tests/rdma.rs"]
mod rdma;
#[path = "../../../instruments/reproduce/tests/live.rs"]
mod reproduce;
#[path = "../../../instruments/rtt/tests/live.rs"]
mod rtt;
