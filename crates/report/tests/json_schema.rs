//! The JSON output against the schema that is published.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of a test may panic, as the test itself may"
)]

use serde_json::{Value, json};
use taillab_model::{Distribution, Nanos};
use taillab_report::json;

mod common;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../schemas/run.schema.json")).unwrap()
}

fn summary() -> Value {
    let sample = common::sample(Nanos::from_secs(2));
    serde_json::from_slice(&json::pretty(&sample.summary).unwrap()).unwrap()
}

fn complaints(instance: &Value) -> Vec<String> {
    jsonschema::draft202012::new(&schema())
        .unwrap()
        .iter_errors(instance)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn the_schema_is_a_valid_schema() {
    assert!(jsonschema::draft202012::meta::is_valid(&schema()));
}

#[test]
fn a_summary_keeps_to_the_schema() {
    assert_eq!(complaints(&summary()), [""; 0]);
}

#[test]
fn an_empty_run_keeps_to_the_schema() {
    let mut summary = common::sample(Nanos::from_millis(20)).summary;
    let nothing = Distribution::from_sorted(&[]);
    summary.result.measured.sojourn = nothing.clone();
    summary.result.measured.server_cpu_busy_share = None;
    summary.result.excess = nothing;
    summary.result.overhead.pairs = 0;
    summary.result.overhead.throughput_loss = None;
    summary.result.overhead.throughput_loss_lo = None;
    summary.result.overhead.throughput_loss_hi = None;
    summary.result.overhead.cpu_ns_per_request = None;
    summary.partial = true;
    summary.verdict.valid = false;
    summary.verdict.reasons = vec!["nothing was measured".to_owned()];
    let bytes = json::compact(&summary).unwrap();
    assert_eq!(
        complaints(&serde_json::from_slice(&bytes).unwrap()),
        [""; 0]
    );
}

#[test]
fn a_wrong_summary_is_refused() {
    type Spoil = fn(&mut Value);
    let cases: [(&str, Spoil); 10] = [
        ("an unknown key", |s| s["surprise"] = json!(1)),
        ("an unknown key deep inside", |s| {
            s["load"]["client"]["surprise"] = json!(1);
        }),
        ("a missing key", |s| {
            s["matching"].as_object_mut().unwrap().remove("lost_events");
        }),
        ("a time that is no integer", |s| {
            s["service_time_ns"] = json!(43_500.5);
        }),
        ("a negative time", |s| {
            s["measured"]["sojourn"]["min"] = json!(-1)
        }),
        ("another version", |s| s["schema_version"] = json!(2)),
        ("another unit", |s| {
            s["ideal"]["sojourn"]["unit"] = json!("us")
        }),
        ("a quantile that is not reported", |s| {
            s["excess"]["quantiles"].as_array_mut().unwrap().remove(3);
        }),
        ("valid with a reason against it", |s| {
            s["verdict"]["reasons"] = json!(["lost events"]);
        }),
        ("an interval without an estimate", |s| {
            s["excess"]["quantiles"][0]["value"] = Value::Null;
        }),
    ];
    for (what, spoil) in cases {
        let mut summary = summary();
        spoil(&mut summary);
        assert!(!complaints(&summary).is_empty(), "accepted {what}");
    }
}

/// Every key says what it is and, where it is a number, in which unit.
#[test]
fn every_key_is_described() {
    fn visit(path: &str, node: &Value, undescribed: &mut Vec<String>) {
        if let Some(properties) = node.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let path = format!("{path}/{name}");
                let text = property["description"].as_str().unwrap_or_default();
                let kind = property["type"].to_string();
                let is_number = kind.contains("integer") || kind.contains("number");
                if text.is_empty() || (is_number && !text.contains("Unit: ")) {
                    undescribed.push(path.clone());
                }
                if is_number && name.contains("_ns") && !text.contains("nanoseconds") {
                    undescribed.push(path.clone());
                }
                visit(&path, property, undescribed);
                visit(&format!("{path}[]"), &property["items"], undescribed);
            }
            if node["additionalProperties"] != json!(false) {
                undescribed.push(format!("{path}: takes unknown keys"));
            }
        }
    }
    let schema = schema();
    let mut undescribed = Vec::new();
    visit("", &schema, &mut undescribed);
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        visit(name, definition, &mut undescribed);
    }
    assert_eq!(undescribed, [""; 0]);
}

#[test]
fn both_forms_say_the_same_and_begin_with_the_version() {
    let sample = common::sample(Nanos::from_millis(200));
    let pretty = json::pretty(&sample.summary).unwrap();
    let compact = json::compact(&sample.summary).unwrap();
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    assert_eq!(read(&pretty), read(&compact));
    assert!(compact.starts_with(b"{\"schema_version\":1,"));
    assert!(compact.ends_with(b"}\n") && !compact[..compact.len() - 1].contains(&b'\n'));
    let back: taillab_model::summary::RunSummary = serde_json::from_slice(&compact).unwrap();
    assert_eq!(back, sample.summary);
}
