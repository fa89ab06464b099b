//! Measures what the generator can do with a memcached that is already running.
//!
//! Prints the throughput of a closed loop; then, for each rate, what an open loop sent, how late it
//! was, and what a request cost the client:
//!
//! ```text
//! taskset -c 0 memcached -u nobody -t 1 -U 11311 -p 0 -l 127.0.0.1 &
//! cargo run --release -p taillab-load --example memcached_udp -- 127.0.0.1:11311 1 5000 20000 40000
//! ```
//!
//! Arguments: the server's address, the CPU to run on, and rates (requests per second).

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use rustix::thread::{CpuSet, sched_setaffinity};
use taillab_load::verdict::KolmogorovSmirnov;
use taillab_load::{
    AnyClient, ClosedLoop, Endpoint, KernelStamps, LoadRun, NoHooks, OpenLoop, Progress, Protocol,
    Waiting, Workload, arrivals_verdict, open_loop, prefill, saturate,
};
use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;

const CONNECTIONS: usize = 16;
const WARM_UP: Nanos = Nanos::from_millis(500);
const LENGTH: Nanos = Nanos::from_secs(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: memcached_udp SERVER:PORT CPU RATE...";
    let server: SocketAddr = args.next().ok_or(usage)?.parse()?;
    let cpu: usize = args.next().ok_or(usage)?.parse()?;
    let rates = args
        .map(|rate| rate.parse())
        .collect::<Result<Vec<f64>, _>>()?;
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus)?;

    let stop = AtomicBool::new(false);
    let progress = Progress::new();
    let server = Endpoint::Udp(server);
    let memcached = Protocol::named("memcached").ok_or("no memcached")?;
    let codec = memcached.codec(&Workload::default(), true)?;
    let mut client = AnyClient::connect(&server, CONNECTIONS, codec, KernelStamps::NONE)?;
    println!("{:?}", prefill(&mut client, &server, &stop)?);
    for outstanding in [1, 8, 16, 32, 64] {
        let load = ClosedLoop {
            outstanding,
            length: Nanos::from_secs(1),
            warm_up: Nanos::from_millis(200),
            seed: 1,
            stop: &stop,
            progress: &progress,
        };
        let peak = saturate(&mut client, &load, &mut NoHooks)?;
        println!(
            "closed loop, {outstanding:3} in flight: {:7.0} responses/s, client idle {:4.1} %, {:?}",
            peak.rate_per_s(),
            peak.idle_share * 100.0,
            peak.errors
        );
    }
    for rate in rates {
        let schedule = ArrivalProcess::Poisson.schedule(rate, WARM_UP + LENGTH, 1)?;
        let measure_from = schedule.partition_point(|t| *t < WARM_UP);
        let load = OpenLoop {
            schedule,
            measure_from,
            seed: 2,
            timeout: OpenLoop::TIMEOUT,
            waiting: Waiting::Spin,
            stop: &stop,
            progress: &progress,
        };
        let run = open_loop(&mut client, load, &mut NoHooks)?;
        show(rate, &run)?;
    }
    Ok(())
}

fn show(rate: f64, run: &LoadRun) -> Result<(), Box<dyn std::error::Error>> {
    let entries = || run.record.iter_measured();
    let at = |times: &mut Vec<Nanos>| {
        times.sort_unstable();
        let rank = |q: f64| times[((times.len() as f64 * q) as usize).min(times.len() - 1)];
        format!(
            "p50 {} p99 {} p99.9 {} max {}",
            rank(0.5),
            rank(0.99),
            rank(0.999),
            rank(1.0)
        )
    };
    let mut late: Vec<_> = entries().map(|e| e.lateness()).collect();
    let mut response: Vec<_> = entries().filter_map(|e| e.response_time()).collect();
    let verdict = arrivals_verdict(run.record.measured_sends(), rate)?;
    let cost = run.cpu.cost();
    let sent = run.cpu.requests as f64 / run.cpu.elapsed.as_secs_f64();
    println!(
        "open loop {rate} requests/s: sent {sent:.0}/s, answered {}",
        response.len()
    );
    println!("  lateness  {}", at(&mut late));
    println!("  response  {}", at(&mut response));
    println!(
        "  client    {} per request, busy {:.1} %; {:?}",
        cost.cpu_ns_per_request,
        cost.busy_share * 100.0,
        run.errors
    );
    let ks = KolmogorovSmirnov::of_sends(run.record.measured_sends(), rate)?;
    println!("  arrivals  passed {}: {ks}", ks.passed());
    println!(
        "            CV {:.3}, A² {:.1}, IDC {:?}",
        verdict.cv,
        verdict.ad_a2,
        verdict
            .idc
            .iter()
            .map(|at| at.value.unwrap_or(f64::NAN))
            .collect::<Vec<_>>()
    );
    Ok(())
}
