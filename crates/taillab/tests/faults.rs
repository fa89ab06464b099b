//! Bad input and missing privileges: one clear line, the right exit code, nothing left.

use std::process::Output;

use assert_cmd::Command;

use crate::support::is_built_in;

fn taillab(args: &[&str]) -> (Output, usize) {
    let place = tempfile::tempdir().unwrap();
    let output = Command::cargo_bin("taillab")
        .unwrap()
        .args(args)
        .current_dir(place.path())
        .output()
        .unwrap();
    let left = std::fs::read_dir(place.path()).unwrap().count();
    (output, left)
}

/// A usage error whose message names this, and nothing else.
fn assert_refused(args: &[&str], named: &str) {
    let (output, left) = taillab(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert!(stderr.contains(named), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert_eq!(left, 0, "{args:?} left something behind");
}

#[test]
fn what_is_repeated_on_stderr_cannot_steer_the_terminal() {
    // an escape, a C1 introducer of sequences, a bidirectional override, a second line
    let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}b\ntaillab: all is well";
    for args in [
        &["explain", hostile][..],
        &["load", hostile, "-R", "1"],
        &["run", "-f", hostile],
        &["compare", hostile, hostile],
        &["noise", "-C", hostile],
    ] {
        if !is_built_in(args[0]) {
            continue;
        }
        let (output, _) = taillab(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("all is well"), "{args:?}: {said:?}");
        let line = said.strip_suffix('\n').unwrap();
        assert!(
            !line.contains(taillab_model::text::is_obeyed),
            "{args:?}: {said:?}"
        );
    }
}

#[test]
fn wrong_settings_are_usage_errors_that_name_the_setting() {
    for (args, named) in [
        (&["-u", "151%"][..], "utilization"),
        (&["-u", "0"], "utilization"),
        (&["-R", "-5"], "rate"),
        (&["-R", "nan"], "rate"),
        (&["-d", "20"], "20s"),
        (&["-d", "0s"], "duration"),
        (&["--value-bytes", "5000"], "value"),
        (&["--get-share", "110%"], "get_share"),
        (&["--pairs", "5"], "pairs"),
        (&["--ring-bytes", "1000000"], "power of two"),
        (&["-f", "/does/not/exist.toml"], "/does/not/exist.toml"),
        (&["-C", "zero"], "CPU list"),
    ] {
        let all: Vec<&str> = ["run", "memcached"].iter().chain(args).copied().collect();
        assert_refused(&all, named);
    }
}

#[test]
fn what_does_not_fit_the_server_is_a_usage_error_before_anything_is_made() {
    let own = ["run", "--server", "server --port {port}"];
    for (args, named) in [
        (&["run"][..], "which server?"),
        (&["run", "nginx", "--transport", "udp"], "over TCP, not UDP"),
        (&["run", "nginx", "--keys", "5"], "workload.keys"),
        (
            &["run", "nginx", "--response-bytes", "90"],
            "exactly 90 bytes",
        ),
        (&["run", "nginx", "--request-bytes", "20"], "20"),
        (&["run", "memcached", "--path", "/x"], "workload.path"),
        (
            &["run", "null-rpc", "--workers", "2"],
            "for each connection",
        ),
        (&["run", "null-rpc", "--architecture", "apache"], "apache"),
        (&["run", "null-rpc", "--service", "burn:1ms"], "burn"),
        (&["run", "null-rpc", "--client-cpus", "one"], "CPU list"),
        (&own, "--protocol"),
        (&[own[0], own[1], own[2], "--protocol", "http"], "--port"),
        (&["run", "nginx", "--server", "x"], "cannot be used with"),
        (&["run", "--server", "server 'unclosed"], "quote"),
    ] {
        assert_refused(args, named);
    }
}

#[test]
fn a_wrong_experiment_file_is_named_with_its_line() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("experiment.toml");
    std::fs::write(&file, "[workload]\nduration = \"5s\"\nseed = = 3\n").unwrap();
    let (output, _) = taillab(&["run", "memcached", "-f", file.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("line 3") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn an_unknown_server_lists_the_known_ones() {
    assert_refused(&["run", "apache"], "memcached");
}

#[test]
fn completions_and_manual_pages_are_made() {
    let (output, _) = taillab(&["completions", "bash"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("--utilization"));
    let place = tempfile::tempdir().unwrap();
    let (output, _) = taillab(&["man", place.path().to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(place.path().join("taillab-run.1")).unwrap();
    assert!(page.contains("Poisson load"), "{page}");
}

#[test]
fn a_terminal_that_has_gone_is_no_panic() {
    let output = std::process::Command::new("sh")
        .args(["-c", "exec \"$0\" explain /does/not/exist 2>/dev/full"])
        .arg(env!("CARGO_BIN_EXE_taillab"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
