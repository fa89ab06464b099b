//! `taillab noise` from the outside: what it prints, and what it refuses.

use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support;

fn noise(args: &[&str]) -> Output {
    support::taillab().arg("noise").args(args).output().unwrap()
}

fn json(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "{stderr}");
    support::schema::valid("noise", &output.stdout)
}

/// Whether it refused since this machine has no trustworthy counter; then it says so.
fn lacks_counter(output: &Output) -> bool {
    let lacks = output.status.code() == Some(5);
    if lacks {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("time stamp counter"), "{said}");
        println!("SKIPPED {}", said.trim_end());
    }
    lacks
}

/// Without causes it needs no root. Each CPU has a row, and its numbers agree with each other.
#[test]
fn every_cpu_has_a_row_that_obeys_the_schema() {
    let output = noise(&["--json", "-q", "-d", "200ms", "--no-causes"]);
    if lacks_counter(&output) {
        return;
    }
    let result = json(&output);
    assert_eq!(result["held"], Value::Array(Vec::new()));
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(
        rows.len(),
        std::thread::available_parallelism().unwrap().get()
    );
    for row in rows {
        let value = |key: &str| row[key].as_u64().unwrap();
        assert!(row["reads"]["count"].as_u64() > Some(1_000));
        assert!(value("stolen_ns") <= value("watched_ns"));
        assert!(row["reads"]["max"].as_u64() >= row["reads"]["min"].as_u64());
        assert!(row["causes"].is_null());
    }
}

/// The CPUs on which this process may run, the first and the last.
fn ends_of_the_mask() -> [String; 2] {
    let allowed = taillab_host::cpus::allowed().unwrap();
    [allowed.first(), allowed.iter().last()].map(|cpu| cpu.unwrap().to_string())
}

/// As on a machine with isolcpus, the mask of the process lacks the CPU.
#[test]
fn a_cpu_outside_of_the_mask_is_measured() {
    let [first, last] = ends_of_the_mask();
    let command = support::taillab();
    let output = std::process::Command::new("taskset")
        .args(["-c", &first])
        .arg(command.get_program())
        .args([
            "noise",
            "--json",
            "-q",
            "-d",
            "100ms",
            "--no-causes",
            "-C",
            &last,
        ])
        .output()
        .unwrap();
    if lacks_counter(&output) {
        return;
    }
    let rows = &json(&output)["rows"];
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    assert_eq!(rows[0]["cpu"].to_string(), last, "{rows}");
}

/// Ctrl-C gives the result of the time until then.
#[test]
fn interrupted_it_shows_what_it_has() {
    let mut command = support::taillab();
    command
        .args(["noise", "--json", "-q", "-d", "1h", "--no-causes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let threads = format!("/proc/{}/task", child.id());
    // the loops run once as many threads as there are CPUs have used CPU time
    let cpus = std::thread::available_parallelism().unwrap().get();
    let running = support::wait_for("the loops", || {
        if child.try_wait().unwrap().is_some() {
            return Some(false);
        }
        let used = |entry: std::fs::DirEntry| {
            let comm = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            let times = std::fs::read_to_string(entry.path().join("schedstat")).ok()?;
            let ran_ns: u64 = times.split(' ').next()?.parse().ok()?;
            (comm.trim() == "noise" && ran_ns > 20_000_000).then_some(())
        };
        let entries = std::fs::read_dir(&threads).ok()?;
        (entries.flatten().filter_map(used).count() >= cpus).then_some(true)
    });
    if running {
        support::signal(child.id(), "INT");
    }
    let output = child.wait_with_output().unwrap();
    if lacks_counter(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(130));
    let result = json(&output);
    assert_eq!(result["partial"], true);
    let rows = result["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "{result}");
    for row in rows {
        assert!(row["reads"]["count"].as_u64() > Some(1_000));
        assert!(row["watched_ns"].as_u64() < Some(3_600_000_000_000));
    }
}

#[test]
fn what_cannot_be_measured_is_refused_in_one_line() {
    for (args, code, words) in [
        (&["--cpus", "1000"][..], 2, "offline or does not exist"),
        (&["--policy", "fifo:100"], 2, "fifo:80"),
        (
            &["--loops", "kernel", "--threshold", "1ms"],
            2,
            "--threshold",
        ),
        (&["--improve", "--by-cpus"], 2, "--by-cpus"),
        (&["--move-interrupts"], 2, "--improve"),
        (&["-d", "0s"], 2, "above 0"),
    ] {
        let output = noise(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(
            said.contains(words) && said.trim_end().lines().count() == 1,
            "{said}"
        );
    }
}
