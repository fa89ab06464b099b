//! `taillab tune` as root: a change is made, holds, is noticed when somebody else makes another,
//! and is put back.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, getpriority_process, kill_process_group, setpriority_process};

use crate::hardware::{Applied, Holder, Program, tune};
use crate::support::live;

fn of(pid: &str) -> Option<Pid> {
    Pid::from_raw(pid.parse().unwrap())
}

fn niceness(pid: &str) -> i32 {
    getpriority_process(of(pid)).unwrap()
}

fn renice(pid: &str, to: i32) {
    setpriority_process(of(pid), to).unwrap();
}

#[test]
fn a_change_is_made_verified_and_put_back_by_its_number() {
    if !live("a_change_is_made_verified_and_put_back_by_its_number") {
        return;
    }
    let server = Program::start();
    let pid = server.pid();
    let before = niceness(&pid);
    let applied = Applied::new(&["nice", "-p", &pid]);
    assert_eq!(niceness(&pid), -20);
    let (_, verified, _) = tune(&["verify"]);
    assert_eq!(applied.of(&verified)["good"], true);
    renice(&pid, 5);
    let (code, verified, said) = tune(&["verify"]);
    assert_eq!(code, Some(3), "{said}");
    let own = applied.of(&verified);
    assert_eq!(own["good"], false);
    let now = own["changes"][0]["now"].as_str().unwrap();
    assert!(now.contains("nice=5"), "{now}");
    renice(&pid, -20);
    let reverted = applied.revert();
    assert_eq!(reverted["changes"][0]["state"], "restored");
    assert_eq!(niceness(&pid), before);
}

#[test]
fn what_is_held_is_put_back_when_it_is_interrupted() {
    if !live("what_is_held_is_put_back_when_it_is_interrupted") {
        return;
    }
    let server = Program::start();
    let pid = server.pid();
    let before = niceness(&pid);
    let holder = Holder::start(&["nice", "cpu-dma-latency", "-p", &pid]);
    assert_eq!(niceness(&pid), -20);
    // nobody else puts it back meanwhile
    let (_, status, _) = tune(&["status"]);
    let held = status["applies"].as_array().unwrap().iter();
    let own = held
        .filter(|apply| apply["held_by"] == holder.pid())
        .count();
    assert_eq!(own, 1, "{status}");
    holder.interrupt();
    assert_eq!(niceness(&pid), before);
}

/// A shell with its children, until the test ends.
struct Family(Child);

impl Drop for Family {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// A process that starts while other programs are kept off a CPU has their CPUs and control group, and
/// gets both back.
#[test]
fn what_began_meanwhile_has_its_cpus_back() {
    if !live("what_began_meanwhile_has_its_cpus_back") {
        return;
    }
    let server = Program::start();
    let mut command = Command::new("sh");
    command
        .args(["-c", "read go; sleep 600 & echo $!; wait"])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut parent = Family(command.spawn().unwrap());
    let place = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let cpus = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed:"));
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        (cpus.unwrap().to_owned(), groups)
    };
    let before = place(parent.0.id());
    let applied = Applied::new(&["dedicated-cpus", "-p", &server.pid(), "-C", "0"]);
    writeln!(parent.0.stdin.take().unwrap(), "go").unwrap();
    let mut said = BufReader::new(parent.0.stdout.take().unwrap()).lines();
    let child: u32 = said.next().unwrap().unwrap().parse().unwrap();
    assert_ne!(place(child), before, "it was not kept off");
    applied.revert();
    assert_eq!(
        (place(parent.0.id()), place(child)),
        (before.clone(), before)
    );
}
