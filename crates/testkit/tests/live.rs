//! Disturbances on this machine: they happen, they say when, and they leave nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../host/tests/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use taillab_host::{
    CpuSet, JournalFolder, Placement, Roots, Testbed, TestbedSpec, cpus, throttled_time,
};
use taillab_load::ground_truth::GroundTruth;
use taillab_model::Nanos;
use taillab_model::explanation::Cause;
use taillab_testkit::injection::{
    Appetite, CpuGroup, Disturber, Schedule, Stop, packet_flood, packet_loss, quota, rt_hog,
    timer_storm,
};

use common::{eventually, live};

/// The first two CPUs that we may use.
fn two_cpus() -> (u32, u32) {
    let allowed = cpus::allowed().unwrap();
    let mut all = allowed.iter();
    (all.next().unwrap(), all.next().unwrap())
}

const SCHEDULE: Schedule = Schedule {
    every: Nanos::from_millis(20),
    lasts: Nanos::from_millis(1),
};

/// What an injection has done when its thread has slept this often, by the kernel's count: it sleeps before each
/// disturbance.
fn after_turns(disturber: &str, turns: u64, stop: Stop) -> GroundTruth {
    let status = thread_named(disturber).join("status");
    let slept = || -> u64 {
        let text = std::fs::read_to_string(&status).unwrap();
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    };
    let before = slept();
    eventually("it takes its turns", || slept() >= before + turns);
    stop().unwrap()
}

#[test]
fn a_flood_keeps_the_softirq_of_its_cpu_busy_for_as_long_as_it_says() {
    if !live("a_flood_keeps_the_softirq_of_its_cpu_busy_for_as_long_as_it_says") {
        return;
    }
    let (server, client) = two_cpus();
    let stop = packet_flood(server, client, SCHEDULE).unwrap();
    let truth = after_turns("tl-flood", 15, stop);
    assert_eq!(truth.sources[0].cause, Cause::Softirq);
    assert!(!truth.intervals.is_empty());
    assert!(truth.intervals.is_sorted_by_key(|i| i.from_ns));
    // every packet takes its time, and none is counted twice
    let longest = truth.intervals.iter().map(|i| i.length()).max().unwrap();
    assert!(longest >= Nanos::from_micros(10), "{longest}");
    assert!(
        truth
            .intervals
            .windows(2)
            .all(|two| two[0].to_ns <= two[1].from_ns)
    );
    assert!(truth.intervals.iter().all(|i| i.cpu == Some(server as u16)));
}

#[test]
fn a_storm_of_timers_says_when_each_handler_ran() {
    if !live("a_storm_of_timers_says_when_each_handler_ran") {
        return;
    }
    let (server, client) = two_cpus();
    // a storm has a pause after it, in which there are none
    let pauses = |truth: &GroundTruth| {
        let pairs = truth.intervals.windows(2);
        let lengths = pairs.map(|two| two[1].from_ns.saturating_since(two[0].to_ns));
        lengths
            .filter(|length| *length > Nanos::from_millis(10))
            .count()
    };
    let stop = timer_storm(server, client, SCHEDULE).unwrap();
    // it also sleeps while a storm lasts
    let truth = after_turns("tl-timers", 30, stop);
    assert_eq!(truth.sources[0].cause, Cause::Irq);
    let intervals = &truth.intervals;
    assert!(intervals.len() >= 10, "{truth:?}");
    assert!(pauses(&truth) >= 2, "{truth:?}");
    assert!(
        intervals
            .windows(2)
            .all(|two| two[0].to_ns <= two[1].from_ns)
    );
    assert!(intervals.iter().all(|i| i.cpu == Some(server as u16)));
    assert!(
        intervals
            .iter()
            .all(|i| i.length() >= Nanos::from_micros(200))
    );
}

/// A program that takes all the CPU time that it gets, until this is dropped.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_lost_request_comes_again_and_both_times_are_known() {
    if !live("a_lost_request_comes_again_and_both_times_are_known") {
        return;
    }
    let (server, client) = two_cpus();
    let testbed = Testbed::veth(&TestbedSpec {
        placement: Placement {
            server: CpuSet::single(server),
            client: CpuSet::single(client),
        },
    })
    .unwrap();
    let address = std::net::SocketAddr::new(testbed.server_address(), 7777);
    let listener = testbed
        .run_at_server(|| TcpListener::bind(address))
        .unwrap()
        .unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut bytes = [0; 128];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes).unwrap();
        }
    });
    let stop = packet_loss(&testbed, 5).unwrap();
    let mut stream = testbed
        .run_at_client(|| TcpStream::connect(address))
        .unwrap()
        .unwrap();
    stream.set_nodelay(true).unwrap();
    let mut slow = 0;
    for _ in 0..20 {
        let began = Instant::now();
        stream.write_all(&[1; 128]).unwrap();
        stream.read_exact(&mut [0; 128]).unwrap();
        slow += usize::from(began.elapsed() > Duration::from_millis(2));
    }
    drop(stream);
    echo.join().unwrap();
    let truth = stop().unwrap();
    // what is sent again is not counted again: requests 5, 10, 15 and 20
    assert_eq!(truth.intervals.len(), 4, "{truth:?}");
    assert!(slow >= 4, "{slow}");
    assert!(
        truth
            .intervals
            .iter()
            .all(|i| i.length() > Nanos::from_micros(500))
    );
    testbed.remove().unwrap();
}

