//! `taillab budget` from the outside.

use std::process::Stdio;

use serde_json::Value;

use crate::support;

/// Ctrl-C ends the row that is being measured and all that would follow.
#[test]
fn an_interrupted_budget_shows_the_rows_that_it_has() {
    let mut child = support::taillab()
        .args(["budget", "--json", "-q", "-d", "1h"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // a loop is running, in user space or in the kernel: nothing else in the process takes that much
    let running = support::wait_for("a loop", || {
        if child.try_wait().unwrap().is_some() {
            return Some(false);
        }
        let times = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
        let after_name = times.rsplit(") ").next()?;
        // fields 14 and 15, in hundredths of a second; the first word here is field 3
        let fields = after_name.split(' ').skip(11).take(2);
        let used: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        (used > 100).then_some(true)
    });
    assert!(running, "it ended by itself");
    support::signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["partial"], true);
    let rows = result["rows"].as_array().unwrap();
    let measured = rows
        .iter()
        .filter(|row| row["latency"]["count"].as_u64() > Some(1_000));
    assert!(measured.count() > 0, "{rows:#?}");
}
