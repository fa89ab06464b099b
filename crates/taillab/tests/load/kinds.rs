//! Every kind of load against the built-in responder.

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use taillab_load::serve::{Architecture, Listen, Responder, Spec};

use super::support::{SHORT, in_mid_load, lost_its_median, number, responder, run, short, taillab};
use crate::support::{signal, wait_for};

#[test]
fn an_echo_is_measured_over_every_transport() {
    let place = tempfile::tempdir().unwrap();
    for (transport, listen) in [
        ("tcp", Listen::loopback()),
        ("udp", Listen::loopback()),
        ("tcp", "[::1]:0".parse().unwrap()),
        ("udp", "[::1]:0".parse().unwrap()),
        ("unix", Listen::Unix(place.path().join("echo.sock"))),
    ] {
        let (_responder, target) = responder(transport, listen);
        let result = run(&target, &short(&["-R", "2000"])).measured();
        assert_eq!(result["target"], target.as_str());
        assert_eq!(result["generator"]["transport"], transport);
        assert_eq!(result["generator"]["mode"], "open_loop");
        assert_eq!(result["partial"], false);
        let requests = number(&result, "/load/requests");
        // 800 expected: five standard deviations
        assert!(requests.abs_diff(800) < 5 * 29, "{target}: {requests}");
        assert_eq!(
            number(&result, "/load/response_time/count"),
            requests,
            "{result}"
        );
        for (kind, count) in result["load"]["errors"].as_object().unwrap() {
            assert_eq!(count, 0, "{target}: {kind}");
        }
        // a machine on which the client sends late withdraws the percentiles, but not the means
        let mean = |name: &str| result["load"][name]["mean"].as_f64().unwrap();
        assert!(mean("response_time") >= mean("service_time"));
        assert_eq!(
            result["generator"]["floor_absent_because"],
            "switched off with --floor off"
        );
    }
}

/// More than any client can send: it ends when it should, and says what was left. Sending all of it would take twenty
/// times as long.
#[test]
fn a_rate_beyond_the_client_ends_in_time() {
    let (_responder, target) = responder("udp", Listen::loopback());
    let args = [
        "-d", "1s", "--warmup", "0", "--floor", "off", "--json", "-R", "10M",
    ];
    let ran = run(&target, &args);
    assert!(matches!(ran.code, Some(0 | 4)), "{ran:?}");
    assert!(ran.stderr.contains("had not sent"), "{ran:?}");
    let result = ran.json();
    let requests = number(&result, "/load/requests");
    assert!(requests < 5_000_000, "{requests}");
    // by the load's own clock: the first ones were due at its beginning
    let last = number(&result, "/load/response_time/max");
    assert!(last < 3_000_000_000, "{last} ns");
}

#[test]
fn the_kernels_stamps_lie_within_the_clients() {
    for (transport, both) in [("udp", true), ("tcp", false)] {
        let (_responder, target) = responder(transport, Listen::loopback());
        // the kernel begins to stamp receipts a moment after it was asked to: once all CPUs know
        let args = ["--json", "-q", "-d", "400ms", "--warmup", "2s"];
        let more = ["--floor", "off", "-R", "1000", "--stamps", "kernel"];
        let args = [&args[..], &more].concat();
        let result = run(&target, &args).measured();
        if !both {
            continue; // for a stream, the kernel stamps only what it receives
        }
        // means, which a client that sends late does not withdraw, over the same requests
        let wire = &result["generator"]["wire"]["service_time"];
        let client = &result["load"]["service_time"];
        assert_eq!(wire["count"], client["count"], "{wire}");
        let mean = |of: &Value| of["mean"].as_f64().unwrap();
        assert!(
            (1.0..=mean(client)).contains(&mean(wire)),
            "{wire} {client}"
        );
    }
}

#[test]
fn cpus_are_kept_awake_or_it_is_said_why_not() {
    let (_responder, target) = responder("udp", Listen::loopback());
    let args = short(&["-R", "1000", "--keep-awake"]);
    let ran = run(&target, &args);
    if ran.code == Some(5) {
        assert!(
            ran.stderr.contains("cannot keep the CPUs awake"),
            "{}",
            ran.stderr
        );
    } else {
        assert_eq!(ran.measured()["generator"]["kept_awake"], true);
    }
    assert_eq!(
        run(&target, &short(&["-R", "1000"])).measured()["generator"]["kept_awake"],
        false
    );
}

