//! Idle states and frequencies.

use taillab_model::mitigation;

use super::{Mitigation, PUT_BACK, existing, proposal};
use crate::cpus::CpuSet;
use crate::tune::change::{Change, Hold};
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::Scene;
use crate::tune::setting::{Form, GovernorSetting, Setting};

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
    plan: cpu_dma_latency,
};

pub(super) const RESUME_LATENCY: Mitigation = Mitigation {
    is: mitigation::RESUME_LATENCY,
    needs: "root",
    interface: "/sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us: n/a, which means none at all (0 would \
                mean no limit)",
    undo: PUT_BACK,
    proof: "/sys/devices/system/cpu/cpuN/cpuidle/state*/usage: only the first state's counts grow",
    reference: "kernel Documentation/ABI/testing/sysfs-devices-power; Tales of the Tail, section 4.6",
    plan: resume_latency,
};

pub(super) const GOVERNOR: Mitigation = Mitigation {
    is: mitigation::GOVERNOR,
    needs: "cpufreq (most virtual machines have none); root",
    interface: "/sys/devices/system/cpu/cpufreq/policyN/scaling_governor: performance; the tunables of the old governor \
                are kept",
    undo: "the old governor comes back with its tunables",
    proof: "/sys/devices/system/cpu/cpufreq/policyN/scaling_cur_freq",
    reference: FREQUENCY,
    plan: governor,
};

pub(super) const ENERGY_PREFERENCE: Mitigation = Mitigation {
    is: mitigation::ENERGY_PREFERENCE,
    needs: "intel_pstate or amd-pstate in active mode; root",
    interface: "/sys/devices/system/cpu/cpufreq/policyN/energy_performance_preference: performance",
    undo: PUT_BACK,
    proof: "/sys/devices/system/cpu/cpufreq/policyN/scaling_cur_freq",
    reference: "kernel Documentation/admin-guide/pm/intel_pstate.rst",
    plan: energy_preference,
};

pub(super) const BOOST: Mitigation = Mitigation {
    is: mitigation::BOOST,
    needs: "a processor whose boost is off; root",
    interface: "/sys/devices/system/cpu/cpufreq/boost: 1, or /sys/devices/system/cpu/intel_pstate/no_turbo: 0",
    undo: PUT_BACK,
    proof: "/sys/devices/system/cpu/cpufreq/policyN/scaling_cur_freq above base_frequency",
    reference: FREQUENCY,
    plan: boost,
};

fn cpu_dma_latency(_: &Scene) -> Result<Proposal, Unavailable> {
    Ok(Proposal {
        holds: vec![Hold::CpuDmaLatency],
        ..Proposal::default()
    })
}

fn resume_latency(scene: &Scene) -> Result<Proposal, Unavailable> {
    let changes = scene.cpus.iter().filter_map(|cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
        existing(
            scene,
            path,
            Form::Text,
            "n/a",
            format!("CPU {cpu} polls instead of sleeping"),
        )
    });
    let changes = changes.collect();
    proposal(
        changes,
        "the kernel has no limits for single CPUs: cpu-dma-latency has one for all",
    )
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

fn energy_preference(scene: &Scene) -> Result<Proposal, Unavailable> {
    let changes = policies(scene).into_iter().filter_map(|policy| {
        let path = format!("{POLICIES}/policy{policy}/energy_performance_preference");
        existing(
            scene,
            path,
            Form::Text,
            "performance",
            "the processor does not save energy",
        )
    });
    let changes = changes.collect();
    proposal(
        changes,
        "the processor takes no energy preference here (HWP or CPPC in active mode)",
    )
}

fn boost(scene: &Scene) -> Result<Proposal, Unavailable> {
    let why = "frequencies above the nominal one";
    let of = |path: &str, on: &str| existing(scene, path, Form::Text, on, why);
    let changes = of("/sys/devices/system/cpu/cpufreq/boost", "1")
        .or_else(|| of("/sys/devices/system/cpu/intel_pstate/no_turbo", "0"));
    proposal(changes.into_iter().collect(), NO_CPUFREQ)
}
