//! What happens to a setting between the journal and the kernel, where one of them does not go along.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::*;
use crate::process::ProcessIdentity;
use crate::roots::testing::tree;

fn tuner(roots: &Roots, folder: &Path) -> Tuner {
    Tuner::new(roots.clone(), JournalFolder::at(folder.join("journal")))
}

fn plan(changes: Vec<Change>) -> Plan {
    Plan {
        parts: vec![Part {
            mitigation: MITIGATIONS[0],
            proposal: Ok(Proposal::from(changes)),
        }],
        conflicts: Vec::new(),
        process: None,
    }
}

/// A machine with three settings, each of which is 1.
fn machine() -> (tempfile::TempDir, Roots) {
    tree(&[
        ("proc/sys/kernel/random/boot_id", "a-boot\n"),
        ("sys/a", "1\n"),
        ("sys/b", "1\n"),
        ("sys/c", "1\n"),
    ])
}

fn change(name: &str, new: &str) -> Change {
    let setting = Setting::File(FileSetting::new(format!("/sys/{name}"), Form::Text));
    Change::new(setting, new, "a test")
}

fn value(roots: &Roots, name: &str) -> String {
    change(name, "").setting.read(roots).unwrap()
}

fn states(changes: &[ChangeResult]) -> Vec<ChangeState> {
    changes.iter().map(|change| change.state.clone()).collect()
}

#[test]
fn a_value_that_the_kernel_alters_is_put_back_and_the_rest_kept_where_it_can_do_without() {
    let (folder, roots) = machine();
    let tuner = tuner(&roots, folder.path());
    // a driver that counts in steps of 16
    let mut rounds = |point: Point<'_>| {
        if let Point::Written { change } = point
            && change.new == "50"
        {
            fs::write(roots.sys.join("b"), "48\n").unwrap();
        }
    };
    let changes = vec![change("a", "2"), change("b", "50").if_possible()];
    let applied = tuner.apply(&plan(changes), false, &mut rounds).unwrap();
    assert_eq!(applied.changes[0].state, ChangeState::Changed);
    let ChangeState::Skipped(why) = &applied.changes[1].state else {
        panic!("{applied:?}");
    };
    assert!(why.contains("turned it into \"48\""), "{why}");
    assert_eq!(
        (value(&roots, "a"), value(&roots, "b")),
        ("2".into(), "1".into())
    );
    // what was left out is not expected to hold
    let status = tuner.status().unwrap();
    assert!(status[0].holds(), "{status:?}");
    assert_eq!(status[0].entries.len(), 1);
    let reverted = tuner.revert(RevertSelection::All, &mut |_| {}).unwrap();
    assert!(reverted[0].is_done);
    assert_eq!(value(&roots, "a"), "1");
    // the rest cannot do without it
    let changes = vec![change("a", "2"), change("b", "50")];
    let error = tuner.apply(&plan(changes), false, &mut rounds).unwrap_err();
    assert!(
        error.to_string().starts_with("nothing is changed: "),
        "{error}"
    );
    assert_eq!(
        (value(&roots, "a"), value(&roots, "b")),
        ("1".into(), "1".into())
    );
}

#[test]
fn a_journal_that_cannot_be_read_is_told_and_keeps_no_other_from_being_put_back() {
    let (folder, roots) = machine();
    let tuner = tuner(&roots, folder.path());
    for changes in [
        vec![change("a", "2"), change("b", "2")],
        vec![change("b", "3")],
        vec![change("c", "2")],
    ] {
        tuner.apply(&plan(changes), false, &mut |_| {}).unwrap();
    }
    let journal = folder.path().join("journal/000002.jsonl");
    let readable = fs::read_to_string(&journal).unwrap();
    let other = readable.replace("\"version\":1", "\"version\":9");
    fs::write(&journal, &other).unwrap();
    let status = tuner.status().unwrap();
    let holds: Vec<bool> = status.iter().map(ApplyStatus::holds).collect();
    assert_eq!(holds, [false, false, true]);
    let told = states(&status[1].entries);
    let [ChangeState::Unknown(why)] = &told[..] else {
        panic!("{status:?}");
    };
    assert!(why.contains("another version"), "{why}");
    let error = tuner
        .revert(RevertSelection::One(2), &mut |_| {})
        .unwrap_err();
    assert!(error.to_string().contains("000002.jsonl"), "{error}");
    let reverted = tuner.revert(RevertSelection::All, &mut |_| {}).unwrap();
    let done: Vec<bool> = reverted.iter().map(|one| one.is_done).collect();
    assert_eq!(done, [true, false, false]);
    assert_eq!(
        (value(&roots, "a"), value(&roots, "c")),
        ("1".into(), "1".into())
    );
    // its old value is in the journal that cannot be read, so the first one stays too
    assert_eq!(
        states(&reverted[2].changes),
        [ChangeState::Covered { by: 2 }, ChangeState::Restored]
    );
    assert_eq!(fs::read_to_string(&journal).unwrap(), other);
    // the version that wrote it can read it
    fs::write(&journal, readable).unwrap();
    let reverted = tuner.revert(RevertSelection::All, &mut |_| {}).unwrap();
    assert!(reverted.iter().all(|one| one.is_done), "{reverted:?}");
    assert_eq!(value(&roots, "b"), "1");
    assert!(tuner.status().unwrap().is_empty());
}

/// A shell with its children, until the test ends.
struct Family(Child);

