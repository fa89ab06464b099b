//! `taillab tune` as root: a change is made, holds, is noticed when somebody else makes another,
//! and is put back.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::hardware::Holder;
use crate::support::{live, taillab};

fn tune(args: &[&str]) -> (Option<i32>, Value) {
    let mut command = taillab();
    command
        .arg("tune")
        .args(args)
        .arg("--json")
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{args:?}: {error}: {stderr}"));
    (output.status.code(), value)
}

#[test]
fn a_change_is_made_verified_and_put_back_by_its_number() {
    if !live("a_change_is_made_verified_and_put_back_by_its_number") {
        return;
    }
    let mut server = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = server.id().to_string();
    let slack = || fs::read_to_string(format!("/proc/{pid}/timerslack_ns")).unwrap();
    let before = slack();
    let (code, applied) = tune(&["apply", "timer-slack", "-p", &pid, "--yes"]);
    assert_eq!(code, Some(0), "{applied}");
    assert_eq!(slack().trim(), "1");
    let id = applied["applies"][0]["id"].as_u64();
    let of = |result: &Value| -> Value {
        let applies = result["applies"].as_array().unwrap();
        let own = applies.iter().find(|apply| apply["id"].as_u64() == id);
        own.unwrap().clone()
    };
    let (_, verified) = tune(&["verify"]);
    assert_eq!(of(&verified)["good"], true);
    fs::write(format!("/proc/{pid}/timerslack_ns"), "5").unwrap();
    let (code, verified) = tune(&["verify"]);
    assert_eq!(
        (code, &of(&verified)["good"]),
        (Some(3), &Value::Bool(false))
    );
    assert_eq!(of(&verified)["changes"][0]["now"], "5");
    fs::write(format!("/proc/{pid}/timerslack_ns"), "1").unwrap();
    let (code, reverted) = tune(&["revert", &id.unwrap().to_string()]);
    assert_eq!(code, Some(0), "{reverted}");
    assert_eq!(of(&reverted)["changes"][0]["state"], "restored");
    assert_eq!(slack(), before);
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn what_is_held_is_put_back_when_it_is_interrupted() {
    if !live("what_is_held_is_put_back_when_it_is_interrupted") {
        return;
    }
    let mut server = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = server.id().to_string();
    let slack = || fs::read_to_string(format!("/proc/{pid}/timerslack_ns")).unwrap();
    let before = slack();
    let holder = Holder::start(&["timer-slack", "cpu-dma-latency", "-p", &pid]);
    assert_eq!(slack().trim(), "1");
    // nobody else puts it back meanwhile
    let (_, status) = tune(&["status"]);
    let held = status["applies"].as_array().unwrap().iter();
    let own = held
        .filter(|apply| apply["held_by"] == holder.pid())
        .count();
    assert_eq!(own, 1, "{status}");
    holder.interrupt();
    assert_eq!(slack(), before);
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A process that starts while other programs are kept off a CPU has their CPUs and control group, and
/// gets both back.
#[test]
fn what_began_meanwhile_has_its_cpus_back() {
    if !live("what_began_meanwhile_has_its_cpus_back") {
        return;
    }
    let mut server = Command::new("sleep").arg("600").spawn().unwrap();
    let mut parent = Command::new("sh")
        .args(["-c", "read go; sleep 600 & echo $!; wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let place = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let cpus = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed:"));
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        (cpus.unwrap().to_owned(), groups)
    };
    let before = place(parent.id());
    let pid = server.id().to_string();
    let (code, applied) = tune(&["apply", "dedicated-cpus", "-p", &pid, "-C", "0", "--yes"]);
    assert_eq!(code, Some(0), "{applied}");
    writeln!(parent.stdin.take().unwrap(), "go").unwrap();
    let mut said = BufReader::new(parent.stdout.take().unwrap()).lines();
    let child: u32 = said.next().unwrap().unwrap().parse().unwrap();
    assert_ne!(place(child), before, "it was not kept off");
    let id = applied["applies"][0]["id"].as_u64().unwrap().to_string();
    let (code, reverted) = tune(&["revert", &id]);
    assert_eq!(code, Some(0), "{reverted}");
    assert_eq!((place(parent.id()), place(child)), (before.clone(), before));
    let child = rustix::process::Pid::from_raw(child.cast_signed()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    for process in [&mut server, &mut parent] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
}
