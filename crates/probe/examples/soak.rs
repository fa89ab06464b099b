//! A long recording at full rate to disk: nothing may be lost, memory may not grow, and the
//! file must hold every request.
//!
//! Run as root: `cargo run --release -p taillab-probe --example soak [seconds [rate [file]]]`;
//! without a rate, or at the rate `peak`, the server runs at its peak. A named file is kept.

#[path = "../tests/live/testbed/mod.rs"]
#[allow(dead_code, reason = "the live tests use the rest")]
mod testbed;

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use taillab_model::{EventKind, RecordingContext, RecordingReader, RecordingWriter};
use taillab_probe::{Disturbances, Probe};
use testbed::Testbed;

/// Requests in flight: enough to keep the server busy.
const WINDOW: u16 = 32;
/// How long the drainer sleeps; `taillab trace` does the same.
const PAUSE: Duration = Duration::from_millis(10);
/// The whole process may use this much, in KiB.
const MEMORY_KIB: u64 = 300 << 10;
/// What it may grow by after the first seconds.
const GROWTH_KIB: u64 = 16 << 10;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(600_u64), |n| n.parse());
    let rate = std::env::args().nth(2).filter(|rate| rate != "peak");
    let rate = rate.map(|rate| rate.parse().ok().filter(|rate: &f64| *rate > 0.0));
    let (Ok(seconds), None | Some(Some(_))) = (seconds, rate) else {
        eprintln!("usage: soak [SECONDS [RATE PER SECOND|peak [FILE]]]");
        std::process::exit(2);
    };
    let path = std::env::args_os().nth(3).map(PathBuf::from);
    let temporary = path.is_none();
    let path = path.unwrap_or_else(|| {
        let name = format!("taillab-soak-{}.tlc", std::process::id());
        std::env::temp_dir().join(name)
    });
    let result = soak(Duration::from_secs(seconds.max(2)), rate.flatten(), &path);
    if temporary {
        // there is none if it failed before
        let _ = std::fs::remove_file(&path);
    }
    result
}

fn soak(duration: Duration, rate: Option<f64>, path: &Path) -> Result<()> {
    // the server alone on the last CPU, where there are two
    let cpus = std::thread::available_parallelism()?.get();
    pin(cpus - 1)?;
    let mut testbed = Testbed::veth();
    pin(0)?;
    testbed.spec.ring_bytes_per_cpu = 4 << 20;
    testbed.spec.disturbances = Disturbances::ALL;
    testbed.spec.server_cpus = vec![(cpus - 1) as u16];
    let context = RecordingContext {
        server: "an echo server".into(),
        transport: "udp".into(),
        port: testbed::SERVER_PORT,
        ..RecordingContext::default()
    };
    let mut probe = Probe::load(&testbed.spec)?;
    let mut writer = RecordingWriter::new(File::create(path)?, probe.base(), &context)?;
    probe.attach()?;

    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let (drained, sent) = std::thread::scope(|scope| {
        let client = scope.spawn(|| keep_busy(&testbed, rate, &stop));
        let drained = drain(&mut probe, &mut writer, began, duration);
        stop.store(true, Ordering::Relaxed);
        (drained, client.join())
    });
    let took = began.elapsed();
    let Drained {
        cpu,
        settled_kib,
        memory_kib,
    } = drained?;
    let answered = sent.map_err(|_| "the client failed")??;
    probe.finish_into(&mut writer)?;
    let lost = probe.lost()?;
    let events = writer.events();
    writer.finish(&context, lost)?.sync_all()?;
    let bytes = std::fs::metadata(path)?.len();
    println!(
        "recorded   {events} events of {answered} requests in {:.1} s: {:.0} requests/s",
        took.as_secs_f64(),
        answered as f64 / took.as_secs_f64()
    );
    println!("lost       {lost:?}");
    println!(
        "file       {bytes} bytes, {:.2} an event",
        bytes as f64 / events as f64
    );
    println!(
        "drainer    {:.1} ns an event, {:.2} % of a CPU",
        cpu.as_nanos() as f64 / events as f64,
        100.0 * cpu.as_secs_f64() / took.as_secs_f64()
    );
    println!(
        "memory     {} MiB, of which {} KiB since the first 1.5 s",
        memory_kib >> 10,
        memory_kib - settled_kib
    );
    let read = Instant::now();
    let mut reader = RecordingReader::open(File::open(path)?)?;
    let (mut requests, mut responses, mut in_file, mut backwards) = (0, 0, 0, 0);
    let mut before = reader.base();
    for event in reader.by_ref() {
        in_file += 1;
        backwards += u64::from(event.at < before);
        before = event.at;
        match event.kind {
            EventKind::PacketIn { .. } => requests += 1,
            EventKind::PacketOut { .. } => responses += 1,
            _ => {}
        }
    }
    println!(
        "read       {:.1} ns an event; memory then {} MiB",
        read.elapsed().as_nanos() as f64 / in_file as f64,
        memory("VmHWM:")? >> 10
    );
    let checks = [
        (lost.total() == 0, "events were lost"),
        (reader.damage().is_none(), "the file is damaged"),
        (in_file == events, "the file lacks events"),
        (backwards == 0, "time goes backwards"),
        (responses == answered, "responses are missing"),
        (requests >= answered, "requests are missing"),
        (memory("VmHWM:")? < MEMORY_KIB, "it took too much memory"),
        (memory_kib - settled_kib < GROWTH_KIB, "memory grew"),
    ];
    let wrong: Vec<&str> = checks
        .iter()
        .filter(|(right, _)| !right)
        .map(|&(_, text)| text)
        .collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("; ").into()),
    }
}

