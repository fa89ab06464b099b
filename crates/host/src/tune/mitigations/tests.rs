//! Each mitigation on a recorded tree of /proc and /sys: it takes effect, is put back to the byte,
//! and says clearly where the machine lacks what it needs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::MITIGATIONS;
use crate::journal::JournalFolder;
use crate::roots::Roots;
use crate::roots::testing::tree;
use crate::tune::change::ChangeState;
use crate::tune::revert::RevertSelection;
use crate::tune::scene::Scope;
use crate::tune::{Tuner, Unavailable};

mod removed;
mod systemd;

const PID: u32 = 4711;
const STAT: &str = "4711 (server) S 1 4711 4711 0 -1 0 100 0 0 0 7 9 0 0 20 0 1 0 12345 1 2 3 1 1 0 0 0 0 0 0 0 \
                    0 0 0 17 3 0 0 0";

/// A machine with eight CPUs, two nodes, cpufreq, a network card with two queues.
const MACHINE: &[(&str, &str)] = &[
    ("proc/sys/kernel/random/boot_id", "a-boot\n"),
    ("proc/4711/stat", STAT),
    (
        "proc/4711/status",
        "Name:\tserver\nTgid:\t4711\nCpus_allowed_list:\t2-3\n",
    ),
    ("proc/4711/task/4711/stat", STAT),
    (
        "proc/4711/task/4711/status",
        "Name:\tserver\nTgid:\t4711\nCpus_allowed_list:\t2-3\n",
    ),
    ("proc/4711/cgroup", "0::/web.slice\n"),
    (
        "proc/self/net/dev",
        "Inter-| Receive\n face |bytes packets\n  lo: 9 9 0\n  eth0: 100 10 0\n eth1: 0 0 0\n",
    ),
    (
        "proc/interrupts",
        "  CPU0 CPU1\n 30:  1 2  PCI-MSIX 1-edge  eth0-rx-0\n 31: 1 2  PCI-MSIX  2-edge eth0-rx-1\n",
    ),
    ("proc/irq/30/smp_affinity_list", "0-7\n"),
    ("proc/irq/31/smp_affinity_list", "2\n"),
    ("proc/irq/32/smp_affinity_list", "5\n"),
    ("proc/irq/default_smp_affinity", "ff\n"),
    ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
    ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
    ("proc/sys/kernel/numa_balancing", "1\n"),
    ("proc/sys/net/core/busy_poll", "0\n"),
    ("proc/sys/net/core/busy_read", "0\n"),
    ("sys/devices/system/cpu/online", "0-7\n"),
    (
        "sys/devices/system/cpu/cpufreq/policy0/related_cpus",
        "0 1\n",
    ),
    (
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        "powersave\n",
    ),
    (
        "sys/devices/system/cpu/cpufreq/policy2/related_cpus",
        "2 3\n",
    ),
    (
        "sys/devices/system/cpu/cpufreq/policy2/scaling_governor",
        "ondemand\n",
    ),
    (
        "sys/devices/system/cpu/cpufreq/policy2/scaling_available_governors",
        "ondemand performance\n",
    ),
    (
        "sys/devices/system/cpu/cpufreq/policy2/ondemand/up_threshold",
        "80\n",
    ),
    ("sys/devices/system/node/node0/cpulist", "0-3\n"),
    ("sys/devices/system/node/node1/cpulist", "4-7\n"),
    (
        "sys/kernel/debug/sched/fair_server/cpu2/runtime",
        "50000000\n",
    ),
    (
        "sys/kernel/debug/sched/fair_server/cpu3/runtime",
        "50000000\n",
    ),
    ("sys/fs/cgroup/web.slice/cpu.max", "50000 100000\n"),
    ("sys/fs/cgroup/web.slice/cpu.stat", "\n"),
    ("sys/fs/cgroup/web.slice/cpuset.mems", "\n"),
    ("sys/class/net/eth0/napi_defer_hard_irqs", "0\n"),
    ("sys/class/net/eth0/gro_flush_timeout", "0\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00\n"),
    ("sys/class/net/eth0/queues/rx-1/rps_cpus", "00\n"),
];

