//! How a trace ends when it does not go as planned, and what is kept.

use std::fs;
use std::process::{Command, Stdio};

use taillab_host::doctor::TRACE;
use taillab_model::{Event, RecordingReader};

use super::rig::{Running, load, null_rpc, result};
use crate::support::{Guarded, Machine, for_everybody, live, signal, taillab, wait_for};

/// A trace of `server`, into `dir`, that has recorded for a moment.
pub fn begun(server: &Running, dir: &std::path::Path) -> Guarded {
    // beneath nohup, children ignore SIGHUP
    let mut command = Command::new("env");
    command
        .args(["--unset=SUDO_UID", "--default-signal=HUP"])
        .args([env!("CARGO_BIN_EXE_taillab"), "trace"])
        .args(["--json", "-d", "600s", "-o"])
        .arg(dir)
        .args(["-p", &server.pid().to_string()]);
    let child = Guarded::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let recording = dir.join("capture.tlc");
    wait_for("a recording of the measurement", || {
        let written = fs::read(&recording).ok()?;
        let mut events = RecordingReader::open(&written[..]).ok()?;
        let from = events.context().measure_from_ns?;
        let is_measured = |event: Event| event.at.nanos_since_boot() > from;
        events.any(is_measured).then_some(())
    });
    child
}

#[test]
fn ctrl_c_keeps_what_was_recorded() {
    if live("ctrl_c_keeps_what_was_recorded") {
        is_kept_after("INT");
    }
}

#[test]
fn a_terminal_that_goes_keeps_what_was_recorded() {
    if live("a_terminal_that_goes_keeps_what_was_recorded") {
        is_kept_after("HUP");
    }
}

fn is_kept_after(name: &str) {
    let before = Machine::now();
    let (server, port) = null_rpc();
    let _clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 1000);
    let place = tempfile::tempdir().unwrap();
    let child = begun(&server, place.path());
    signal(child.id(), name);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let result = result(&output);
    assert_eq!(result["partial"], true);
    assert!(result["matching"]["matched"].as_u64().unwrap() > 0);
    before.assert_unchanged();
}

#[test]
fn the_servers_death_is_told_and_what_was_recorded_is_kept() {
    if !live("the_servers_death_is_told_and_what_was_recorded_is_kept") {
        return;
    }
    let (server, port) = null_rpc();
    let _clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 1000);
    let place = tempfile::tempdir().unwrap();
    let child = begun(&server, place.path());
    signal(server.pid(), "KILL");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("ended while it was traced"), "{stderr}");
    let result = result(&output);
    assert_eq!(result["partial"], true);
    assert!(result["matching"]["matched"].as_u64().unwrap() > 0);
}

#[test]
fn a_recorder_that_is_killed_leaves_a_recording_that_can_be_read() {
    if !live("a_recorder_that_is_killed_leaves_a_recording_that_can_be_read") {
        return;
    }
    let (server, port) = null_rpc();
    let _clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 4000);
    let place = tempfile::tempdir().unwrap();
    let mut child = begun(&server, place.path());
    let recording = place.path().join("capture.tlc");
    wait_for("blocks on disk", || {
        (fs::metadata(&recording).unwrap().len() > 200_000).then_some(())
    });
    signal(child.id(), "KILL");
    child.wait().unwrap();
    let output = taillab()
        .args(["explain", "--json"])
        .arg(place.path())
        .output()
        .unwrap();
    let result = result(&output);
    assert_eq!(result["partial"], true);
    assert!(result["matching"]["matched"].as_u64().unwrap() > 0);
    let warnings = result["verdict"]["warnings"].to_string();
    assert!(warnings.contains("cut off"), "{warnings}");
    assert!(warnings.contains("losses_unknown"), "{warnings}");
    let claims = result["verdict"]["claims"].as_array().unwrap();
    let p99 = claims.iter().find(|claim| claim["claim"] == "p99").unwrap();
    assert_eq!(p99["valid"], false, "{p99}");
}

/// A disk of our own, so small that it can be filled.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn of_bytes(bytes: u64) -> Self {
        let place = tempfile::tempdir().unwrap();
        let options = format!("size={bytes},mode=0700");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "taillab-test"])
            .arg(place.path())
            .status();
        assert!(mount.unwrap().success());
        Self(place)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// The server needs the disk too: the recording does not fill it, and what was recorded gives a result.
#[test]
fn a_disk_that_fills_ends_the_recording_and_keeps_it() {
    if !live("a_disk_that_fills_ends_the_recording_and_keeps_it") {
        return;
    }
    let (server, port) = null_rpc();
    let _clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 1000);
    let disk = SmallDisk::of_bytes(96 << 20);
    let dir = disk.0.path().join("trace");
    let child = begun(&server, &dir);
    fs::write(disk.0.path().join("of others"), vec![0; 70 << 20]).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the disk has only"), "{stderr}");
    let result = result(&output);
    assert_eq!(result["partial"], true);
    assert!(result["matching"]["matched"].as_u64().unwrap() > 0);
    assert!(dir.join("summary.json").exists());
    let again = taillab()
        .args(["explain", "--json"])
        .arg(&dir)
        .output()
        .unwrap();
    let verdict = self::result(&again)["verdict"].to_string();
    assert!(
        !verdict.contains("losses_unknown"),
        "no end was written: {verdict}"
    );
}

#[test]
fn without_a_request_there_is_one_line_and_no_result() {
    if !live("without_a_request_there_is_one_line_and_no_result") {
        return;
    }
    let (server, _) = null_rpc();
    let output = taillab()
        .args([
            "trace",
            "--no-save",
            "-d",
            "300ms",
            "-p",
            &server.pid().to_string(),
        ])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no request reached"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn without_privilege_there_is_one_line_and_its_exit_code() {
    if !live("without_privilege_there_is_one_line_and_its_exit_code") {
        return;
    }
    let (server, _) = null_rpc();
    let (place, copy) = for_everybody();
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let output = Command::new("setpriv")
        .args(nobody)
        .arg(&copy)
        .args(["trace", "-p", &server.pid().to_string()])
        .current_dir(place.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("run as root"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    // only the copy of the command is there
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

/// The capabilities that its help names are enough.
#[test]
fn with_the_capabilities_of_its_help_it_needs_no_root() {
    if !live("with_the_capabilities_of_its_help_it_needs_no_root") {
        return;
    }
    let (server, port) = null_rpc();
    let _clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 1000);
    let (place, copy) = for_everybody();
    let names = TRACE
        .least
        .iter()
        .map(|one| one.name.trim_start_matches("CAP_").to_lowercase());
    let only: String = names.fold("-all".to_owned(), |all, name| format!("{all},+{name}"));
    let output = Command::new("setpriv")
        .args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "--no-new-privs",
        ])
        .args(["--inh-caps", "--ambient-caps", "--bounding-set"].map(|set| format!("{set}={only}")))
        .arg(&copy)
        .args([
            "trace",
            "--json",
            "-d",
            "1s",
            "-p",
            &server.pid().to_string(),
        ])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert!(matches!(output.status.code(), Some(0 | 4)), "{output:?}");
    assert!(result(&output)["matching"]["matched"].as_u64().unwrap() > 0);
}
