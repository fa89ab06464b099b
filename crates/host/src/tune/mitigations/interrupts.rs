//! Where devices' interrupts are handled.

use std::collections::HashMap;

use taillab_model::mitigation;

use super::receive::steer;
use super::{Evidence, Mitigation, PUT_BACK, proposal};
use crate::cpus::CpuSet;
use crate::tune::change::Change;
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::Scene;
use crate::tune::setting::{FileSetting, Form, Setting};

pub(super) const IRQ_AFFINITY: Mitigation = Mitigation {
    is: mitigation::IRQ_AFFINITY,
    needs: "-p or -C, and a CPU that is not among these; root; no irqbalance",
    interface: "/proc/irq/N/smp_affinity_list of each interrupt that the server's CPUs may get (of --device only, \
                where one is named); without --device also /proc/irq/default_smp_affinity, for new ones",
    undo: PUT_BACK,
    proof: "/proc/interrupts: the counts of the server's CPUs stay; /proc/irq/N/effective_affinity_list",
    reference: "kernel Documentation/core-api/irq/irq-affinity.rst; Tales of the Tail, section 4.4",
    evidence: Evidence::Paper("section 4.4"),
    plan: irq_affinity,
};

pub(super) const INTERRUPT_CPU: Mitigation = Mitigation {
    is: mitigation::INTERRUPT_CPU,
    needs: "-p; a server with two or more CPUs; root; no irqbalance",
    interface: "sched_setaffinity of the server's threads: without its last CPU; smp_affinity_list and rps_cpus: that CPU",
    undo: PUT_BACK,
    proof: "/proc/interrupts and /proc/softirqs: only that CPU's counts grow",
    reference: "Tales of the Tail, section 4.4",
    evidence: Evidence::Paper("section 4.4"),
    plan: interrupt_cpu,
};

/// The names of the interrupts' users in /proc/interrupts, such as `virtio0-input.0`, by their numbers. With many
/// CPUs the table has megabytes, so it is read once.
fn users(table: &str) -> HashMap<&str, &str> {
    fn user(line: &str) -> Option<(&str, &str)> {
        let (number, rest) = line.split_once(':')?;
        Some((number.trim(), rest.split_ascii_whitespace().next_back()?))
    }
    table.lines().filter_map(user).collect()
}

/// The interrupts of a network device; none where it is not on a bus, or has none by messages (MSI).
fn of_device(scene: &Scene, device: &str) -> Vec<String> {
    let folder = format!("/sys/class/net/{device}/device");
    let own = scene.names(&format!("{folder}/msi_irqs"));
    match own.is_empty() {
        // a virtio device uses those of the PCI device above it
        true => scene.names(&format!("{folder}/../msi_irqs")),
        false => own,
    }
}

/// Where an interrupt that may go to the CPUs `now` is sent; `None` where it may not go to `from`.
fn away(now: &CpuSet, from: &CpuSet, to: &CpuSet) -> Option<CpuSet> {
    let rest = now.intersection(to);
    let new = if rest.is_empty() { to.clone() } else { rest };
    (!now.intersection(from).is_empty()).then_some(new)
}

/// Changes that send all interrupts which may go to `from` to `to`, and new ones too.
fn moved(scene: &Scene, from: &CpuSet, to: &CpuSet) -> Result<Vec<Change>, Unavailable> {
    let table = scene.text("/proc/interrupts").unwrap_or_default();
    let users = users(&table);
    let mut numbers = scene.names("/proc/irq");
    if let Some(device) = &scene.device {
        let own = of_device(scene, device);
        if own.is_empty() {
            return Err(Unavailable(format!(
                "{device} has no interrupts that /sys shows (it is virtual, or they are not MSI): \
                 leave --device out, which moves those of all devices"
            )));
        }
        numbers.retain(|number| own.contains(number));
    }
    let mut changes = Vec::new();
    for number in numbers {
        let path = format!("/proc/irq/{number}/smp_affinity_list");
        let setting = Setting::File(FileSetting::new(path, Form::CpuList));
        let Some(now) = setting
            .read(&scene.roots)
            .ok()
            .and_then(|list| list.parse::<CpuSet>().ok())
        else {
            continue;
        };
        let Some(new) = away(&now, from, to) else {
            continue;
        };
        let nameless = || format!("interrupt {number}");
        let user = users.get(number.as_str()).copied();
        let why = format!(
            "{} may interrupt CPU {}",
            user.map_or_else(nameless, str::to_owned),
            now.intersection(from)
        );
        // the kernel alone places managed interrupts
        changes.push(Change::new(setting, new.to_string(), why).if_possible());
    }
    if scene.device.is_none() {
        let setting = Setting::File(FileSetting::new(
            "/proc/irq/default_smp_affinity",
            Form::CpuMask,
        ));
        let now = setting.read(&scene.roots).ok();
        let now = now.and_then(|mask| CpuSet::from_mask(&mask).ok());
        if let Some(new) = now.and_then(|now| away(&now, from, to)) {
            let why = "new interrupts go there too";
            changes.push(Change::new(setting, new.to_mask(), why));
        }
    }
    Ok(changes)
}

