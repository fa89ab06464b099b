//! What this crate changes on the machine, on this machine: the testbed, server processes,
//! and what is left after a kill. Some of it needs root.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod components;
mod effects;
mod interrupt;
mod receiving;
mod recovery;
mod server;
mod socket_buffers;
mod testbed;
mod tune;
mod tune_kill;
#[path = "../../../probe/tests/live/testbed/unspoiled.rs"]
mod unspoiled;

use self::unspoiled::first_unspoiled;