#[test]
fn the_same_seed_gives_the_same_requests_and_another_one_others() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let requests = |seed: &str| {
        let args = short(&["-R", "3000", "--seed", seed]);
        number(&run(&target, &args).measured(), "/load/requests")
    };
    assert_eq!(requests("5"), requests("5"));
    assert_ne!(requests("5"), requests("6"));
}

#[test]
fn every_file_is_written_and_says_the_same() {
    let (_responder, target) = responder("udp", Listen::loopback());
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("load");
    let mut args = SHORT.to_vec();
    // it sleeps between requests: else it has half of the CPU on which another test's load spins
    args.extend(["-R", "2000", "--wait", "hybrid", "--floor", "200ms", "-o"]);
    args.push(dir.to_str().unwrap());
    let printed = run(&target, &args).measured();
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let saved: Value = serde_json::from_slice(&read("result.json")).unwrap();
    assert_eq!(saved, printed);
    let absent = printed["generator"]["floor"].is_null();
    assert_eq!(
        absent,
        printed["generator"]["floor_absent_because"].is_string()
    );
    // a generator that was held up all the time leaves no percentile for it
    let has_percentiles = dir.join("latency.hgrm").exists();
    assert!(has_percentiles || lost_its_median(&printed).is_some());
    if has_percentiles {
        assert!(read("latency.hgrm").starts_with(b"       Value"));
    }
    assert!(read("latency.hlog").starts_with(b"#"));
    assert!(read("ccdf.svg").starts_with(b"<svg") || read("ccdf.svg").starts_with(b"<?xml"));
    assert!(
        read("report.html")
            .to_ascii_lowercase()
            .starts_with(b"<!doctype html>")
    );
    assert!(read("requests.parquet").starts_with(b"PAR1"));
    let leftovers = std::fs::read_dir(&dir).unwrap().count();
    assert_eq!(leftovers, 5 + usize::from(has_percentiles));
}

#[test]
fn a_person_sees_the_same_and_no_json() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let args = [
        "-R", "1000", "-d", "300ms", "--warmup", "0", "--floor", "off",
    ];
    let ran = run(&target, &args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in [target.as_str(), "p50", "Latency in µs", "VALID"] {
        assert!(ran.stdout.contains(part), "no {part}: {}", ran.stdout);
    }
    assert!(ran.stderr.is_empty(), "{}", ran.stderr);
}

#[test]
fn a_thousand_connections_are_all_used() {
    // this process has one end of each, and a user's processes often may open no more than 1,024 files
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let (responder, target) = responder("tcp", Listen::loopback());
    let args = short(&["-R", "4000", "-c", "1000"]);
    let result = run(&target, &args).measured();
    assert_eq!(number(&result, "/generator/connections"), 1000);
    assert_eq!(number(&result, "/load/errors/timeouts"), 0, "{result}");
    let served = responder.stop();
    assert!(served.connections >= 1000, "{served:?}");
}

/// One looks whether a server is there; then there are as many as requests.
#[test]
fn a_connection_for_each_request_is_a_part_of_its_response_time() {
    let (responder, target) = responder("tcp", Listen::loopback());
    let args = ["-R", "2000", "--connect", "each"];
    let result = run(&target, &short(&args)).measured();
    let served = responder.stop();
    assert_eq!(served.connections, 1 + served.total());
    let requests = number(&result, "/load/requests");
    let connecting = &result["load"]["clients"]["connecting"];
    assert_eq!(connecting["connected"], requests);
    assert_eq!(connecting["time"]["count"], requests);
    for end in ["refused", "timed_out", "failed"] {
        assert_eq!(connecting[end], 0, "{result}");
    }
    let mean = |of: &Value| of["mean"].as_f64().unwrap();
    let load = &result["load"];
    let waited = load["clients"].get("wait").map_or(0.0, mean);
    let parts = mean(&load["lateness"]) + waited + mean(&connecting["time"]);
    let sum = parts + mean(&load["service_time"]);
    assert!((mean(&load["response_time"]) - sum).abs() < 1.0, "{load}");
}

