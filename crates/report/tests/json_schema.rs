//! The JSON output against the schema that is published.

use serde_json::{Value, json};
use taillab_model::summary::{Reason, Report};
use taillab_model::{Distribution, Nanos};
use taillab_report::json;

use crate::common;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../schemas/report.schema.json")).unwrap()
}

fn value_of(summary: &Report) -> Value {
    serde_json::from_slice(&json::of_report(summary).unwrap()).unwrap()
}

fn summary() -> Value {
    value_of(&common::sample(Nanos::from_secs(2)).summary)
}

fn explained() -> Value {
    value_of(&common::explained::run(Nanos::from_secs(2)).summary)
}

fn trace() -> Value {
    value_of(&common::explained::trace(Nanos::from_secs(2)).summary)
}

fn complaints(instance: &Value) -> Vec<String> {
    jsonschema::draft202012::new(&schema())
        .unwrap()
        .iter_errors(instance)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn a_summary_keeps_to_the_schema() {
    assert_eq!(complaints(&summary()), [""; 0]);
}

#[test]
fn an_explained_run_keeps_to_the_schema() {
    assert_eq!(complaints(&explained()), [""; 0]);
}

#[test]
fn what_requests_on_schedule_saw_keeps_to_the_schema() {
    let mut summary = common::sample(Nanos::from_secs(2)).summary;
    summary.scheduled = Some(common::held_up(&summary));
    let mut value = value_of(&summary);
    assert_eq!(complaints(&value), [""; 0]);
    // what is the same is not said twice
    value["scheduled"]["same_as_measured"] = json!(true);
    assert_ne!(complaints(&value), [""; 0]);
}

#[test]
fn a_trace_keeps_to_the_schema() {
    assert_eq!(complaints(&trace()), [""; 0]);
}

/// Every cause, every kind of culprit, every source of t and every value that may be absent.
#[test]
fn what_a_result_can_say_keeps_to_the_schema() {
    use taillab_model::explanation::{Cause, Culprit, Explanation, Share};
    use taillab_model::summary::ServiceTimeSource;
    let culprits = [
        common::explained::kworker(),
        Culprit::Thread {
            name: "dpkg".to_owned(),
            pid: None,
            tid: Some(9),
            process: Some("apt".to_owned()),
        },
        Culprit::Interrupt {
            name: "virtio0-input.0".to_owned(),
            number: Some(26),
        },
        Culprit::Softirq {
            name: "TIMER".to_owned(),
        },
        Culprit::SystemCall {
            name: "futex".to_owned(),
        },
        Culprit::Worker {
            name: "nginx".to_owned(),
            tid: 7,
        },
        Culprit::IdleState { state: 3 },
    ];
    for source in [
        ServiceTimeSource::Calibrated,
        ServiceTimeSource::Given,
        ServiceTimeSource::VirtualWait,
        ServiceTimeSource::BusyPeriods,
        ServiceTimeSource::BusyTime,
    ] {
        let mut summary = common::explained::trace(Nanos::from_millis(500)).summary;
        summary.command = "explain".to_owned();
        summary.server.service_time_source = source;
        let shares: Vec<_> = (Cause::ALL.into_iter().zip(culprits.iter().cycle()))
            .map(|(cause, culprit)| {
                let mut share = summary.server.causes[0].clone();
                share.cause = cause;
                share.culprit = Some(culprit.clone());
                share.share = Share::default();
                share
            })
            .collect();
        summary.server.causes = shares;
        assert_eq!(complaints(&value_of(&summary)), [""; 0], "{source:?}");
        summary.observer = None;
        summary.server.model_fit = None;
        summary.server.explanation = Some(Explanation::default());
        assert_eq!(complaints(&value_of(&summary)), [""; 0]);
        summary.server.explanation = None;
        assert_eq!(complaints(&value_of(&summary)), [""; 0]);
    }
}

#[test]
fn a_wrong_explanation_is_refused() {
    type Spoil = fn(&mut Value);
    let cases: [(&str, Spoil); 9] = [
        ("a cause that there is not", |s| {
            s["causes"][0]["cause"] = json!("gremlins");
        }),
        ("a culprit of an unknown kind", |s| {
            s["causes"][9]["culprit"]["kind"] = json!("ghost");
        }),
        ("a culprit with the keys of another kind", |s| {
            s["causes"][9]["culprit"]["state"] = json!(1);
        }),
        ("a share without its interval", |s| {
            s["causes"][0]["share"]
                .as_object_mut()
                .unwrap()
                .remove("lo");
        }),
        ("a time that is no integer", |s| {
            s["explanation"]["slowest"][0]["sojourn_ns"] = json!(0.5);
        }),
        ("a stamp too many", |s| {
            let stamps = &mut s["explanation"]["slowest"][0]["stamps_ns"];
            stamps.as_array_mut().unwrap().push(json!(1));
        }),
        ("a point with one coordinate", |s| {
            s["explanation"]["curves"][0]["points"][0] = json!([1]);
        }),
        ("an unknown source of t", |s| {
            s["service_time_source"] = json!("guessed");
        }),
        ("a run without a load", |s| s["command"] = json!("run")),
    ];
    for (what, spoil) in cases {
        let mut trace = trace();
        spoil(&mut trace);
        let complaints = complaints(&trace);
        assert!(!complaints.is_empty(), "accepted {what}");
    }
}

#[test]
fn an_empty_run_keeps_to_the_schema() {
    let mut summary = common::sample(Nanos::from_millis(20)).summary;
    let nothing = Distribution::from_sorted(&[]);
    summary.server.measured.sojourn = nothing.clone();
    summary.server.measured.server_cpu_busy_share = None;
    summary.server.excess = nothing;
    summary.server.overhead.pairs = 0;
    summary.server.overhead.throughput_loss = None;
    summary.server.overhead.throughput_loss_lo = None;
    summary.server.overhead.throughput_loss_hi = None;
    summary.server.overhead.cpu_ns_per_request = None;
    summary.partial = true;
    summary.verdict.valid = false;
    summary.verdict.reasons = vec![Reason::new("no_answer", "nothing was measured")];
    assert_eq!(complaints(&value_of(&summary)), [""; 0]);
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
            s["verdict"]["reasons"] = json!([{"key": "lost_events", "text": "lost events"}]);
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

#[test]
fn a_summary_begins_with_the_version_and_can_be_read_back() {
    let sample = common::explained::run(Nanos::from_millis(200));
    let bytes = json::of_report(&sample.summary).unwrap();
    assert!(bytes.starts_with(b"{\n  \"schema_version\": 1,"));
    assert!(bytes.ends_with(b"}\n"));
    let back: Report = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(back, sample.summary);

    let trace = common::explained::trace(Nanos::from_millis(200)).summary;
    let bytes = json::of_report(&trace).unwrap();
    let back: Report = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(back, trace);
}

#[test]
fn a_long_request_is_told_in_short() {
    let mut trace = common::explained::trace(Nanos::from_millis(200)).summary;
    let slowest = &mut trace.server.explanation.as_mut().unwrap().slowest[0];
    let stretch = slowest.stretches[0].clone();
    slowest.stretches = vec![stretch; 500];
    let value = value_of(&trace);
    assert_eq!(complaints(&value), [""; 0]);
    let told = &value["explanation"]["slowest"][0];
    let kept = told["stretches"].as_array().unwrap().len() as u64;
    assert_eq!(told["joined_stretches"].as_u64(), Some(500 - kept));
    assert!(kept <= 24, "{kept}");
}
