//! Requests per second of each kernel on one core, random numbers and histogram included.

use std::hint::black_box;
use std::num::{NonZeroU32, NonZeroUsize};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_simulator::simulation::{Simulation, Stop, WarmUp};
use taillab_simulator::trace::{TraceSimulation, TraceSpeed};

const REQUESTS: u64 = 4_000_000;

fn one_queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("poisson at 0.8");
    group
        .throughput(Throughput::Elements(REQUESTS))
        .sample_size(10);
    for (service, workers, discipline) in [
        ("deterministic:50us", 4, "fifo"),
        ("exponential:50us", 4, "fifo"),
        ("exponential:50us", 64, "fifo"),
        ("deterministic:50us", 4, "lifo"),
        ("deterministic:50us", 4, "random-request"),
        ("deterministic:50us", 4, "random-worker"),
        ("deterministic:50us", 4, "jsq"),
        ("exponential:50us", 4, "jsq"),
        ("deterministic:50us", 4, "power-of-d:2"),
        ("deterministic:50us", 1, "ps"),
        ("exponential:50us", 1, "ps"),
    ] {
        let simulation = Simulation {
            stop: Stop::Requests(REQUESTS),
            warm_up: WarmUp::Requests(0),
            batches: 8,
            threads: NonZeroUsize::new(1),
            ..Simulation::new(
                ArrivalProcess::Poisson,
                service.parse().expect("a service"),
                NonZeroU32::new(workers).expect("workers"),
                0.8,
                discipline.parse().expect("a discipline"),
            )
        };
        let id = BenchmarkId::new(discipline, format!("{service} x{workers}"));
        group.bench_with_input(id, &simulation, |b, s| b.iter(|| black_box(s.run())));
    }
    group.finish();
}

fn trace(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("recorded trace at 0.8");
    let arrivals = ArrivalProcess::Poisson
        .schedule(64_000.0, Nanos::from_secs(100), 1)
        .expect("a schedule");
    group
        .throughput(Throughput::Elements(arrivals.len() as u64))
        .sample_size(10);
    for workers in [1, 4, 8] {
        let mut simulation = TraceSimulation::new(
            "deterministic:50us".parse().expect("a service"),
            NonZeroU32::new(workers).expect("workers"),
        );
        simulation.speed = TraceSpeed::Utilization(0.8);
        let id = BenchmarkId::new("fifo", format!("deterministic:50us x{workers}"));
        group.bench_with_input(id, &simulation, |b, s| {
            b.iter(|| black_box(s.run(&arrivals)))
        });
    }
    group.finish();
}

criterion_group!(benches, one_queue, trace);
criterion_main!(benches);
