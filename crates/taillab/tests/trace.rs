//! What `taillab trace` and `taillab explain` print without root and without a server.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};

fn taillab(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_taillab"))
        .args(words)
        .output()
        .unwrap()
}

/// One line on stderr with `part`, nothing on stdout, and this exit code.
fn refused(words: &[&str], code: i32, part: &str) {
    let output = taillab(words);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
    assert!(stderr.contains(part), "{words:?}: no `{part}` in {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{words:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{words:?}");
}

#[test]
fn servers_that_are_not_there_are_named_with_a_remedy() {
    // above the largest process ID
    refused(
        &["trace", "-p", "4194305"],
        2,
        "there is no process 4194305",
    );
    refused(&["trace", "--port", "9"], 2, "no process listens on port 9");
    refused(
        &["trace", "--cgroup", "/no/such/group"],
        2,
        "there is no control group",
    );
    refused(
        &["trace", "--", "no-such-program"],
        1,
        "cannot start no-such-program",
    );
    refused(&["trace", "--", "true"], 1, "before it listened");
}

#[test]
fn a_screen_without_a_terminal_is_refused() {
    refused(&["trace", "-p", "1", "--live"], 2, "on a terminal");
}

/// What a command writes to a terminal of this `TERM`, which `script` of util-linux makes, and its exit code.
fn on_terminal(term: Option<&str>, words: &str) -> (String, Option<i32>) {
    // a clone may lie in a folder whose name has spaces
    let line = format!("'{}' {words}", env!("CARGO_BIN_EXE_taillab"));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]);
    script.env("SHELL", "/bin/sh").env_remove("NO_COLOR");
    match term {
        Some(term) => script.env("TERM", term),
        None => script.env_remove("TERM"),
    };
    let output = script.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (said, output.status.code())
}

/// The shell of an editor, or a serial console: no colours, no cursor that moves, and no screen.
#[test]
fn a_terminal_that_only_prints_gets_lines() {
    const EXPLAIN: &str = concat!(
        "explain '",
        env!("CARGO_MANIFEST_DIR"),
        "/../analysis/tests/golden/memcached_tcp_pipelined.tlc'"
    );
    let moves = |said: &str| {
        let lines = said.replace("\r\n", "\n");
        lines.contains(|c: char| c.is_control() && c != '\n')
    };
    for term in [Some("dumb"), Some(""), None] {
        let (said, code) = on_terminal(term, "trace -p 1 --live");
        assert_eq!(code, Some(2), "{term:?}: {said:?}");
        assert!(said.contains("only prints lines"), "{term:?}: {said:?}");
        assert!(!moves(&said), "{term:?}: {said:?}");
        let (said, _) = on_terminal(term, EXPLAIN);
        assert!(said.contains("taillab explain"), "{term:?}: {said:?}");
        assert!(!moves(&said), "{term:?}: {said:?}");
    }
    // another one has colours
    let (said, _) = on_terminal(Some("xterm"), EXPLAIN);
    assert!(moves(&said), "{said:?}");
}

#[test]
fn wrong_values_are_refused_in_one_line() {
    for (words, part) in [
        (&["-p", "0"][..], "at least 1"),
        (&["--port", "70000"], "from 1 to 65535"),
        (&["--port", "80", "--protocol", "grpc"], "resp"),
        (&["--port", "80", "-d", "10"], "a number and a unit"),
        (&["--port", "80", "-d", "0s"], "above 0"),
        (&["--port", "80", "--cpus", "0-"], "write it like"),
        (
            &["--port", "80", "--stamps", "sampled:1/3"],
            "a power of two",
        ),
        (
            &["--port", "80", "--stamps", "ends", "--fix", "--yes"],
            "follows no request",
        ),
        (&[], "--pid <PID>"),
    ] {
        refused(&[&["trace"], words].concat(), 2, part);
    }
}

