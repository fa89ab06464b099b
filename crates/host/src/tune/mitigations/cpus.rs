//! Who may use the server's CPUs.

use taillab_model::mitigation;

use super::{Evidence, Mitigation};
use crate::cpus::CpuSet;
use crate::target::comm;
use crate::tune::change::Change;
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::{Scene, ServerThreads, Thread};
use crate::tune::setting::{FileSetting, Form, GroupFolder, Setting, UnitCpus};

pub(super) const DEDICATED_CPUS: Mitigation = Mitigation {
    is: mitigation::DEDICATED_CPUS,
    needs: "-p, and -C unless the server is bound to fewer CPUs than there are; root",
    interface: "cgroup v1: two cpusets, the server's with cpu_exclusive and one for the others, \
                and the affinity of \
                every thread that is moved; v2: a group with cpuset.cpus.partition=isolated; where systemd owns \
                them: AllowedCPUs of the server's unit and of all others (systemctl set-property --runtime); \
                without cpusets: \
                sched_setaffinity of the server and of the others",
    undo: "threads go back to their groups and their CPUs, the groups are removed",
    proof: "taillab trace: no background from programs; /proc/PID/task/TID/status: \
            Cpus_allowed_list",
    reference: "man 7 cpuset; kernel Documentation/admin-guide/cgroup-v2.rst; Tales of the Tail, \
                section 4.1",
    evidence: Evidence::Paper("section 4.1"),
    plan: dedicated_cpus,
};

pub(super) const OTHERS_AFFINITY: Mitigation = Mitigation {
    is: mitigation::OTHERS_AFFINITY,
    needs: "-p or -C, and a CPU that is not among these; CAP_SYS_NICE",
    interface: "sched_setaffinity of every other thread that may run there, also of the kernel's \
                where it lets them move",
    undo: "the old CPUs are written back, also for threads that inherited ours; the change ends with the thread",
    proof: "/proc/PID/task/TID/status: Cpus_allowed_list",
    reference: "man 2 sched_setaffinity",
    evidence: Evidence::Documented,
    plan: others_affinity,
};

fn affinity(thread: &Thread, cpus: &CpuSet, why: impl Into<String>) -> Change {
    Change::new(Setting::affinity(thread.identity), cpus.to_string(), why)
}

/// Changes that move other threads from the CPUs that are to be kept free to `others`: those for which
/// `of` holds.
fn away(scene: &Scene, others: &CpuSet, of: impl Fn(&Thread) -> bool) -> Vec<Change> {
    let mut changes = Vec::new();
    for thread in scene.others().into_iter().filter(of) {
        if thread.is_bound || thread.cpus.intersection(&scene.cpus).is_empty() {
            continue;
        }
        // those of `others` that it may use already, else all of them
        let rest = thread.cpus.intersection(others);
        let to = if rest.is_empty() { others } else { &rest };
        let why = format!(
            "{} (pid {}) leaves CPU {}",
            thread.name, thread.process, scene.cpus
        );
        let change = affinity(&thread, to, why);
        changes.push(match thread.is_kernel {
            true => change.if_possible(),
            false => change,
        });
    }
    changes
}

fn others_affinity(scene: &Scene) -> Result<Proposal, Unavailable> {
    let others = scene.other_cpus()?;
    super::proposal(
        away(scene, &others, |_| true),
        "nothing else may run on these CPUs",
    )
}

/// Binds the server's threads to its CPUs. If they are bound differently, those that are bound to some
/// of these CPUs stay so, unless this kernel forgets that: only what is changed here is put back.
fn pin_server(scene: &Scene, server: &ServerThreads) -> Vec<Change> {
    let mut pairs = server.threads.windows(2);
    let differ = pairs.any(|pair| pair[0].cpus != pair[1].cpus);
    let keeps_bindings = differ && forgotten(scene).is_none();
    let elsewhere = server.threads.iter().filter(|thread| {
        let is_within = thread.cpus.difference(&scene.cpus).is_empty();
        let stays = keeps_bindings && is_within && !thread.cpus.is_empty();
        !stays && thread.cpus != scene.cpus
    });
    let why = |thread: &Thread| {
        format!(
            "{} of {} stays on CPU {}",
            thread.name, server.name, scene.cpus
        )
    };
    elsewhere
        .map(|thread| affinity(thread, &scene.cpus, why(thread)))
        .collect()
}

