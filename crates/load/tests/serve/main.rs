//! The built-in servers against ordinary blocking clients, on loopback.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clients;
mod datagrams;
mod life;
mod streams;
