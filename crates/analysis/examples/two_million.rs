//! Peak memory and time of the whole analysis for two million requests: the events of a
//! simulated server, the join with its client, and the comparison with the ideal.
//!
//! `cargo run --release -p taillab-analysis --example two_million`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use common::server::{Server, Traffic};
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    Analysis, AnalysisOptions, ClientRecord, ClientRecords, MatchOptions, Window, match_events,
};
use taillab_model::{
    ClientTimes, Event, EventKind, Monotonic, Nanos, Operation, RecordingContext, SentKey,
};

const BLOCKS: u64 = 200;
const BLOCK: usize = 10_000;

/// One block of the traffic, which begins `offset` after the first.
fn block(number: u64) -> Traffic {
    let server = Server {
        seed: number,
        requests: BLOCK,
        mean_service_ns: 15_000.0,
        load: 0.75,
        ..Server::default()
    };
    server.run()
}

/// Blocks are a second apart; each lasts 0.2 s.
fn offset(number: u64) -> Nanos {
    Nanos::from_secs(number)
}

fn events() -> impl Iterator<Item = Event> {
    (0..BLOCKS).flat_map(|number| {
        let mut events = block(number).events;
        for event in &mut events {
            event.at = event.at + offset(number);
        }
        events.into_iter()
    })
}

fn records() -> impl Iterator<Item = ClientRecord> {
    (0..BLOCKS).flat_map(|number| {
        let record = move |truth: common::server::Truth| {
            let sent = truth.stamps.t1 + offset(number);
            ClientRecord {
                key: SentKey {
                    port: truth.key.connection as u16,
                    id: truth.key.id,
                },
                times: ClientTimes {
                    intended: sent,
                    sent,
                    received: Some(truth.stamps.t6 + offset(number)),
                },
                operation: Operation::Get,
            }
        };
        block(number).truth.into_iter().map(record)
    })
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    peak.unwrap_or("VmHWM: unknown").replace('\t', " ")
}

fn main() {
    let packets = |e: &Event| matches!(e.kind, EventKind::PacketIn { .. });
    let begin = Instant::now();
    println!(
        "{} requests made in {:.2?}",
        events().filter(packets).count(),
        begin.elapsed()
    );
    println!("{}", peak_memory());

    let begin = Instant::now();
    let matched = match_events(events(), &MatchOptions::default());
    println!(
        "{} events made and matched in {:.2?}",
        matched.events,
        begin.elapsed()
    );
    println!("{}", peak_memory());

    let begin = Instant::now();
    let from = Monotonic::from_nanos_since_boot(0);
    let mut window = Window::whole(matched, Timeline::default());
    ClientRecords::new(records(), None, from).join(&mut window);
    println!(
        "{:?} made and joined in {:.2?}",
        window.matched.client,
        begin.elapsed()
    );

    let begin = Instant::now();
    let options = AnalysisOptions::new(Nanos::from_micros(14), NonZeroU32::MIN, from);
    let context = RecordingContext::default();
    let mut analysis = Analysis::new(&context, options);
    analysis.push(&Arc::new(window), |_, _| {});
    let analysis = analysis.finish(0).unwrap().unjudged().server;
    println!("analysed in {:.2?}", begin.elapsed());
    println!("{}", peak_memory());
    let complete = analysis.matching.complete;
    println!("{complete} of {} complete", analysis.matching.responses);
}
