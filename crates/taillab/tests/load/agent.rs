//! `taillab agent`: clients that begin together.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use taillab_load::clock::now;
use taillab_load::serve::Listen;

use super::support::{Ran, finish, lost_its_median, number, responder};

/// Far enough ahead for a client to connect, on a machine that is busy with other tests.
const AHEAD_NS: u64 = 4_000_000_000;

fn agent(plan: &Value, more: &[&str]) -> Ran {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("plan.json");
    std::fs::write(&file, plan.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_taillab"));
    command
        .arg("agent")
        .arg(file)
        .args(["--json", "-q"])
        .args(more);
    finish(&mut command)
}

fn plan(target: &str, rate: &Value, at_ns: u64) -> Value {
    json!({
        "taillab": env!("CARGO_PKG_VERSION"),
        "client": 1,
        "clients": 3,
        "target": target,
        "rate_per_s": rate,
        "seed": 5,
        "warmup_ns": 50_000_000,
        "duration_ns": 300_000_000,
        // this host's clock is 5 ms behind the planner's
        "start": {"clock": "monotonic", "at_ns": at_ns + 5_000_000, "offset_ns": -5_000_000, "error_ns": 100},
        "options": ["--floor=off", "--connections=4"],
    })
}

#[test]
fn a_client_begins_when_its_plan_says_and_saves_what_a_load_does() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("client");
    let at_ns = now().nanos_since_boot() + AHEAD_NS;
    let ran = agent(
        &plan(&target, &json!(2_000), at_ns),
        &["-o", directory.to_str().unwrap()],
    );
    let result = ran.measured();
    let start = &result["generator"]["start"];
    assert_eq!(
        (&start["client"], &start["clients"]),
        (&json!(1), &json!(3))
    );
    let error = number(start, "/error_ns");
    assert!(
        number(start, "/monotonic_ns").abs_diff(at_ns) <= error,
        "{start}"
    );
    // nothing was sent before the start, and every time is counted from it
    let late = number(start, "/first_send_late_ns");
    assert!(late < AHEAD_NS, "{start}");
    for name in [
        "result.json",
        "requests.parquet",
        "latency.hlog",
        "report.html",
    ] {
        assert!(directory.join(name).exists(), "{name}");
    }
    let has_percentiles = directory.join("latency.hgrm").exists();
    assert!(has_percentiles || lost_its_median(&result).is_some());
    // by the port, the server's host knows whose requests it saw: one for each connection
    let ports = ports(&directory.join("requests.parquet"));
    assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 4);
    // 600 expected, however late they were: five standard deviations
    assert!(ports.len().abs_diff(600) < 5 * 25, "{}", ports.len());
}

/// The client's port of each request in a file.
fn ports(file: &Path) -> Vec<u32> {
    let file = File::open(file).unwrap();
    let rows = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let batches = rows.build().unwrap().map(Result::unwrap);
    let of_batch = |batch: RecordBatch| -> Vec<u32> {
        let column = batch.column_by_name("client_port").unwrap();
        column
            .as_primitive::<UInt32Type>()
            .iter()
            .flatten()
            .collect()
    };
    batches.flat_map(of_batch).collect()
}

#[test]
fn clients_can_also_keep_requests_in_flight() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let at_ns = now().nanos_since_boot() + AHEAD_NS;
    let result = agent(&plan(&target, &json!("max"), at_ns), &[]).measured();
    assert_eq!(result["generator"]["mode"], "closed_loop");
    assert_eq!(result["generator"]["start"]["client"], 1);
    assert!(now().nanos_since_boot() >= at_ns);
}

#[test]
fn a_plan_comes_from_standard_input_too_and_a_bad_one_is_refused_before_anything_is_sent() {
    let at_ns = now().nanos_since_boot() + AHEAD_NS;
    let refused = |change: &dyn Fn(&mut Value), code, part: &str| {
        let mut bad = plan("echo+tcp://127.0.0.1:9", &json!(2_000), at_ns);
        change(&mut bad);
        agent(&bad, &[]).refused(code, part);
    };
    refused(&|plan| plan["rate_per_s"] = json!(-1), 2, "is not a rate");
    refused(
        &|plan| plan["duration_ns"] = json!(0),
        2,
        "the duration must be above 0",
    );
    refused(
        &|plan| plan["taillab"] = json!("9.9.9"),
        2,
        "the same version on all hosts",
    );
    refused(
        &|plan| plan["start"]["at_ns"] = json!(6_000_000),
        1,
        "plan it later",
    );
    refused(
        &|plan| plan["start"]["at_ns"] = json!(u64::MAX),
        2,
        "within 24 h",
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_taillab"));
    let nothing = Ran::from(
        command
            .args(["agent", "-"])
            .stdin(Stdio::null())
            .output()
            .unwrap(),
    );
    nothing.refused(2, "standard input: this is no plan");
    let mut command = Command::new(env!("CARGO_BIN_EXE_taillab"));
    let missing = Ran::from(command.args(["agent", "/no/such/plan"]).output().unwrap());
    missing.refused(2, "/no/such/plan: the plan cannot be read");
}