fn dedicated_cpus(scene: &Scene) -> Result<Proposal, Unavailable> {
    let server = scene.server()?;
    let others = scene.other_cpus()?;
    if scene.text("/sys/fs/cgroup/cpuset/cpuset.cpus").is_some() {
        let sharing = groups_with(scene, &scene.cpus);
        let changes = version_1(scene, server, &others, sharing.is_empty());
        let proposal = Proposal::from(changes);
        return Ok(match sharing.as_slice() {
            [] => proposal,
            [group, ..] => proposal.with_note(format!(
                "the control group {group} has CPUs of the server as well, so they cannot be exclusive: its threads are \
                 moved by their affinity, and those that it starts later may run there (give it other CPUs in \
                 {MOUNT_1}{group}/cpuset.cpus)"
            )),
        });
    }
    let notes: Vec<String> = forgotten(scene).into_iter().collect();
    if let Some(changes) = by_systemd(scene, server, &others) {
        return Ok(Proposal {
            notes,
            ..Proposal::from(changes)
        });
    }
    let delegated = scene
        .text("/sys/fs/cgroup/cgroup.subtree_control")
        .unwrap_or_default();
    if delegated
        .split_ascii_whitespace()
        .any(|name| name == "cpuset")
    {
        return Ok(Proposal {
            notes,
            ..Proposal::from(version_2(scene, server))
        });
    }
    let mut changes = pin_server(scene, server);
    changes.extend(away(scene, &others, |_| true));
    let changed = super::proposal(changes, "the server has its CPUs for itself already")?;
    Ok(changed.with_note(
        "there is no cpuset here, so every thread is moved by its affinity: it can move itself \
         back",
    ))
}

/// What no revert brings back where whole control groups get other CPUs: only threads that we bind are in the
/// journal.
fn forgotten(scene: &Scene) -> Option<String> {
    let release = scene.text("/proc/sys/kernel/osrelease")?;
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next()?, numbers.next()?);
    (version < (6, 2)).then(|| {
        format!(
            "Linux {release} forgets which CPUs a thread was bound to when those of its control group change \
             (6.2 or later does not): programs that bind their threads must be restarted after the revert"
        )
    })
}

/// A control group of ours that is made.
pub(super) fn made_group(folder: &str, why: impl Into<String>) -> Change {
    let folder = folder.to_owned();
    Change::new(Setting::Group(GroupFolder { folder }), "present", why)
}

/// A file of a cpuset that gets another value.
pub(super) fn in_group(
    group: &str,
    file: &str,
    new: impl Into<String>,
    why: impl Into<String>,
) -> Change {
    let form = match file {
        "cpuset.cpus" | "cpuset.mems" => Form::CpuList,
        _ => Form::Text,
    };
    let setting = Setting::File(FileSetting::new(format!("{group}/{file}"), form));
    Change::new(setting, new, why)
}

/// Where cpusets of version 1 are.
const MOUNT_1: &str = "/sys/fs/cgroup/cpuset";

/// The groups right below the root that have some of these CPUs, such as those of a container engine. Where there is one,
/// the kernel refuses `cpu_exclusive` to any other.
fn groups_with(scene: &Scene, cpus: &CpuSet) -> Vec<String> {
    let below = scene.names(MOUNT_1).into_iter();
    let mut sharing: Vec<String> = below
        .filter(|group| {
            let has = scene.text(&format!("{MOUNT_1}/{group}/cpuset.cpus"));
            let has = has.and_then(|has| has.trim().parse::<CpuSet>().ok());
            has.is_some_and(|has| !has.intersection(cpus).is_empty())
        })
        .map(|group| format!("/{group}"))
        .collect();
    sharing.sort_unstable();
    sharing
}

