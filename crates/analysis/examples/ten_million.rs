//! Time and peak memory of explaining ten million requests: events of a simulated kernel, in
//! windows, as a long recording is read. If a file is named, the events are read from it; if it does not
//! exist, they are only written to it, for `taillab explain`.
//!
//! `cargo run --release -p taillab-analysis --example ten_million [-- MILLIONS [FILE.tlc]]`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/ledger/kernel.rs"]
mod kernel;

use std::fs::File;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::{Plan, What};
use taillab_analysis::matcher::InOrder;
use taillab_analysis::{Analysis, AnalysisOptions, MatchOptions, Window, Windows, window};
use taillab_model::{
    Event, EventSink, LostEvents, Monotonic, Nanos, RecordingContext, RecordingReader,
    RecordingWriter,
};

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

/// One block is made and used again and again, each time two seconds after the last.
fn events(block: &[Event], blocks: usize) -> impl Iterator<Item = Event> + use<'_> {
    (0..blocks).flat_map(move |number| {
        let offset = Nanos::from_secs(2 * number as u64);
        let later = move |event: &Event| Event {
            at: event.at + offset,
            ..*event
        };
        block.iter().map(later)
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let millions = arguments.next().map_or(Ok(10), |n| n.parse::<usize>());
    let Ok(millions @ 1..) = millions else {
        eprintln!("usage: ten_million [MILLIONS [FILE.tlc]], e.g. ten_million 10 ten.tlc");
        std::process::exit(2);
    };
    let blocks = millions * 1_000_000 / BLOCK;
    let context = plan(0).context();
    let block: Vec<Event> = plan(1).run().events;
    if let Some(path) = arguments.next() {
        return match File::open(&path) {
            Ok(file) => explain(read(file), &context),
            Err(_) => write(&path, &block, blocks, &context),
        };
    }
    explain(events(&block, blocks), &context);
}

/// The events of a file, in order of time.
fn read(file: File) -> impl Iterator<Item = Event> {
    let reader = Box::leak(Box::new(RecordingReader::open_whole(file).unwrap()));
    let disorder = MatchOptions::default().disorder;
    InOrder::new(reader.recorded(), disorder).map(Event::from)
}

fn explain(events: impl Iterator<Item = Event>, context: &RecordingContext) {
    let from = Monotonic::from_nanos_since_boot(0);
    let options = AnalysisOptions {
        slowest: 50,
        ..AnalysisOptions::new(plan(0).service_time(), NonZeroU32::MIN, from)
    };
    let (mut making, mut adding) = (Duration::ZERO, Duration::ZERO);
    let mut analysis = Analysis::new(context, options);
    let mut add = |window: Window, making: &mut Duration, since: &mut Instant| {
        *making += since.elapsed();
        let begin = Instant::now();
        analysis.push(&Arc::new(window), |_, _| {});
        adding += begin.elapsed();
        *since = Instant::now();
    };
    let mut windows = Windows::new(MatchOptions::default(), context, window::REQUESTS);
    let mut since = Instant::now();
    let mut count = 0_u64;
    for event in events {
        count += 1;
        if let Some(window) = windows.observe(&event) {
            add(window, &mut making, &mut since);
        }
    }
    add(windows.finish(0), &mut making, &mut since);
    println!(
        "events to requests and lines in {making:.2?}, accounts and sums in {adding:.2?}; {}",
        memory("VmHWM")
    );
    let begin = Instant::now();
    let analysis = analysis.finish(0).unwrap().unjudged().server;
    println!(
        "{} requests, {count} events; concluded in {:.2?}; {}",
        analysis.matching.matched,
        begin.elapsed(),
        memory("VmHWM")
    );
    for share in analysis.causes.iter().take(5) {
        println!("{} {:.3}", share.cause.key(), share.share.value);
    }
    println!("{:?}", analysis.explanation.unwrap_or_default().limits);
}

fn write(path: &str, block: &[Event], blocks: usize, context: &RecordingContext) {
    let base = Monotonic::from_nanos_since_boot(1);
    let mut writer = RecordingWriter::new(File::create(path).unwrap(), base, context).unwrap();
    for (number, event) in events(block, blocks).enumerate() {
        writer.insert(event).unwrap();
        if number.is_multiple_of(10_000) {
            let since = event.at.saturating_since(base);
            // an interrupt of up to a millisecond is recorded after the events inside it
            writer
                .settle(since.saturating_sub(Nanos::from_millis(1)))
                .unwrap();
        }
    }
    writer.finish(context, LostEvents::default()).unwrap();
}
