//! Where memory is, and who moves it.

use taillab_model::mitigation;

use super::cpus::{in_group, made_group};
use super::{Evidence, Mitigation, existing, proposal};
use crate::cpus::CpuSet;
use crate::tune::change::Change;
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::{Scene, ServerThreads, Thread};
use crate::tune::setting::{Form, Setting};

pub(super) const NUMA: Mitigation = Mitigation {
    is: mitigation::NUMA,
    needs: "two or more NUMA nodes; root; to bind memory, -p and CPUs of one node (-C)",
    interface: "/proc/sys/kernel/numa_balancing: 0; cpuset.mems of the server's control group, or of one made for it: \
                the node of its CPUs, to which the kernel then moves its memory. A server on several nodes takes one \
                instance for each, each with its own -p and -C",
    undo: "the old values are written back, and the group that was made is removed; memory that was moved stays where \
           it is until somebody uses it elsewhere",
    proof: "/proc/PID/numa_maps: pages on that node (N0=…) only; /proc/vmstat: numa_hint_faults stays, \
            pgmigrate_success grows once",
    reference: "man 7 numa; man 7 cpuset; Tales of the Tail, section 4.5",
    evidence: Evidence::Paper("section 4.5"),
    plan: numa,
};

/// The NUMA nodes that have some of these CPUs, each with those that it has.
fn nodes(scene: &Scene, of: &CpuSet) -> Vec<(u32, CpuSet)> {
    const NODES: &str = "/sys/devices/system/node";
    let names = scene.names(NODES).into_iter();
    let numbers = names.filter_map(|name| name.strip_prefix("node")?.parse::<u32>().ok());
    numbers
        .filter_map(|number| {
            let cpus = scene.text(&format!("{NODES}/node{number}/cpulist"))?;
            let cpus = cpus.parse::<CpuSet>().ok()?.intersection(of);
            (!cpus.is_empty()).then_some((number, cpus))
        })
        .collect()
}

fn numa(scene: &Scene) -> Result<Proposal, Unavailable> {
    if nodes(scene, &scene.online).len() < 2 {
        return Err(Unavailable("this machine has one NUMA node".into()));
    }
    let why = "the kernel takes pages away to see who uses them, which costs a fault each";
    let balancing = "/proc/sys/kernel/numa_balancing";
    let change = existing(scene, balancing, Form::Text, "0", why);
    let mut changes: Vec<Change> = change.into_iter().collect();
    let own = nodes(scene, &scene.cpus);
    let note = match (&scene.server, own.as_slice()) {
        (None, _) => "to bind a server's memory, name one of its processes with -p".to_owned(),
        (Some(server), [(node, _)]) => match bound_memory(scene, server, *node) {
            Some(bound) => {
                changes.extend(bound);
                format!(
                    "what {} has on other nodes is moved to node {node} at once",
                    server.name
                )
            }
            None => format!(
                "no control group can bind memory here (cpuset): restart {} with numactl --cpunodebind={node} \
                 --membind={node}",
                server.name
            ),
        },
        (Some(server), several) => {
            let instance = |(node, cpus): &(u32, CpuSet)| {
                format!(
                    "on node {node} with numactl --physcpubind={cpus} --membind={node} {}",
                    server.name
                )
            };
            let instances: Vec<String> = several.iter().map(instance).collect();
            format!(
                "{} has CPUs of {} nodes: run one instance for each, with a part of the clients: {}",
                server.name,
                several.len(),
                instances.join(", ")
            )
        }
    };
    let changed = proposal(changes, "the kernel does not balance memory between nodes")?;
    Ok(changed.with_note(note))
}

/// Changes that give the server memory of one node only; `None` where no cpuset can.
fn bound_memory(scene: &Scene, server: &ServerThreads, node: u32) -> Option<Vec<Change>> {
    let versions = [("/sys/fs/cgroup/cpuset", "cpuset"), ("/sys/fs/cgroup", "")];
    versions.into_iter().find_map(|(mount, controller)| {
        let member = |thread: &Thread| Setting::membership(thread.identity, mount, controller);
        let first = server.threads.first()?;
        let group = member(first).read(&scene.roots).ok()?;
        let (group, node) = (group.trim_end_matches('/'), node.to_string());
        let is_first = controller == "cpuset";
        let moves = |folder: &str| {
            is_first.then(|| in_group(folder, "cpuset.memory_migrate", "1", "memory follows"))
        };
        let there = format!("{mount}{group}");
        if !group.is_empty() && scene.has(&format!("{there}/cpuset.mems")) {
            let why = format!("memory of {group} on node {node} only");
            let bind = in_group(&there, "cpuset.mems", node, why);
            return Some(moves(&there).into_iter().chain([bind]).collect());
        }
        // a group of its own; on version 2 only where the root has given its groups the controller
        let children = scene.text(&format!("{mount}/cgroup.subtree_control"));
        let gives = |all: String| all.split_ascii_whitespace().any(|name| name == "cpuset");
        if !is_first && !children.is_some_and(gives) || is_first && !scene.has(mount) {
            return None;
        }
        let name = format!("taillab-{}-memory", server.process.pid);
        let folder = format!("{mount}/{name}");
        let why = format!("memory of node {node}");
        let mut changes = vec![made_group(&folder, why.clone())];
        if is_first {
            let cpus = scene.text(&format!("{mount}/cpuset.cpus"))?;
            let why = "any CPU, as above";
            changes.push(in_group(&folder, "cpuset.cpus", cpus, why));
        }
        changes.push(in_group(&folder, "cpuset.mems", node, why));
        changes.extend(moves(&folder));
        // version 2 moves whole processes
        let members = server.threads.iter();
        let members = members.filter(|one| is_first || one.identity.pid == one.process);
        changes.extend(members.map(|one| {
            let why = format!("{} into the group", one.name);
            Change::new(member(one), format!("/{name}"), why)
        }));
        Some(changes)
    })
}
