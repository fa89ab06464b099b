//! Mitigations against other programs and quotas: what the kernel's own counters say of the CPU time
//! before and after.

use std::fs;
use std::path::Path;

use taillab_host::tune::{ChangeState, Plan, RevertSelection, Scope, Setting, Tuner};
use tempfile::TempDir;

use crate::common::{eventually, live};
use crate::tune::{Process, quiet, tuner};

/// An apply that is reverted on drop at the latest.
pub(crate) struct Applied {
    tuner: Tuner,
    _journal: TempDir,
}

impl Applied {
    /// Applies the changes of a plan that are `wanted`: those of the test's own processes, not of others.
    pub(crate) fn new(name: &str, scope: &Scope, wanted: impl Fn(&Setting) -> bool) -> Self {
        let journal = tempfile::tempdir().unwrap();
        let tuner = tuner(journal.path());
        let mut plan = tuner.plan(&[name], scope).unwrap();
        plan.check(false).unwrap();
        only(&mut plan, wanted);
        let applied = Self {
            tuner,
            _journal: journal,
        };
        let made = applied.tuner.apply(&plan, false, &mut quiet).unwrap();
        assert!(made.id.is_some(), "{name}: nothing was changed");
        applied
    }

    pub(crate) fn revert(self) {
        let reverted = self.tuner.revert(RevertSelection::All, &mut quiet).unwrap();
        for change in reverted.iter().flat_map(|reverted| &reverted.changes) {
            assert_eq!(change.state, ChangeState::Restored, "{change:?}");
        }
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        // for a test that has failed; otherwise nothing is left
        let _ = self.tuner.revert(RevertSelection::All, &mut quiet);
    }
}

fn only(plan: &mut Plan, wanted: impl Fn(&Setting) -> bool) {
    let proposal = plan.parts[0].proposal.as_mut().unwrap();
    proposal.changes.retain(|change| wanted(&change.setting));
}

/// A program that takes as much of CPU 0 as it gets.
fn spinning() -> Process {
    let process = Process::start("taskset", &["-c", "0", "sh", "-c", "while :; do :; done"]);
    eventually("it spins on CPU 0", || {
        let name = fs::read_to_string(format!("/proc/{}/comm", process.pid())).unwrap();
        name.trim() == "sh" && process.reads(&Setting::affinity(process.identity())) == "0"
    });
    process
}

/// For how long it was on a CPU, in nanoseconds.
fn ran_ns(process: &Process) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/schedstat", process.pid())).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Lets the two share CPU 0 until they have used a second of it: a stall of the machine counts as time of whoever it
/// meets, and is a tenth of that. Returns what the other got for each second of the server. Whatever else runs there
/// takes from both.
fn other_by_server(server: &Process, other: &Process) -> f64 {
    let start = (ran_ns(server), ran_ns(other));
    let shares = || (ran_ns(server) - start.0, ran_ns(other) - start.1);
    eventually("a second of CPU 0", || {
        let (server, other) = shares();
        server + other > 1_000_000_000
    });
    let (server, other) = shares();
    other as f64 / server as f64
}

fn of_cpu_0(server: &Process) -> Scope {
    Scope {
        pid: Some(server.pid()),
        cpus: Some("0".parse().unwrap()),
        ..Scope::default()
    }
}

#[test]
fn a_server_that_goes_before_another_program_gets_its_cpu() {
    if !live("a_server_that_goes_before_another_program_gets_its_cpu") {
        return;
    }
    let (server, other) = (spinning(), spinning());
    let fair = other_by_server(&server, &other);
    assert!((0.5..2.0).contains(&fair), "two equal programs: {fair}");
    let others = Setting::scheduling(other.identity());
    for name in ["nice", "others-idle", "rt-priority"] {
        // every other program of the machine may run there too
        let is_ours = |setting: &Setting| name != "others-idle" || *setting == others;
        let applied = Applied::new(name, &of_cpu_0(&server), is_ours);
        let ratio = other_by_server(&server, &other);
        applied.revert();
        assert!(ratio < 0.2, "{name}: {ratio}");
    }
    let fair = other_by_server(&server, &other);
    assert!((0.5..2.0).contains(&fair), "it is put back: {fair}");
}

/// The CPU on which it runs or ran last.
fn cpu_of(process: &Process) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    after_name.split(' ').nth(36).unwrap().parse().unwrap()
}

#[test]
fn another_program_leaves_the_servers_cpu() {
    if !live("another_program_leaves_the_servers_cpu") {
        return;
    }
    let (server, other) = (Process::sleeping(), spinning());
    let affinity = Setting::affinity(other.identity());
    assert_eq!(cpu_of(&other), 0);
    let applied = Applied::new("others-affinity", &of_cpu_0(&server), |setting| {
        *setting == affinity
    });
    assert!(
        !other
            .reads(&affinity)
            .split(',')
            .any(|cpus| cpus.starts_with('0'))
    );
    eventually("it runs elsewhere", || cpu_of(&other) != 0);
    applied.revert();
    assert_eq!(other.reads(&affinity), "0");
    eventually("it is back", || cpu_of(&other) == 0);
}

/// A server in a control group with a quota of a tenth of a CPU.
struct Limited {
    server: Option<Process>,
    folder: String,
}

impl Limited {
    fn new(server: Process) -> Self {
        const OLD: &str = "/sys/fs/cgroup/cpu";
        let name = format!("taillab-test-{}", server.pid());
        let (mount, file, limit) = match Path::new(OLD).exists() {
            true => (OLD, "cpu.cfs_quota_us", "10000"),
            false => ("/sys/fs/cgroup", "cpu.max", "10000 100000"),
        };
        let limited = Self {
            folder: format!("{mount}/{name}"),
            server: Some(server),
        };
        fs::create_dir(&limited.folder).unwrap();
        fs::write(limited.file(file), limit).unwrap();
        let pid = limited.server().pid().to_string();
        fs::write(limited.file("cgroup.procs"), pid).unwrap();
        limited
    }

    fn server(&self) -> &Process {
        self.server.as_ref().unwrap()
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// In how many periods it was held back.
    fn periods(&self) -> u64 {
        let counts = fs::read_to_string(self.file("cpu.stat")).unwrap();
        let mut lines = counts.lines();
        let count = lines.find_map(|line| line.strip_prefix("nr_throttled "));
        count.unwrap().parse().unwrap()
    }

    fn is_held_back(&self) {
        let start = self.periods();
        eventually("it is held back", || self.periods() > start + 2);
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.server = None;
        let _ = fs::remove_dir(&self.folder);
    }
}

#[test]
fn a_group_without_its_quota_is_not_held_back() {
    if !live("a_group_without_its_quota_is_not_held_back") {
        return;
    }
    let limited = Limited::new(spinning());
    limited.is_held_back();
    // those above it may have limits too, which are not the test's
    let is_ours = |setting: &Setting| setting.to_string().contains(&limited.folder);
    let applied = Applied::new("cpu-quota", &of_cpu_0(limited.server()), is_ours);
    let runs = |what: &str, ns: u64| {
        let ran = ran_ns(limited.server());
        eventually(what, || ran_ns(limited.server()) > ran + ns);
    };
    runs("the period that had begun is over", 200_000_000);
    let start = limited.periods();
    runs("it would have been held back", 300_000_000);
    assert_eq!(limited.periods(), start);
    applied.revert();
    limited.is_held_back();
}