/// Two groups below the root: one for the server, one for what was in the root. Groups that others have made stay as
/// they are.
fn version_1(
    scene: &Scene,
    server: &ServerThreads,
    others: &CpuSet,
    is_exclusive: bool,
) -> Vec<Change> {
    const MOUNT: &str = MOUNT_1;
    let own = format!("taillab-{}", server.process.pid);
    let rest = format!("{own}-others");
    let memory = scene
        .text(&format!("{MOUNT}/cpuset.mems"))
        .unwrap_or_else(|| "0".into());
    let member = |thread: &Thread| Setting::membership(thread.identity, MOUNT, "cpuset");
    let moves = |thread: &Thread, group: &str, why: String| {
        Change::new(member(thread), format!("/{group}"), why)
    };
    let mut movable = scene.others();
    movable.retain(|thread| {
        let group = member(thread).read(&scene.roots);
        !thread.is_bound && group.is_ok_and(|group| group == "/")
    });
    // A thread in a cpuset of ours cannot have its old CPUs. So the affinity is changed first and
    // put back last.
    let mut changes = pin_server(scene, server);
    changes.extend(away(scene, others, |_| true));
    for (group, cpus) in [(&own, &scene.cpus), (&rest, others)] {
        let why = format!("a cpuset of CPU {cpus}");
        changes.push(made_group(&format!("{MOUNT}/{group}"), why));
    }
    for (group, cpus) in [(&own, &scene.cpus), (&rest, others)] {
        let folder = format!("{MOUNT}/{group}");
        changes.push(in_group(
            &folder,
            "cpuset.cpus",
            cpus.to_string(),
            "its CPUs",
        ));
        changes.push(in_group(
            &folder,
            "cpuset.mems",
            memory.clone(),
            "its memory, as above",
        ));
    }
    let exclusive = "nobody else's cpuset has these CPUs";
    changes.extend(is_exclusive.then(|| {
        let folder = format!("{MOUNT}/{own}");
        in_group(&folder, "cpuset.cpu_exclusive", "1", exclusive)
    }));
    for thread in &server.threads {
        let why = format!("{} of {} into its cpuset", thread.name, server.name);
        changes.push(moves(thread, &own, why));
    }
    for thread in &movable {
        let why = format!(
            "{} (pid {}) leaves CPU {}",
            thread.name, thread.process, scene.cpus
        );
        let change = moves(thread, &rest, why);
        changes.push(match thread.is_kernel {
            true => change.if_possible(),
            false => change,
        });
    }
    changes
}

/// One group: the kernel takes the CPUs of an isolated partition from everybody else.
fn version_2(scene: &Scene, server: &ServerThreads) -> Vec<Change> {
    const MOUNT: &str = "/sys/fs/cgroup";
    let own = format!("taillab-{}", server.process.pid);
    let folder = format!("{MOUNT}/{own}");
    let mut changes = pin_server(scene, server);
    let why = format!("a partition of CPU {}", scene.cpus);
    changes.push(made_group(&folder, why));
    changes.push(in_group(
        &folder,
        "cpuset.cpus",
        scene.cpus.to_string(),
        "its CPUs",
    ));
    let isolated = "nobody else gets these CPUs, and the scheduler does not balance them";
    changes.push(in_group(
        &folder,
        "cpuset.cpus.partition",
        "isolated",
        isolated,
    ));
    for leader in server.leaders() {
        let member = Setting::membership(leader.identity, MOUNT, "");
        let why = format!("{} with all its threads into the partition", leader.name);
        changes.push(Change::new(member, format!("/{own}"), why));
    }
    changes
}