/// What each writes there, by the end of the file's path. The others change threads or ask
/// drivers, which no tree of files has: their tests are live.
const EFFECTS: &[(&str, &[(&str, &str)])] = &[
    (
        "rt-runtime",
        &[
            ("sched_rt_runtime_us", "-1"),
            ("cpu2/runtime", "0"),
            ("cpu3/runtime", "0"),
        ],
    ),
    ("cpu-quota", &[("cpu.max", "max 100000")]),
    (
        "irq-affinity",
        &[
            ("irq/30/smp_affinity_list", "0-1,4-7"),
            ("irq/31/smp_affinity_list", "0-1,4-7"),
            ("default_smp_affinity", "000000f3"),
        ],
    ),
    (
        "softirq-cpu",
        &[("rx-0/rps_cpus", "000000f3"), ("rx-1/rps_cpus", "000000f3")],
    ),
    ("busy-poll", &[("busy_poll", "50"), ("busy_read", "50")]),
    (
        "irq-suspension",
        &[
            ("napi_defer_hard_irqs", "2"),
            ("gro_flush_timeout", "200000"),
        ],
    ),
    ("governor", &[("policy2/scaling_governor", "performance")]),
    (
        "numa",
        &[("numa_balancing", "0"), ("web.slice/cpuset.mems", "0")],
    ),
];

fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.join("proc"), folder.join("sys")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(files.insert(path.clone(), fs::read_to_string(&path).unwrap())),
            }
        }
    }
    files
}

