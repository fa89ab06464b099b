//! `taillab rtt` from the outside: results, files, refusals, and peers that misbehave.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support;

/// Long enough for every run here, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

fn rtt(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taillab"));
    command.arg("rtt").args(args);
    command
}

/// Runs it to its end; one that hangs is killed and fails the test.
fn run(args: &[&str]) -> Output {
    let mut child = rtt(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id();
    let (tell, told) = std::sync::mpsc::channel();
    let mut stdout = child.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text).unwrap();
        let _ = tell.send(text);
    });
    let Ok(stdout) = told.recv_timeout(PATIENCE) else {
        child.kill().unwrap();
        panic!("{args:?} did not end (process {id})");
    };
    Output {
        stdout,
        ..child.wait_with_output().unwrap()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The result on stdout, which obeys the schema.
fn result(output: &Output) -> Value {
    assert!(!output.stdout.is_empty(), "{}", stderr(output));
    support::schema::valid("rtt", &output.stdout)
}

fn rows(result: &Value) -> &Vec<Value> {
    result["rows"].as_array().unwrap()
}

fn count(row: &Value, key: &str) -> u64 {
    row["counts"][key].as_u64().unwrap()
}

#[test]
fn every_protocol_and_mode_completes_every_round_trip() {
    let output = run(&[
        "--proto",
        "tcp,udp,unix,shm",
        "--mode",
        "blocking,nonblocking,epoll,io_uring",
        "--size",
        "14,1K",
        "--conns",
        "1,3",
        "--count",
        "300",
        "--runs",
        "3",
        "--warmup",
        "20",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = result(&output);
    assert_eq!(result["partial"], false);
    // shared memory has no mode but polling
    assert_eq!(rows(&result).len(), (3 * 4 + 1) * 2 * 2);
    for row in rows(&result) {
        assert_eq!(row["partial"], false, "{row}");
        assert_eq!(row["rtt"]["count"], 900);
        assert_eq!((count(row, "sent"), count(row, "answered")), (900, 900));
        assert_eq!(row["runs"].as_array().unwrap().len(), 3);
        let quantiles = row["rtt"]["quantiles"].as_array().unwrap();
        assert!(quantiles[0]["value"].as_u64().unwrap() > 0);
        // 900 round trips cannot show the fifth nine, and the row says how many would
        assert_eq!(quantiles[5]["value"], Value::Null);
        assert!(row["needs"].to_string().contains("0.99999"));
        assert!(row["trimmed"][0]["mean_ns"].as_u64().unwrap() > 0);
    }
}

#[test]
fn large_messages_arrive_whole() {
    let output = run(&[
        "--proto",
        "tcp,unix,shm",
        "--mode",
        "blocking,nonblocking,epoll,io_uring",
        "--size",
        "512K",
        "--count",
        "20",
        "--runs",
        "1",
        "--warmup",
        "2",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = result(&output);
    assert_eq!(rows(&result).len(), 9);
    assert!(rows(&result).iter().all(|row| count(row, "answered") == 20));
}

#[test]
fn the_files_of_a_result() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let output = run(&[
        "--proto", "udp", "--count", "3000", "--runs", "2", "--conns", "2", "--size", "64", "-o",
        path,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "udp blocking 64 ×2",
        "COMPLETE",
        "p99.9",
        "needs about",
        "bursts",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let saved = std::fs::read(dir.path().join("result.json")).unwrap();
    let saved: Value = serde_json::from_slice(&saved).unwrap();
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("udp blocking 64 ×2") && page.contains("around the slowest"));
    for name in [
        "ccdf.svg",
        "udp-blocking-64-2-over-time.svg",
        "udp-blocking-64-2-around-slowest.svg",
    ] {
        let svg = std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(
            svg.starts_with("<svg") || svg.starts_with("<?xml"),
            "{name}"
        );
    }
    let log = std::fs::read_to_string(dir.path().join("udp-blocking-64-2.hlog")).unwrap();
    assert!(log.contains("Tag=rtt"), "{log}");
    parquet_agrees(
        &dir.path().join("udp-blocking-64-2.parquet"),
        &saved["rows"][0],
    );
}

/// The file has every round trip, and their sum is the mean of the result.
fn parquet_agrees(file: &Path, row: &Value) {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, UInt32Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    let file = std::fs::File::open(file).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let (mut n, mut sum) = (0, 0);
    let mut connections = std::collections::BTreeSet::new();
    for batch in reader.build().unwrap().map(Result::unwrap) {
        n += batch.num_rows();
        let column = |name| batch.column_by_name(name).unwrap();
        sum += column("rtt_ns")
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .sum::<i64>();
        let of = column("connection").as_primitive::<UInt32Type>();
        connections.extend(of.values().iter().copied());
        assert_eq!(column("lost").as_boolean().true_count(), 0);
    }
    assert_eq!(n as u64, row["rtt"]["count"].as_u64().unwrap());
    let mean = row["rtt"]["mean"].as_f64().unwrap();
    assert!((sum as f64 / n as f64 - mean).abs() < 1.0);
    assert_eq!(connections.into_iter().collect::<Vec<_>>(), [0, 1]);
}

/// A UDP server that calls `answer` for each datagram: with its number, from 0, the datagram, and a
/// function that sends to the client.
fn udp_server(mut answer: impl FnMut(u64, &[u8], &dyn Fn(&[u8])) + Send + 'static) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    // lasts as long as the test process
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        for n in 0.. {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            answer(n, &buffer[..length], &|bytes| {
                socket.send_to(bytes, from).unwrap();
            });
        }
    });
    address
}

const FEW: [&str; 9] = [
    "--count", "200", "--runs", "1", "--warmup", "0", "--size", "64", "--json",
];

#[test]
fn lost_late_doubled_and_foreign_datagrams_are_counted_and_disturb_no_other() {
    // in parallel, since each mostly waits for its time-outs
    std::thread::scope(|scope| {
        for mode in ["blocking", "nonblocking", "epoll", "io_uring"] {
            scope.spawn(move || a_bad_peer_is_counted(mode));
        }
    });
}

/// One run against a server that loses two datagrams, delays one, and sends one twice and a foreign one.
fn a_bad_peer_is_counted(mode: &str) {
    let mut held: Option<Vec<u8>> = None;
    let target = udp_server(move |n, datagram, send| {
        if let Some(late) = held.take() {
            send(&late);
        }
        match n {
            20 | 30 => {}
            40 => held = Some(datagram.to_vec()),
            50 => {
                send(datagram);
                send(datagram);
            }
            60 => {
                send(b"not for you, and long enough to look like something");
                send(datagram);
            }
            _ => send(datagram),
        }
    });
    let mut args = vec!["--proto", "udp", "--mode", mode, "--target", &target];
    // long, since a datagram that the machine delays by more counts as lost too
    args.extend(["--timeout", "2s"]);
    args.extend(FEW);
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{mode}: {}", stderr(&output));
    let result = result(&output);
    let row = &rows(&result)[0];
    assert_eq!(count(row, "sent"), 200);
    assert_eq!(count(row, "lost"), 3, "{mode}: {row}");
    assert_eq!(count(row, "answered"), 197);
    assert_eq!(count(row, "late"), 1, "{mode}");
    assert_eq!(count(row, "duplicated"), 1, "{mode}");
    assert_eq!(count(row, "foreign"), 1, "{mode}");
    // lost ones count with the time that was waited for them
    assert_eq!(row["rtt"]["count"], 200);
    assert!(row["rtt"]["max"].as_u64().unwrap() >= 2_000_000_000);
}

#[test]
fn a_peer_that_goes_in_mid_run_leaves_what_there_was() {
    for mode in ["blocking", "nonblocking", "epoll", "io_uring"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut message = [0; 64];
            for _ in 0..120 {
                stream.read_exact(&mut message).unwrap();
                stream.write_all(&message).unwrap();
            }
        });
        let mut args = vec!["--proto", "tcp", "--mode", mode, "--target", &target];
        args.extend(FEW);
        let output = run(&args);
        server.join().unwrap();
        assert_eq!(output.status.code(), Some(1), "{mode}: {}", stderr(&output));
        let result = result(&output);
        assert_eq!(result["partial"], true);
        let row = &rows(&result)[0];
        assert_eq!(
            (row["partial"].as_bool(), count(row, "answered")),
            (Some(true), 120)
        );
        let (why, said) = (row["failure"].as_str().unwrap(), stderr(&output));
        for text in [why, said.as_str()] {
            let gone = "ended the connection after 120 round trips";
            assert_eq!(text.matches(gone).count(), 1, "{text}");
        }
    }
}

/// The name may stand for ::1 first, where nobody listens.
#[test]
fn a_name_stands_for_the_address_that_answers() {
    let udp = udp_server(|_, datagram, send| send(datagram));
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let of_tcp = tcp.local_addr().unwrap().to_string();
    // lasts as long as the test process
    std::thread::spawn(move || {
        for stream in tcp.incoming() {
            let mut stream = stream.unwrap();
            let mut answers = stream.try_clone().unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream, &mut answers));
        }
    });
    for (proto, address) in [("udp", udp), ("tcp", of_tcp)] {
        let named = address.replace("127.0.0.1", "localhost");
        let mut args = vec!["--proto", proto, "--target", &named];
        args.extend(FEW);
        let output = run(&args);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{proto}: {}",
            stderr(&output)
        );
        assert_eq!(result(&output)["server"], format!("{named} ({address})"));
    }
}