/// The server's units keep its CPUs; their sibling units and those of the slices above them get the others.
/// `None` where systemd does not run the machine, or a process of the server is in none of its units.
fn by_systemd(scene: &Scene, server: &ServerThreads, others: &CpuSet) -> Option<Vec<Change>> {
    const MOUNT: &str = "/sys/fs/cgroup";
    let has = scene.text(&format!("{MOUNT}/cgroup.controllers"))?;
    let has_cpuset = has.split_ascii_whitespace().any(|name| name == "cpuset");
    if !has_cpuset || comm(&scene.roots, 1) != "systemd" {
        return None;
    }
    let is_unit = |name: &str| name.ends_with(".service") || name.ends_with(".scope");
    // the folders from the root to the unit of each process
    let mut paths: Vec<Vec<String>> = Vec::new();
    for leader in server.leaders() {
        let own = Setting::membership(leader.identity, MOUNT, "");
        let own = own.read(&scene.roots).ok()?;
        let path = own.split('/').filter(|name| !name.is_empty());
        let mut path: Vec<String> = path.map(str::to_owned).collect();
        path.truncate(path.iter().position(|name| is_unit(name))? + 1);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let change = |unit: &str, cpus: &CpuSet, why: String| {
        let unit = unit.to_owned();
        Change::new(Setting::Unit(UnitCpus { unit }), cpus.to_string(), why)
    };
    let mut changes = pin_server(scene, server);
    // the kernel's threads are in no unit
    changes.extend(away(scene, others, |thread| thread.is_kernel));
    let mut seen: Vec<String> = Vec::new();
    for path in &paths {
        let mut folder = MOUNT.to_owned();
        for (depth, name) in path.iter().enumerate() {
            let leads_to_server =
                |name: &String| paths.iter().any(|path| path.get(depth) == Some(name));
            let beside = (scene.names(&folder).into_iter())
                .filter(|name| is_unit(name) || name.ends_with(".slice"));
            for unit in beside.filter(|name| !leads_to_server(name)) {
                if !seen.contains(&unit) {
                    let why = format!("{unit} leaves CPU {}", scene.cpus);
                    changes.push(change(&unit, others, why));
                    seen.push(unit);
                }
            }
            folder = format!("{folder}/{name}");
        }
    }
    for unit in paths.iter().filter_map(|path| path.last()) {
        let why = format!("{} stays on CPU {}", server.name, scene.cpus);
        changes.push(change(unit, &scene.cpus, why));
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;
    use crate::tune::scene::Scope;

    const STAT: &str = "4711 (server) S 1 4711 4711 0 -1 0 100 0 0 0 7 9 0 0 20 0 1 0 12345 1 2 \
                        3 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0";

    /// What the threads of a server get that are bound anew when CPU 2 and 3 become the server's.
    fn bound_anew(cpus: [&str; 3], release: &str) -> Vec<String> {
        let mut files: Vec<(String, String)> = vec![
            ("sys/devices/system/cpu/online".into(), "0-7\n".into()),
            ("proc/sys/kernel/osrelease".into(), release.into()),
            ("proc/4711/stat".into(), STAT.into()),
        ];
        for (tid, cpus) in (4711..).zip(cpus) {
            let task = format!("proc/4711/task/{tid}");
            let status = format!("Cpus_allowed_list:\t{cpus}\n");
            files.push((format!("{task}/stat"), STAT.into()));
            files.push((format!("{task}/status"), status));
        }
        let files: Vec<(&str, &str)> = (files.iter())
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let (_folder, roots) = tree(&files);
        let scope = Scope {
            pid: Some(4711),
            cpus: Some("2-3".parse().unwrap()),
            ..Scope::default()
        };
        let scene = Scene::look(&roots, &scope).unwrap();
        let changes = pin_server(&scene, scene.server().unwrap());
        changes.into_iter().map(|change| change.new).collect()
    }

    #[test]
    fn workers_keep_the_cpu_of_their_own() {
        let new = "6.12.3";
        assert_eq!(bound_anew(["0-7", "2", "3"], new), ["2-3"]);
        assert_eq!(bound_anew(["2-3", "2", "5"], new), ["2-3"]);
        // a server that is bound as a whole gets all of its new CPUs
        assert_eq!(bound_anew(["2"; 3], new), ["2-3"; 3]);
        // what would be forgotten is changed, so that it is put back
        assert_eq!(bound_anew(["0-7", "2", "3"], "6.1.0"), ["2-3"; 3]);
    }

    #[test]
    fn a_kernel_that_forgets_bindings_is_named() {
        let said = |release: &str| {
            let (_folder, roots) = tree(&[
                ("sys/devices/system/cpu/online", "0-1\n"),
                ("proc/sys/kernel/osrelease", release),
            ]);
            forgotten(&Scene::look(&roots, &Scope::default()).unwrap())
        };
        for release in ["6.2.0-1", "6.12.3", "7.0"] {
            assert_eq!(said(release), None);
        }
        let note = said("6.1.0-13-amd64\n").unwrap();
        assert!(note.starts_with("Linux 6.1.0-13-amd64 forgets"), "{note}");
        assert!(said("5.15.0").is_some());
    }
}
