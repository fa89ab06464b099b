//! Where memory is, and who moves it.

use taillab_model::mitigation;

use super::{Mitigation, PUT_BACK, existing, proposal};
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::Scene;
use crate::tune::setting::Form;

pub(super) const NUMA: Mitigation = Mitigation {
    is: mitigation::NUMA,
    needs: "two or more NUMA nodes; root",
    interface: "/proc/sys/kernel/numa_balancing: 0. Where memory lies is decided when it is touched, so binding it \
                takes a restart: numactl --cpunodebind=NODE --membind=NODE SERVER, one instance for each node",
    undo: PUT_BACK,
    proof: "/proc/vmstat: numa_hint_faults stays; /proc/PID/numa_maps",
    reference: "man 7 numa; Tales of the Tail, section 4.5",
    plan: numa,
};

pub(super) const MEMORY_DAEMONS: Mitigation = Mitigation {
    is: mitigation::MEMORY_DAEMONS,
    needs: "root",
    interface: "/sys/kernel/mm/transparent_hugepage/enabled and defrag: never; \
                /proc/sys/vm/compaction_proactiveness: 0; /sys/kernel/mm/damon/admin/kdamonds/N/state: off",
    undo: PUT_BACK,
    proof: "/proc/vmstat: thp_* and compact_* stay",
    reference: "kernel Documentation/admin-guide/mm/transhuge.rst",
    plan: memory_daemons,
};

fn numa(scene: &Scene) -> Result<Proposal, Unavailable> {
    let nodes = scene.names("/sys/devices/system/node");
    let is_node = |name: &&String| {
        name.strip_prefix("node")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    if nodes.iter().filter(is_node).count() < 2 {
        return Err(Unavailable("this machine has one NUMA node".into()));
    }
    let why = "the kernel takes pages away to see who uses them, which costs a fault each";
    let change = existing(
        scene,
        "/proc/sys/kernel/numa_balancing",
        Form::Text,
        "0",
        why,
    );
    let changed = proposal(
        change.into_iter().collect(),
        "the kernel does not balance memory between nodes",
    )?;
    Ok(changed.with_note(
        "memory that the server has already stays where it is: restart it with numactl --cpunodebind=NODE \
         --membind=NODE, one instance for each node",
    ))
}

fn memory_daemons(scene: &Scene) -> Result<Proposal, Unavailable> {
    let huge = "/sys/kernel/mm/transparent_hugepage";
    let mut changes: Vec<_> = [
        (
            format!("{huge}/enabled"),
            Form::Choice,
            "never",
            "khugepaged copies pages in the background",
        ),
        (
            format!("{huge}/defrag"),
            Form::Choice,
            "never",
            "a fault must not wait for compaction",
        ),
        (
            "/proc/sys/vm/compaction_proactiveness".into(),
            Form::Text,
            "0",
            "kcompactd moves pages in the background",
        ),
    ]
    .into_iter()
    .filter_map(|(path, form, new, why)| existing(scene, path, form, new, why))
    .collect();
    let monitors = "/sys/kernel/mm/damon/admin/kdamonds";
    for monitor in scene.names(monitors) {
        let path = format!("{monitors}/{monitor}/state");
        if scene.text(&path).as_deref() == Some("on") {
            let why = "it monitors accesses to memory";
            changes.extend(existing(scene, path, Form::Text, "off", why));
        }
    }
    proposal(changes, "this kernel has none of these settings")
}
