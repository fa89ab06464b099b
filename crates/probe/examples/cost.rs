//! What the probe costs: each program's run time by the kernel's own statistics, the
//! round trip with and without it, attaching, and draining.
//!
//! Run as root: `cargo run --release -p taillab-probe --example cost [round trips [udp|tcp
//! [disturbances]]]`.

#[path = "../tests/testbed/mod.rs"]
mod testbed;

use std::error::Error;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys;
use taillab_probe::{Disturbances, Probe};
use testbed::Testbed;
use testbed::streams::{Calls, StreamBed};

fn main() -> Result<(), Box<dyn Error>> {
    let requests: u32 = match std::env::args().nth(1) {
        Some(n) => n.parse()?,
        None => 50_000,
    };
    // client and server on one CPU: a round trip is the CPU time of both, and no
    // interprocessor interrupt hides the probe
    let mut cpu = rustix::thread::CpuSet::new();
    cpu.set(0);
    rustix::thread::sched_setaffinity(None, &cpu)?;
    let disturbances = match std::env::args().nth(3) {
        Some(list) => list.parse()?,
        None => Disturbances::NONE,
    };
    if std::env::args()
        .nth(2)
        .is_some_and(|transport| transport == "tcp")
    {
        return streams(requests, disturbances);
    }
    let mut testbed = Testbed::veth();
    testbed.spec.disturbances = disturbances;
    let mut probe = Probe::load(&testbed.spec)?;
    probe.reserve(u64::from(requests) * 16)?;

    let (mut attach, mut detach) = (Vec::new(), Vec::new());
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let round_trips = |probe: &mut Probe, times: &mut Vec<Duration>| {
        for id in 0..requests / 10 {
            let start = Instant::now();
            testbed.round_trip(&id.to_be_bytes());
            times.push(start.elapsed());
            probe.drain(64);
        }
    };
    for _ in 0..10 {
        round_trips(&mut probe, &mut without);
        let start = Instant::now();
        probe.attach()?;
        attach.push(start.elapsed());
        round_trips(&mut probe, &mut with);
        let start = Instant::now();
        probe.detach();
        detach.push(start.elapsed());
        probe.discard()?;
    }
    println!(
        "attach all          p50 {:?}  max {:?}",
        p50(&mut attach),
        attach[9]
    );
    println!(
        "detach all          p50 {:?}  max {:?}",
        p50(&mut detach),
        detach[9]
    );
    println!("round trip without  p50 {:?}", p50(&mut without));
    println!("round trip with     p50 {:?}", p50(&mut with));

    // rings that hold everything, drained at once, on this CPU
    let mut spec = testbed.spec.clone();
    spec.ring_bytes_per_cpu = requests as usize * 16 * 16;
    drop(probe);
    let mut probe = Probe::load(&spec)?;
    probe.reserve(u64::from(requests) * 16)?;
    // SAFETY: no pointers; the descriptor that it returns ends the statistics when it is closed.
    let statistics = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    probe.attach()?;
    for id in 0..requests {
        testbed.round_trip(&id.to_be_bytes());
    }
    probe.detach();
    print_costs(&probe, requests)?;
    if statistics < 0 {
        println!(
            "(no statistics: {})",
            std::io::Error::from_raw_os_error(-statistics)
        );
    }
    let start = Instant::now();
    let mut drained = 0;
    loop {
        match probe.drain(256) {
            0 => break,
            n => drained += n,
        }
    }
    let each = start.elapsed().as_nanos() as f64 / drained as f64;
    println!("\ndrain               {each:.1} ns/event ({drained} events)");
    let start = Instant::now();
    for _ in 0..1_000_000 {
        std::hint::black_box(probe.drain(256));
    }
    let each = start.elapsed().as_nanos() as f64 / 1e6;
    println!("drain, nothing there {each:.1} ns");
    let recording = probe.finish()?;
    println!(
        "recorded            {} events, lost {:?}",
        recording.len(),
        recording.lost
    );
    let start = Instant::now();
    let events = recording.into_events().count();
    let each = start.elapsed().as_nanos() as f64 / events as f64;
    println!("merge and decode    {each:.1} ns/event");
    Ok(())
}

/// What the programs cost memcached over TCP, one request at a time.
fn streams(requests: u32, disturbances: Disturbances) -> Result<(), Box<dyn Error>> {
    let mut bed = StreamBed::new();
    bed.spec.disturbances = disturbances;
    bed.spec.ring_bytes_per_cpu = requests as usize * 16 * 16;
    let _server = bed.memcached(1);
    let calls = |rounds: u32| Calls {
        connections: 1,
        rounds: rounds as usize,
        in_flight: 1,
        request: b"get some-key-of-memcached\r\n".to_vec(),
    };
    let round_trip = |rounds: u32| {
        let (_, calls) = bed.make(calls(rounds), 0);
        let mut times: Vec<Duration> = calls
            .iter()
            .map(|call| Duration::from_nanos(call.received.saturating_since(call.sent).get()))
            .collect();
        p50(&mut times)
    };
    let mut probe = Probe::load(&bed.spec)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        without.push(round_trip(requests / 10));
        probe.attach()?;
        with.push(round_trip(requests / 10));
        probe.detach();
        probe.discard()?;
    }
    println!("round trip without  p50 {:?}", p50(&mut without));
    println!("round trip with     p50 {:?}", p50(&mut with));
    // SAFETY: no pointers; the descriptor that it returns ends the statistics when it is closed.
    let statistics = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    probe.attach()?;
    round_trip(requests);
    probe.detach();
    print_costs(&probe, requests)?;
    if statistics < 0 {
        println!("(no statistics)");
    }
    Ok(())
}

fn print_costs(probe: &Probe, requests: u32) -> Result<(), Box<dyn Error>> {
    println!(
        "\n{:<16} {:>10} {:>9} {:>8}",
        "program", "runs", "per req.", "ns/run"
    );
    let mut in_all = 0.0;
    for cost in probe.costs()? {
        in_all += cost.run_time_ns as f64 / f64::from(requests);
        println!(
            "{:<16} {:>10} {:>9.2} {:>8.1}",
            cost.program,
            cost.runs,
            cost.runs as f64 / f64::from(requests),
            cost.run_time_ns as f64 / cost.runs.max(1) as f64
        );
    }
    println!("in all, the statistics included: {in_all:.0} ns per request");
    Ok(())
}

fn p50(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