#[test]
fn who_does_not_echo_is_named() {
    // over UDP: it answers with something else
    let target = udp_server(|_, datagram, send| send(&vec![0; datagram.len()]));
    let mut args = vec!["--proto", "udp", "--target", &target];
    args.extend(FEW);
    let output = run(&args);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(
        stderr(&output).contains("not an echo server"),
        "{}",
        stderr(&output)
    );
    // over TCP: a greeting
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[b'!'; 64]).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    let mut args = vec!["--proto", "tcp", "--target", &target];
    args.extend(FEW);
    let output = run(&args);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("not an echo server"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn silence_and_nobody_are_told_apart() {
    let target = udp_server(|_, _, _| {});
    let mut args = vec!["--proto", "udp", "--target", &target, "--timeout", "20ms"];
    args.extend(FEW);
    let output = run(&args);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("no answer") && said.contains("firewall"),
        "{said}"
    );
    for (proto, (address, _socket)) in ["tcp", "udp"].into_iter().zip(support::unused_ports()) {
        let target = address.to_string();
        let mut args = vec!["--proto", proto, "--target", &target];
        args.extend(FEW);
        let output = run(&args);
        assert_eq!(output.status.code(), Some(1), "{proto}");
        assert!(
            stderr(&output).contains("nothing listens"),
            "{}",
            stderr(&output)
        );
    }
}

