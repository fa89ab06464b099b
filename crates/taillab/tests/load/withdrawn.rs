//! A percentile that a load withdraws is in none of its files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use taillab_load::serve::Listen;

use super::support::{lost_its_median, responder, run, short};
use crate::support::first_unspoiled;

/// The percentiles of a distribution in JSON that have no value, by their probabilities.
fn unknown(distribution: &Value) -> Vec<f64> {
    let all = distribution["quantiles"].as_array().unwrap().iter();
    let unknown = all.filter(|at| at["value"].is_null());
    unknown.map(|at| at["q"].as_f64().unwrap()).collect()
}

/// The response time in nanoseconds below which 99 % of a file's requests are, and no other.
fn p99_of(file: &Path) -> i64 {
    let times = response_times(file);
    times[(0.99 * times.len() as f64).ceil() as usize - 1]
}

/// The response times of a file of requests in nanoseconds, without those of the warm-up, the shortest first.
fn response_times(file: &Path) -> Vec<i64> {
    let rows = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
    let mut times = Vec::new();
    for batch in rows.build().unwrap() {
        let batch: RecordBatch = batch.unwrap();
        let column = |name| batch.column_by_name(name).unwrap();
        let response_time = column("response_time_ns").as_primitive::<Int64Type>();
        let rows = response_time.iter().zip(column("warm_up").as_boolean());
        let measured = rows.filter(|(_, warm_up)| *warm_up == Some(false));
        times.extend(measured.filter_map(|(time, _)| time));
    }
    times.sort_unstable();
    times
}

/// The interval of a percentile that is told may end at the very request that is p99: stalls widen it.
fn has_bound(distribution: &Value, ns: i64) -> bool {
    let mut all = distribution["quantiles"].as_array().unwrap().iter();
    all.any(|at| [&at["lo"], &at["hi"]].contains(&&Value::from(ns)))
}

/// Too few requests for p99: the page, the figure and `result.json` did not tell it, and `latency.hgrm` did.
#[test]
fn a_percentile_that_is_withdrawn_is_in_no_file() {
    let (_responder, target) = responder("tcp", Listen::loopback());
    let place = tempfile::tempdir().unwrap();
    let attempt = |attempt: usize| {
        let dir = place.path().join(attempt.to_string());
        // it sleeps between requests: else it has half of the CPU on which another test's load spins
        let args = ["-R", "400", "--wait", "hybrid", "-o", dir.to_str().unwrap()];
        (run(&target, &short(&args)).measured(), dir)
    };
    let spoiled = |(printed, dir): &(Value, PathBuf)| {
        let p99 = p99_of(&dir.join("requests.parquet"));
        let is_bound = has_bound(&printed["load"]["response_time"], p99);
        lost_its_median(printed).or_else(|| is_bound.then(|| format!("{p99} ns ends an interval")))
    };
    let (printed, dir) = first_unspoiled(10, attempt, spoiled);
    let withdrawn = unknown(&printed["load"]["response_time"]);
    let first = withdrawn.iter().copied().fold(f64::MAX, f64::min);
    // 160 requests have a median; their p99 is one of two
    assert!(withdrawn.contains(&0.99) && first > 0.5, "{withdrawn:?}");
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let told = read("latency.hgrm");
    let lines = told.lines().skip(2).filter(|line| !line.starts_with('#'));
    let told: Vec<f64> = lines
        .map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
        .collect();
    assert!(told.iter().all(|q| *q < first), "{told:?} from {first}");
    assert!(told.iter().any(|q| *q >= 0.5), "{told:?}");
    // p99 itself can be computed from the file that has every request, and is nowhere else
    let p99 = p99_of(&dir.join("requests.parquet")).to_string();
    for name in ["result.json", "report.html", "ccdf.svg"] {
        assert!(!tells(&read(name), &p99), "{p99} ns in {name}");
    }
}

/// Whether a text has this whole number, with or without decimal places, and not only its digits within another one.
fn tells(text: &str, number: &str) -> bool {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    numbers.any(|found| found.split('.').next() == Some(number))
}
