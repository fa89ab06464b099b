//! `taillab doctor` from the outside, without root.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::schema::by_name;
use crate::support::{self, schema};

const NOBODY: u32 = 65534;

fn doctor(args: &[&str]) -> Output {
    support::taillab()
        .arg("doctor")
        .args(args)
        .output()
        .unwrap()
}

/// As a user who may do nothing, from a copy that this user can run.
fn doctor_as_nobody(args: &[&str]) -> Output {
    let (_place, program) = support::for_everybody();
    let mut command = Command::new(&program);
    command.arg("doctor").args(args).current_dir("/");
    if rustix::process::geteuid().is_root() {
        // dropping root's user id drops its capabilities
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    schema::valid("doctor", &output.stdout)
}

#[test]
fn as_nobody_it_says_what_is_missing_and_what_to_do() {
    let output = doctor_as_nobody(&["--json"]);
    let found = json(&output);
    assert_eq!(output.status.code(), Some(5), "{found:#}");
    for name in [
        "CAP_BPF",
        "CAP_PERFMON",
        "CAP_NET_ADMIN",
        "CAP_SYS_ADMIN",
        "network namespaces",
    ] {
        let check = by_name(&found, "checks", name);
        assert_eq!(check["state"], "missing", "{check}");
        assert!(
            check["remedy"].as_str().unwrap().contains("sudo"),
            "{check}"
        );
    }
    for name in ["hooks", "veth"] {
        let check = by_name(&found, "checks", name);
        assert_eq!(check["state"], "unknown", "{check}");
        assert!(
            check["found"].as_str().unwrap().starts_with("not tried"),
            "{check}"
        );
    }
    assert_eq!(found["hooks"].as_array().unwrap().len(), 0);
    let run = by_name(&found, "commands", "run");
    assert_eq!(run["works"], false);
    assert!(run["remedy"].as_str().unwrap().contains("sudo"), "{run}");
    for name in ["load", "serve", "compare"] {
        assert_eq!(by_name(&found, "commands", name)["works"], true);
    }
}

#[test]
fn quiet_prints_only_what_is_wrong() {
    let (all, quiet) = (doctor_as_nobody(&[]), doctor_as_nobody(&["-q"]));
    assert_eq!(quiet.status.code(), Some(5));
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let (all, quiet) = (text(&all), text(&quiet));
    assert!(
        all.contains('✓') && all.starts_with("taillab doctor"),
        "{all}"
    );
    assert!(!quiet.contains('✓') && quiet.contains("CAP_BPF"), "{quiet}");
    // without the hazards: other loads come and go between the two looks
    let lines = |text: &str| {
        text.lines()
            .take_while(|line| !line.starts_with("Hazards"))
            .count()
    };
    assert!(lines(&quiet) < lines(&all), "{quiet}\n{all}");
    // a pipe gets no colours and 80 columns; only a remedy may be longer, to be copied
    for line in all.lines().filter(|line| !line.contains('→')) {
        assert!(
            !line.contains('\u{1b}') && line.chars().count() <= 80,
            "{line}"
        );
    }
}

#[test]
fn a_usage_error_is_told_from_a_missing_privilege() {
    assert_eq!(doctor(&["--no-such-flag"]).status.code(), Some(2));
    let help = doctor(&["--help-all"]);
    assert_eq!(help.status.code(), Some(0));
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(
        text.contains("Exit codes") && text.contains("5    `taillab run`"),
        "{text}"
    );
}
