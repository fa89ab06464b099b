//! Settings of this machine, changed and put back: of processes of the test, in network
//! namespaces and control groups of the test.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use taillab_host::tune::{
    Change, ChangeState, Conflict, FileSetting, Form, GroupFolder, MITIGATIONS, Membership, Part,
    Plan, Point, Proposal, RevertSelection, Scope, Setting, Tuner,
};
use taillab_host::{CpuSet, JournalFolder, NetNamespace, PrivateFolder, ProcessIdentity, Roots};

use crate::common::{Orphan, eventually, live};

pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        Self(Command::new(program).args(arguments).spawn().unwrap())
    }

    pub(crate) fn sleeping() -> Self {
        Self::start("sleep", &["600"])
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn identity(&self) -> ProcessIdentity {
        ProcessIdentity::of(&Roots::default(), self.pid()).unwrap()
    }

    pub(crate) fn reads(&self, setting: &Setting) -> String {
        setting.read(&Roots::default()).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn tuner(folder: &Path) -> Tuner {
    Tuner::new(Roots::default(), JournalFolder::at(folder.join("journal")))
}

pub(crate) fn quiet(_: Point<'_>) {}

/// A journal of the test, and a process to change.
fn start() -> (tempfile::TempDir, Tuner, Process) {
    let place = tempfile::tempdir().unwrap();
    let tuner = tuner(place.path());
    (place, tuner, Process::sleeping())
}

fn scope_of(process: &Process) -> Scope {
    Scope {
        pid: Some(process.pid()),
        ..Scope::default()
    }
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

fn change(setting: &Setting, new: &str) -> Change {
    Change::new(setting.clone(), new, "a test")
}

fn outcomes(tuner: &Tuner, which: RevertSelection) -> Vec<ChangeState> {
    let reverted = tuner.revert(which, &mut quiet).unwrap();
    let changes = reverted.into_iter().flat_map(|reverted| reverted.changes);
    changes.map(|change| change.state).collect()
}

fn slack(process: &Process) -> Setting {
    let path = format!("/proc/{}/timerslack_ns", process.pid());
    Setting::File(FileSetting {
        thread: Some(process.identity()),
        ..FileSetting::new(path, Form::Text)
    })
}

#[test]
fn what_somebody_else_has_changed_stays_and_is_told() {
    if !live("what_somebody_else_has_changed_stays_and_is_told") {
        return;
    }
    let (_place, tuner, process) = start();
    let slack = slack(&process);
    let before = process.reads(&slack);
    let affinity = Setting::affinity(process.identity());
    let changes = vec![change(&slack, "777"), change(&affinity, "0")];
    let applied = tuner.apply(&plan(changes), false, &mut quiet).unwrap();
    assert_eq!(applied.id, Some(1));
    assert!(tuner.status().unwrap()[0].holds());
    fs::write(format!("/proc/{}/timerslack_ns", process.pid()), "888").unwrap();
    assert!(!tuner.status().unwrap()[0].holds());
    let all = outcomes(&tuner, RevertSelection::All);
    assert_eq!(
        all,
        [
            ChangeState::Restored,
            ChangeState::ChangedByOthers("888".into())
        ]
    );
    assert_eq!(process.reads(&slack), "888");
    assert_ne!(before, "888");
    assert!(tuner.status().unwrap().is_empty());
}

#[test]
fn a_later_apply_is_put_back_before_an_earlier_one() {
    if !live("a_later_apply_is_put_back_before_an_earlier_one") {
        return;
    }
    let (_place, tuner, process) = start();
    let slack = slack(&process);
    let before = process.reads(&slack);
    for new in ["700", "800"] {
        let applied = tuner.apply(&plan(vec![change(&slack, new)]), false, &mut quiet);
        applied.unwrap();
    }
    assert_eq!(
        outcomes(&tuner, RevertSelection::One(1)),
        [ChangeState::Covered { by: 2 }]
    );
    assert_eq!(process.reads(&slack), "800");
    assert_eq!(
        outcomes(&tuner, RevertSelection::All),
        [ChangeState::Restored, ChangeState::Restored]
    );
    assert_eq!(process.reads(&slack), before);
}

#[test]
fn a_value_that_the_kernel_does_not_take_as_it_is_undoes_the_whole_apply() {
    if !live("a_value_that_the_kernel_does_not_take_as_it_is_undoes_the_whole_apply") {
        return;
    }
    let (_place, tuner, process) = start();
    let (slack, affinity) = (slack(&process), Setting::affinity(process.identity()));
    let before = (process.reads(&slack), process.reads(&affinity));
    // the kernel turns 0 into its default, and refuses a CPU that no machine has
    for (setting, new, why) in [
        (&slack, "0", "turned it into"),
        (&affinity, "1000", "does not take"),
    ] {
        let changes = vec![
            change(&Setting::scheduling(process.identity()), "batch nice=3"),
            change(setting, new),
        ];
        let error = tuner.apply(&plan(changes), false, &mut quiet).unwrap_err();
        let line = error.to_string();
        assert!(line.starts_with("nothing is changed: "), "{line}");
        assert!(line.contains(why) && !line.contains('\n'), "{line}");
        let scheduling = process.reads(&Setting::scheduling(process.identity()));
        assert!(scheduling.starts_with("other"), "{scheduling}");
        assert_eq!((process.reads(&slack), process.reads(&affinity)), before);
        assert!(tuner.status().unwrap().is_empty());
    }
}

#[test]
fn a_process_that_has_ended_takes_its_settings_with_it() {
    if !live("a_process_that_has_ended_takes_its_settings_with_it") {
        return;
    }
    let (_place, tuner, mut process) = start();
    let setting = Setting::scheduling(process.identity());
    let scope = scope_of(&process);
    let nice = tuner.plan(&["nice"], &scope).unwrap();
    tuner.apply(&nice, false, &mut quiet).unwrap();
    assert!(process.reads(&setting).starts_with("other nice=-20"));
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    assert_eq!(outcomes(&tuner, RevertSelection::All), [ChangeState::Gone]);
    // planned before, applied after its end
    let error = tuner
        .apply(&nice, false, &mut quiet)
        .unwrap_err()
        .to_string();
    assert!(error.contains("has ended meanwhile"), "{error}");
    let error = tuner.plan(&["nice"], &scope).unwrap_err().to_string();
    assert!(error.contains("there is no process"), "{error}");
}

#[test]
fn what_inherits_a_value_is_put_back_with_its_parent() {
    if !live("what_inherits_a_value_is_put_back_with_its_parent") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let tuner = tuner(place.path());
    // starts a child when it is told to
    let go = place.path().join("go");
    let script = format!(
        "until [ -e {0} ]; do sleep 0.02; done; sleep 600 & echo $! > {0}.new; mv {0}.new {0}.pid; wait",
        go.display()
    );
    let process = Process::start("sh", &["-c", &script]);
    let own = Setting::scheduling(process.identity());
    let before = process.reads(&own);
    let changes = vec![change(&own, "batch nice=9")];
    tuner.apply(&plan(changes), false, &mut quiet).unwrap();
    // a process that starts in the tick of the apply may be older than it
    std::thread::sleep(std::time::Duration::from_millis(30));
    fs::write(&go, "").unwrap();
    let told = place.path().join("go.pid");
    eventually("the child starts", || told.exists());
    let child = Orphan(fs::read_to_string(&told).unwrap().trim().parse().unwrap());
    let heir = ProcessIdentity::of(&Roots::default(), child.0).unwrap();
    let heirs = Setting::scheduling(heir);
    let read = || heirs.read(&Roots::default()).unwrap();
    assert!(read().starts_with("batch nice=9"), "{}", read());
    outcomes(&tuner, RevertSelection::All);
    assert_eq!(process.reads(&own), before);
    assert_eq!(read(), before);
}

#[test]
fn a_full_disk_refuses_before_anything_is_changed() {
    if !live("a_full_disk_refuses_before_anything_is_changed") {
        return;
    }
    let disk = PrivateFolder::new(64 * 1024).unwrap();
    let tuner = tuner(&disk.path());
    let process = Process::sleeping();
    let slack = slack(&process);
    let before = process.reads(&slack);
    tuner
        .apply(&plan(vec![change(&slack, "700")]), false, &mut quiet)
        .unwrap();
    // fills what is left of it
    let mut rest = 64 * 1024;
    while rest > 0 {
        match disk.write("filler", &vec![1; rest]) {
            Ok(()) => break,
            Err(_) => rest -= 4096,
        }
    }
    let error = tuner.apply(&plan(vec![change(&slack, "800")]), false, &mut quiet);
    let line = error.unwrap_err().to_string();
    assert!(line.contains("No space left"), "{line}");
    assert_eq!(process.reads(&slack), "700");
    // what was changed before can be put back
    assert_eq!(
        outcomes(&tuner, RevertSelection::All),
        [ChangeState::Restored]
    );
    assert_eq!(process.reads(&slack), before);
    assert!(tuner.status().unwrap().is_empty());
}

#[test]
fn several_at_once_take_turns() {
    if !live("several_at_once_take_turns") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let processes: Vec<Process> = (0..4).map(|_| Process::sleeping()).collect();
    let before: Vec<String> = processes.iter().map(|p| p.reads(&slack(p))).collect();
    std::thread::scope(|scope| {
        for process in &processes {
            let tuner = tuner(place.path());
            scope.spawn(move || {
                for round in 0..20 {
                    let new = (1000 + round).to_string();
                    let made =
                        tuner.apply(&plan(vec![change(&slack(process), &new)]), true, &mut quiet);
                    let id = made.unwrap().id.unwrap();
                    assert_eq!(process.reads(&slack(process)), new);
                    assert_eq!(
                        outcomes(&tuner, RevertSelection::One(id)),
                        [ChangeState::Restored]
                    );
                }
            });
        }
    });
    let after: Vec<String> = processes.iter().map(|p| p.reads(&slack(p))).collect();
    assert_eq!(before, after);
    assert!(tuner(place.path()).status().unwrap().is_empty());
}

/// A process in a network namespace of the test, which has nothing but a loopback.
pub(crate) fn in_namespace() -> Process {
    let namespace = NetNamespace::new().unwrap();
    namespace.run(Process::sleeping).unwrap()
}

#[test]
fn settings_of_another_network_namespace_are_changed_there_and_only_there() {
    if !live("settings_of_another_network_namespace_are_changed_there_and_only_there") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let tuner = tuner(place.path());
    let process = in_namespace();
    let scope = Scope {
        pid: Some(process.pid()),
        device: Some("lo".into()),
        cpus: Some(CpuSet::single(0)),
    };
    let ours = || {
        let files = [
            "queues/rx-0/rps_cpus",
            "napi_defer_hard_irqs",
            "gro_flush_timeout",
        ];
        files.map(|file| fs::read_to_string(format!("/sys/class/net/lo/{file}")).unwrap())
    };
    let before = ours();
    for name in ["softirq-cpu", "irq-suspension"] {
        let plan = tuner.plan(&[name], &scope).unwrap();
        plan.check(false).unwrap();
        let read = || -> Vec<String> {
            plan.changes()
                .map(|change| process.reads(&change.setting))
                .collect()
        };
        let old = read();
        let applied = tuner.apply(&plan, false, &mut quiet).unwrap();
        assert!(applied.id.is_some(), "{name}: nothing was changed");
        for (change, now) in plan.changes().zip(read()) {
            assert!(change.setting.same(&change.new, &now), "{change:?}: {now}");
        }
        assert_eq!(ours(), before, "{name}");
        assert!(
            outcomes(&tuner, RevertSelection::All)
                .iter()
                .all(|all| *all == ChangeState::Restored)
        );
        assert_eq!(read(), old, "{name}");
    }
    // a namespace that is gone has taken its settings with it
    let plan = tuner.plan(&["softirq-cpu"], &scope).unwrap();
    tuner.apply(&plan, false, &mut quiet).unwrap();
    drop(process);
    let gone = outcomes(&tuner, RevertSelection::All);
    assert!(gone.iter().all(|all| *all == ChangeState::Gone), "{gone:?}");
}

#[test]
fn a_cpuset_is_made_filled_emptied_and_removed() {
    if !live("a_cpuset_is_made_filled_emptied_and_removed") {
        return;
    }
    const MOUNT: &str = "/sys/fs/cgroup/cpuset";
    if !Path::new(MOUNT).join("cpuset.cpus").exists() {
        println!("SKIPPED a_cpuset_is_made_filled_emptied_and_removed: no cgroup v1 cpuset here");
        return;
    }
    let (_place, tuner, process) = start();
    // one that is bound already, so that nothing but its group is changed
    let bound = Process::start("taskset", &["-c", "0", "sleep", "600"]);
    let is_bound = || bound.reads(&Setting::affinity(bound.identity())) == "0";
    eventually("the process is bound to CPU 0", is_bound);
    let folder = format!("{MOUNT}/taillab-test-{}", process.pid());
    let file =
        |name: &str| Setting::File(FileSetting::new(format!("{folder}/{name}"), Form::CpuList));
    let member_of = |process: &Process| {
        Setting::Membership(Membership {
            member: process.identity(),
            mount: MOUNT.into(),
            controller: "cpuset".into(),
        })
    };
    let member = member_of(&process);
    let affinity = Setting::affinity(process.identity());
    let before = (process.reads(&member), process.reads(&affinity));
    let group = Setting::Group(GroupFolder {
        folder: folder.clone(),
    });
    let changes = vec![
        change(&affinity, "0"),
        change(&group, "present"),
        change(&file("cpuset.cpus"), "0"),
        change(&file("cpuset.mems"), "0"),
        change(&member, &format!("/taillab-test-{}", process.pid())),
        change(
            &member_of(&bound),
            &format!("/taillab-test-{}", process.pid()),
        ),
    ];
    let applied = tuner.apply(&plan(changes), false, &mut quiet).unwrap();
    let good = |change: &taillab_host::tune::ChangeResult| change.state == ChangeState::Changed;
    assert!(applied.changes.iter().all(good), "{applied:?}");
    assert!(
        fs::read_to_string(format!("{folder}/tasks"))
            .unwrap()
            .contains(&process.pid().to_string())
    );
    let all = outcomes(&tuner, RevertSelection::All);
    assert!(
        !all.iter()
            .any(|outcome| matches!(outcome, ChangeState::Failed(_))),
        "{all:?}"
    );
    assert!(!Path::new(&folder).exists());
    assert_eq!((process.reads(&member), process.reads(&affinity)), before);
    assert!(is_bound());
}

#[test]
fn real_time_takes_effect_with_the_limit_that_would_stop_it() {
    if !live("real_time_takes_effect_with_the_limit_that_would_stop_it") {
        return;
    }
    let (_place, tuner, process) = start();
    let runtime = || fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").unwrap();
    let limit = runtime();
    let setting = Setting::scheduling(process.identity());
    let before = process.reads(&setting);
    let scope = |cpus: Option<&str>| Scope {
        cpus: cpus.map(|list| list.parse().unwrap()),
        ..scope_of(&process)
    };
    let plan = tuner.plan(&["rt-priority"], &scope(Some("0"))).unwrap();
    plan.check(false).unwrap();
    tuner.apply(&plan, false, &mut quiet).unwrap();
    let now = (process.reads(&setting), runtime());
    let outcomes = outcomes(&tuner, RevertSelection::All);
    assert_eq!(now, ("fifo priority=49".into(), "-1\n".into()));
    assert!(
        outcomes.iter().all(|all| *all == ChangeState::Restored),
        "{outcomes:?}"
    );
    assert_eq!((process.reads(&setting), runtime()), (before, limit));
}

#[test]
fn real_time_gives_back_the_timer_slack_that_was_there() {
    if !live("real_time_gives_back_the_timer_slack_that_was_there") {
        return;
    }
    let (_place, tuner, process) = start();
    let file = format!("/proc/{}/timerslack_ns", process.pid());
    // not the default, which the kernel gives back by itself
    fs::write(&file, "7000").unwrap();
    let slack = || fs::read_to_string(&file).unwrap().trim().to_owned();
    let plan = tuner.plan(&["rt-priority"], &scope_of(&process)).unwrap();
    tuner.apply(&plan, false, &mut quiet).unwrap();
    let all = tuner.status().unwrap();
    assert!(all.iter().all(|apply| apply.holds()), "{all:?}");
    let outcomes = outcomes(&tuner, RevertSelection::All);
    let is_back = |state: &ChangeState| *state == ChangeState::Restored;
    assert!(outcomes.iter().all(is_back), "{outcomes:?}");
    assert_eq!(slack(), "7000");
}

/// Only planned: the threads are those of this test.
#[test]
fn real_time_is_refused_where_the_threads_can_fill_every_cpu() {
    if !live("real_time_is_refused_where_the_threads_can_fill_every_cpu") {
        return;
    }
    let (_place, tuner, _process) = start();
    let online = taillab_host::cpus::online(&Roots::default()).unwrap();
    let scope = |cpus: Option<&str>| Scope {
        pid: Some(std::process::id()),
        cpus: cpus.map(|list| list.parse().unwrap()),
        ..Scope::default()
    };
    let harms = |names: &[&str], cpus: Option<&str>| {
        let plan = tuner.plan(names, &scope(cpus)).unwrap();
        let starves = |conflict: &&Conflict| conflict.effect.contains("starve");
        plan.conflicts
            .iter()
            .find(starves)
            .map(|conflict| conflict.is_harmful)
    };
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    std::thread::scope(|threads| {
        for _ in 0..online.len() {
            // they wait until the sender is gone
            threads.spawn(|| wait.lock().map(|wait| wait.recv()).is_ok());
        }
        // the named CPU does not bind them
        for cpus in [None, Some("0")] {
            assert_eq!(harms(&["rt-priority"], cpus), Some(true), "{cpus:?}");
        }
        assert_eq!(harms(&["rt-priority", "dedicated-cpus"], Some("0")), None);
        drop(end);
    });
}

#[test]
fn niceness_and_slice_are_set_together_and_put_back() {
    if !live("niceness_and_slice_are_set_together_and_put_back") {
        return;
    }
    let (_place, tuner, process) = start();
    let setting = Setting::scheduling(process.identity());
    let before = process.reads(&setting);
    let plan = tuner.plan(&["nice", "slice"], &scope_of(&process)).unwrap();
    if let Err(error) = plan.check(false) {
        // a kernel before 6.12 has no slices
        assert!(error.to_string().contains("6.12"), "{error}");
        return;
    }
    tuner.apply(&plan, false, &mut quiet).unwrap();
    let now = process.reads(&setting);
    assert!(now.starts_with("other nice=-20 slice_ns=100000"), "{now}");
    assert!(tuner.status().unwrap()[0].holds());
    // one write puts both back
    assert_eq!(
        outcomes(&tuner, RevertSelection::All),
        [ChangeState::Restored, ChangeState::AsBefore]
    );
    assert_eq!(process.reads(&setting), before);
}

#[test]
fn the_server_s_own_settings_take_effect() {
    if !live("the_server_s_own_settings_take_effect") {
        return;
    }
    let (_place, tuner, process) = start();
    let scope = scope_of(&process);
    for (name, value) in [("nice", "other nice=-20"), ("slice", "slice_ns=100000")] {
        let plan = tuner.plan(&[name], &scope).unwrap();
        if let Err(error) = plan.check(false) {
            // a kernel before 6.12 has no slices
            assert!(
                name == "slice" && error.to_string().contains("6.12"),
                "{error}"
            );
            continue;
        }
        let settings: Vec<Setting> = plan
            .changes()
            .map(|change| change.setting.clone())
            .collect();
        assert_eq!(settings.len(), 1, "{name}");
        let before = process.reads(&settings[0]);
        tuner.apply(&plan, false, &mut quiet).unwrap();
        let now = process.reads(&settings[0]);
        assert!(now.contains(value), "{name}: {now}");
        assert_eq!(
            outcomes(&tuner, RevertSelection::All),
            [ChangeState::Restored],
            "{name}"
        );
        assert_eq!(process.reads(&settings[0]), before, "{name}");
    }
}
