//! `taillab run memcached` on this machine: real server, real load, real kernel probe.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use taillab_model::{CutReason, EventKind, Recording};

use crate::support::promises::{self, summary};
use crate::support::{
    Machine, SHORT, alive, for_everybody, free_port, in_mid_run, live, on_a_steady_machine,
    server_of, signal, start, taillab, wait_for,
};

/// Works for a few milliseconds now and then on the generator's CPU until it is told to stop; gives
/// its thread's ID.
fn now_and_then(stop: &AtomicBool) -> u32 {
    const GENERATORS_CPU: usize = 1;
    let mut cpu = CpuSet::new();
    cpu.set(GENERATORS_CPU);
    sched_setaffinity(None, &cpu).unwrap();
    // for this thread only: it gets its time at once, whatever else wants the CPU
    rustix::process::setpriority_process(None, -20).unwrap();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(8) {
            std::hint::spin_loop();
        }
    }
    gettid().as_raw_nonzero().get().cast_unsigned()
}

#[test]
fn who_kept_the_generator_from_sending_is_named() {
    if !live("who_kept_the_generator_from_sending_is_named") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    let stop = AtomicBool::new(false);
    let (output, worker) = std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("busy-now-a-then".into());
        let worker = worker.spawn_scoped(scope, || now_and_then(&stop)).unwrap();
        let mut run = taillab();
        run.args(SHORT).arg("--save-capture").arg("-o").arg(&dir);
        let output = on_a_steady_machine(|_| run.output().unwrap());
        stop.store(true, Ordering::Relaxed);
        (output, worker.join().unwrap())
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{stderr}");

    // it is in the recording, which has no switches on the generator's CPU as it has on the server's
    let recording = Recording::read(File::open(dir.join("capture.tlc")).unwrap()).unwrap();
    let context = recording.context.clone();
    let pid = std::process::id();
    // by its program, whatever the thread is called
    let program = std::fs::read_to_string("/proc/self/comm").unwrap();
    let name = format!("{} (pid {pid}) on CPU 1", program.trim_end());
    let is_named = |cut: &&taillab_model::Cut| cut.who == name;
    let named: Vec<_> = context.cuts.iter().filter(is_named).collect();
    let mut came = Vec::new();
    for event in recording.into_events() {
        match event.kind {
            EventKind::CameOn { tid } => {
                assert_eq!(event.cpu, 1);
                came.extend((tid == worker).then_some(event.at));
            }
            EventKind::Switched { .. } => assert_ne!(event.cpu, 1),
            _ => {}
        }
    }
    assert!(!came.is_empty() && !named.is_empty(), "{:?}", context.cuts);
    for cut in named {
        assert_eq!(cut.why, CutReason::GeneratorNotScheduled);
        assert!(came.iter().any(|at| *at < cut.to), "{cut:?}");
    }
    // the result names it too, for the cuts within the measurement
    let by_reason = summary(&dir)["scheduled"]["cut"]["by_reason"].to_string();
    assert!(by_reason.contains(&name), "{by_reason}");
}

#[test]
fn a_run_keeps_every_promise_of_its_result_and_its_experiment_runs_again() {
    if !live("a_run_keeps_every_promise_of_its_result_and_its_experiment_runs_again") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (first, second) = (place.path().join("a"), place.path().join("b"));
    let run = |args: &[&str], dir: &Path| {
        let before = Machine::now();
        let output = on_a_steady_machine(|_| {
            // of the attempt before, if there is one
            let _ = std::fs::remove_dir_all(dir);
            taillab().args(args).arg("-o").arg(dir).output().unwrap()
        });
        // A noisy machine may make the run invalid (4); nothing may make it fail.
        assert!(matches!(output.status.code(), Some(0 | 4)), "{output:?}");
        before.assert_unchanged();
        output.stdout
    };
    let printed = run(&SHORT, &first);
    promises::check(&first, &printed, promises::MOSTLY_COMPLETE);
    let file = first.join("experiment.toml");
    run(
        &["run", "memcached", "-q", "-f", file.to_str().unwrap()],
        &second,
    );
    let text = |dir: &Path| std::fs::read_to_string(dir.join("experiment.toml")).unwrap();
    assert_eq!(text(&first), text(&second));
    // The same schedule: gaps of nanoseconds that a Poisson process drew agree by chance in 3 of 100.
    // Not all of them, since what got no answer is not the same in both.
    let gaps = |dir: &Path| -> BTreeSet<i64> {
        let mut intended = promises::intended(dir);
        intended.sort_unstable();
        intended.windows(2).map(|pair| pair[1] - pair[0]).collect()
    };
    let (first, second) = (gaps(&first), gaps(&second));
    let common = first.intersection(&second).count();
    assert!(
        2 * common > first.len().min(second.len()),
        "{common} gaps of {} and {}",
        first.len(),
        second.len()
    );
}

