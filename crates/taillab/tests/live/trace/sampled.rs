//! All six stamps in slices of time, or never; T1 and T6 of every request.

use std::path::Path;

use serde_json::Value;
use taillab_model::{Event, EventKind, Monotonic, Nanos, RecordingReader};

use super::rig::{CONNECTIONS, Running, load, memcached, result, trace};
use super::servers::{MOSTLY, complete_share};
use crate::support::{first_unspoiled, live, taillab};

/// How often the machine may spoil a trace.
const ATTEMPTS: usize = 5;

/// Memcached, traced over both transports with these words, until the machine has not `spoiled` the recording.
fn traced(
    words: &[&str],
    spoiled: impl Fn(&Path) -> Option<String>,
    check: impl Fn(&Value, &Path),
) {
    let (server, port) = memcached();
    let place = tempfile::tempdir().unwrap();
    let pid = server.pid().to_string();
    for transport in ["udp", "tcp"] {
        let clients = load(&format!("memcached+{transport}://127.0.0.1:{port}"), 2000);
        let flag = format!("--{transport}");
        let all = [&["-p", &pid, &flag], words].concat();
        let attempt = |number| {
            let dir = place.path().join(format!("{transport}-{number}"));
            (trace(&all, &dir), dir)
        };
        let (output, dir) = first_unspoiled(ATTEMPTS, attempt, |(_, dir)| spoiled(dir));
        drop(clients);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 4)), "{stderr}");
        let found = result(&output);
        let matching = &found["matching"];
        assert_eq!(matching["lost_events"], 0, "{matching}");
        let count = |name: &str| matching[name].as_u64().unwrap();
        assert!(count("responses") > 400, "{matching}");
        let unmatched = count("responses") - count("matched");
        let hidden = count("blind_requests");
        assert!(unmatched <= count("ambiguous") + hidden, "{matching}");
        let sojourns = found["measured"]["sojourn"]["count"].as_u64().unwrap();
        assert!(sojourns >= count("matched"), "{sojourns}: {matching}");
        check(&found, &dir);
    }
}

/// What was recorded.
fn events_of(dir: &Path) -> Vec<Event> {
    let recording = std::fs::read(dir.join("capture.tlc")).unwrap();
    RecordingReader::open(&recording[..]).unwrap().collect()
}

/// When each slice began and ended that has ended.
fn slices(events: &[Event]) -> Vec<(Monotonic, Monotonic)> {
    let (mut slices, mut begun) = (Vec::new(), None);
    for event in events {
        match event.kind {
            EventKind::Slice { begins: true } => begun = Some(event.at),
            EventKind::Slice { begins: false } => {
                slices.extend(begun.take().map(|begun| (begun, event.at)));
            }
            _ => {}
        }
    }
    slices
}

/// How many requests came in within slices, without their edges.
fn within_slices(events: &[Event]) -> usize {
    let slices = slices(events);
    let (lead, tail) = (Nanos::from_millis(10), Nanos::from_millis(20));
    let is_within = |event: &&Event| {
        let mut slices = slices.iter();
        matches!(event.kind, EventKind::PacketIn { .. })
            && slices.any(|(from, to)| *from + lead <= event.at && event.at + tail < *to)
    };
    events.iter().filter(is_within).count()
}

/// The responses that left before the first recorded read: on a busy machine the first slice may come late.
fn before_the_first_read(dir: &Path) -> u64 {
    let events = events_of(dir);
    let is_read = |event: &Event| {
        matches!(
            event.kind,
            EventKind::ReadReturned { .. } | EventKind::SegmentRead { .. }
        )
    };
    let is_response = |event: &&Event| {
        matches!(
            event.kind,
            EventKind::PacketOut { .. } | EventKind::SegmentOut { .. }
        )
    };
    let first = events.iter().position(is_read).unwrap();
    events[..first].iter().filter(is_response).count() as u64
}