#[test]
fn unix_sockets_and_processes_that_do_not_listen_are_refused_with_the_reason() {
    // not this process: other tests in it listen
    let refused_of = |stdin: Stdio, part: &str| {
        let mut other = Command::new("sleep")
            .arg("60")
            .stdin(stdin)
            .spawn()
            .unwrap();
        let pid = other.id().to_string();
        let result = std::panic::catch_unwind(|| refused(&["trace", "-p", &pid], 2, part));
        other.kill().unwrap();
        other.wait().unwrap();
        result.unwrap();
    };
    refused_of(Stdio::null(), "listens on no TCP or UDP port");
    let place = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(place.path().join("server.sock")).unwrap();
    refused_of(OwnedFd::from(listener).into(), "server.sock");
}

#[test]
fn what_is_no_recording_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("capture.tlc");
    let dir = place.path().to_str().unwrap();
    refused(&["explain", dir], 1, "No such file");
    std::fs::write(&path, "a text").unwrap();
    refused(&["explain", dir], 1, "not a taillab recording");
    std::fs::write(&path, "").unwrap();
    refused(&["explain", path.to_str().unwrap()], 1, "capture.tlc");
}

/// With a t that is far too long there is no ideal, neither in the result nor in any of its files.
#[test]
fn no_file_has_an_ideal_that_is_withdrawn() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../analysis/tests/golden/memcached_5k_per_s.tlc"
    );
    for (t, has_ideal) in [("13us", true), ("10ms", false)] {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("result");
        Command::new(env!("CARGO_BIN_EXE_taillab"))
            .args(["explain", golden, "-q", "--service-time", t, "-o"])
            .arg(&dir)
            .status()
            .unwrap();
        let file = std::fs::File::open(dir.join("requests.parquet")).unwrap();
        let file = SerializedFileReader::new(file).unwrap();
        let about = file.metadata().file_metadata();
        let columns = about.schema_descr().columns().iter();
        let columns: Vec<&str> = columns.map(|column| column.name()).collect();
        assert!(about.num_rows() > 100 && columns.contains(&"sojourn_ns"));
        for of_ideal in ["ideal_ns", "excess_ns", "main_cause"] {
            assert_eq!(columns.contains(&of_ideal), has_ideal, "{t}: {columns:?}");
        }
        let log = std::fs::read_to_string(dir.join("latency.hlog")).unwrap();
        assert!(log.contains("Tag=measured,"));
        assert_eq!(log.contains("Tag=ideal,"), has_ideal, "{t}");
        let left = std::fs::read_dir(&dir).unwrap().flatten();
        let left = left.filter(|file| file.file_name().to_string_lossy().ends_with(".tmp"));
        assert_eq!(left.count(), 0);
    }
}

/// A folder that is in the place of a file stands for all reasons why a file cannot be written.
#[test]
fn a_file_that_cannot_be_written_takes_away_neither_the_result_nor_the_other_files() {
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../analysis/tests/golden/memcached_5k_per_s.tlc"
    );
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("out");
    let whole = place.path().join("whole");
    for missing in ["requests.parquet", "summary.json", "report.html"] {
        std::fs::create_dir_all(dir.join(missing).join("in-the-way")).unwrap();
        let explain = |out: &std::path::Path, junit: &std::path::Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_taillab"));
            command.args(["explain", golden, "--json", "--assert", "p50<1h", "-o"]);
            command.arg(out).arg("--junit").arg(junit);
            command.output().unwrap()
        };
        let of_whole = explain(&whole, &place.path().join("tests.xml"));
        let output = explain(&dir, &place.path().join("no/such/folder.xml"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains("cannot write") && said.contains(missing),
            "{missing}: {said}"
        );
        assert!(!output.stdout.is_empty());
        assert_eq!(output.stdout, of_whole.stdout, "{missing}");
        let names = |dir: &std::path::Path| -> std::collections::BTreeSet<std::ffi::OsString> {
            let entries = std::fs::read_dir(dir).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect()
        };
        assert_eq!(names(&dir), names(&whole), "{missing}");
        assert!(dir.join(missing).is_dir());
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::remove_dir_all(&whole).unwrap();
    }
}