fn trimmed(files: &BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, String> {
    // a value is put back without the brackets, which only the kernel adds
    let plain = |text: &str| match text.split_once('[') {
        Some((_, rest)) => rest.split(']').next().unwrap_or_default().to_owned(),
        None => text.trim().to_owned(),
    };
    files
        .iter()
        .map(|(path, text)| (path.clone(), plain(text).replace('\t', " ")))
        .collect()
}

fn scope() -> Scope {
    Scope {
        pid: Some(PID),
        ..Scope::default()
    }
}

/// The limit of real-time threads concerns the machine: the server of the tree has none.
fn scope_of(name: &str) -> Scope {
    match name {
        "rt-runtime" => Scope {
            cpus: Some("2-3".parse().unwrap()),
            ..Scope::default()
        },
        _ => scope(),
    }
}

fn tuner(roots: &Roots, folder: &Path) -> Tuner {
    Tuner::new(roots.clone(), JournalFolder::at(folder.join("journal")))
}

#[test]
fn each_writes_what_it_says_and_is_put_back() {
    for (name, effects) in EFFECTS {
        let (folder, roots) = tree(MACHINE);
        let tuner = tuner(&roots, folder.path());
        let before = files(folder.path());
        let plan = tuner.plan(&[name], &scope_of(name)).unwrap();
        plan.check(false)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        tuner
            .apply(&plan, false, &mut |_| {})
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let after = files(folder.path());
        let changed: BTreeMap<&Path, &str> = (after.iter())
            .filter(|(path, text)| before.get(*path) != Some(text))
            .map(|(path, text)| (path.as_path(), text.trim()))
            .collect();
        assert_eq!(changed.len(), effects.len(), "{name}: {changed:?}");
        for (end, value) in *effects {
            let found = changed.iter().find(|(path, _)| path.ends_with(end));
            assert_eq!(found.map(|(_, text)| *text), Some(*value), "{name}: {end}");
        }
        assert!(tuner.status().unwrap()[0].holds(), "{name}");
        for change in &tuner.revert(RevertSelection::All, &mut |_| {}).unwrap()[0].changes {
            assert_eq!(change.state, ChangeState::Restored, "{name}: {change:?}");
        }
        assert_eq!(trimmed(&files(folder.path())), trimmed(&before), "{name}");
    }
}

#[test]
fn each_says_in_one_line_what_the_machine_lacks() {
    let bare = [
        ("proc/sys/kernel/random/boot_id", "a-boot\n"),
        ("proc/4711/stat", STAT),
        ("proc/4711/task/4711/stat", STAT),
        (
            "proc/4711/task/4711/status",
            "Name:\tserver\nTgid:\t4711\nCpus_allowed_list:\t0-1\n",
        ),
        ("sys/devices/system/cpu/online", "0-1\n"),
    ];
    let (folder, roots) = tree(&bare);
    let tuner = tuner(&roots, folder.path());
    // these are possible on every machine
    let of_threads = [
        "rt-priority",
        "nice",
        "slice",
        "others-idle",
        "cpu-dma-latency",
    ];
    for row in MITIGATIONS
        .iter()
        .filter(|row| !of_threads.contains(&row.is.name))
    {
        let name = row.is.name;
        let plan = tuner.plan(&[name], &scope()).unwrap();
        let Err(Unavailable(reason)) = &plan.parts[0].proposal else {
            panic!("{name} is possible where nothing is");
        };
        assert!(
            !reason.is_empty() && !reason.contains('\n'),
            "{name}: {reason}"
        );
        assert!(plan.check(true).is_err(), "{name}");
    }
    assert!(!folder.path().join("journal").exists());
}

#[test]
fn the_limit_of_real_time_threads_is_lifted_for_a_server_that_has_some() {
    let (folder, roots) = tree(MACHINE);
    let tuner = tuner(&roots, folder.path());
    let part = |name: &str| tuner.plan(&[name], &scope()).unwrap().parts.remove(0);
    let Err(Unavailable(reason)) = part("rt-runtime").proposal else {
        panic!("an ordinary thread is not held back by it");
    };
    assert!(
        reason.contains("no thread of server is real-time"),
        "{reason}"
    );
    // a quota holds it back
    assert_eq!(part("cpu-quota").proposal.unwrap().changes.len(), 1);
    // SCHED_FIFO 49
    let real_time = STAT.replace("17 3 0 0 0", "17 3 49 1 0");
    for path in ["proc/4711/stat", "proc/4711/task/4711/stat"] {
        fs::write(folder.path().join(path), &real_time).unwrap();
    }
    assert_eq!(part("rt-runtime").proposal.unwrap().changes.len(), 3);
}

#[test]
fn who_would_overwrite_a_setting_is_named() {
    let mut machine = MACHINE.to_vec();
    let irqbalance = STAT.replace("4711 (server)", "99 (irqbalance)");
    machine.push(("proc/99/stat", &irqbalance));
    machine.push(("etc/sysctl.d/50-numa.conf", "kernel.numa_balancing = 1\n"));
    machine.push((
        "etc/cron.d/tune",
        "@daily root sysctl -w net.core.busy_poll=0\n",
    ));
    let (folder, roots) = tree(&machine);
    let tuner = tuner(&roots, folder.path());
    let said = |name: &str, is_forced: bool| {
        let plan = tuner.plan(&[name], &scope()).unwrap();
        let said: Vec<String> = plan.conflicts.iter().map(ToString::to_string).collect();
        (
            said.join("\n"),
            plan.check(is_forced).map_err(|error| error.to_string()),
        )
    };
    let (text, refused) = said("irq-affinity", false);
    assert!(
        text.contains("irqbalance (pid 99) moves interrupts"),
        "{text}"
    );
    assert!(refused.unwrap_err().contains("--force"));
    assert!(said("irq-affinity", true).1.is_ok());
    let (text, allowed) = said("numa", false);
    assert!(
        text.contains("50-numa.conf names kernel.numa_balancing"),
        "{text}"
    );
    assert!(allowed.is_ok());
    assert!(said("busy-poll", false).0.contains("cron.d/tune"));
    assert_eq!(said("softirq-cpu", false).0, "");
    let both = tuner
        .plan(&["irq-affinity", "interrupt-cpu"], &scope())
        .unwrap();
    let error = both.check(false).unwrap_err().to_string();
    assert!(
        error.contains("irq-affinity and interrupt-cpu want different values"),
        "{error}"
    );
}

#[test]
fn a_reboot_has_undone_everything() {
    let (folder, roots) = tree(MACHINE);
    let tuner = tuner(&roots, folder.path());
    let plan = tuner.plan(&["busy-poll"], &scope()).unwrap();
    tuner.apply(&plan, false, &mut |_| {}).unwrap();
    fs::write(roots.proc.join("sys/kernel/random/boot_id"), "another\n").unwrap();
    let status = tuner.status().unwrap();
    assert!(status[0].is_of_earlier_boot && !status[0].holds());
    let reverted = tuner.revert(RevertSelection::All, &mut |_| {}).unwrap();
    assert!(
        reverted[0]
            .changes
            .iter()
            .all(|change| change.state == ChangeState::Gone)
    );
    let now = fs::read_to_string(roots.proc.join("sys/net/core/busy_poll")).unwrap();
    assert_eq!(now.trim(), "50", "nothing is written to the new kernel");
    assert!(tuner.status().unwrap().is_empty());
}

#[test]
fn a_journal_that_is_torn_is_followed_and_one_that_is_damaged_is_told() {
    let (folder, roots) = tree(MACHINE);
    let tuner = tuner(&roots, folder.path());
    let before = files(folder.path());
    let plan = tuner.plan(&["busy-poll"], &scope()).unwrap();
    tuner.apply(&plan, false, &mut |_| {}).unwrap();
    let journal = folder.path().join("journal/000001.jsonl");
    let whole = fs::read(&journal).unwrap();
    // a line that was being written when the power failed
    fs::write(&journal, [&whole, &b"{\"record\":\"inte"[..]].concat()).unwrap();
    assert_eq!(tuner.status().unwrap()[0].entries.len(), 2);
    tuner.revert(RevertSelection::All, &mut |_| {}).unwrap();
    assert_eq!(trimmed(&files(folder.path())), trimmed(&before));
    // a first line that never was whole: nothing had been changed
    fs::write(&journal, &whole[..10]).unwrap();
    assert!(
        tuner
            .revert(RevertSelection::All, &mut |_| {})
            .unwrap()
            .is_empty()
    );
    assert!(!journal.exists());
    for (text, said) in [
        (
            String::from_utf8_lossy(&whole).replace("\"intent\"", "\"x\""),
            "cannot be understood",
        ),
        (
            String::from_utf8_lossy(&whole).replace("\"version\":1", "\"version\":9"),
            "another version",
        ),
        ("{\"record\":\"complete\"}\n".to_owned(), "out of order"),
    ] {
        fs::write(&journal, text).unwrap();
        let all = tuner.revert(RevertSelection::All, &mut |_| {}).unwrap();
        assert!(!all[0].is_done, "{all:?}");
        let line = tuner
            .revert(RevertSelection::One(1), &mut |_| {})
            .unwrap_err();
        let line = line.to_string();
        assert!(
            line.contains(said) && line.contains("000001.jsonl"),
            "{line}"
        );
        assert!(journal.exists());
    }
}

#[test]
fn what_does_not_exist_is_refused_with_what_does() {
    let (folder, roots) = tree(MACHINE);
    let tuner = tuner(&roots, folder.path());
    let refused = |scope: Scope| tuner.plan(&["busy-poll"], &scope).unwrap_err().to_string();
    let nobody = Scope {
        pid: Some(4712),
        ..Scope::default()
    };
    assert!(refused(nobody).contains("there is no process 4712"));
    let offline = Scope {
        cpus: Some("7-9".parse().unwrap()),
        ..Scope::default()
    };
    assert!(refused(offline).contains("CPU 8-9 is offline"));
    let no_device = Scope {
        device: Some("eth7".into()),
        ..Scope::default()
    };
    assert!(refused(no_device).contains("choose among lo, eth0, eth1"));
}

#[test]
fn a_server_on_several_nodes_takes_one_instance_for_each() {
    let (folder, roots) = tree(MACHINE);
    let stat = STAT.replace("(server)", "(memcached)");
    for path in ["proc/4711/stat", "proc/4711/task/4711/stat"] {
        fs::write(folder.path().join(path), &stat).unwrap();
    }
    let tuner = tuner(&roots, folder.path());
    let both_nodes = Scope {
        cpus: Some("2-5".parse().unwrap()),
        ..scope()
    };
    let plan = tuner.plan(&["numa"], &both_nodes).unwrap();
    let note = &plan.parts[0].proposal.as_ref().unwrap().notes[0];
    assert!(
        note.contains("on node 0 with numactl --physcpubind=2-3 --membind=0 memcached")
            && note.contains("on node 1 with numactl --physcpubind=4-5 --membind=1 memcached"),
        "{note}"
    );
}

#[test]
fn another_group_with_the_servers_cpus_is_named_and_they_are_not_exclusive() {
    const OTHERS: &str = "sys/fs/cgroup/cpuset/engine/cpuset.cpus";
    let exclusive_with = |others: &str| {
        let mut machine = MACHINE.to_vec();
        machine.push(("sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n"));
        machine.push((OTHERS, others));
        let (folder, roots) = tree(&machine);
        let mut plan = tuner(&roots, folder.path())
            .plan(&["dedicated-cpus"], &scope())
            .unwrap();
        let proposal = plan.parts.remove(0).proposal.unwrap();
        let mut changes = proposal.changes.iter();
        let is_exclusive = changes.any(|change| format!("{change:?}").contains("cpu_exclusive"));
        (is_exclusive, proposal.notes.join("\n"))
    };
    assert_eq!(exclusive_with("0-1,4\n"), (true, String::new()));
    assert_eq!(exclusive_with("\n"), (true, String::new()));
    let (is_exclusive, note) = exclusive_with("0-7\n");
    assert!(!is_exclusive);
    assert!(note.contains("the control group /engine has"), "{note}");
}
