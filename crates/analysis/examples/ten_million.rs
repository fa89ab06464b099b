//! Time and peak memory of explaining ten million requests: events of a simulated kernel,
//! made in blocks outside the clock, matched, put into lines of time, and explained.
//!
//! `cargo run --release -p taillab-analysis --example ten_million [-- millions]`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/ledger/kernel.rs"]
mod kernel;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use kernel::{Plan, What};
use taillab_analysis::timeline::TimelineBuilder;
use taillab_analysis::{ExplainOptions, MatchOptions, Matcher, explain};
use taillab_model::{Event, Monotonic, Nanos};

const BLOCK: usize = 60_000;

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        requests: BLOCK,
        gaps: vec![21_000.0],
        disturbances: vec![(What::Thread, 60_000_000, 1_000_000)],
        ..Plan::default()
    }
}

fn memory(what: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what));
    line.unwrap_or("unknown").replace('\t', " ")
}

fn main() {
    let millions = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let blocks = millions.unwrap_or(10_usize) * 1_000_000 / BLOCK;
    let context = plan(0).context();
    let mut matcher = Matcher::new(MatchOptions::default());
    let mut builder = TimelineBuilder::new(&context);
    // one block is made and used again and again, each two seconds after the last
    let block: Vec<Event> = plan(1).run().events;
    let (mut events, mut clock) = (0_u64, Duration::ZERO);
    for number in 0..blocks {
        let offset = Nanos::from_secs(2 * number as u64);
        let begin = Instant::now();
        for event in &block {
            let event = Event {
                at: event.at + offset,
                ..*event
            };
            matcher.observe(&event);
            builder.observe(&event);
        }
        clock += begin.elapsed();
        events += block.len() as u64;
    }
    let begin = Instant::now();
    let matched = matcher.finish();
    let timeline = builder.finish();
    clock += begin.elapsed();
    println!(
        "{} requests, {events} events in {clock:.2?}; timeline {} MB; {}",
        matched.requests.len(),
        timeline.bytes() / 1_000_000,
        memory("VmHWM")
    );
    let options = ExplainOptions {
        service_time: plan(0).service_time(),
        workers: NonZeroU32::MIN,
        measure_from: Monotonic::from_nanos_since_boot(0),
        slowest: 50,
    };
    let begin = Instant::now();
    let explained = explain(&matched, &timeline, &context, &options);
    println!("explained in {:.2?}; {}", begin.elapsed(), memory("VmHWM"));
    for share in explained.causes.iter().take(5) {
        println!("{} {:.3}", share.cause.key(), share.share.value);
    }
}
