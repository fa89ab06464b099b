//! `taillab run` with each kind of server: the same promises for all of them.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::promises::{self, summary};
use crate::support::{
    Machine, Meanwhile, SHORT, alive, children, first_unspoiled, free_port, in_mid_run, live,
    on_a_steady_machine, server_of, short, signal, start, taillab, wait_for,
};
use serde_json::Value;
use taillab_model::{EventKind, Monotonic, Nanos, Recording};

/// A short run of a server that keeps every promise and leaves nothing; its summary.
fn run(server: &[&str]) -> Value {
    run_with(server, promises::MOSTLY_COMPLETE)
}

/// The same for a server with which fewer requests have all six stamps.
fn run_with(server: &[&str], complete_share: f64) -> Value {
    let before = Machine::now();
    let place = tempfile::tempdir().unwrap();
    let mut dir = PathBuf::new();
    let output = on_a_steady_machine(|attempt| {
        dir = place.path().join(attempt.to_string());
        taillab()
            .args(short(server))
            .arg("-o")
            .arg(&dir)
            .output()
            .unwrap()
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        matches!(output.status.code(), Some(0 | 4)),
        "{:?}: {stderr}",
        output.status
    );
    before.assert_unchanged();
    promises::check(&dir, &output.stdout, complete_share);
    let summary = summary(&dir);
    let errors = summary["load"]["errors"].as_object().unwrap();
    let wrong: Vec<_> = errors.iter().filter(|(_, n)| **n != 0).collect();
    assert!(wrong.is_empty(), "{server:?}: {wrong:?}");
    summary
}

/// Four times what the server can do: a result like any other, which says so first.
#[test]
fn a_server_that_does_not_keep_up_has_a_result() {
    if !live("a_server_that_does_not_keep_up_has_a_result") {
        return;
    }
    let before = Machine::now();
    // 1 ms of CPU for each request: at most 1,000 per second of 4,000
    let mut args = short(&["null-rpc", "--service", "spin:deterministic:1ms"]);
    args.extend(["--no-save", "--timeout", "60s"]);
    let attempt = |_| {
        let output = taillab().args(&args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let result = first_unspoiled(5, attempt, |result| {
        let sent = result["load"]["sent_rate_per_s"].as_f64().unwrap();
        (sent < 1_500.0).then(|| format!("the generator had no CPU: it sent {sent:.0}/s"))
    });
    before.assert_unchanged();
    assert_eq!(result["verdict"]["warnings"][0]["key"], "overload");
    let first = &result["explanation"]["findings"][0];
    assert_eq!(first["key"], "overload", "{first}");
    let overload = &result["measured"]["overload"];
    let per_second = |rate: &str| overload[rate].as_f64().unwrap();
    assert!(
        per_second("came_per_s") > 1.2 * per_second("done_per_s"),
        "{overload}"
    );
    assert_eq!(overload["outlasts_load"], true, "{overload}");
    assert!(overload["cpu"]["server_share"].as_f64().unwrap() > 0.0);
    let median = &result["measured"]["sojourn"]["quantiles"][0];
    assert!(median["value"].is_u64(), "{median}");
}

#[test]
fn null_rpc_is_measured() {
    if !live("null_rpc_is_measured") {
        return;
    }
    let summary = run(&["null-rpc"]);
    assert_eq!(summary["target"], "null-rpc over TCP");
    // a thread for each connection, one CPU for all
    assert_eq!(summary["ideal"]["workers"], 1);
    assert_eq!(summary["ideal"]["virtual_workers"], false);
}

#[test]
fn null_rpc_in_other_architectures_is_measured() {
    if !live("null_rpc_in_other_architectures_is_measured") {
        return;
    }
    let summary = run(&["null-rpc", "--architecture", "udp-reuseport", "-w", "2"]);
    assert_eq!(summary["target"], "null-rpc (udp-reuseport) over UDP");
    let summary = run(&["null-rpc", "--architecture", "epoll-per-worker", "-w", "2"]);
    assert_eq!(summary["target"], "null-rpc (epoll-per-worker) over TCP");
    assert_eq!(summary["ideal"]["workers"], 1, "one CPU");
}

/// The kernel does not run a program on top of itself, and the sockets of other programs run
/// those of the probe with interrupts on: a softirq's requests come in between.
#[test]
fn sockets_of_other_programs_hide_no_stamp() {
    if !live("sockets_of_other_programs_hide_no_stamp") {
        return;
    }
    // the client's CPU is busy with spinning, so this thread runs on the server's
    let other = Meanwhile::start("other-sockets", |stop| {
        let (one, other) = UnixDatagram::pair().unwrap();
        while !stop.load(Ordering::Relaxed) {
            one.send(b"x").unwrap();
            other.recv(&mut [0; 8]).unwrap();
        }
    });
    let summary = run_with(
        &["null-rpc", "--architecture", "epoll-per-worker", "-w", "2"],
        0.9,
    );
    other.end();
    let matching = &summary["matching"];
    let without_t2 = matching["missing_middle"][0].as_u64().unwrap();
    let blind = matching["blind_requests"].as_u64().unwrap();
    assert!(without_t2 <= blind, "{matching}");
}

#[test]
fn workers_that_wait_are_virtual() {
    if !live("workers_that_wait_are_virtual") {
        return;
    }
    let summary = run(&[
        "null-rpc",
        "--architecture",
        "epoll-shared",
        "-w",
        "8",
        "--service",
        "wait:deterministic:1ms",
    ]);
    assert_eq!(summary["ideal"]["workers"], 8);
    assert_eq!(summary["ideal"]["virtual_workers"], true);
    assert_eq!(summary["service_time_ns"], 1_000_000);
    let warnings = summary["verdict"]["warnings"].to_string();
    assert!(warnings.contains("8 workers are virtual"), "{warnings}");
    assert!(!warnings.contains("client was the limit"), "{warnings}");
}

#[test]
fn memcached_over_tcp_is_measured() {
    if !live("memcached_over_tcp_is_measured") {
        return;
    }
    let summary = run(&["memcached", "--transport", "tcp", "--workers", "2"]);
    assert_eq!(summary["target"], "memcached over TCP");
}

#[test]
fn the_ends_of_all_requests_or_more_in_slices_are_measured() {
    if !live("the_ends_of_all_requests_or_more_in_slices_are_measured") {
        return;
    }
    for (stamps, least, most) in [("ends", 0.0, 0.0), ("sampled:1/4", 0.05, 0.4)] {
        let measure = |_| {
            let place = tempfile::tempdir().unwrap();
            let mut dir = PathBuf::new();
            let output = on_a_steady_machine(|attempt| {
                dir = place.path().join(attempt.to_string());
                let mut command = taillab();
                command
                    .args(SHORT)
                    .args(["--stamps", stamps, "--save-capture", "-o"]);
                command.arg(&dir).output().unwrap()
            });
            assert!(matches!(output.status.code(), Some(0 | 4)), "{output:?}");
            let result: Value = serde_json::from_slice(&output.stdout).unwrap();
            (result, covered_by_slices(&dir))
        };
        // where a thread waits long for a CPU, hardly a slice begins in so short a run, or one is long
        let (result, _) = first_unspoiled(5, measure, |(_, covered)| {
            let is_spoiled = stamps != "ends" && !(0.1..=0.3).contains(covered);
            is_spoiled.then(|| format!("slices cover {covered:.3} of the measurement"))
        });
        let matching = &result["matching"];
        let count = |name: &str| matching[name].as_f64().unwrap();
        assert_eq!(matching["stamps"], stamps);
        let asked = count("matched") - count("unasked");
        let share = asked / count("matched");
        assert!((least..=most).contains(&share), "{matching}");
        // the incomplete requests were there while the probe was blind, or left after their slice
        let seen_or_told = count("complete") + count("blind_requests") + count("left_late");
        assert!(seen_or_told >= 0.98 * asked, "{matching}");
        let verdict = result["verdict"].to_string();
        // t is calibrated, which needs no stamp
        assert!(!verdict.contains("service_time_unknown"), "{verdict}");
        assert_eq!(result["overhead"]["pairs"], 6);
    }
}

/// The share of a measurement that its slices cover, without their edges, by the marks in its recording.
fn covered_by_slices(dir: &Path) -> f64 {
    let edges = Nanos::from_millis(30);
    let recording = Recording::read(File::open(dir.join("capture.tlc")).unwrap()).unwrap();
    let from = recording.context.measure_from_ns.unwrap();
    let from = Monotonic::from_nanos_since_boot(from);
    let (mut covered, mut begun, mut last) = (Nanos::ZERO, None, from);
    for event in recording.into_events() {
        last = event.at;
        match event.kind {
            EventKind::Slice { begins: true } => begun = Some(event.at.max(from)),
            EventKind::Slice { begins: false } => {
                let length = begun.take().map(|begun| event.at.saturating_since(begun));
                covered += length.unwrap_or(Nanos::ZERO).saturating_sub(edges);
            }
            _ => {}
        }
    }
    covered.as_secs_f64() / last.saturating_since(from).as_secs_f64()
}

/// Each request has a connection of its own, and what its client waited is the sum of its parts.
#[test]
fn a_connection_for_each_request_is_measured() {
    if !live("a_connection_for_each_request_is_measured") {
        return;
    }
    let summary = run(&["nginx", "--connect", "each"]);
    let load = &summary["load"];
    let connecting = &load["clients"]["connecting"];
    assert_eq!(connecting["connected"], load["requests"], "{load}");
    for end in ["refused", "timed_out", "failed"] {
        assert_eq!(connecting[end], 0, "{connecting}");
    }
    assert_eq!(connecting["closing"], "server");
    let matching = &summary["matching"];
    let told = |name: &str| matching[name].as_u64().unwrap();
    // all but what was hidden from the probe, as the recording itself says
    let hidden = told("blind_requests") + told("blind_windows");
    assert!(told("responses") - told("matched") <= hidden, "{matching}");
    let (known, all) = (told("client_matched"), told("client_responses"));
    assert!(all - known <= hidden, "{matching}");
    assert_eq!(Some(all), load["requests"].as_u64(), "{matching}");
    // the parts are of the same requests as the whole: those that were sent on schedule
    let count = &load["response_time"]["count"];
    assert_eq!(&connecting["time"]["count"], count);
    let mean = |of: &Value| of["mean"].as_f64().unwrap();
    let waited = load["clients"].get("wait").map_or(0.0, mean);
    let before = mean(&load["lateness"]) + waited + mean(&connecting["time"]);
    let sum = before + mean(&load["service_time"]);
    assert!((mean(&load["response_time"]) - sum).abs() < 1.0, "{load}");
}

#[test]
fn nginx_with_several_workers_is_measured() {
    if !live("nginx_with_several_workers_is_measured") {
        return;
    }
    let summary = run(&["nginx", "--workers", "2"]);
    assert_eq!(summary["target"], "nginx over TCP");
}

#[test]
fn a_server_of_the_users_own_is_measured() {
    if !live("a_server_of_the_users_own_is_measured") {
        return;
    }
    let redis = "redis-server --bind {address} --port {port} --protected-mode no --save ''";
    let own = ["--server", redis, "--port", "7010", "--protocol", "redis"];
    // It reads from every ready connection before it writes to any of them, so it is not known since
    // when it could have served the later ones (T3).
    let summary = run_with(&own, 0.8);
    assert_eq!(summary["target"], "redis-server (redis) over TCP");
}

/// The paper's sizes: requests of 85 bytes, responses of 849.
#[test]
fn nginx_answers_85_bytes_with_849() {
    if !live("nginx_answers_85_bytes_with_849") {
        return;
    }
    let before = Machine::now();
    let place = tempfile::tempdir().unwrap();
    let port = free_port().to_string();
    let loopback = ["--testbed", "loopback", "--port", &port];
    let args = [short(&["nginx"]), loopback.to_vec()].concat();
    let (child, _) = in_mid_run(&args, "nginx", &place.path().join("run"));
    let address = format!("127.0.0.1:{port}");
    let request = format!(
        "GET /index.html HTTP/1.1\r\nHost: {address}\r\nX-Padding: 123456789012345678901\r\n\r\n"
    );
    assert_eq!(request.len(), 85);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // twice on one connection: it stays open, and the second answer begins after the first
    for _ in 0..2 {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 849];
        stream.read_exact(&mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    }
    stream.set_nonblocking(true).unwrap();
    let more = stream.read(&mut [0]).unwrap_err();
    assert_eq!(more.kind(), std::io::ErrorKind::WouldBlock);
    drop(stream);
    signal(child.id(), "INT");
    // its result does not fit into a pipe
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    before.assert_unchanged();
}

/// The nginx that `taillab` started, with its workers.
fn nginx_with_workers(taillab: u32, workers: usize) -> Vec<u32> {
    let master = server_of(taillab, "nginx");
    wait_for("the workers", || {
        let mut all = children(master, "nginx");
        all.push(master);
        (all.len() > workers).then_some(all)
    })
}

#[test]
fn sigkill_takes_the_workers_too() {
    if !live("sigkill_takes_the_workers_too") {
        return;
    }
    let before = Machine::now();
    let place = tempfile::tempdir().unwrap();
    let args = short(&["nginx", "--workers", "3"]);
    let mut child = start(&args, &place.path().join("run"));
    let nginx = nginx_with_workers(child.id(), 3);
    signal(child.id(), "KILL");
    child.wait().unwrap();
    // The kernel ends them; nothing of ours has to run.
    wait_for("the end of all nginx", || {
        nginx.iter().all(|pid| !alive(*pid)).then_some(())
    });
    // The next start removes what the journal still lists, even if that run fails.
    let next = taillab()
        .args(["run", "nginx", "--server-program", "no-such-server"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(next.status.code(), Some(1), "{next:?}");
    before.assert_unchanged();
}

#[test]
fn a_dead_nginx_ends_the_run_and_takes_its_workers() {
    if !live("a_dead_nginx_ends_the_run_and_takes_its_workers") {
        return;
    }
    let before = Machine::now();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    let (child, master) = in_mid_run(&short(&["nginx", "--workers", "2"]), "nginx", &dir);
    let workers = children(master, "nginx");
    assert_eq!(workers.len(), 2);
    signal(master, "KILL");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("nginx was killed by signal 9"), "{stderr}");
    assert_eq!(summary(&dir)["partial"], true);
    assert!(workers.iter().all(|pid| !alive(*pid)));
    before.assert_unchanged();
}

/// A run that fails before it measures: its exit code, its one line, nothing left.
fn fails(args: &[&str]) -> String {
    let before = Machine::now();
    let place = tempfile::tempdir().unwrap();
    let output = taillab()
        .args(args)
        .current_dir(place.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(left(place.path()), 0, "{args:?}");
    before.assert_unchanged();
    stderr
}

fn left(place: &Path) -> usize {
    std::fs::read_dir(place).unwrap().count()
}

#[test]
fn what_keeps_a_server_from_starting_is_one_line() {
    if !live("what_keeps_a_server_from_starting_is_one_line") {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for server in ["nginx", "null-rpc"] {
        let said = fails(&["run", server, "--testbed", "loopback", "--port", &port]);
        assert!(said.contains(&format!("TCP port {port}")), "{said}");
        assert!(said.contains("ss -lntup"), "{said}");
    }
    let said = fails(&["run", "nginx", "--server-arg=--no-such-option"]);
    assert!(
        said.contains("nginx exited") && said.contains("invalid option"),
        "{said}"
    );
    let own = |command| {
        [
            "run",
            "--server",
            command,
            "--port",
            "7010",
            "--protocol",
            "redis",
        ]
    };
    let said = fails(&own("redis-server --no-such-option 1"));
    assert!(said.contains("redis-server exited with status 1"), "{said}");
    let said = fails(&own("redis-server --daemonize yes"));
    assert!(said.contains("foreground"), "{said}");
    let said = fails(&own("no-such-server"));
    assert!(said.contains("no-such-server is not installed"), "{said}");
}
