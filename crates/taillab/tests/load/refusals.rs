//! Bad input and unreachable servers: one clear line and the right exit code.

use std::process::Command;

use super::support::{SHORT, finish, responder, run, taillab};
use crate::support::unused_ports;
use taillab_load::serve::Listen;

#[test]
fn wrong_arguments_are_usage_errors_that_name_what_is_wrong() {
    let echo = "echo+tcp://127.0.0.1:9";
    let memcached = "memcached+udp://127.0.0.1:9";
    for (target, args, named) in [
        (echo, &[][..], "-R 20000"),
        (echo, &["-R", "0"], "`0` is not a rate"),
        (echo, &["-R", "-5"], "not a rate"),
        (echo, &["-R", "fast"], "not a rate"),
        (echo, &["-R", "1e12"], "no generator sends"),
        (echo, &["-R", "5k..1k:1k"], "must go up"),
        (echo, &["-R", "1k..5k"], "--find"),
        (echo, &["-u", "75"], "75%"),
        (echo, &["-u", "0"], "share of the capacity"),
        (echo, &["-R", "1k", "-d", "0s"], "duration must be above 0"),
        (echo, &["-R", "1k", "-d", "10"], "a number and a unit"),
        (echo, &["-R", "5M", "-d", "10h"], "GB of memory"),
        (echo, &["--profile", "step:10h@5M"], "GB of memory"),
        (echo, &["-R", "1k", "--timeout", "0s"], "time-out"),
        (echo, &["-R", "1k", "-c", "0"], "0"),
        (echo, &["-R", "1k", "-c", "1000000"], "connections"),
        (echo, &["-R", "1k", "-c", "2", "-t", "3"], "-c 3"),
        (
            memcached,
            &["-R", "1k", "--pipeline", "1"],
            "datagrams never wait",
        ),
        (
            echo,
            &["-R", "1k", "--clients", "alone"],
            "independent or pooled",
        ),
        (
            memcached,
            &["-R", "1k", "--connect", "each"],
            "a datagram needs no connection; leave it out",
        ),
        (
            echo,
            &["-R", "1k", "--connect", "each", "--clients", "pooled"],
            "leave out --connect each or --clients pooled",
        ),
        (
            echo,
            &["-R", "1k", "--connect", "each", "--pipeline", "4"],
            "leave out --pipeline",
        ),
        (echo, &["-R", "1k", "--connect", "never"], "once or each"),
        (
            echo,
            &["-R", "1k", "-c", "5000", "-t", "4097"],
            "--oversubscribe",
        ),
        (echo, &["-R", "1k", "--client-cpus", "1023"], "choose among"),
        (echo, &["-R", "1k", "--client-cpus", "one"], "CPU list"),
        (
            echo,
            &["-R", "1k", "--arrivals", "posson"],
            "is not an arrival process",
        ),
        (echo, &["-R", "1k", "--floor", "long"], "or off"),
        (echo, &["-R", "1k", "--outstanding", "100000"], "in flight"),
        (
            echo,
            &["-R", "1k", "--keys", "5"],
            "--keys belongs to memcached and redis",
        ),
        (echo, &["-R", "1k", "-H", "A: b"], "-H belongs to http"),
        (echo, &["-R", "1k", "--dialect", "meta"], "memcached+tcp"),
        (echo, &["-R", "1k", "--request-bytes", "1"], "request"),
        (
            echo,
            &["-R", "max", "--profile", "step:1s@5"],
            "no schedule",
        ),
        (echo, &["--ping-pong", "-R", "5"], "--ping-pong"),
        (echo, &["--profile", "step:1s"], "step:10s@5000"),
        (
            echo,
            &["--profile", "step:1s@500,1s@900", "-d", "10s"],
            "the profile lasts 2.00 s in all",
        ),
        (
            echo,
            &["--profile", "/does/not/exist.csv"],
            "/does/not/exist.csv",
        ),
        (
            echo,
            &["--trace", "/does/not/exist.csv"],
            "/does/not/exist.csv",
        ),
        (echo, &["--find", "p99"], "p99.9<=200us"),
        (
            echo,
            &["--find", "p99<=1ms", "-R", "5k"],
            "between two loads",
        ),
        (
            memcached,
            &["-R", "1k", "--value-bytes", "5000"],
            "datagram",
        ),
        (
            memcached,
            &["-R", "1k", "--get-share", "110%"],
            "between 0 and 1",
        ),
        (memcached, &["-R", "1k", "--zipf", "-1"], "-1"),
        (
            "http://127.0.0.1:9",
            &["-R", "1k", "-H", "nonsense"],
            "is not a header",
        ),
        (
            "redis+udp://127.0.0.1:9",
            &["-R", "1k"],
            "does not run over UDP",
        ),
        (
            "127.0.0.1:80",
            &["-R", "1k"],
            "does not say what the server speaks",
        ),
    ] {
        let ran = run(target, args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(named), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_share_of_the_capacity_whose_record_does_not_fit_is_refused() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let args = ["-u", "50%", "-d", "100000h", "--floor", "off", "-q"];
    run(&target, &args).refused(2, "GB of memory");
}

#[test]
fn a_name_that_does_not_resolve_is_one_line() {
    let ran = run("http://no-such-host.invalid/", &["-R", "100"]);
    ran.refused(1, "`no-such-host.invalid` cannot be resolved");
}

#[test]
fn a_refused_connection_is_one_line() {
    let [(tcp, _tcp_socket), (udp, _udp_socket)] = unused_ports();
    let ran = run(&format!("http://{tcp}/"), &["-R", "100"]);
    ran.refused(1, "nothing listens at");
    let ran = run(&format!("memcached+udp://{udp}"), &["-R", "100"]);
    ran.refused(1, "nothing listens at");
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("none.sock");
    let ran = run(&format!("redis+unix:{}", socket.display()), &["-R", "100"]);
    ran.refused(1, "none.sock");
}

#[test]
fn a_directory_that_cannot_be_written_is_found_before_the_load() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "").unwrap();
    let inside = file.join("out");
    let (responder, target) = responder("tcp", Listen::loopback());
    let ran = run(&target, &["-R", "100", "-o", inside.to_str().unwrap()]);
    ran.refused(1, "cannot write");
    assert_eq!(responder.stop().connections, 0);
}

#[test]
fn too_few_descriptors_say_how_many_are_needed() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let mut limited = Command::new("sh");
    let command = taillab();
    limited
        .args(["-c", "ulimit -n 200; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args())
        .args([target.as_str(), "-R", "100", "-c", "500"]);
    finish(&mut limited).refused(1, "ulimit -n");
}

#[test]
fn without_a_second_cpu_the_floor_says_why_it_is_absent() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let mut pinned = Command::new("taskset");
    let command = taillab();
    pinned
        .args(["-c", &first_cpu()])
        .arg(command.get_program())
        .args(command.get_args())
        .arg(&target)
        .args(["-R", "200"])
        .args(SHORT)
        .args(["--floor", "200ms"]);
    let ran = finish(&mut pinned);
    let result = ran.json();
    assert_eq!(result["generator"]["floor"], serde_json::Value::Null);
    let why = result["generator"]["floor_absent_because"]
        .as_str()
        .unwrap();
    assert!(why.contains("CPU"), "{why}");
}

fn first_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    list.trim().split([',', '-']).next().unwrap().to_owned()
}
