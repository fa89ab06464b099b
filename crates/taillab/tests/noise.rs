//! `taillab noise` from the outside: what it prints, and what it refuses.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support;

fn noise(args: &[&str]) -> Output {
    support::taillab().arg("noise").args(args).output().unwrap()
}

fn json(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let value: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/noise.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = (validator.iter_errors(&value))
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    value
}

/// Without causes it needs no root: each CPU has a row, and the counts agree with each other.
#[test]
fn every_cpu_has_a_row_that_obeys_the_schema() {
    let output = noise(&["--json", "-q", "-d", "200ms", "--no-causes"]);
    if output.status.code() == Some(5) {
        // a machine without a trustworthy counter says so
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("time stamp counter"), "{said}");
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
