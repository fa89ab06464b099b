//! How many requests of each recording are matched and complete, and the events around the first
//! requests that lack a stamp or a certain response.
//!
//! `cargo run --release -p taillab-analysis --example completeness -- [--sequential] [--show N] FILE…`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::fs::File;
use std::time::Instant;

use taillab_analysis::{MatchOptions, Matched, match_events};
use taillab_model::{EventKind, Monotonic, Nanos, Recording};

/// The warm-up, which does not count; it begins with the first event.
const WARM_UP: Nanos = Nanos::from_millis(300);

fn main() {
    let mut sequential = false;
    let mut show = Some(0_usize);
    let mut files = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--sequential" => sequential = true,
            "--show" => show = args.next().and_then(|n| n.parse().ok()),
            _ => files.push(arg),
        }
    }
    let (Some(show), false) = (show, files.is_empty()) else {
        eprintln!("usage: completeness [--sequential] [--show N] FILE…");
        std::process::exit(2);
    };
    for file in files {
        let read = || Recording::read(File::open(&file).unwrap()).unwrap();
        let mut options = MatchOptions::of(&read().context).unwrap();
        options.sequential |= sequential;
        let begin = Instant::now();
        let matched = match_events(read().into_events(), &options);
        let elapsed = begin.elapsed();
        let first = read().into_events().next().unwrap().at;
        let counts = matched.counts(first + WARM_UP);
        let share = |n: u64| 100.0 * n as f64 / counts.responses.max(1) as f64;
        println!(
            "{file}: {} responses, {:.2} % matched, {:.2} % complete; ambiguous {}, unanswered {}, out of order {}, missing {:?}, blind {}, {:.1} events per request, {elapsed:.1?} read and matched",
            counts.responses,
            share(counts.matched),
            share(counts.complete),
            counts.ambiguous,
            counts.unanswered,
            counts.out_of_order,
            counts.missing_middle,
            counts.blind_requests,
            matched.events as f64 / matched.requests.len().max(1) as f64,
        );
        let workers: std::collections::BTreeSet<_> = matched.workers.iter().collect();
        println!("  workers {}", workers.len());
        show_incomplete(&matched, first + WARM_UP, show, &read);
        show_unmatched(&matched, first + WARM_UP, show, &read);
    }
}

/// What happened on the connections of requests without a certain response.
fn show_unmatched(matched: &Matched, from: Monotonic, show: usize, read: &impl Fn() -> Recording) {
    const AROUND: Nanos = Nanos::from_millis(30);
    let unmatched = matched.unmatched.iter().filter(|r| r.t1 >= from);
    for request in unmatched.take(show) {
        println!(
            "  unmatched {:?}, ambiguous {}",
            request.key, request.ambiguous
        );
        for event in read().into_events() {
            let near = event.at + AROUND >= request.t1 && event.at <= request.t1 + AROUND;
            let since = event.at.nanos_since_boot() as i64 - request.t1.nanos_since_boot() as i64;
            match event.kind {
                EventKind::SegmentIn { key, .. }
                | EventKind::SegmentQueued { key }
                | EventKind::SegmentRead { key, .. }
                | EventKind::SegmentWritten { key, .. }
                | EventKind::SegmentOut { key, .. }
                    if key.connection == request.key.connection && near =>
                {
                    println!("    {since:>9} cpu {} {:?}", event.cpu, event.kind);
                }
                _ => {}
            }
        }
    }
}

/// The events from a little before T1 to T6.
fn show_incomplete(matched: &Matched, from: Monotonic, show: usize, read: &impl Fn() -> Recording) {
    let incomplete = matched.measured_places(from);
    let incomplete = incomplete.filter(|&place| !matched.requests.stamps(place).is_complete());
    for place in incomplete.take(show) {
        let stamps = matched.requests.stamps(place);
        let ns = |at: Option<Monotonic>| at.map(|at| at.saturating_since(stamps.t1).get());
        println!(
            "  request {place} {:?} worker {}: {:?}, T6 {:?}",
            matched.keys[place],
            matched.workers[place],
            stamps.middle().map(ns),
            ns(Some(stamps.t6))
        );
        for event in read().into_events() {
            let around = event.at + Nanos::from_micros(60) >= stamps.t1 && event.at <= stamps.t6;
            if around {
                let since =
                    event.at.nanos_since_boot() as i64 - stamps.t1.nanos_since_boot() as i64;
                println!("    {since:>9} cpu {} {:?}", event.cpu, event.kind);
            }
        }
    }
}