/// One connection with one request at a time is too few for 20,000 requests per second.
#[test]
fn requests_that_wait_for_a_connection_are_counted_and_none_is_lost() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    for (kind, pipeline) in [("independent", "1"), ("pooled", "1"), ("independent", "0")] {
        let args = [
            "-R",
            "20000",
            "-c",
            "1",
            "--clients",
            kind,
            "--pipeline",
            pipeline,
        ];
        let result = run(&target, &short(&args)).measured();
        let clients = &result["load"]["clients"];
        assert_eq!(clients["kind"], kind);
        assert_eq!(clients["connections"], 1);
        let waited = number(&result, "/load/clients/waited");
        assert_eq!(waited > 0, pipeline == "1", "{clients}");
        assert_eq!(clients["wait"].is_object(), waited > 0);
        for kind in ["unexpected_responses", "send_errors", "malformed_responses"] {
            assert_eq!(
                number(&result, &format!("/load/errors/{kind}")),
                0,
                "{result}"
            );
        }
    }
}

#[test]
fn threads_share_connections_and_load() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    for process in ["poisson", "lognormal:cv=2"] {
        let args = [
            "-R",
            "2000",
            "-c",
            "5",
            "-t",
            "2",
            "--oversubscribe",
            "--arrivals",
            process,
        ];
        let ran = run(&target, &short(&args));
        // two threads on one CPU may spoil the measurement, but not the count
        let result = ran.json();
        assert_eq!(
            (
                number(&result, "/generator/threads"),
                number(&result, "/generator/connections")
            ),
            (2, 5)
        );
        let requests = number(&result, "/load/requests");
        assert!(requests > 300, "{requests}");
        assert_eq!(result["load"]["arrivals"]["process"], process);
    }
}

#[test]
fn profiles_and_traces_are_played() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let steps = "step:200ms@1000,200ms@3000";
    let args = [
        "--json",
        "-q",
        "--floor",
        "off",
        "--warmup",
        "0",
        "--profile",
        steps,
    ];
    let result = run(&target, &args).measured();
    let requests = number(&result, "/load/requests");
    assert!(requests.abs_diff(800) < 5 * 29, "{requests}");
    assert!(
        result["load"]["arrivals"]["process"]
            .as_str()
            .unwrap()
            .contains(steps)
    );

    let place = tempfile::tempdir().unwrap();
    let profile = place.path().join("rates.csv");
    std::fs::write(&profile, "time_ms,rate\n0,1000\n200,3000\n").unwrap();
    let mut args = args;
    args[6] = "--profile";
    args[7] = profile.to_str().unwrap();
    assert_eq!(
        number(&run(&target, &args).measured(), "/load/requests"),
        requests
    );

    let trace = place.path().join("trace.csv");
    let stamps: String = (0..500).map(|i| format!("{}\n", 7_000 + i)).collect();
    std::fs::write(&trace, format!("time_ms\n{stamps}")).unwrap();
    args[6] = "--trace";
    args[7] = trace.to_str().unwrap();
    let result = run(&target, &args).measured();
    assert_eq!(number(&result, "/load/requests"), 500);
    // stretched to twice the rate it takes half the time
    let faster: Vec<&str> = args.iter().copied().chain(["-R", "2000"]).collect();
    let twice = run(&target, &faster).measured();
    let length = |result: &Value| number(result, "/load/duration_ns");
    assert_eq!(length(&result), 499_000_000);
    assert!(length(&twice).abs_diff(249_500_000) < 1_000_000, "{twice}");
}

#[test]
fn the_result_says_which_address_a_name_stood_for() {
    for transport in ["tcp", "udp"] {
        let (_responder, target) = responder(transport, Listen::loopback());
        let named = target.replace("127.0.0.1", "localhost");
        let result = run(&named, &short(&["-R", "200"])).measured();
        let address = target.split("//").nth(1).unwrap();
        assert_eq!(result["target"], format!("{named} ({address})"));
    }
}

