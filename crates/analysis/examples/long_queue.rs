//! What a long queue costs the analysis: a million requests of a simulated kernel with sixteen
//! thousand in the queue, alternating with a million that find almost none. CPU time of one thread.
//!
//! `cargo run --release -p taillab-analysis --example long_queue [-- QUEUE [CULPRITS [ROUNDS]]]`
//!
//! CULPRITS is the number of threads and the number of interrupts that take the CPU; each has a part in
//! nearly every account of a long queue.
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/ledger/kernel.rs"]
mod kernel;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use kernel::{Plan, Trouble, What};
use taillab_analysis::{Analysis, AnalysisOptions, DatagramIds, MatchOptions, Windows, window};
use taillab_model::{Event, Monotonic, Nanos, RecordingContext};

const REQUESTS: usize = 1_000_000;

/// Requests after the queue has been filled; then it drains, and the next block comes.
const BLOCK: usize = 100_000;

/// Each service takes the server's fastest time or more, so that its time has many pieces.
fn plan(queue: usize, culprits: usize) -> Plan {
    let busy = Plan::default().service_time().get() as f64 * 1.05;
    Plan {
        requests: BLOCK + queue,
        at_once: queue,
        gaps: vec![if queue > 0 { busy } else { 2.0 * busy }],
        culprits: culprits as u32,
        disturbances: vec![
            (What::Thread, 20_000_000, 300_000),
            (What::Interrupt, 500_000, 5_000),
            (What::Softirq(1), 700_000, 5_000),
        ],
        trouble: Some((5, Trouble::Slow(1_000))),
        ..Plan::default()
    }
}

/// CPU time of the main thread so far, which other programs on the machine hardly lengthen.
fn cpu_time() -> Duration {
    let spent = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let on_cpu = spent.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(on_cpu.unwrap())
}

/// The peak memory of this process since the last call, in MiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok());
    // resets the peak, if the kernel permits it
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    kib.unwrap_or_default() / 1_024
}

struct Cost {
    took: Duration,
    requests: u64,
    mib: u64,
}

/// The block again and again, each time ten seconds after the last.
fn analyse(block: &[Event], context: &RecordingContext) -> Cost {
    peak_memory();
    let begin = cpu_time();
    let from = Monotonic::from_nanos_since_boot(0);
    let options = AnalysisOptions::new(Plan::default().service_time(), NonZeroU32::MIN, from);
    let mut analysis = Analysis::new(context, options);
    let matching = MatchOptions {
        datagram_ids: Some(DatagramIds::Ids),
        ..MatchOptions::default()
    };
    let mut windows = Windows::new(matching, context, window::REQUESTS);
    for number in 0..REQUESTS / BLOCK {
        let offset = Nanos::from_secs(10 * number as u64);
        for event in block {
            let event = Event {
                at: event.at + offset,
                ..*event
            };
            if let Some(window) = windows.observe(&event) {
                analysis.push(&Arc::new(window), |_, _| {});
            }
        }
    }
    analysis.push(&Arc::new(windows.finish(0)), |_, _| {});
    let analysed = analysis.finish(0).unwrap().unjudged().server;
    Cost {
        took: cpu_time() - begin,
        requests: analysed.matching.matched,
        mib: peak_memory(),
    }
}

fn main() {
    let given: Result<Vec<usize>, _> = std::env::args().skip(1).map(|n| n.parse()).collect();
    let Ok(given) = given else {
        eprintln!("usage: long_queue [QUEUE [CULPRITS [ROUNDS]]], e.g. long_queue 16000 3 3");
        std::process::exit(2);
    };
    let number = |place: usize, otherwise| given.get(place).copied().unwrap_or(otherwise);
    let (queue, culprits, rounds) = (number(0, 16_000), number(1, 3), number(2, 3));
    let context = Plan::default().context();
    let blocks = [0, queue].map(|queue| plan(queue, culprits).run().events);
    for round in 0..rounds {
        // each is first in every other round
        let mut costs = [0, 1].map(|turn| {
            let which = (turn + round) % 2;
            (which, analyse(&blocks[which], &context))
        });
        costs.sort_by_key(|cost| cost.0);
        let [(_, empty), (_, long)] = costs;
        let each = |cost: &Cost| cost.took.as_secs_f64() * 1e6 / cost.requests as f64;
        println!(
            "queue empty: {} requests in {:.2?}, {:.3} µs each, {} MiB; of {queue}: {} in {:.2?}, {:.3} µs each, {} MiB; ratio {:.2}",
            empty.requests,
            empty.took,
            each(&empty),
            empty.mib,
            long.requests,
            long.took,
            each(&long),
            long.mib,
            each(&long) / each(&empty),
        );
    }
}
