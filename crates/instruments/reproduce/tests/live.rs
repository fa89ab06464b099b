//! `taillab reproduce` with servers that are measured.

use serde_json::Value;

use crate::support::{Machine, live, schema, taillab};

/// The applies that `taillab tune status` knows.
fn applies() -> usize {
    let output = taillab()
        .args(["tune", "status", "--json"])
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    status["applies"].as_array().unwrap().len()
}

/// Runs a figure and checks what holds whatever the machine does; its panels.
fn quickly(figure: &str) -> Vec<Value> {
    let (machine, before) = (Machine::now(), applies());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = taillab()
        .args([
            "reproduce",
            "tales",
            figure,
            "--quick",
            "--json",
            "-q",
            "-o",
        ])
        .arg(&out)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    machine.assert_unchanged();
    assert_eq!(applies(), before, "a change is left");
    let result = schema::valid("reproduce", &output.stdout);
    let panels = result["figures"].as_array().unwrap().clone();
    for panel in &panels {
        for claim in panel["claims"].as_array().unwrap() {
            let verdict = claim["verdict"].as_str().unwrap();
            assert!(
                ["agrees", "disagrees", "undecided"].contains(&verdict),
                "{claim:#}"
            );
            assert!(!claim["why"].as_str().unwrap().is_empty(), "{claim:#}");
            if let Some(ours) = claim["ours"].as_f64() {
                let (lo, hi) = (claim["lo"].as_f64().unwrap(), claim["hi"].as_f64().unwrap());
                assert!(0.0 < lo && lo <= ours && ours <= hi, "{claim:#}");
            }
            // a statement that differs is a finding, and has its reason
            let is_explained = claim["explanation"].is_string();
            assert!(verdict != "disagrees" || is_explained, "{claim:#}");
        }
    }
    assert!(out.join("tales.html").is_file());
    panels
}

fn count(panel: &Value, label: &str) -> u64 {
    let curves = panel["curves"].as_array().unwrap();
    let curve = curves.iter().find(|curve| curve["label"] == label);
    curve.unwrap()["sojourn"]["count"].as_u64().unwrap()
}

#[test]
fn configurations_of_one_server_are_measured_in_rounds_and_put_back() {
    if !live("configurations_of_one_server_are_measured_in_rounds_and_put_back") {
        return;
    }
    let panels = quickly("headline");
    assert_eq!(panels.len(), 1);
    // the same arrivals in each block: the counts differ by what was lost or cut off
    let [default, cured, ideal] =
        ["default", "all cures", "ideal"].map(|label| count(&panels[0], label) as f64);
    assert!(default > 10_000.0, "{default}");
    assert!((cured / default - 1.0).abs() < 0.1, "{cured} {default}");
    assert!((ideal / default - 1.0).abs() < 0.1, "{ideal} {default}");
}

/// Each configuration has its own server: virtual workers, which need one CPU.
#[test]
fn several_servers_are_started_in_turn() {
    if !live("several_servers_are_started_in_turn") {
        return;
    }
    let panels = quickly("fig7");
    let panel = &panels[0];
    assert_eq!(panel["figure"], "fig7-virtual");
    for label in [
        "1 worker",
        "4 workers, one queue",
        "4 workers, a queue each",
    ] {
        assert!(count(panel, label) > 6 * 1_000, "{label}: {panel:#}");
    }
    // however busy the machine is, a timer never fires early
    for curve in panel["curves"].as_array().unwrap() {
        assert!(
            curve["sojourn"]["min"].as_u64().unwrap() >= 2_000_000,
            "{curve:#}"
        );
    }
    assert_eq!(panels[1]["figure"], "fig7-nginx-processes");
}
