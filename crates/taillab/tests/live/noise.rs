//! `taillab noise` as root: a disturbance whose time is known is found under its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::support::{live, taillab};

/// The thread that takes the CPU away, by the name that the kernel knows.
const HOG: &str = "known-hog";
/// Of the hog's own CPU time, what must be charged to it: interrupts on top of it are charged to
/// themselves.
const FOUND: f64 = 0.7;

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Takes this CPU in bursts of 2 ms until told to stop; (time, its own CPU time so far) after
/// each.
fn hog(cpu: u32, stop: Arc<AtomicBool>) -> thread::JoinHandle<Vec<(u64, u64)>> {
    let hog = move || {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu as usize);
        rustix::thread::sched_setaffinity(None, &set).unwrap();
        let mut seen = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let burst = Instant::now();
            while burst.elapsed() < Duration::from_millis(2) {}
            seen.push((ns(ClockId::Monotonic), ns(ClockId::ThreadCPUTime)));
            thread::sleep(Duration::from_millis(6));
        }
        seen
    };
    thread::Builder::new().name(HOG.into()).spawn(hog).unwrap()
}

fn noise(args: &[&str]) -> Value {
    let output = taillab()
        .args(["noise", "--json", "-q"])
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_thread_that_takes_the_cpu_is_named_with_the_time_it_took() {
    if !live("a_thread_that_takes_the_cpu_is_named_with_the_time_it_took") {
        return;
    }
    let cpu = last_cpu();
    let stop = Arc::new(AtomicBool::new(false));
    let hog = hog(cpu, Arc::clone(&stop));
    let result = noise(&["-d", "3s", "--cpus", &cpu.to_string()]);
    stop.store(true, Ordering::Relaxed);
    let seen = hog.join().unwrap();
    let row = &result["rows"][0];
    let began = row["began_ns"].as_u64().unwrap();
    let ended = began + row["watched_ns"].as_u64().unwrap();
    let during: Vec<&(u64, u64)> = seen
        .iter()
        .filter(|(at, _)| (began..ended).contains(at))
        .collect();
    let (first, last) = (during.first().unwrap(), during.last().unwrap());
    let truth = (last.1 - first.1) as f64;
    let causes = row["causes"].as_array().unwrap();
    let is_hog = |cause: &&Value| {
        let culprit = cause["culprit"].as_str().unwrap_or_default();
        cause["cause"] == "thread" && culprit.starts_with(HOG)
    };
    let found: f64 = (causes.iter().filter(is_hog))
        .map(|cause| cause["stolen_ns"].as_f64().unwrap())
        .sum();
    // the window may hold a burst more than the truth at each of its ends
    let bursts = 2.0 * (truth / during.len() as f64).max(2e6) + 20e6;
    assert!(
        found >= FOUND * truth && found <= 1.1 * truth + bursts,
        "{found} ns of {truth} ns: {causes:#?}"
    );
    // every nanosecond of the gaps has exactly one cause
    let sum: f64 = causes
        .iter()
        .map(|cause| cause["share"].as_f64().unwrap())
        .sum();
    assert!((sum - 1.0).abs() < 1e-3, "{sum}");
}

#[test]
fn the_loops_in_the_kernel_run_and_without_interrupts_meet_none() {
    if !live("the_loops_in_the_kernel_run_and_without_interrupts_meet_none") {
        return;
    }
    let cpu = last_cpu().to_string();
    let result = noise(&["-d", "500ms", "--loops", "kernel,masked", "--cpus", &cpu]);
    let rows = result["rows"].as_array().unwrap();
    let of = |kind: &str| rows.iter().find(|row| row["loop"] == kind);
    assert!(of("kernel").is_some_and(|row| row["reads"]["count"].as_u64() > Some(1_000)));
    // a kernel before 6.12 cannot, and says so
    let Some(masked) = of("masked") else {
        let notes = result["notes"].to_string();
        assert!(notes.contains("bpf_local_irq_save"), "{notes}");
        return;
    };
    assert!(masked["reads"]["count"].as_u64() > Some(1_000));
    for cause in masked["causes"].as_array().unwrap() {
        let cause = cause["cause"].as_str().unwrap();
        assert!(["hypervisor", "unexplained"].contains(&cause), "{cause}");
    }
}

/// The last CPU that may be used: the first has more to do.
fn last_cpu() -> u32 {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1_024).rev().find(|&cpu| set.is_set(cpu)).unwrap() as u32
}
