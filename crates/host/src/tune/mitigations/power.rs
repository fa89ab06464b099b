//! Idle states and frequencies.

use taillab_model::mitigation;

use super::{Evidence, Mitigation, proposal};
use crate::cpus::CpuSet;
use crate::tune::change::{Change, Hold};
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::Scene;
use crate::tune::setting::{GovernorSetting, Setting};

const FREQUENCY: &str =
    "kernel Documentation/admin-guide/pm/cpufreq.rst; Tales of the Tail, section 4.6";
const POLICIES: &str = "/sys/devices/system/cpu/cpufreq";

pub(super) const CPU_DMA_LATENCY: Mitigation = Mitigation {
    is: mitigation::CPU_DMA_LATENCY,
    needs: "root; a process that holds it (--hold)",
    interface: "/dev/cpu_dma_latency: held open with 0 µs, for all CPUs",
    undo: "the kernel drops it with the process that holds it",
    proof: "/sys/devices/system/cpu/cpu*/cpuidle/state*/usage: only the first state's counts grow",
    reference: "kernel Documentation/power/pm_qos_interface.rst; Tales of the Tail, section 4.6",
    evidence: Evidence::Paper("section 4.6"),
    plan: cpu_dma_latency,
};

pub(super) const GOVERNOR: Mitigation = Mitigation {
    is: mitigation::GOVERNOR,
    needs: "cpufreq (most virtual machines have none); root",
    interface: "/sys/devices/system/cpu/cpufreq/policyN/scaling_governor: performance; the tunables of the old governor \
                are kept",
    undo: "the old governor comes back with its tunables",
    proof: "/sys/devices/system/cpu/cpufreq/policyN/scaling_cur_freq",
    reference: FREQUENCY,
    evidence: Evidence::Paper("section 4.6"),
    plan: governor,
};

fn cpu_dma_latency(_: &Scene) -> Result<Proposal, Unavailable> {
    Ok(Proposal {
        holds: vec![Hold::CpuDmaLatency],
        ..Proposal::default()
    })
}

/// The frequency policies of the CPUs that are meant.
fn policies(scene: &Scene) -> Vec<u32> {
    let names = scene.names(POLICIES);
    let numbers = names
        .iter()
        .filter_map(|name| name.strip_prefix("policy")?.parse().ok());
    numbers
        .filter(|policy: &u32| {
            let cpus = scene.text(&format!("{POLICIES}/policy{policy}/related_cpus"));
            // separated by spaces
            let cpus: Option<CpuSet> = cpus.map(|list| {
                list.split_ascii_whitespace()
                    .filter_map(|cpu| cpu.parse().ok())
                    .collect()
            });
            cpus.is_none_or(|cpus| !cpus.intersection(&scene.cpus).is_empty())
        })
        .collect()
}

const NO_CPUFREQ: &str =
    "there is no cpufreq here: the hypervisor or the firmware rules the frequency";

fn governor(scene: &Scene) -> Result<Proposal, Unavailable> {
    let mut changes = Vec::new();
    for policy in policies(scene) {
        let available = scene.text(&format!(
            "{POLICIES}/policy{policy}/scaling_available_governors"
        ));
        if available.is_some_and(|all| {
            !all.split_ascii_whitespace()
                .any(|name| name == "performance")
        }) {
            continue;
        }
        let why = "the highest frequency at all times";
        changes.push(Change::new(
            Setting::Governor(GovernorSetting { policy }),
            "performance",
            why,
        ));
    }
    proposal(changes, NO_CPUFREQ)
}
