//! Limits of control groups on the server's CPU time.

use std::path::PathBuf;

use taillab_model::mitigation;

use super::{Evidence, Mitigation, PUT_BACK, proposal};
use crate::target::cpu_groups;
use crate::tune::change::Change;
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::Scene;
use crate::tune::setting::{FileSetting, Form, Setting};

pub(super) const CPU_QUOTA: Mitigation = Mitigation {
    is: mitigation::CPU_QUOTA,
    needs: "-p; a limit; root",
    interface: "cpu.max (v2) or cpu.cfs_quota_us (v1) of the server's group and of those above it: no limit",
    undo: PUT_BACK,
    proof: "cpu.stat of the group: nr_throttled stays",
    reference: "kernel Documentation/scheduler/sched-bwc.rst",
    evidence: Evidence::Trial,
    plan: cpu_quota,
};

fn cpu_quota(scene: &Scene) -> Result<Proposal, Unavailable> {
    let server = scene.server()?;
    let mut changes = Vec::new();
    let all = server.processes.iter();
    let all = all.flat_map(|pid| cpu_groups(&scene.roots, *pid));
    let mut groups: Vec<PathBuf> = Vec::new();
    for group in all {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for group in groups {
        let Ok(below) = group.strip_prefix(&scene.roots.sys) else {
            continue;
        };
        let folder = format!("/sys/{}", below.display());
        for (file, none) in [("cpu.max", "max"), ("cpu.cfs_quota_us", "-1")] {
            let setting = Setting::File(FileSetting::new(format!("{folder}/{file}"), Form::Text));
            let Ok(now) = setting.read(&scene.roots) else {
                continue;
            };
            let mut words = now.split_ascii_whitespace();
            if words.next() == Some(none) {
                continue;
            }
            // version 2 has the period in the same file
            let period = words
                .next()
                .map_or(String::new(), |period| format!(" {period}"));
            let why = format!("{} is held back by it (\"{now}\")", server.name);
            changes.push(Change::new(setting, format!("{none}{period}"), why));
        }
    }
    proposal(changes, "no control group limits the server's CPU time")
}
