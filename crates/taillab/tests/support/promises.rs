//! What must hold for the result of every run, whatever was measured.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    unreachable_pub,
    reason = "more than one test binary includes this file"
)]

use std::fs::File;
use std::path::Path;

use arrow_array::{Array, Int64Array, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

/// The summary of a run directory.
pub fn summary(dir: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join("summary.json")).unwrap()).unwrap()
}

fn batches(dir: &Path) -> Vec<RecordBatch> {
    let file = File::open(dir.join("requests.parquet")).unwrap();
    ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> &'a Int64Array {
    batch
        .column_by_name(name)
        .unwrap_or_else(|| panic!("no column {name}"))
        .as_any()
        .downcast_ref()
        .unwrap_or_else(|| panic!("{name} is not a column of 64-bit integers"))
}

/// When the schedule wanted each request sent, in nanoseconds.
pub fn intended(dir: &Path) -> Vec<i64> {
    let batches = batches(dir);
    batches
        .iter()
        .flat_map(|batch| column(batch, "intended").iter().flatten())
        .collect()
}

fn median(summary: &Value, place: &str) -> u64 {
    summary.pointer(place).unwrap()["quantiles"][0]["value"]
        .as_u64()
        .unwrap()
}

/// The share of responses with all six stamps that a noisy machine leaves.
pub const MOSTLY_COMPLETE: f64 = 0.98;

/// Checks a run directory and what was printed. At least `complete_share` of the responses must have
/// all six stamps, or were there while the probe was blind.
pub fn check(dir: &Path, stdout: &[u8], complete_share: f64) {
    // stdout is one JSON object, the same as the file, and it obeys the schema.
    let printed = super::schema::valid("report", stdout);
    let summary = summary(dir);
    assert_eq!(printed, summary);
    assert_eq!(summary["partial"], false);

    // Matching.
    let count = |key: &str| summary["matching"][key].as_u64().unwrap();
    let responses = count("responses");
    assert!(responses > 5_000, "{responses} responses");
    // the client's times leave out the requests that were cut
    let cut = summary["scheduled"]["cut"]["requests"].as_u64();
    let cut = cut.unwrap_or(0);
    assert_eq!(count("lost_events"), 0, "{}", summary["matching"]);
    // a response that the probe could not see leave makes the next one of its connection uncertain
    let hidden = count("blind_requests");
    assert!(count("ambiguous") <= hidden, "{}", summary["matching"]);
    assert!(
        (count("matched") + hidden) as f64 >= 0.999 * responses as f64,
        "{}",
        summary["matching"]
    );
    // nor is the client's time joined with a response that the probe could not see leave, or with the next one
    assert!(
        (count("client_matched") + hidden) as f64 >= 0.999 * count("client_responses") as f64,
        "{}",
        summary["matching"]
    );
    let beyond = &summary["client_minus_server"];
    let (joined, all) = (beyond["count"].as_u64().unwrap(), count("client_matched"));
    assert!(
        joined <= all && all - joined <= cut,
        "{joined} of {all}, {cut} cut"
    );
    assert!(beyond["min"].as_u64().unwrap() > 0, "{beyond}");
    // what the kernel hides from the probe is counted, and is nobody's fault
    let seen_or_told = count("complete") + hidden;
    assert!(
        seen_or_told as f64 >= complete_share * responses as f64,
        "{}",
        summary["matching"]
    );

    // The order of the three views. Where nothing confirms t, it can put the ideal too high: then it is
    // withdrawn, and the run must say so.
    // That of each request's own work, where requests differ: the median may be below the mean, t.
    let own_work = &summary["ideal"]["own_work"];
    let base = match own_work["is_base"] == true {
        true => own_work,
        false => &summary["ideal"],
    };
    let ideal = base.pointer("/sojourn/quantiles/0/value");
    let ideal = ideal.and_then(Value::as_u64);
    let withdrawn = &summary["ideal"]["withdrawn"]["because"];
    let measured = median(&summary, "/measured/sojourn");
    // withdrawn where the generator was too late
    let client = summary.pointer("/load/response_time/quantiles/0/value");
    let client = client.and_then(Value::as_u64).unwrap_or(u64::MAX);
    // only for a valid run with few requests cut: else the two do not cover the same requests
    let is_valid = summary["verdict"]["valid"] == true && cut < responses / 10;
    assert!(!is_valid || measured < client, "{measured} {client}");
    let verdict = summary["verdict"].to_string();
    assert_eq!(
        withdrawn == "ideal_above_measured",
        verdict.contains("is not above the ideal of"),
        "{withdrawn}: {verdict}"
    );
    match ideal {
        Some(ideal) => assert!(
            ideal < measured && withdrawn.is_null(),
            "{ideal} {measured}"
        ),
        None => assert!(withdrawn.is_string(), "{}", summary["ideal"]),
    }

    // Every request: stages add up exactly, stamps are in order, nothing is negative.
    let (mut rows, mut complete) = (0, 0);
    for batch in batches(dir) {
        rows += batch.num_rows();
        let stamps = ["t1", "t2", "t3", "t4", "t5", "t6"].map(|t| column(&batch, t));
        let stages = ["t1_t2", "t2_t3", "t3_t4", "t4_t5", "t5_t6"]
            .map(|stage| column(&batch, &format!("{stage}_ns")));
        let sojourn = column(&batch, "sojourn_ns");
        for row in 0..batch.num_rows() {
            if sojourn.is_valid(row) {
                assert!(sojourn.value(row) >= 0);
                assert_eq!(
                    stamps[5].value(row) - stamps[0].value(row),
                    sojourn.value(row)
                );
            }
            if stages.iter().all(|stage| stage.is_valid(row)) {
                complete += 1;
                let sum: i64 = stages.iter().map(|stage| stage.value(row)).sum();
                assert_eq!(sum, sojourn.value(row));
                assert!(
                    stamps
                        .windows(2)
                        .all(|t| t[0].value(row) <= t[1].value(row))
                );
            }
        }
    }
    assert!(rows as u64 >= responses);
    assert!(complete as u64 >= count("complete"));

    // Every file is in the run directory, and none is writable by others.
    for name in [
        "experiment.toml",
        "environment.json",
        "summary.json",
        "requests.parquet",
        "latency.hlog",
        "report.html",
    ] {
        use std::os::unix::fs::PermissionsExt;
        let facts = dir
            .join(name)
            .metadata()
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(facts.len() > 0, "{name} is empty");
        assert_eq!(facts.permissions().mode() & 0o022, 0, "{name}");
    }
}
