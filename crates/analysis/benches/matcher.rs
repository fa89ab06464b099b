//! Speed of the matcher and of the statistics, with the events of a simulated server.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(missing_docs, reason = "criterion writes its main function")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;

use common::server::Server;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::{MatchOptions, match_events};

fn matcher(c: &mut Criterion) {
    let server = Server {
        requests: 200_000,
        mean_service_ns: 15_000.0,
        load: 0.75,
        ..Server::default()
    };
    let events = server.run().events;
    let mut group = c.benchmark_group("matcher");
    group.sample_size(10);
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("match_events", |b| {
        b.iter(|| match_events(black_box(&events).iter().copied(), &MatchOptions::default()));
    });
    group.finish();

    let found = match_events(events, &MatchOptions::default());
    let requests = &found.requests;
    let sojourns: Vec<_> = (0..requests.len()).map(|i| requests.sojourn(i)).collect();
    let mut group = c.benchmark_group("statistics");
    group.sample_size(10);
    group.throughput(Throughput::Elements(sojourns.len() as u64));
    group.bench_function("distribution_of", |b| {
        b.iter(|| distribution_of(black_box(&sojourns)));
    });
    group.finish();
}

criterion_group!(benches, matcher);
criterion_main!(benches);