#[test]
fn a_group_without_quota_is_held_back_and_then_gone() {
    if !live("a_group_without_quota_is_held_back_and_then_gone") {
        return;
    }
    let (server, client) = two_cpus();
    let place = tempfile::tempdir().unwrap();
    let folder = JournalFolder::at(place.path().join("journal"));
    let roots = Roots::default();
    let mut journal = folder.begin(&roots).unwrap();
    let group = CpuGroup::new(&roots, &mut journal).unwrap();
    let path = group.path().to_owned();
    let mut command = Command::new("sh");
    let busy = Busy(command.args(["-c", "while :; do :; done"]).spawn().unwrap());
    group.take_in(busy.0.id()).unwrap();
    let schedule = Schedule {
        every: Nanos::from_millis(60),
        lasts: Nanos::from_millis(15),
    };
    let quota = quota(group, client, server, schedule).unwrap();
    // a process that other load keeps from its CPU cannot be held back
    let before = throttled(&path);
    eventually("the group is held back", || {
        throttled(&path) >= before + Nanos::from_millis(30)
    });
    // a stall of the machine makes that of one window: wait for windows that come later
    for _ in 0..3 {
        std::thread::sleep(Duration::from_nanos(schedule.every.get()));
        let before = throttled(&path);
        eventually("the group is held back again", || throttled(&path) > before);
    }
    let truth = quota.stop();
    drop(busy);
    assert_eq!(truth.sources[0].cause, Cause::Throttled);
    assert!(truth.intervals.len() >= 2, "{truth:?}");
    assert!(truth.total() > Nanos::from_millis(5), "{}", truth.total());
    assert!(!path.exists(), "the control group is still there");

    // what a killed run leaves is removed at the next start
    std::fs::create_dir(&path).unwrap();
    drop(journal);
    let recovered = folder.recover(&roots).unwrap();
    assert_eq!(recovered.len(), 1, "{recovered:?}");
    assert!(recovered[0].failure.is_none());
    assert!(!path.exists());
}

/// For how long the kernel has held a control group back so far.
fn throttled(group: &Path) -> Nanos {
    let account = std::fs::read_to_string(group.join("cpu.stat")).unwrap();
    throttled_time(&account).unwrap()
}

#[test]
fn a_hog_spins_until_it_is_stopped() {
    if !live("a_hog_spins_until_it_is_stopped") {
        return;
    }
    let (server, _) = two_cpus();
    let began = Instant::now();
    let hog: Disturber = rt_hog(server, &[], Appetite::All).unwrap();
    let share = hogs_share();
    let truth = hog.stop();
    assert!(share > 0.5, "{share}");
    assert_eq!(truth.sources[0].cause, Cause::Throttled);
    // held back only as long as the kernel says it may, if it may at all
    let limit: i64 = std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let held = truth.total().as_secs_f64() / began.elapsed().as_secs_f64();
    println!(
        "held back {held:.3} of the time: {:?}",
        truth.intervals.len()
    );
    assert!(limit >= 0 || truth.intervals.is_empty());
    assert!(held < 0.5, "{held}");
}

#[test]
fn a_hog_with_pauses_sleeps_a_quarter_of_its_time() {
    if !live("a_hog_with_pauses_sleeps_a_quarter_of_its_time") {
        return;
    }
    let (server, _) = two_cpus();
    let hog: Disturber = rt_hog(server, &[], Appetite::WithPauses).unwrap();
    let share = hogs_share();
    hog.stop();
    assert!((0.2..0.85).contains(&share), "{share}");
}

/// The share of the time in which the hog has a CPU, until it has had one for two seconds: longer than the
/// second of which the kernel gives real-time threads a part, and much longer than a stall of the machine.
fn hogs_share() -> f64 {
    let account = thread_named("tl-rt-hog").join("schedstat");
    let on_cpu = || {
        let text = std::fs::read_to_string(&account).unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    let (began, before) = (Instant::now(), on_cpu());
    eventually("it runs for two seconds", || {
        on_cpu() >= before + Duration::from_secs(2)
    });
    (on_cpu() - before).as_secs_f64() / began.elapsed().as_secs_f64()
}

/// The folder of this program's thread of that name.
fn thread_named(name: &str) -> PathBuf {
    let mut threads = std::fs::read_dir("/proc/self/task").unwrap();
    let found = threads.find_map(|thread| {
        let path = thread.unwrap().path();
        let comm = std::fs::read_to_string(path.join("comm")).ok()?;
        (comm.trim() == name).then_some(path)
    });
    found.expect("it runs")
}
