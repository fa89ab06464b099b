//! `taillab burn` from the outside: it burns until it is told to end, and says how much.

use std::process::Stdio;
use std::time::Duration;

use crate::support::{Guarded, cpu_time, signal, taillab, wait_for};

/// Bursts of 1 ms in quick succession, with this standard input.
fn burn(stdin: Stdio) -> Guarded {
    let mut command = taillab();
    command.args(["burn", "--busy", "1ms", "--every", "2ms"]);
    Guarded::spawn(command.stdin(stdin).stderr(Stdio::piped()))
}

/// What it says it burnt, in times of 1 ms, after it has ended well.
fn burnt(burner: Guarded) -> u64 {
    let output = burner.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let times = said.strip_prefix("taillab: burnt 1.00 ms of CPU time ");
    let times = times.and_then(|rest| rest.split(' ').next()?.parse().ok());
    times.unwrap_or_else(|| panic!("{said}"))
}

/// A shell gives what it starts in the background an empty standard input.
#[test]
fn it_goes_on_without_a_standard_input_until_a_signal() {
    let burner = burn(Stdio::null());
    let pid = burner.id();
    let least = Duration::from_millis(300);
    wait_for("CPU time", || (cpu_time(pid) > least).then_some(()));
    signal(pid, "TERM");
    assert!(burnt(burner) >= 10);
}

#[test]
fn it_ends_with_the_pipe_of_its_standard_input() {
    let mut burner = burn(Stdio::piped());
    let pid = burner.id();
    let least = Duration::from_millis(300);
    wait_for("CPU time", || (cpu_time(pid) > least).then_some(()));
    drop(burner.stdin.take());
    assert!(burnt(burner) >= 10);
}