/// What it says after Ctrl-C, which comes when it has used so much CPU time.
fn interrupted(args: &[&str], after: Duration) -> Output {
    let child = rtt(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    support::wait_for("round trips", || {
        (support::cpu_time(child.id()) >= after).then_some(())
    });
    support::signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    output
}

#[test]
fn an_interruption_keeps_what_there_is() {
    // how much is measured until then does not matter
    let args = ["--proto", "udp", "--runs", "1000", "--json"];
    let output = interrupted(&args, Duration::from_secs(2));
    let result = result(&output);
    assert_eq!(result["partial"], true);
    assert_eq!(rows(&result)[0]["partial"], true);
    assert_eq!(rows(&result)[0]["failure"], Value::Null);
}

#[test]
fn an_interruption_in_the_warm_up_is_said() {
    let args = [
        "--proto", "tcp", "--warmup", "1G", "--count", "10", "--runs", "1",
    ];
    let output = interrupted(&args, Duration::from_millis(200));
    let said = stderr(&output);
    assert!(
        said.contains("interrupted before a round trip was measured"),
        "{said}"
    );
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn what_cannot_be_is_refused_with_its_remedy() {
    for (args, code, parts) in [
        (
            &["--proto", "shm", "--mode", "epoll"][..],
            2,
            &["shm", "nonblocking"][..],
        ),
        (&["--proto", "udp", "--size", "128K"], 2, &["65507"]),
        (&["--proto", "sctp"], 2, &["tcp", "rdma-read"]),
        (
            &["--serve", "127.0.0.1:0", "--target", "127.0.0.1:7"],
            2,
            &["--target"],
        ),
        (
            &["--proto", "rdma", "--mode", "io_uring"],
            2,
            &["rdma-send", "nonblocking, blocking"],
        ),
        (&["--size", "1G"], 2, &["1472"]),
        (&["--target", "localhost"], 2, &["port", "HOST:PORT"]),
        (
            &["--proto", "shm", "--target", "127.0.0.1:7"],
            2,
            &["--proto"],
        ),
        (
            &["--proto", "tcp", "--target", "unix:/nowhere"],
            2,
            &["--proto"],
        ),
        (
            &["--link", "veth", "--target", "127.0.0.1:7"],
            2,
            &["--target"],
        ),
        (&["--mtu", "9000"], 2, &["--link veth"]),
        (&["--explain", "-u", "50%"], 2, &["--explain"]),
        (&["-R", "0"], 2, &["20k"]),
        (
            &["--proto", "rdma-send", "-R", "100"],
            5,
            &["rdma-send", "no open loop"],
        ),
    ] {
        let output = run(args);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}: {}",
            stderr(&output)
        );
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        for part in parts {
            assert!(
                stderr(&output).contains(part),
                "{args:?}: {}",
                stderr(&output)
            );
        }
    }
}