#[test]
fn slices_have_six_stamps_and_all_requests_have_the_ends() {
    if !live("slices_have_six_stamps_and_all_requests_have_the_ends") {
        return;
    }
    // twelve are due; the thread that attaches programs may wait long for a CPU
    let has_few_slices = |dir: &Path| {
        let slices = slices(&events_of(dir)).len();
        (slices < 10).then(|| format!("{slices} slices were recorded"))
    };
    let words = ["--stamps", "sampled:1/4", "-d", "5s"];
    traced(&words, has_few_slices, |found, dir| {
        let matching = &found["matching"];
        let count = |name: &str| matching[name].as_u64().unwrap();
        assert_eq!(matching["stamps"], "sampled:1/4");
        // hardly one is without a request
        assert!(count("slices") >= 8, "{matching}");
        // one in each 400 ms, and two that the ends of the recording may add
        let most = found["duration_ns"].as_u64().unwrap() / 400_000_000 + 2;
        assert!(count("slices") <= most, "{matching}");
        // how many requests fall into slices depends on the client's schedule
        let asked = count("matched") - count("unasked");
        assert!(asked > 0 && count("unasked") > 0, "{matching}");
        assert!(complete_share(found) > MOSTLY, "{matching}");
        // nothing is recorded about the others
        let of_stage = found["stages"]["t4_t5"]["count"].as_u64().unwrap();
        assert_eq!(of_stage, count("complete"), "{matching}");
        // the first slice shows which thread serves, also between slices
        let served = found["explanation"]["workers"][0]["requests"].as_u64();
        let known = count("matched").saturating_sub(before_the_first_read(dir));
        assert!(
            served.unwrap() as f64 > MOSTLY * known as f64,
            "{} of {known}: {matching}",
            found["explanation"]["workers"]
        );
        let limits = found["explanation"]["limits"].to_string();
        assert!(limits.contains("1/4 of the time"), "{limits}");
        let verdict = found["verdict"].to_string();
        assert!(!verdict.contains("few_slices"), "{verdict}");
        let again = taillab().args(["explain", "--json"]).arg(dir).output();
        let again = result(&again.unwrap());
        assert_eq!(again["causes"], found["causes"]);
        assert_eq!(again["stages"], found["stages"]);
    });
}

/// Clients that share their CPU with another program send in bursts. Then one CPU puts datagrams into
/// the queue while the server reads on the other, and each read must still match its own datagram.
#[test]
fn datagrams_in_bursts_keep_their_own_stamps() {
    if !live("datagrams_in_bursts_keep_their_own_stamps") {
        return;
    }
    let (server, port) = memcached();
    let _other_program = Running::program("taskset -c 1 yes");
    let line = format!(
        "load memcached+udp://127.0.0.1:{port} -R 20000 -d 600s -c {CONNECTIONS} --client-cpus 1 \
         --warmup 100ms --wait hybrid --json -q --floor off"
    );
    let _clients = Running::taillab(&line).connected(CONNECTIONS);
    let place = tempfile::tempdir().unwrap();
    let pid = server.pid().to_string();
    let words = ["-p", &pid, "--udp", "-d", "2s", "--stamps", "sampled:1/4"];
    let attempt = |number: usize| {
        let dir = place.path().join(number.to_string());
        (trace(&words, &dir), dir)
    };
    // the clients' CPU is busy, so that they may send little, or nothing at all: then there is no result
    let (output, _) = first_unspoiled(ATTEMPTS, attempt, |(output, dir)| {
        let said = String::from_utf8_lossy(&output.stderr);
        if output.stdout.is_empty() && said.contains("no request reached") {
            return Some(said.into_owned());
        }
        let asked = within_slices(&events_of(dir));
        (asked < 2_000).then(|| format!("{asked} requests came in within slices"))
    });
    let found = result(&output);
    let matching = &found["matching"];
    assert!(matching["complete"].as_u64() > Some(1_000), "{matching}");
    assert!(complete_share(&found) > MOSTLY, "{matching}");
    // the recording is too short for causes, and says so
    let verdict = found["verdict"].to_string();
    assert!(verdict.contains("few_slices"), "{verdict}");
    assert!(found["causes"].as_array().unwrap().is_empty());
}

#[test]
fn the_ends_alone_give_the_sojourn_of_every_request() {
    if !live("the_ends_alone_give_the_sojourn_of_every_request") {
        return;
    }
    // nothing tells how long the server works: there is no ideal to compare with, and t is not invented
    let words = ["--stamps", "ends", "-d", "2s"];
    let nothing = |_: &Path| None;
    traced(&words, nothing, |found, dir| {
        assert_eq!(
            found["ideal"]["withdrawn"]["because"],
            "service_time_unknown"
        );
        assert_eq!(found["service_time_source"], "unknown");
        assert_eq!(found["service_time_ns"], 0);
        assert!(found["measured"]["overload"].is_null());
        let with_t = taillab()
            .args(["explain", "--json", "--service-time", "10us"])
            .arg(dir)
            .output();
        let with_t = result(&with_t.unwrap());
        assert_eq!(with_t["service_time_source"], "given");
        let because = &with_t["ideal"]["withdrawn"]["because"];
        assert_ne!(*because, "service_time_unknown");

        let matching = &found["matching"];
        let count = |name: &str| matching[name].as_u64().unwrap();
        assert_eq!(count("unasked"), count("matched"), "{matching}");
        assert_eq!(count("complete"), 0, "{matching}");
        assert_eq!(found["stages"]["t4_t5"]["count"], 0);
        assert!(found["explanation"].is_null() && found["causes"].as_array().unwrap().is_empty());
        let hooks = matching["hooks"].as_array().unwrap();
        let stamps = hooks.iter().map(|hook| hook["stamp"].as_str().unwrap());
        assert!(
            stamps.clone().all(|stamp| stamp == "T1" || stamp == "T6"),
            "{matching}"
        );
        let warnings = found["verdict"].to_string();
        assert!(!warnings.contains("\"incomplete\""), "{warnings}");
    });
}