#[test]
fn an_interrupt_keeps_what_was_measured_and_removes_the_rest() {
    if !live("an_interrupt_keeps_what_was_measured_and_removes_the_rest") {
        return;
    }
    let before = Machine::now();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    let (child, server) = in_mid_run(&SHORT, "memcached", &dir);
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let summary = summary(&dir);
    assert_eq!(summary["partial"], true);
    assert!(summary["matching"]["matched"].as_u64().unwrap() > 0);
    assert!(!alive(server));
    before.assert_unchanged();
}

#[test]
fn after_sigkill_nothing_is_left_once_the_next_run_has_started() {
    if !live("after_sigkill_nothing_is_left_once_the_next_run_has_started") {
        return;
    }
    let before = Machine::now();
    let place = tempfile::tempdir().unwrap();
    let mut child = start(&SHORT, &place.path().join("run"));
    let server = server_of(child.id(), "memcached");
    signal(child.id(), "KILL");
    child.wait().unwrap();
    // The kernel ends the server and with it the namespaces; nothing of ours has to run.
    wait_for("the server's end", || (!alive(server)).then_some(()));
    // The next start removes what the journal still lists, even if that run fails.
    let next = taillab()
        .args(["run", "memcached", "--server-program", "no-such-server"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(next.status.code(), Some(1), "{next:?}");
    before.assert_unchanged();
}

#[test]
fn a_server_that_dies_ends_the_run_with_its_reason_and_what_was_measured() {
    if !live("a_server_that_dies_ends_the_run_with_its_reason_and_what_was_measured") {
        return;
    }
    let before = Machine::now();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    let (child, server) = in_mid_run(&SHORT, "memcached", &dir);
    signal(server, "KILL");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("killed by signal 9"), "{stderr}");
    assert_eq!(summary(&dir)["partial"], true);
    before.assert_unchanged();
}

#[test]
fn a_port_that_is_taken_is_named_with_a_remedy() {
    if !live("a_port_that_is_taken_is_named_with_a_remedy") {
        return;
    }
    let before = Machine::now();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let place = tempfile::tempdir().unwrap();
    let output = taillab()
        .args(SHORT)
        .args(["--testbed", "loopback", "--port", &port])
        .current_dir(place.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(&port) && stderr.contains("ss -lntup"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    before.assert_unchanged();
}

#[test]
fn loopback_works_and_says_what_it_shifts() {
    if !live("loopback_works_and_says_what_it_shifts") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    let port = free_port().to_string();
    let output = on_a_steady_machine(|_| {
        // of the attempt before, if there is one
        let _ = std::fs::remove_dir_all(&dir);
        taillab()
            .args(SHORT)
            .args(["--testbed", "loopback", "--port", &port, "-o"])
            .arg(&dir)
            .output()
            .unwrap()
    });
    assert!(matches!(output.status.code(), Some(0 | 4)), "{output:?}");
    let summary = summary(&dir);
    let warnings = summary["verdict"]["warnings"].to_string();
    assert!(warnings.contains("loopback"), "{warnings}");
    let matching = &summary["matching"];
    let count = |name: &str| matching[name].as_f64().unwrap();
    // what the kernel hides from the probe is counted
    let matched_or_told = count("matched") + count("blind_requests");
    assert!(matched_or_told >= 0.999 * count("responses"), "{matching}");
}

#[test]
fn without_privilege_or_a_second_cpu_there_is_one_line_and_its_exit_code() {
    if !live("without_privilege_or_a_second_cpu_there_is_one_line_and_its_exit_code") {
        return;
    }
    let before = Machine::now();
    let (place, copy) = for_everybody();
    let nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    let one_cpu = ["taskset", "-c", "1"];
    for (prefix, remedy) in [(&nobody[..], "run as root"), (&one_cpu, "two or more CPUs")] {
        let output = std::process::Command::new(prefix[0])
            .args(&prefix[1..])
            .arg(&copy)
            .args(SHORT)
            .current_dir(place.path())
            .env("HOME", place.path())
            // of the user before, as `setpriv` leaves it
            .env("XDG_RUNTIME_DIR", "/root")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{stderr}");
        assert!(stderr.contains(remedy), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    // Only the copy of the command is there: no result folder, empty or not.
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    before.assert_unchanged();
}

/// Folders in the place of files stand for a disk that is full by then: no room was left when they were to be written.
#[test]
fn files_that_cannot_be_written_do_not_take_the_result_with_them() {
    if !live("files_that_cannot_be_written_do_not_take_the_result_with_them") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    for name in ["capture.tlc", "latency.hlog", "experiment.toml"] {
        std::fs::create_dir_all(dir.join(name).join("in-the-way")).unwrap();
    }
    let mut run = taillab();
    run.args(SHORT).arg("--save-capture").arg("-o").arg(&dir);
    let output = run.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("capture.tlc: "), "{stderr}");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let saved: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("summary.json")).unwrap()).unwrap();
    assert_eq!(shown, saved);
    for name in ["report.html", "environment.json", "requests.parquet"] {
        assert!(dir.join(name).is_file(), "{name}");
    }
}

/// A small file system in memory, until the test ends.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Of this size, as `mount` reads it.
    fn of(size: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        assert!(mount.arg(place.path()).status().unwrap().success());
        Self(place)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        let _ = umount.arg("-l").arg(self.0.path()).status();
    }
}

/// Neither memory nor the temporary folder has room for the recording: the load ends, and what was recorded is shown.
#[test]
fn a_full_temporary_disk_leaves_a_result_of_what_was_recorded() {
    if !live("a_full_temporary_disk_leaves_a_result_of_what_was_recorded") {
        return;
    }
    const LITTLE: &str = "MemTotal: 65536 kB\nMemFree: 1024 kB\nMemAvailable: 1024 kB\n";
    const RUN: &str =
        "run memcached --json --no-save -R 40000 -d 40s --warmup 300ms --pairs 6 --block 60ms";
    let disk = SmallDisk::of("256k");
    let place = tempfile::tempdir().unwrap();
    let meminfo = place.path().join("meminfo");
    std::fs::write(&meminfo, LITTLE).unwrap();
    let script = "mount --bind \"$1\" /proc/meminfo && shift && exec \"$@\"";
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&meminfo)
        .arg(taillab().get_program())
        .args(RUN.split(' '))
        .env("TMPDIR", disk.0.path())
        .env_remove("SUDO_UID")
        .env_remove("SUDO_GID")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    // said before it began, and why it ended
    for said in ["it may end early", "its recording could not be written"] {
        assert!(stderr.contains(said), "{stderr}");
    }
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["partial"], true);
    let warnings = shown["verdict"]["warnings"].as_array().unwrap();
    let is_cut_short = |warning: &serde_json::Value| warning["key"] == "recording_cut_short";
    assert!(warnings.iter().any(is_cut_short), "{warnings:?}");
    let matched = shown["matching"]["matched"].as_u64().unwrap();
    assert!(matched > 10_000, "{matched}");
}

#[test]
fn a_disk_that_is_nearly_full_keeps_its_room_for_the_report() {
    if !live("a_disk_that_is_nearly_full_keeps_its_room_for_the_report") {
        return;
    }
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../analysis/tests/golden/memcached_5k_per_s.tlc"
    );
    let disk = SmallDisk::of("4m");
    let dir = disk.0.path().join("result");
    let output = taillab()
        .args(["explain", golden, "--json", "-o"])
        .arg(&dir)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("requests.parquet and latency.hlog: only "),
        "{stderr}"
    );
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let saved = std::fs::read(dir.join("summary.json")).unwrap();
    assert_eq!(
        shown,
        serde_json::from_slice::<serde_json::Value>(&saved).unwrap()
    );
    assert!(dir.join("report.html").is_file());
    for name in ["requests.parquet", "latency.hlog"] {
        assert!(!dir.join(name).exists(), "{name}");
    }
}
