//! Tests of the engine, the codecs and the built-in servers over real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod each;
mod exact_queues;
#[path = "fuzz/main.rs"]
mod fuzz;
mod memcached;
mod own_queues;
mod protocols_live;
mod responder;
mod sequence;
#[path = "serve/main.rs"]
mod serve;
mod streams;
mod support;