impl Drop for Family {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.0);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Waits for a file and reads the number in it.
fn told(path: &Path) -> u32 {
    let began = Instant::now();
    loop {
        if let Ok(text) = fs::read_to_string(path) {
            return text.trim().parse().unwrap();
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{}",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_heir_that_could_not_be_put_back_is_tried_again() {
    let place = tempfile::tempdir().unwrap();
    let roots = Roots::default();
    let tuner = tuner(&roots, place.path());
    // starts a child when it is told to
    let go = place.path().join("go");
    let script = format!(
        "until [ -e {0} ]; do sleep 0.02; done; sleep 600 & echo $! > {0}.new; mv {0}.new {0}.pid; wait",
        go.display()
    );
    let mut shell = Command::new("sh");
    let shell = Family(
        shell
            .args(["-c", &script])
            .process_group(0)
            .spawn()
            .unwrap(),
    );
    let identity = |pid| ProcessIdentity::of(&roots, pid).unwrap();
    let own = Setting::scheduling(identity(shell.0.id()));
    let before = own.read(&roots).unwrap();
    let mut value: SchedulingValue = before.parse().unwrap();
    value.policy = match value.policy {
        Policy::Batch => Policy::Other,
        _ => Policy::Batch,
    };
    let ours = value.to_string();
    let changes = vec![Change::new(own.clone(), ours.clone(), "a test")];
    tuner.apply(&plan(changes), false, &mut |_| {}).unwrap();
    // a process that starts in the tick of the apply may be older than it
    std::thread::sleep(Duration::from_millis(30));
    fs::write(&go, "").unwrap();
    let heir = Setting::scheduling(identity(told(&place.path().join("go.pid"))));
    assert!(heir.same(&heir.read(&roots).unwrap(), &ours));
    // somebody gives the heir our value again at once
    let mut meddles = |point: Point<'_>| {
        if let Point::Undone { change } = point
            && change.setting == heir
        {
            heir.write(&roots, &ours).unwrap();
        }
    };
    let reverted = tuner.revert(RevertSelection::All, &mut meddles).unwrap();
    assert!(!reverted[0].is_done);
    let changes = reverted[0].changes.iter();
    let failed: Vec<&Setting> = changes
        .filter(|change| matches!(change.state, ChangeState::Failed(_)))
        .map(|change| &change.change.setting)
        .collect();
    assert_eq!(failed, [&heir]);
    assert!(own.same(&own.read(&roots).unwrap(), &before));
    let reverted = tuner.revert(RevertSelection::All, &mut |_| {}).unwrap();
    assert!(reverted[0].is_done);
    assert!(heir.same(&heir.read(&roots).unwrap(), &before));
    assert!(tuner.status().unwrap().is_empty());
}

#[test]
fn an_apply_that_somebody_else_puts_back_meanwhile_is_not_told() {
    let (folder, roots) = machine();
    let tuner = tuner(&roots, folder.path());
    fs::create_dir(folder.path().join("journal")).unwrap();
    // its name is listed, and its file is gone when it is read
    let journal = folder.path().join("journal/000001.jsonl");
    std::os::unix::fs::symlink("nowhere", journal).unwrap();
    assert!(tuner.status().unwrap().is_empty());
}

/// A process of a recorded tree, in this control group.
fn recorded(roots: &Roots, pid: u32, parent: u32, start: u64, group: &str) -> ProcessIdentity {
    let place = roots.proc.join(pid.to_string());
    fs::create_dir_all(place.join(format!("task/{pid}"))).unwrap();
    let stat = format!(
        "{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 7 9 0 0 20 0 5 0 {start} 1000 200 0 1 1 0 \
         0 0 0 0 0 0 0 0 0 17 3 0 0 0"
    );
    fs::write(place.join("stat"), stat).unwrap();
    fs::write(place.join("status"), format!("Tgid:\t{pid}\n")).unwrap();
    fs::write(place.join("cgroup"), format!("0::{group}\n")).unwrap();
    ProcessIdentity {
        pid,
        start_time_ticks: start,
    }
}

#[test]
fn a_child_of_a_process_that_was_moved_goes_back_to_the_group_of_its_parent() {
    let (folder, roots) = machine();
    let tuner = tuner(&roots, folder.path());
    fs::create_dir_all(roots.sys.join("fs/cgroup/web")).unwrap();
    let server = recorded(&roots, 7, 1, 50, "/web");
    let members = roots.sys.join("fs/cgroup/ours/cgroup.procs");
    // what the kernel does
    let mut kernel = |point: Point<'_>| {
        let (change, group) = match point {
            Point::Written { change } => (change, "/ours"),
            Point::Undone { change } => (change, "/web"),
            // a group's files go with it
            Point::Undo { change, .. } if matches!(change.setting, Setting::Group(_)) => {
                return fs::remove_file(&members).unwrap();
            }
            _ => return,
        };
        if let Setting::Membership(of) = &change.setting {
            let file = roots.proc.join(format!("{}/cgroup", of.member.pid));
            fs::write(file, format!("0::{group}\n")).unwrap();
        }
    };
    let group = GroupFolder {
        folder: "/sys/fs/cgroup/ours".into(),
    };
    let own = Membership {
        member: server,
        mount: "/sys/fs/cgroup".into(),
        controller: String::new(),
    };
    let changes = vec![
        Change::new(Setting::Group(group), "present", "a test"),
        Change::new(Setting::Membership(own), "/ours", "a test"),
    ];
    tuner.apply(&plan(changes), false, &mut kernel).unwrap();
    recorded(&roots, 20, 7, u64::MAX, "/ours");
    let reverted = tuner.revert(RevertSelection::All, &mut kernel).unwrap();
    assert!(reverted[0].is_done, "{reverted:?}");
    let read = |pid: u32| fs::read_to_string(roots.proc.join(format!("{pid}/cgroup"))).unwrap();
    assert_eq!([read(7), read(20)], ["0::/web\n", "0::/web\n"]);
    assert!(!roots.sys.join("fs/cgroup/ours").exists());
}
