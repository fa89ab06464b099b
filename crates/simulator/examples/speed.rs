//! Requests per second of each kernel on one core, quickly: `cargo run --release -p
//! taillab-simulator --example speed [millions of requests [discipline]]`.
#![allow(clippy::unwrap_used)]

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::ControlFlow;

use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::isa::Isa;
use taillab_simulator::simulation::{Simulation, Stop};
use taillab_simulator::trace::TraceSimulation;

fn main() {
    let millions = std::env::args().nth(1);
    let millions = millions.map_or(Ok(50), |text| text.parse::<u64>());
    let Ok(millions @ 1..) = millions else {
        eprintln!("usage: speed [MILLIONS OF REQUESTS [DISCIPLINE]], e.g. speed 50 fifo");
        std::process::exit(2);
    };
    let requests = millions * 1_000_000;
    let wanted = std::env::args().nth(2).unwrap_or_default();
    // all instruction sets if no discipline is given, else the best
    let mut sets = Isa::available();
    if !wanted.is_empty() {
        sets.drain(..sets.len() - 1);
    }
    for isa in sets {
        println!("{}", isa.name());
        for (service, workers, discipline) in [
            ("deterministic:50us", 1, "fifo"),
            ("deterministic:50us", 4, "fifo"),
            ("deterministic:50us", 64, "fifo"),
            ("exponential:50us", 1, "fifo"),
            ("exponential:50us", 4, "fifo"),
            ("exponential:50us", 16, "fifo"),
            ("exponential:50us", 64, "fifo"),
            ("lognormal:50us,cv=2", 4, "fifo"),
            ("deterministic:50us", 4, "lifo"),
            ("exponential:50us", 4, "lifo"),
            ("deterministic:50us", 4, "random-request"),
            ("exponential:50us", 4, "random-request"),
            ("deterministic:50us", 4, "random-worker"),
            ("exponential:50us", 4, "random-worker"),
            ("exponential:50us", 4, "round-robin"),
            ("deterministic:50us", 4, "static:64"),
            ("deterministic:50us", 4, "jsq"),
            ("exponential:50us", 4, "jsq"),
            ("deterministic:50us", 4, "power-of-d:2"),
            ("deterministic:50us", 1, "ps"),
            ("exponential:50us", 1, "ps"),
            ("deterministic:50us", 4, "ps"),
            ("exponential:50us", 4, "ps"),
            ("exponential:50us", 4, "work-stealing"),
            ("exponential:50us", 4, "time-sliced:quantum=20us,switch=0"),
            (
                "exponential:50us",
                4,
                "priority:0.1,background,service=exponential:50us",
            ),
        ] {
            if !discipline.starts_with(&wanted) {
                continue;
            }
            let simulation = Simulation {
                stop: Stop::Requests(requests),
                threads: NonZeroUsize::new(1),
                ..Simulation::new(
                    ArrivalProcess::Poisson,
                    service.parse().unwrap(),
                    NonZeroU32::new(workers).unwrap(),
                    0.8,
                    discipline.parse().unwrap(),
                )
            };
            let outcome = simulation
                .run_on(isa, &|_| ControlFlow::Continue(()))
                .unwrap();
            let speed = outcome.engine.requests_per_second() / 1e6;
            println!(
                "{speed:6.0} M/s  {service} x{workers} {discipline}  ({})",
                outcome.engine.kernel
            );
        }
    }
    if !wanted.is_empty() && wanted != "trace" {
        return;
    }
    println!("recorded trace in memory, {}", Isa::detect().name());
    let trace = ArrivalProcess::Poisson
        .schedule(64_000.0, Nanos::from_secs(300), 1)
        .unwrap();
    for workers in [1, 2, 4, 8] {
        let mut simulation = TraceSimulation::new(
            "deterministic:50us".parse().unwrap(),
            NonZeroU32::new(workers).unwrap(),
        );
        simulation.speed = taillab_simulator::trace::TraceSpeed::Utilization(0.8);
        let outcome = simulation.run(&trace).unwrap();
        let speed = outcome.engine.requests_per_second() / 1e6;
        println!(
            "{speed:6.0} M/s  deterministic:50us x{workers} fifo  ({})",
            outcome.engine.kernel
        );
    }
}