/// Protocol and mode of each row of a short measurement, and stderr.
fn measured(args: &[&str]) -> (Vec<(String, String)>, String) {
    let output = run(&[args, &["--count", "50", "--runs", "1", "--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = result(&output);
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let kinds = rows(&result)
        .iter()
        .map(|row| (text(row, "proto"), text(row, "mode")))
        .collect();
    (kinds, stderr(&output))
}

#[test]
fn without_a_mode_each_protocol_takes_its_own_first() {
    let (kinds, said) = measured(&["--proto", "tcp,shm"]);
    let expected = [("tcp", "blocking"), ("shm", "nonblocking")];
    assert_eq!(kinds, expected.map(|(a, b)| (a.into(), b.into())));
    assert_eq!(said, "");
}

#[test]
fn a_protocol_of_which_nothing_is_left_is_left_out_in_one_line() {
    let (kinds, said) = measured(&[
        "--proto",
        "tcp,shm,udp",
        "--mode",
        "epoll",
        "--size",
        "64,70K",
    ]);
    let expected = [("tcp", "epoll"), ("tcp", "epoll"), ("udp", "epoll")];
    assert_eq!(kinds, expected.map(|(a, b)| (a.into(), b.into())));
    assert!(
        said.contains("left out: shm has no mode epoll") && said.contains("65507"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// A listed protocol that lacks a mode loses only that mode.
#[test]
fn a_mode_that_a_protocol_lacks_is_left_out_and_said() {
    let (kinds, said) = measured(&["--proto", "shm,unix", "--mode", "nonblocking,busy-poll"]);
    let expected = [("shm", "nonblocking"), ("unix", "nonblocking")];
    assert_eq!(kinds, expected.map(|(a, b)| (a.into(), b.into())));
    assert!(said.contains("unix has no mode busy-poll"), "{said}");
}

#[test]
fn every_protocol_takes_messages_by_a_schedule() {
    let protos = ["tcp", "udp", "unix", "shm"];
    let output = run(&[
        "--proto",
        "tcp,udp,unix,shm",
        "--conns",
        "1,2",
        "--size",
        "64",
        "-R",
        "2000",
        "--count",
        "400",
        "--runs",
        "2",
        "--warmup",
        "20",
        "--json",
    ]);
    // on a busy machine a load may not be valid (4), which is reported
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 4)), "{}", stderr(&output));
    let result = result(&output);
    assert_eq!(rows(&result).len(), 2 * protos.len());
    for row in rows(&result) {
        let load = &row["open_loop"]["load"];
        assert_eq!(
            (count(row, "sent"), &load["requests"]),
            (800, &800.into()),
            "{row}"
        );
        assert_eq!(load["target_rate_per_s"], 2000.0);
        assert_eq!(row["open_loop"]["capacity"], Value::Null);
        assert_eq!(load["arrivals"]["process"], "poisson");
        assert_eq!(row["rtt"], load["response_time"]);
        // measured from when it was due, it takes at least as long as from when it was sent
        let mean = |of: &str| load[of]["mean"].as_f64().unwrap();
        assert!(mean("response_time") >= mean("service_time"), "{row}");
    }
    let all_valid = rows(&result)
        .iter()
        .all(|row| row["open_loop"]["verdict"]["valid"] == true);
    assert_eq!(all_valid, code == Some(0));
}

#[test]
fn a_run_ends_after_the_longest_time_that_it_may_take_and_says_so() {
    // a schedule that lasts an hour, and round trips that take at least a second together
    for (proto, rate, count_of_run, runs) in [
        ("shm", Some("20"), 72_000_u64, 2_usize),
        ("tcp", None, 200_000, 1),
    ] {
        let (count_of_run, number) = (count_of_run.to_string(), runs.to_string());
        let mut args = vec!["--proto", proto, "--size", "64", "--count", &count_of_run];
        args.extend(rate.map(|rate| ["-R", rate]).into_iter().flatten());
        args.extend(["--runs", &number, "--at-most", "400ms", "--json"]);
        let output = run(&args);
        assert!(
            matches!(output.status.code(), Some(0 | 4)),
            "{}",
            stderr(&output)
        );
        let result = result(&output);
        let row = &rows(&result)[0];
        let (ended, partial) = (&row["ended_after_ns"], &row["partial"]);
        assert_eq!((ended, partial), (&400_000_000.into(), &true.into()));
        assert_eq!(row["failure"], Value::Null);
        assert_eq!(row["runs"].as_array().unwrap().len(), runs);
        let sent = count(row, "sent");
        assert!(sent > 0 && sent < 200_000, "{row}");
    }
    let output = run(&[
        "--proto",
        "tcp",
        "--size",
        "64",
        "--count",
        "200000",
        "--at-most",
        "200ms",
        "--runs",
        "1",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "PARTIAL",
        "since a run lasts 200 ms",
        "--at-most allows more",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_share_of_the_capacity_is_a_rate() {
    // few messages, because a busy machine may manage only a few per second
    let output = run(&[
        "--proto", "udp,shm", "--size", "64", "-u", "90%", "--count", "40", "--runs", "1",
        "--warmup", "0", "--json",
    ]);
    let result = result(&output);
    for row in rows(&result) {
        let open = &row["open_loop"];
        let peak = open["capacity"]["peak_per_s"].as_f64().unwrap();
        let rate = open["load"]["target_rate_per_s"].as_f64().unwrap();
        assert!((rate / peak - 0.9).abs() < 1e-9, "{open}");
        assert_eq!(open["load"]["target_utilization"], 0.9);
    }
}
