//! `taillab trace` on real servers that run on their own, under the load of `taillab load`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    unreachable_pub,
    reason = "shared among the modules of one test binary"
)]

#[path = "../support/mod.rs"]
mod support;

mod endings;
mod namespaces;
mod rig;
mod servers;
