//! The JSON output against the schema that is published.

use serde_json::{Value, json};
use taillab_model::load_result::{LoadReport, Mode};
use taillab_model::summary::Reason;
use taillab_model::{Distribution, Nanos};
use taillab_report::json::of as written;

use super::samples;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../schemas/load.schema.json")).unwrap()
}

fn value(report: &LoadReport) -> Value {
    serde_json::from_slice(&written(report).unwrap()).unwrap()
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
    let full = samples::sample(Nanos::from_secs(1)).report;
    let mut poor = full.clone();
    let generator = &mut poor.server.generator;
    (generator.capacity, generator.wire, generator.floor) = (None, None, None);
    generator.floor_absent_because = Some("--no-floor".to_owned());
    let load = poor.load.as_mut().unwrap();
    load.target_utilization = None;
    load.response_time = Distribution::from_sorted(&[]);
    poor.partial = true;
    poor.verdict.valid = false;
    poor.verdict.reasons = vec![Reason::new(
        "no_answer",
        "none was answered: check the target",
    )];
    let mut nothing = samples::sweep();
    nothing.server.generator.steps.clear();
    let mut without_floor = samples::closed_loop(Mode::PingPong);
    without_floor.server.generator.floor = None;
    without_floor.server.generator.floor_absent_because = Some("--no-floor".to_owned());
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
            s["load"]["client"]["surprise"] = json!(1);
        }),
        ("an unknown key in the floor", |s| {
            s["generator"]["floor"]["surprise"] = json!(1);
        }),
        ("a missing distribution", |s| {
            s["load"].as_object_mut().unwrap().remove("response_time");
        }),
        ("a negative time", |s| {
            s["load"]["lateness"]["min"] = json!(-1)
        }),
        ("another version", |s| s["schema_version"] = json!(2)),
        ("another mode", |s| s["generator"]["mode"] = json!("burst")),
        ("neither a floor nor a reason", |s| {
            s["generator"]["floor"] = Value::Null
        }),
        ("a reason for a floor that is there", |s| {
            s["generator"]["floor_absent_because"] = json!("none");
        }),
        ("valid with a reason against it", |s| {
            s["verdict"]["reasons"] = json!([{"key": "lost_events", "text": "lost"}]);
        }),
    ];
    let good = value(&samples::sample(Nanos::from_secs(1)).report);
    for (what, spoil) in cases {
        let mut result = good.clone();
        spoil(&mut result);
        assert!(!complaints(&result).is_empty(), "accepted {what}");
    }
    let mut search = value(&samples::search());
    search["generator"]["steps"][0]["surprise"] = json!(1);
    assert!(!complaints(&search).is_empty());
}

/// The keys that scripts read are where they were promised.
#[test]
fn the_promised_keys_are_there() {
    let result = value(&samples::sample(Nanos::from_secs(1)).report);
    for key in ["response_time", "service_time", "lateness"] {
        assert_eq!(result["load"][key]["unit"], "ns", "{key}");
        assert_eq!(
            result["load"][key]["quantiles"].as_array().unwrap().len(),
            6
        );
    }
    for key in ["cv", "ks_d", "ks_critical", "idc"] {
        assert!(!result["load"]["arrivals"][key].is_null(), "{key}");
    }
    assert!(result["load"]["client"]["cpu_ns_per_request"].is_u64());
    assert!(result["load"]["errors"]["timeouts"].is_u64());
    assert!(result["verdict"]["valid"].is_boolean() && result["verdict"]["reasons"].is_array());
}

#[test]
fn what_is_written_is_read_back_and_begins_with_the_version() {
    for report in [
        samples::sample(Nanos::from_millis(200)).report,
        samples::search(),
    ] {
        let bytes = written(&report).unwrap();
        assert!(bytes.starts_with(b"{\n  \"schema_version\": 1,\n  \"command\": \"load\",\n"));
        assert!(bytes.ends_with(b"\n}\n"));
        assert_eq!(
            serde_json::from_slice::<LoadReport>(&bytes).unwrap(),
            report
        );
    }
}
