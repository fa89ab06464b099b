//! What the probe costs: the round trip with and without it, each program's run time by the
//! kernel's own statistics, attaching, and draining.
//!
//! Client and server share one CPU: a round trip is the CPU time of both, and no
//! interprocessor interrupt hides the probe. So hooks that both pass through count twice.
//!
//! Run as root: `cargo run --release -p taillab-probe --example cost [rounds [udp|tcp
//! [disturbances [stamps [avoided hook]]]]]`.

#[path = "../tests/live/testbed/mod.rs"]
#[allow(dead_code, reason = "the live tests use the rest")]
mod testbed;

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys;
use taillab_analysis::paired::changed_first;
use taillab_model::MiddleStamps;
use taillab_model::interval::median;
use taillab_probe::{Disturbances, Probe, ProbeSpec};
use testbed::Testbed;
use testbed::streams::StreamBed;

/// Round trips of a block; the first ones warm the caches up again.
const BLOCK: u32 = 200;
const WARM_UP: usize = 40;

/// Round trips that the kernel's statistics are taken from.
const COUNTED: u32 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let rounds = args.next().map_or(Ok(300), |n| n.parse::<u32>());
    let transport = args.next().unwrap_or_else(|| "udp".into());
    let (Ok(rounds), "udp" | "tcp") = (rounds, transport.as_str()) else {
        eprintln!("usage: cost [ROUNDS [udp|tcp [DISTURBANCES [STAMPS [AVOIDED HOOK]]]]]");
        std::process::exit(2);
    };
    let disturbances: Disturbances = args.next().unwrap_or_else(|| "none".into()).parse()?;
    let stamps: MiddleStamps = args.next().unwrap_or_else(|| "all".into()).parse()?;
    let avoided: Vec<String> = args.collect();
    let avoided: Vec<&str> = avoided.iter().map(String::as_str).collect();
    let mut cpu = rustix::thread::CpuSet::new();
    cpu.set(0);
    rustix::thread::sched_setaffinity(None, &cpu)?;
    if transport == "tcp" {
        let mut bed = StreamBed::new();
        (bed.spec.stamps, bed.spec.disturbances) = (stamps, disturbances);
        let _server = bed.memcached(1);
        let client = bed.connect();
        return measure(&bed.spec, &avoided, rounds, |trips| {
            let round_trip = |_| {
                let start = Instant::now();
                get(&client);
                start.elapsed()
            };
            (0..trips).map(round_trip).collect()
        });
    }
    let mut testbed = Testbed::veth();
    (testbed.spec.stamps, testbed.spec.disturbances) = (stamps, disturbances);
    measure(&testbed.spec, &avoided, rounds, |trips| {
        (0..trips)
            .map(|id| {
                let start = Instant::now();
                testbed.round_trip(&id.to_be_bytes());
                start.elapsed()
            })
            .collect()
    })
}

/// A request for a key that is not there.
fn get(mut client: &TcpStream) {
    let mut response = [0; 16];
    client
        .write_all(b"get some-key-of-memcached\r\n")
        .expect("the server reads");
    let n = client.read(&mut response).expect("a response");
    assert_eq!(&response[..n], b"END\r\n");
}

/// Measures a server to which `round_trips` makes the given number of calls.
fn measure(
    spec: &ProbeSpec,
    avoided: &[&str],
    rounds: u32,
    round_trips: impl Fn(u32) -> Vec<Duration>,
) -> Result<(), Box<dyn Error>> {
    let mut probe = Probe::load_avoiding(spec, avoided)?;
    for hook in probe.hooks() {
        println!("{:<11} {}", hook.stamp, hook.hook);
    }
    interleaved(&mut probe, rounds, &round_trips)?;
    drop(probe);
    counted(spec, avoided, &round_trips)
}

/// The round trip with and without the probe in pairs of blocks, whose order is random so that no drift
/// counts as a cost.
fn interleaved(
    probe: &mut Probe,
    rounds: u32,
    round_trips: impl Fn(u32) -> Vec<Duration>,
) -> Result<(), Box<dyn Error>> {
    let block = |probe: &mut Probe| -> Result<f64, Box<dyn Error>> {
        let mut times = round_trips(BLOCK).split_off(WARM_UP);
        times.sort_unstable();
        probe.discard()?;
        Ok(times[times.len() / 2].as_nanos() as f64)
    };
    let (mut without, mut with, mut cost) = (Vec::new(), Vec::new(), Vec::new());
    let (mut attach, mut detach) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let with_first = changed_first(1, u64::from(round));
        let before = (!with_first).then(|| block(probe)).transpose()?;
        let start = Instant::now();
        probe.attach()?;
        attach.push(start.elapsed().as_nanos() as f64);
        let all = block(probe)?;
        let start = Instant::now();
        probe.detach();
        detach.push(start.elapsed().as_nanos() as f64);
        let nothing = match before {
            Some(nothing) => nothing,
            None => block(probe)?,
        };
        without.push(nothing);
        with.push(all);
        cost.push(all - nothing);
    }
    println!("\nmedians of {rounds} pairs of blocks and 95 % intervals, in ns");
    let show = |name: &str, values: &[f64]| match median(values) {
        Some(m) => println!("{name:<28} {:>8.0} ({:.0} to {:.0})", m.value, m.lo, m.hi),
        None => println!("{name:<28} too few rounds"),
    };
    show("attach all", &attach);
    show("detach all", &detach);
    show("round trip without", &without);
    show("round trip with", &with);
    show("the probe's cost", &cost);
    Ok(())
}

/// Each program's runs and time by the kernel's own count, and what draining costs.
fn counted(
    spec: &ProbeSpec,
    avoided: &[&str],
    round_trips: impl Fn(u32) -> Vec<Duration>,
) -> Result<(), Box<dyn Error>> {
    // rings that hold everything, drained at once, on this CPU
    let mut spec = spec.clone();
    spec.ring_bytes_per_cpu = COUNTED as usize * 32 * 16;
    let mut probe = Probe::load_avoiding(&spec, avoided)?;
    probe.reserve(u64::from(COUNTED) * 32)?;
    // SAFETY: no pointers; the descriptor that it returns ends the statistics when it is closed.
    let statistics = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    probe.attach()?;
    round_trips(COUNTED);
    probe.detach();
    println!(
        "\n{:<28} {:>10} {:>9} {:>8}",
        "program", "runs", "per req.", "ns/run"
    );
    let mut in_all = 0.0;
    for cost in probe.costs()? {
        in_all += cost.run_time_ns as f64 / f64::from(COUNTED);
        println!(
            "{:<28} {:>10} {:>9.2} {:>8.1}",
            cost.program,
            cost.runs,
            cost.runs as f64 / f64::from(COUNTED),
            cost.run_time_ns as f64 / cost.runs.max(1) as f64
        );
    }
    println!("in all, the statistics included: {in_all:.0} ns per request");
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
    println!("\ndrain                {each:.1} ns/event ({drained} events)");
    let start = Instant::now();
    for _ in 0..1_000_000 {
        std::hint::black_box(probe.drain(256));
    }
    let each = start.elapsed().as_nanos() as f64 / 1e6;
    println!("drain, nothing there {each:.1} ns");
    let recording = probe.finish()?;
    println!(
        "recorded             {} events, lost {:?}",
        recording.len(),
        recording.lost
    );
    let start = Instant::now();
    let events = recording.into_events().map(std::hint::black_box).count();
    let each = start.elapsed().as_nanos() as f64 / events as f64;
    println!("merge and decode     {each:.1} ns/event");
    Ok(())
}