struct Drained {
    /// CPU time of the drainer.
    cpu: Duration,
    /// Memory after the first 1.5 seconds, and at the end.
    settled_kib: u64,
    memory_kib: u64,
}

fn drain(
    probe: &mut Probe,
    writer: &mut RecordingWriter<File>,
    began: Instant,
    duration: Duration,
) -> Result<Drained> {
    let cpu = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let cpu_before = cpu();
    let mut settled_kib = 0;
    while began.elapsed() < duration {
        probe.drain_into(writer)?;
        if settled_kib == 0 && began.elapsed() > Duration::from_millis(1_500) {
            settled_kib = memory("VmRSS:")?;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(Drained {
        cpu: cpu() - cpu_before,
        settled_kib,
        memory_kib: memory("VmRSS:")?.max(settled_kib),
    })
}

/// Keeps a window of requests in flight, or a quarter of it at an even rate, and
/// returns how many were answered.
fn keep_busy(testbed: &Testbed, rate: Option<f64>, stop: &AtomicBool) -> std::io::Result<u64> {
    let client = &testbed.client;
    let mut response = [0; 64];
    let mut id = 0_u16;
    let mut send = || {
        id = id.wrapping_add(1);
        let mut request = [0; 24];
        request[..2].copy_from_slice(&id.to_be_bytes());
        client.send_to(&request, testbed.server)
    };
    let window = if rate.is_some() { WINDOW / 4 } else { WINDOW };
    for _ in 0..window {
        send()?;
    }
    let began = Instant::now();
    let mut answered = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        client.recv(&mut response)?;
        answered += 1;
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(answered as f64 / rate);
            while began.elapsed() < due {
                std::hint::spin_loop();
            }
        }
        send()?;
    }
    for _ in 0..window {
        client.recv(&mut response)?;
        answered += 1;
    }
    Ok(answered)
}

fn pin(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(None, &cpus)?)
}

/// A line of this process's memory, in KiB.
fn memory(line: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|l| l.strip_prefix(line));
    let value = value.ok_or("no memory in /proc/self/status")?;
    Ok(value.trim().trim_end_matches(" kB").parse()?)
}