fn irq_affinity(scene: &Scene) -> Result<Proposal, Unavailable> {
    let others = scene.other_cpus()?;
    let changes = moved(scene, &scene.cpus, &others)?;
    proposal(changes, "no interrupt goes to these CPUs")
}

fn interrupt_cpu(scene: &Scene) -> Result<Proposal, Unavailable> {
    let server = scene.server()?;
    let Some(last) = scene.cpus.iter().last().filter(|_| scene.cpus.len() > 1) else {
        return Err(Unavailable(format!(
            "the server has only CPU {}: it needs two, one for itself and one for interrupts",
            scene.cpus
        )));
    };
    let (last, rest) = (
        CpuSet::single(last),
        scene.cpus.difference(&CpuSet::single(last)),
    );
    let mut interrupts = moved(scene, &rest, &last)?;
    interrupts.extend(steer(scene, &last).unwrap_or_default());
    if interrupts.is_empty() {
        return Err(Unavailable("no interrupt goes to the server's CPUs".into()));
    }
    let mut changes = Vec::new();
    for thread in &server.threads {
        // one that the server has bound to some of them stays there
        let own = thread.cpus.intersection(&rest);
        let to = match own.is_empty() || scene.cpus_are_named {
            true => &rest,
            false => &own,
        };
        if thread.cpus == *to {
            continue;
        }
        let why = format!(
            "{} of {} leaves CPU {last} to interrupts",
            thread.name, server.name
        );
        changes.push(Change::new(
            Setting::affinity(thread.identity),
            to.to_string(),
            why,
        ));
    }
    changes.extend(interrupts);
    Ok(changes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;
    use crate::tune::scene::Scope;

    #[test]
    fn an_interrupt_is_called_as_its_user_is() {
        let table =
            "  CPU0 CPU1\n 30:  1 2  PCI-MSIX 1-edge  eth0-rx-0\n131: 1 2  IR-PCI  nvme0q1\n";
        let users = users(table);
        let user = |number: &str| users.get(number).copied();
        assert_eq!(
            [user("30"), user("131"), user("3")],
            [Some("eth0-rx-0"), Some("nvme0q1"), None]
        );
    }

    #[test]
    fn new_interrupts_are_sent_away_where_they_may_come() {
        let planned = |default: &str| {
            let (_folder, roots) = tree(&[
                ("sys/devices/system/cpu/online", "0-3\n"),
                ("proc/irq/30/smp_affinity_list", "0\n"),
                ("proc/irq/default_smp_affinity", default),
            ]);
            let scope = Scope {
                cpus: Some("2-3".parse().unwrap()),
                ..Scope::default()
            };
            irq_affinity(&Scene::look(&roots, &scope).unwrap())
        };
        let changes = planned("f\n").unwrap().changes;
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0].new, "00000003");
        let Err(Unavailable(reason)) = planned("1\n") else {
            panic!("nothing goes to CPU 2-3");
        };
        assert_eq!(reason, "no interrupt goes to these CPUs");
    }

    #[test]
    fn a_thread_that_is_bound_to_one_cpu_leaves_only_that_of_the_interrupts() {
        let stat = "7 (x) S 1 1 1 0 -1 0 0 0 0 0 7 9 0 0 20 0 5 0 12345 1000 200 0 1 1 0 \
                    0 0 0 0 0 0 0 0 0 17 3 0 0 0";
        let (_folder, roots) = tree(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("proc/irq/30/smp_affinity_list", "0\n"),
            ("proc/7/stat", stat),
            ("proc/7/task/7/stat", stat),
            ("proc/7/task/7/status", "Cpus_allowed_list:\t0-2\n"),
            ("proc/7/task/8/stat", stat),
            ("proc/7/task/8/status", "Cpus_allowed_list:\t1\n"),
            ("proc/7/task/9/stat", stat),
            ("proc/7/task/9/status", "Cpus_allowed_list:\t2\n"),
        ]);
        let scope = Scope {
            pid: Some(7),
            ..Scope::default()
        };
        let scene = Scene::look(&roots, &scope).unwrap();
        let changes = interrupt_cpu(&scene).unwrap().changes;
        let planned: Vec<(String, &str)> = (changes.iter())
            .map(|change| (change.setting.to_string(), change.new.as_str()))
            .collect();
        let wanted = [
            ("sched_setaffinity(thread 7)", "0-1"),
            ("sched_setaffinity(thread 9)", "0-1"),
            ("/proc/irq/30/smp_affinity_list", "2"),
        ];
        assert_eq!(planned, wanted.map(|(what, new)| (what.to_owned(), new)));
    }
}
