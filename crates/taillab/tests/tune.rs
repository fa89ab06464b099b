//! `taillab tune` from the outside: what it prints, and what it refuses. Changes nothing.

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support;

fn tune(args: &[&str]) -> Output {
    let mut command = support::taillab();
    command.arg("tune").args(args).stdin(Stdio::null());
    command.output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = tune(&[args, &["--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    support::schema::valid("tune", &output.stdout)
}

struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_list_names_what_each_treats_needs_and_risks() {
    let list = json(&["list"]);
    let rows = list["mitigations"].as_array().unwrap();
    assert!(rows.len() >= 16, "{}", rows.len());
    let named = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(named("irq-affinity")["treats"], serde_json::json!(["irq"]));
    let text = tune(&["list", "-v"]);
    let text = String::from_utf8_lossy(&text.stdout);
    for word in ["cpu-dma-latency", "treats", "needs", "risk", "proof"] {
        assert!(text.contains(word), "{word}");
    }
}

#[test]
fn a_plan_says_for_each_mitigation_what_it_would_change_or_why_it_cannot() {
    let sleeper = Sleeper::new();
    let plan = json(&["plan", "-p", &sleeper.pid()]);
    let rows = plan["mitigations"].as_array().unwrap();
    assert!(!rows.is_empty(), "{plan}");
    for row in rows {
        let changes = row["changes"].as_array().unwrap();
        let holds = row["holds"].as_array().unwrap();
        let is_possible = !changes.is_empty() || !holds.is_empty();
        assert_eq!(row["unavailable"].is_null(), is_possible, "{row}");
        for change in changes {
            let state = change["state"].as_str().unwrap();
            assert!(matches!(state, "planned" | "already_so"), "{change}");
            assert!(!change["why"].as_str().unwrap().is_empty(), "{change}");
        }
    }
    let dry = json(&["apply", "nice", "-p", &sleeper.pid(), "--dry-run"]);
    assert_eq!(dry["action"], "plan");
    let change = &dry["mitigations"][0]["changes"][0];
    let thread = format!("sched_setattr(thread {})", sleeper.pid());
    assert_eq!(change["setting"], thread.as_str());
    let says = |value: &Value, nice: i32| {
        let wanted = format!("other nice={nice}");
        assert!(value.as_str().unwrap().starts_with(&wanted), "{change}");
    };
    says(&change["new"], -20);
    let pid = rustix::process::Pid::from_child(&sleeper.0);
    let now = rustix::process::getpriority_process(Some(pid)).unwrap();
    says(&change["old"], now);
}

#[test]
fn what_cannot_be_applied_is_refused_in_one_line() {
    let sleeper = Sleeper::new();
    let pid = sleeper.pid();
    for (args, code, words) in [
        (
            &["apply", "rt-prio", "--yes"][..],
            2,
            "did you mean \"rt-priority\"?",
        ),
        (&["apply", "slice", "--yes"], 5, "-p PID"),
        (
            &["apply", "slice", "-p", "4194304", "--yes"],
            2,
            "there is no process",
        ),
        (&["apply", "nice", "-p", &pid], 2, "--yes"),
        (&["apply", "cpu-dma-latency", "--yes"], 2, "--hold"),
        (
            &["apply", "irq-affinity", "-C", "1000", "--yes"],
            2,
            "offline or does not exist",
        ),
        (
            &["apply", "rps", "--device", "nonesuch0", "--yes"],
            2,
            "no mitigation",
        ),
        (
            &["apply", "busy-poll", "--device", "nonesuch0", "--yes"],
            2,
            "no network device",
        ),
        (
            &["apply", "xps", "--device", "lo", "--yes"],
            2,
            "docs/advice.md#xps",
        ),
        (
            &["apply", "nice", "rt-priority", "-p", &pid, "--yes"],
            2,
            "--force",
        ),
        (&["revert", "999999"], 2, "there is no apply number 999999"),
        (&["apply"], 2, "<NAME>"),
    ] {
        let output = tune(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(
            said.contains(words) && said.trim_end().lines().count() == 1,
            "{args:?}: {said}"
        );
    }
}
