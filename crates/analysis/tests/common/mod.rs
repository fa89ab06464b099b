//! Streams of events for tests: written by hand, or by simulated servers with known true
//! stamps.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod connections;
pub(crate) mod exchanges;
pub(crate) mod facts;
pub(crate) mod script;
pub(crate) mod server;
pub(crate) mod slices;
pub(crate) mod talk;

use proptest::prelude::ProptestConfig;
use taillab_model::{Event, EventKind, RequestKey, Tid};

/// This many cases, or as many as `PROPTEST_CASES` asks for; no file remembers those that fail.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: asked.map_or(cases, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// The last packet of what a thread has written, which leaves for the first time.
pub(crate) fn last_segment(tid: Tid, key: RequestKey) -> EventKind {
    EventKind::SegmentOut {
        tid,
        key,
        more: false,
        resent: false,
        limit: None,
    }
}

pub(crate) fn packets_in(events: &[Event]) -> usize {
    let is_in = |e: &&Event| matches!(e.kind, EventKind::PacketIn { .. });
    events.iter().filter(is_in).count()
}

pub(crate) fn packets_out(events: &[Event]) -> usize {
    let is_out = |e: &&Event| matches!(e.kind, EventKind::PacketOut { .. });
    events.iter().filter(is_out).count()
}
