//! The matcher, the ledger, the replay and the verdicts with streams whose true stamps are known.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod busy_periods;
mod client;
mod clients;
mod common;
mod coverage;
mod cut;
mod datagrams;
mod drift;
mod early;
mod framing;
mod golden;
mod ideal_exact;
#[path = "ledger/main.rs"]
mod ledger;
mod limits;
mod load;
mod polling;
mod properties;
mod redaction;
#[path = "replay/main.rs"]
mod replay;
mod replay_golden;
mod retransmissions;
mod rules;
mod slices;
mod spoken;
mod streams;
mod survivors;
mod turns;
mod unasked;
mod verdict;
