//! `taillab rtt` between two namespaces: the protocols that need root.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{Machine, analyses_without_root, live, taillab, wait_for};

/// Short, because each row makes new sockets.
const SHORT: [&str; 7] = ["--count", "500", "--runs", "3", "--warmup", "50", "--json"];

/// A time-out that no stall of the machine reaches, where nothing is lost.
const PATIENT: &str = "30s";

fn rtt(args: &[&str]) -> (Option<i32>, Value, String) {
    let output = taillab()
        .arg("rtt")
        .args(args)
        .args(SHORT)
        .output()
        .unwrap();
    let result = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let errors = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), result, errors)
}

fn answered(result: &Value) -> Vec<u64> {
    let rows = result["rows"].as_array().unwrap();
    let of = |row: &Value| row["counts"]["answered"].as_u64().unwrap();
    rows.iter().map(of).collect()
}

#[test]
fn sockets_and_af_xdp_between_two_namespaces() {
    if !live("sockets_and_af_xdp_between_two_namespaces") {
        return;
    }
    let before = Machine::now();
    let (code, result, errors) = rtt(&[
        "--link",
        "veth",
        "--proto",
        "tcp,udp",
        "--mode",
        "blocking,busy-poll",
        "--size",
        "64,1472",
        "--timeout",
        PATIENT,
    ]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(answered(&result), [1_500; 8]);
    // the first queue is released and taken again for every run
    let (code, result, errors) = rtt(&[
        "--link",
        "veth",
        "--proto",
        "xdp",
        "--mode",
        "nonblocking,blocking",
        "--size",
        "64,1472",
        "--conns",
        "1,3",
    ]);
    assert_eq!(code, Some(0), "{errors}");
    for row in result["rows"].as_array().unwrap() {
        let count = |key: &str| row["counts"][key].as_u64().unwrap();
        assert_eq!(count("sent"), 1_500, "{row}");
        assert_eq!(count("answered") + count("lost"), 1_500, "{row}");
        assert_eq!(count("foreign"), 0, "{row}");
        assert_eq!(row["xdp_attachment"], "native");
    }
    assert_eq!(result["rows"].as_array().unwrap().len(), 8);
    before.assert_unchanged();
}

#[test]
fn what_the_path_or_the_driver_cannot_is_refused_with_its_remedy() {
    if !live("what_the_path_or_the_driver_cannot_is_refused_with_its_remedy") {
        return;
    }
    for (args, code, part) in [
        (&["--proto", "udp", "--size", "1473"][..], 1, "(1472 bytes)"),
        (
            &["--proto", "xdp", "--mode", "nonblocking", "--size", "1473"],
            1,
            "(1472 bytes)",
        ),
        (
            &[
                "--proto",
                "xdp",
                "--mode",
                "nonblocking",
                "--xdp",
                "zero-copy",
            ],
            5,
            "--xdp copy",
        ),
        (
            &["--mtu", "9000", "--proto", "udp", "--size", "8973"],
            1,
            "(8972 bytes)",
        ),
    ] {
        let all: Vec<&str> = ["--link", "veth"].iter().chain(args).copied().collect();
        let (found, result, errors) = rtt(&all);
        assert_eq!(
            (found, &result),
            (Some(code), &Value::Null),
            "{args:?}: {errors}"
        );
        assert!(errors.contains(part), "{args:?}: {errors}");
    }
}

#[test]
fn jumbo_datagrams_go_where_the_link_has_room() {
    if !live("jumbo_datagrams_go_where_the_link_has_room") {
        return;
    }
    let before = Machine::now();
    let jumbo = [
        "--link",
        "veth",
        "--mtu",
        "9000",
        "--proto",
        "udp",
        "--size",
        "1472,8972",
        "--timeout",
        PATIENT,
    ];
    let (code, result, errors) = rtt(&jumbo);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(answered(&result), [1_500; 2]);
    // veth's own XDP has no room for them
    let (code, result, errors) = rtt(&["--link", "veth", "--mtu", "9000", "--proto", "xdp"]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(result["rows"][0]["xdp_attachment"], "generic");
    before.assert_unchanged();
}

#[test]
fn af_xdp_takes_messages_by_a_schedule() {
    if !live("af_xdp_takes_messages_by_a_schedule") {
        return;
    }
    let (code, result, errors) = rtt(&["--link", "veth", "--proto", "xdp", "-R", "2000"]);
    // on a busy machine the load may not be valid (4), which is reported
    assert!(matches!(code, Some(0 | 4)), "{errors}");
    let row = &result["rows"][0];
    assert_eq!(row["counts"]["sent"], 1_500, "{row}");
    assert_eq!(row["open_loop"]["load"]["requests"], 1_500);
    assert_eq!(row["xdp_attachment"], "native");
    let verdict = &row["open_loop"]["verdict"];
    assert_eq!(verdict["valid"], code == Some(0));
}

/// A program that takes a CPU from everybody else for 2 ms of each 10.
struct Hog(Child);

impl Hog {
    /// It takes 2 ms of this CPU, once in so long.
    fn on(cpu: u32, every: &str) -> Self {
        let mut command = Command::new("chrt");
        command.args(["--fifo", "50", "taskset", "-c", &cpu.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_taillab"));
        command.args(["burn", "--busy", "2ms", "--every", every]);
        // it ends with its standard input
        let hog = command.stdin(Stdio::piped()).spawn().unwrap();
        let status = format!("/proc/{}/status", hog.id());
        let bound = format!("Cpus_allowed_list:\t{cpu}\n");
        let comm = format!("/proc/{}/comm", hog.id());
        wait_for("the hog", || {
            let is_ready = std::fs::read_to_string(&status).ok()?.contains(&bound)
                && std::fs::read_to_string(&comm).ok()?.starts_with("taillab");
            is_ready.then_some(())
        });
        Self(hog)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// How long the process had the CPU of an end while slow round trips needed it.
fn taken_by(pid: u32, end: &str, explanation: &Value) -> u64 {
    let is_its = |found: &&Value| found["end"] == end && found["culprit"]["pid"] == pid;
    let all = explanation["disturbances"].as_array().unwrap();
    let each = all.iter().filter(is_its);
    each.map(|found| found["total_ns"].as_u64().unwrap()).sum()
}

#[test]
fn a_program_that_takes_the_cpu_of_an_end_is_found_at_that_end() {
    if !live("a_program_that_takes_the_cpu_of_an_end_is_found_at_that_end") {
        return;
    }
    // what both ends lose at the same time is lost at one of them: their turns must not stay together
    let hogs = [
        (Hog::on(0, "10ms"), "server", "client"),
        (Hog::on(1, "13ms"), "client", "server"),
    ];
    for (proto, mode, link, count) in [
        ("tcp", "blocking", "loopback", 20_000),
        ("udp", "blocking", "loopback", 20_000),
        // 4 µs each: fewer would be over within a few turns, whose gaps are exponential
        ("udp", "nonblocking", "loopback", 40_000),
        ("tcp", "epoll", "veth", 20_000),
    ] {
        let explanation = explained(count, &["--proto", proto, "--mode", mode, "--link", link]);
        for (hog, end, other) in &hogs {
            let here = taken_by(hog.0.id(), end, &explanation);
            let there = taken_by(hog.0.id(), other, &explanation);
            // more than one of its turns: the shortest measurement takes two tenths of a second
            assert!(here > 4_000_000, "{proto} {mode} {end}: {explanation}");
            assert_eq!(there, 0, "{proto} {mode} {end}: {explanation}");
        }
    }
}

/// The probe needs root's rights until the last round trip, and what reads a recording must not have them.
#[test]
fn round_trips_are_explained_without_root() {
    if !live("round_trips_are_explained_without_root") {
        return;
    }
    let before = Machine::now();
    let mut command = taillab();
    command.args([
        "rtt",
        "--explain",
        "--json",
        "--runs",
        "1",
        "--count",
        "200000",
    ]);
    assert!(
        analyses_without_root(&mut command),
        "the recording was analysed as root"
    );
    before.assert_unchanged();
}

/// The explanation of so many round trips between a client on CPU 1 and a server on CPU 0, which adds up.
fn explained(count: u64, path: &[&str]) -> Value {
    let output = taillab()
        .args(["rtt", "--explain", "--json", "--runs", "1"])
        .args(["--count", &count.to_string(), "--size", "64"])
        .args(["--timeout", PATIENT, "-C", "0", "--client-cpus", "1"])
        .args(path)
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &result["rows"][0];
    let explanation = &row["explanation"];
    assert_ne!(*explanation, Value::Null, "{row}");
    let number = |key: &str| explanation[key].as_u64().unwrap();
    assert_eq!(number("round_trips") + number("incomplete"), count);
    // also where the server spins and its CPU never changes threads
    assert!(number("round_trips") > count - count / 40, "{explanation}");
    for band in explanation["bands"].as_array().unwrap() {
        let parts = band["parts"].as_array().unwrap().iter();
        let sum: u64 = parts.map(|part| part["mean_ns"].as_u64().unwrap()).sum();
        let mean = band["mean_ns"].as_u64().unwrap();
        // seven means, each rounded
        assert!(sum.abs_diff(mean) <= 7, "{band}");
    }
    explanation.clone()
}
