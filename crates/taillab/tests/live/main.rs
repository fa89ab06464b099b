//! The commands that measure, on this machine: real servers, real load, the real probe.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    unreachable_pub,
    reason = "shared among the modules of one test binary"
)]

mod bench_causes;
mod budget;
mod chains;
mod cluster;
mod doctor;
mod fix;
mod hardware;
mod noise;
mod rdma;
mod reproduce;
mod rights;
mod rtt;
mod run;
mod run_servers;
#[path = "../support/mod.rs"]
mod support;
mod systemd;
mod trace;
mod tune;