#[test]
fn a_sweep_has_a_step_for_each_load() {
    let (_responder, target) = responder("udp", Listen::loopback());
    let result = run(&target, &short(&["-R", "500..1500:500"])).measured();
    assert_eq!(result["generator"]["mode"], "sweep");
    let rates: Vec<f64> = result["generator"]["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["target_rate_per_s"].as_f64().unwrap())
        .collect();
    assert_eq!(rates, [500.0, 1000.0, 1500.0]);
}

#[test]
fn a_share_of_the_capacity_needs_the_capacity() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let result = run(&target, &short(&["-u", "5%"])).measured();
    let peak = result["generator"]["capacity"]["peak_per_s"]
        .as_f64()
        .unwrap();
    let rate = result["load"]["target_rate_per_s"].as_f64().unwrap();
    assert!((rate / peak - 0.05).abs() < 1e-9, "{rate} of {peak}");
    let share = result["load"]["target_utilization"].as_f64().unwrap();
    assert!((share - 0.05).abs() < 1e-9, "{share}");
}

/// One worker that waits 50 ms for each request: 20 answers a second, and 1.6 s for one of 32 in flight.
#[test]
fn the_capacity_of_a_slow_server_is_found() {
    let spec = Spec {
        service: "wait:deterministic:50ms".parse().unwrap(),
        ..Spec::new(Architecture::EpollShared)
    };
    let responder = Responder::start(&spec).unwrap();
    let Listen::Inet(address) = responder.address() else {
        panic!("no address");
    };
    let target = format!("echo+tcp://{address}");
    let args = "--json -q --floor off --warmup 50ms -d 2s -u 50% -c 4";
    let args: Vec<&str> = args.split(' ').collect();
    let result = run(&target, &args);
    let capacity = &result.json()["generator"]["capacity"]["peak_per_s"];
    // a busy machine may only make it slower
    let peak = capacity.as_f64().unwrap();
    assert!((15.0..20.2).contains(&peak), "{peak}");
}

#[test]
fn a_search_says_which_rate_holds() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let quick = [
        "--json", "-q", "-d", "1s", "--warmup", "50ms", "--floor", "off",
    ];
    let search = |objective, range| {
        let args: Vec<&str> = quick
            .iter()
            .copied()
            .chain(["--find", objective, "-R", range])
            .collect();
        run(&target, &args)
    };
    // no server answers within a nanosecond, and this one never takes an hour
    let never = search("p50<=1ns", "500..1000");
    assert_eq!(never.code, Some(3), "{never:?}");
    let never = never.json();
    assert_eq!(never["verdict"]["valid"], true);
    assert_eq!(never["generator"]["found"]["held"], false);
    assert_eq!(never["generator"]["found"]["rate_per_s"], Value::Null);
    let always = search("p50<=1h", "500..1000");
    let result = always.json();
    let held = result["generator"]["found"]["held"] == true;
    assert_eq!(always.code, Some(if held { 0 } else { 3 }), "{always:?}");
    // a client that the machine disturbs at some rate does not know that it holds there
    let disturbed = result["verdict"]["warnings"].to_string().contains("\"at ");
    if !disturbed {
        assert_eq!(
            result["generator"]["found"]["rate_per_s"], 1000.0,
            "{result}"
        );
        assert_eq!(result["generator"]["found"]["fails_at_per_s"], Value::Null);
    }
    assert_eq!(result["generator"]["mode"], "search");
}

#[test]
fn closed_loops_find_the_peak_without_a_schedule() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let result = run(&target, &short(&["-R", "max", "--outstanding", "8"])).measured();
    assert_eq!(result["generator"]["mode"], "closed_loop");
    assert_eq!(number(&result, "/generator/closed_loop/outstanding"), 8);
    assert!(
        result["generator"]["closed_loop"]["answered_rate_per_s"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert!(number(&result, "/generator/closed_loop/service_time/count") > 0);
    let result = run(&target, &short(&["--ping-pong", "-c", "2"])).measured();
    assert_eq!(result["generator"]["mode"], "ping_pong");
    assert_eq!(number(&result, "/generator/closed_loop/outstanding"), 2);
}

#[test]
fn an_interrupt_keeps_what_was_measured() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let place = tempfile::tempdir().unwrap();
    let args = ["-R", "2000", "-d", "60s", "--warmup", "0", "--json", "-o"];
    let mut command = taillab();
    command.arg(&target).args(args).arg(place.path());
    let child = in_mid_load(&mut command);
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["partial"], true);
    assert!(number(&result, "/load/requests") > 0);
    let saved = wait_for("the result", || {
        std::fs::read(place.path().join("result.json")).ok()
    });
    assert_eq!(serde_json::from_slice::<Value>(&saved).unwrap(), result);
}
