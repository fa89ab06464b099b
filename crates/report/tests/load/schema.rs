//! The JSON output against the schema that is published.

use serde::Serialize;
use serde_json::{Value, json};
use taillab_model::load_result::{LoadResult, LoadSweepResult, Mode};
use taillab_model::summary::Reason;
use taillab_model::{Distribution, Nanos};
use taillab_report::load;

use super::samples;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../schemas/load.schema.json")).unwrap()
}

fn value(result: &impl Serialize) -> Value {
    serde_json::from_slice(&load::json(result).unwrap()).unwrap()
}

fn complaints(instance: &Value) -> Vec<String> {
    jsonschema::draft202012::new(&schema())
        .unwrap()
        .iter_errors(instance)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn every_result_keeps_to_the_schema() {
    let full = samples::sample(Nanos::from_secs(1)).result;
    let mut poor = full.clone();
    (poor.capacity, poor.wire, poor.floor) = (None, None, None);
    poor.floor_absent_because = Some("--no-floor".to_owned());
    poor.load.target_utilization = None;
    poor.load.response_time = Distribution::from_sorted(&[]);
    poor.partial = true;
    poor.verdict.valid = false;
    poor.verdict.reasons = vec![Reason::new(
        "no_answer",
        "none was answered: check the target",
    )];
    let mut nothing = samples::sweep();
    nothing.steps.clear();
    let mut without_floor = samples::closed_loop(Mode::PingPong);
    without_floor.floor = None;
    without_floor.floor_absent_because = Some("--no-floor".to_owned());
    for instance in [
        value(&full),
        value(&poor),
        value(&samples::search()),
        value(&samples::sweep()),
        value(&nothing),
        value(&samples::closed_loop(Mode::ClosedLoop)),
        value(&samples::closed_loop(Mode::PingPong)),
        value(&without_floor),
    ] {
        assert_eq!(complaints(&instance), [""; 0]);
    }
}

#[test]
fn a_wrong_result_is_refused() {
    type Spoil = fn(&mut Value);
    let cases: [(&str, Spoil); 10] = [
        ("an unknown key", |s| s["surprise"] = json!(1)),
        ("an unknown key deep inside", |s| {
            s["client"]["surprise"] = json!(1);
        }),
        ("an unknown key in the floor", |s| {
            s["floor"]["surprise"] = json!(1);
        }),
        ("a missing distribution", |s| {
            s.as_object_mut().unwrap().remove("response_time");
        }),
        ("a negative time", |s| s["lateness"]["min"] = json!(-1)),
        ("another version", |s| s["schema_version"] = json!(2)),
        ("another mode", |s| s["mode"] = json!("sweep")),
        ("neither a floor nor a reason", |s| s["floor"] = Value::Null),
        ("a reason beside a floor", |s| {
            s["floor_absent_because"] = json!("none");
        }),
        ("valid with a reason against it", |s| {
            s["verdict"]["reasons"] = json!([{"key": "lost_events", "text": "lost"}]);
        }),
    ];
    let good = value(&samples::sample(Nanos::from_secs(1)).result);
    for (what, spoil) in cases {
        let mut result = good.clone();
        spoil(&mut result);
        assert!(!complaints(&result).is_empty(), "accepted {what}");
    }
    let mut search = value(&samples::search());
    search["steps"][0]["surprise"] = json!(1);
    assert!(!complaints(&search).is_empty());
}

/// The keys that the design promises are where it says.
#[test]
fn the_promised_keys_are_at_the_top() {
    let result = value(&samples::sample(Nanos::from_secs(1)).result);
    for key in ["response_time", "service_time", "lateness"] {
        assert_eq!(result[key]["unit"], "ns", "{key}");
        assert_eq!(result[key]["quantiles"].as_array().unwrap().len(), 6);
    }
    for key in ["cv", "ks_d", "ks_critical", "idc"] {
        assert!(!result["arrivals"][key].is_null(), "{key}");
    }
    assert!(result["client"]["cpu_ns_per_request"].is_u64());
    assert!(result["errors"]["timeouts"].is_u64());
    assert!(result["verdict"]["valid"].is_boolean() && result["verdict"]["reasons"].is_array());
}

#[test]
fn what_is_written_is_read_back_and_begins_with_the_version() {
    let result = samples::sample(Nanos::from_millis(200)).result;
    let search = samples::search();
    let bytes = load::json(&result).unwrap();
    assert!(bytes.starts_with(b"{\"schema_version\":1,\"command\":\"load\",\"target\":"));
    assert!(bytes.ends_with(b"}\n") && !bytes[..bytes.len() - 1].contains(&b'\n'));
    assert_eq!(
        serde_json::from_slice::<LoadResult>(&bytes).unwrap(),
        result
    );
    let pretty = load::json_pretty(&search).unwrap();
    let back: LoadSweepResult = serde_json::from_slice(&pretty).unwrap();
    assert_eq!(back, search);
}
