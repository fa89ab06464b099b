//! `taillab-testkit causes` on this machine, bounded: causes that are injected are
//! charged with about what they cost the client.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Canary, Machine, first_unspoiled, live};
use serde_json::Value;

/// A charge that is farther from the truth than this is wrong on the busiest machine.
const NEAR: std::ops::Range<f64> = 0.6..1.6;

/// If a CPU stands still for this long, that costs a quarter of what all bursts of five blocks do: the cost grows with the
/// square of the length. A burst of packets itself holds the canary up for 8 ms.
const STANDSTILL: Duration = Duration::from_millis(20);

/// How often the machine may spoil it.
const ATTEMPTS: usize = 6;

/// The program beside `taillab`, where the tests of the workspace build it.
fn testkit() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_taillab")).with_file_name("taillab-testkit");
    assert!(
        program.exists(),
        "there is no {}: build it with cargo build -p taillab-testkit",
        program.display()
    );
    let mut command = Command::new(program);
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    command
}

fn bench(args: &[&str]) -> (Option<i32>, Value) {
    let output = testkit()
        .args(["causes", "--json"])
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {:?} {stderr}", output.status));
    (output.status.code(), json)
}

/// The kinds in this result whose charge is wrong beyond what noise can do.
fn charged_wrongly(result: &Value) -> Vec<&Value> {
    let found = result["kinds"].as_array().unwrap();
    let is_wrong = |kind: &&Value| {
        let charge = &kind["criteria"][0];
        assert_eq!(charge["what"], "charge");
        let value = charge["value"].as_f64().unwrap_or(f64::NAN);
        // noise that leaves it open, or contaminates most pairs, decides nothing
        let failed = kind["verdict"] == "fail" && charge["verdict"] == "fail";
        failed && !NEAR.contains(&value)
    };
    found.iter().filter(is_wrong).collect()
}

/// What spoils an attempt: in each kind that is charged wrongly, a CPU stood still, the hypervisor took CPU time, the
/// generator was late in one of the pairs, other threads than the injected one took the CPU, or the probe was blind.
fn was_spoiled(result: &Value, still: Duration) -> Option<String> {
    let wrong = charged_wrongly(result);
    if !wrong.is_empty() && still > STANDSTILL {
        return Some(format!("a CPU stood still for {still:?}: {wrong:#?}"));
    }
    let spoiled = wrong.iter().map(|kind| {
        let what = was_contaminated(kind)
            .or_else(|| others_took_part(kind))
            .or_else(|| was_hidden(kind))?;
        Some(format!("{}: {}, {what}", kind["kind"], kind["criteria"][0]))
    });
    let all: Option<Vec<String>> = spoiled.collect();
    all.filter(|all| !all.is_empty()).map(|all| all.join("; "))
}

fn was_contaminated(kind: &Value) -> Option<String> {
    let pairs = kind["pairs"].as_array().unwrap().iter();
    let shares = pairs.filter(|pair| pair["contaminated"] == true);
    let shares = shares.map(|pair| (&pair["stolen_share"], &pair["late_share"]));
    let shares: Vec<_> = shares.collect();
    (!shares.is_empty()).then(|| format!("stolen and late {shares:?}"))
}

/// Whether the right cause has the client's delay, but not all of it is of the injected culprit: others did the same in the
/// blocks with the injection. A culprit that is named wrongly would spoil every attempt.
fn others_took_part(kind: &Value) -> Option<String> {
    let cause = kind["injected"][0]["cause"].as_str()?;
    let of_all = kind["changes"][cause].as_f64()?;
    NEAR.contains(&of_all)
        .then(|| format!("{cause} of all culprits {of_all}"))
}

/// Whether blind windows differ between the blocks by a quarter of the delay.
fn was_hidden(kind: &Value) -> Option<String> {
    let unobserved = kind["changes"]["unobserved"].as_f64()?;
    (unobserved.abs() > 0.25).then(|| format!("unobserved {unobserved}"))
}

/// Each of these kinds is charged, in five pairs of short blocks, with about what it costs.
fn are_charged(kinds: &[&str]) {
    let place = tempfile::tempdir().unwrap();
    let attempt = |attempt: usize| {
        let before = Machine::now();
        let out = place.path().join(attempt.to_string());
        let mut args = kinds.to_vec();
        args.extend(["-d", "600ms", "--pairs", "5", "--most-pairs", "5"]);
        args.extend(["-o", out.to_str().unwrap()]);
        let canary = Canary::start();
        let (exit, result) = bench(&args);
        let still = canary.end();
        assert!(matches!(exit, Some(0 | 3 | 4)), "{exit:?}");
        before.assert_unchanged();
        (out, result, still)
    };
    let (out, result, _) = first_unspoiled(ATTEMPTS, attempt, |(_, result, still)| {
        was_spoiled(result, *still)
    });
    let wrong = charged_wrongly(&result);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let found = result["kinds"].as_array().unwrap();
    assert_eq!(found.len(), kinds.len());
    for (kind, &name) in found.iter().zip(kinds) {
        assert_eq!(kind["kind"], name);
        assert!(kind["not_run"].is_null(), "{kind}");
        // every attempt is there
        let pairs = kind["pairs"].as_array().unwrap();
        assert_eq!(pairs.len(), 5);
        assert!(pairs.iter().all(|pair| pair["delay_ns"].is_number()));
        for file in ["capture.tlc", "truth.json", "experiment.toml"] {
            let block = out.join(name).join("pair-5-without");
            assert!(block.join(file).exists(), "{name}/{file}");
        }
    }
    assert!(out.join("causes.json").exists());
}

#[test]
fn cpu_time_of_others_is_charged_for_what_it_costs() {
    if live("cpu_time_of_others_is_charged_for_what_it_costs") {
        are_charged(&["background"]);
    }
}

#[test]
fn slow_requests_and_received_packets_are_charged_for_what_they_cost() {
    if live("slow_requests_and_received_packets_are_charged_for_what_they_cost") {
        are_charged(&["slow", "softirq"]);
    }
}

#[test]
fn what_cannot_be_injected_says_why() {
    if !live("what_cannot_be_injected_says_why") {
        return;
    }
    let (exit, result) = bench(&["idle"]);
    assert_eq!(exit, Some(5));
    let why = result["kinds"][0]["not_run"].as_str().unwrap();
    assert!(!why.contains('\n') && why.contains("idle"), "{why}");
    assert_eq!(result["ran"], 0);
}

#[test]
fn wrong_command_lines_are_refused() {
    for (args, says) in [
        (&["earthquake"][..], "background"),
        (&["slow", "-u", "99%"], "between 5 % and 90 %"),
        (&["slow", "-d", "1ms"], "500 ms"),
        (&["slow", "--pairs", "4"], "5 pairs"),
        (&["slow", "--most-pairs", "7"], "at least --pairs"),
    ] {
        let output = testkit().arg("causes").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
}
