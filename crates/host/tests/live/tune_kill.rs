//! SIGKILL at every step of an apply and of a revert: one revert afterwards, and everything is
//! as it was before.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use taillab_host::tune::{
    Change, FileSetting, Form, MITIGATIONS, Part, Plan, Proposal, RevertSelection, Setting, Tuner,
};
use taillab_host::{JournalFolder, ProcessIdentity, Roots};

use crate::common::{Helper, argument, is_helper, live, tell};
use crate::tune::Process;

/// Files of the recorded tree; every third is followed by a setting of a thread, so that the
/// journal is written in many batches.
const FILES: usize = 36;
/// The fewest points at which the test must kill.
const POINTS: usize = 200;

fn roots(folder: &Path) -> Roots {
    Roots {
        proc: "/proc".into(),
        sys: folder.join("sys"),
        etc: folder.join("etc"),
    }
}

fn tuner(folder: &Path) -> Tuner {
    Tuner::new(roots(folder), JournalFolder::at(folder.join("journal")))
}

fn file(number: usize) -> FileSetting {
    let form = [Form::Text, Form::CpuList, Form::CpuMask][number % 3];
    FileSetting::new(format!("/sys/setting-{number}"), form)
}

fn value(number: usize, is_new: bool) -> &'static str {
    match (number % 3, is_new) {
        (0, false) => "before",
        (0, true) => "after",
        (1, false) => "0-1",
        (1, true) => "0",
        (_, false) => "00000003",
        (_, true) => "00000001",
    }
}

fn plan(threads: &[ProcessIdentity]) -> Plan {
    let mut changes = Vec::new();
    for number in 0..FILES {
        let setting = Setting::File(file(number));
        changes.push(Change::new(setting, value(number, true), "a file"));
        let thread = threads[(number / 3) % threads.len()];
        let (setting, new) = match number % 9 {
            2 => (Setting::scheduling(thread), "batch nice=7"),
            5 => (Setting::affinity(thread), "0"),
            8 => {
                let path = format!("/proc/{}/timerslack_ns", thread.pid);
                let of_thread = FileSetting {
                    thread: Some(thread),
                    ..FileSetting::new(path, Form::Text)
                };
                (Setting::File(of_thread), "777")
            }
            _ => continue,
        };
        changes.push(Change::new(setting, new, "a thread"));
    }
    let proposal = Ok(Proposal::from(changes));
    Plan {
        parts: vec![Part {
            mitigation: MITIGATIONS[0],
            proposal,
        }],
        conflicts: Vec::new(),
        process: None,
    }
}

/// Everything that the plan touches, and every file of the recorded tree.
fn state(folder: &Path, threads: &[ProcessIdentity]) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for change in plan(threads).changes() {
        let value = change.setting.read(&roots(folder)).unwrap();
        state.insert(change.setting.to_string(), value);
    }
    for entry in fs::read_dir(folder.join("sys")).unwrap() {
        let path = entry.unwrap().path();
        state.insert(
            path.display().to_string(),
            fs::read_to_string(&path).unwrap(),
        );
    }
    state
}

fn journals(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("journal")).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|x| x == "jsonl"))
        .collect()
}

/// The helper's part: applies or reverts, and ends by SIGKILL at the point with a given number.
/// If it gets past them all, it tells how many there were.
fn until_killed() {
    let told = argument();
    let words: Vec<&str> = told.split(' ').collect();
    let [action, at, folder, pids @ ..] = words.as_slice() else {
        panic!("{told}");
    };
    let at: usize = at.parse().unwrap();
    let points = Cell::new(0);
    let mut watch = |_: taillab_host::tune::Point<'_>| {
        if points.get() == at {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
        points.set(points.get() + 1);
    };
    let tuner = tuner(Path::new(folder));
    let identity = |pid: &&str| ProcessIdentity::of(&Roots::default(), pid.parse().unwrap());
    let threads: Vec<ProcessIdentity> = pids.iter().map(|pid| identity(pid).unwrap()).collect();
    match *action {
        "apply" => drop(tuner.apply(&plan(&threads), false, &mut watch).unwrap()),
        _ => drop(tuner.revert(RevertSelection::All, &mut watch).unwrap()),
    }
    tell(points.get());
}

#[test]
fn a_kill_at_any_step_leaves_nothing_that_one_revert_does_not_put_back() {
    const NAME: &str =
        "tune_kill::a_kill_at_any_step_leaves_nothing_that_one_revert_does_not_put_back";
    if is_helper() {
        return until_killed();
    }
    if !live(NAME) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    fs::create_dir(folder.join("sys")).unwrap();
    for number in 0..FILES {
        let text = format!("{}\n", value(number, false));
        fs::write(folder.join(format!("sys/setting-{number}")), text).unwrap();
    }
    let sleepers = [(); 4].map(|()| Process::sleeping());
    let threads = sleepers.each_ref().map(Process::identity);
    let pids: Vec<String> = threads
        .iter()
        .map(|thread| thread.pid.to_string())
        .collect();
    let before = state(folder, &threads);
    let start = |action: &str, at: usize| {
        let told = format!("{action} {at} {} {}", folder.display(), pids.join(" "));
        Helper::start(NAME, &told)
    };
    let mut quiet = |_: taillab_host::tune::Point<'_>| {};
    let mut points = 0;
    for action in ["apply", "revert"] {
        for at in 0.. {
            if action == "revert" {
                let applied = tuner(folder).apply(&plan(&threads), false, &mut quiet);
                applied.unwrap();
                assert_ne!(state(folder, &threads), before);
            }
            let mut helper = start(action, at);
            let end = helper.end();
            // past the last point it ends by itself
            let is_over = end.success();
            assert!(
                is_over || end.signal() == Some(9),
                "{action}, point {at}: {end}"
            );
            let reverted = tuner(folder)
                .revert(RevertSelection::All, &mut quiet)
                .unwrap();
            for change in reverted.iter().flat_map(|reverted| &reverted.changes) {
                use taillab_host::tune::ChangeState::{AsBefore, Restored};
                let good = matches!(change.state, Restored | AsBefore);
                assert!(good, "{action}, point {at}: {change:?}");
            }
            assert_eq!(state(folder, &threads), before, "{action}, point {at}");
            assert_eq!(
                journals(folder),
                [""; 0].map(PathBuf::from),
                "{action}, point {at}"
            );
            if is_over {
                break;
            }
            points += 1;
        }
    }
    assert!(points >= POINTS, "only {points} points");
    println!("killed at {points} points");
}
