//! Conditions that can spoil a measurement.

use serde::{Deserialize, Serialize};

use crate::cpus::{self, CpuSet};
use crate::environment::Environment;
use crate::roots::Roots;

/// What may disturb the measurement, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hazard {
    /// Its name for programs, snake_case; never changes once released.
    pub key: String,
    /// One sentence: the condition and its effect.
    pub text: String,
    /// What the user can do, where anything can be done.
    pub remedy: Option<String>,
}

impl Hazard {
    /// A hazard with its remedy.
    pub(crate) fn new(key: &str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            text: text.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// What of the machine's state can spoil a measurement there.
pub(crate) fn of_machine(roots: &Roots, environment: &Environment) -> Vec<Hazard> {
    let mut hazards = Vec::new();
    if let Some(activity) = &environment.activity {
        let busy = &activity.busy_processes;
        if !busy.is_empty() {
            let named: Vec<String> = busy
                .iter()
                .take(5)
                .map(|p| format!("{} (pid {}) {:.0} %", p.name, p.pid, p.cpus * 100.0))
                .collect();
            hazards.push(Hazard::new(
                "busy_processes",
                format!(
                    "other processes use the CPUs of the measurement: {}",
                    named.join(", ")
                ),
                "stop them, or move them to other CPUs (taskset -p)",
            ));
        }
        if activity
            .usage
            .is_some_and(|usage| usage.steal_share > 0.001)
        {
            hazards.push(Hazard::new(
                    "steal",
                    "the hypervisor takes CPU time away (steal): part of the tail is not this machine's",
                    "use a machine or an instance type with dedicated CPUs",
                ));
        }
    }
    if environment.virtualization.hypervisor_flag == Some(true) {
        hazards.push(Hazard::new(
            "virtual_machine",
            "this is a virtual machine: the hypervisor pauses its CPUs without a trace, and \
                 steal may read 0 all the same; interprocessor interrupts are expensive",
            "measure on the real machine where the tail beyond p99.9 matters",
        ));
    }
    if environment.irqbalance_running {
        hazards.push(Hazard::new(
            "irqbalance",
            "irqbalance runs and may move interrupts to the CPUs of the measurement",
            "stop it for the time of the measurement (systemctl stop irqbalance)",
        ));
    }
    if let Some(governor @ ("powersave" | "ondemand" | "conservative" | "schedutil")) =
        environment.power.governor.as_deref()
    {
        hazards.push(Hazard::new(
            "frequency_governor",
            format!("the frequency governor is {governor}: service times depend on the load"),
            "cpupower frequency-set -g performance",
        ));
    }
    if let Some(clock @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies")) =
        environment.scheduling.clocksource.as_deref()
    {
        hazards.push(Hazard::new(
            "slow_clock",
            format!("the clock source is {clock}: every time stamp costs a microsecond or more"),
            "boot with clocksource=tsc where the machine's TSC is stable",
        ));
    }
    if environment
        .scheduling
        .numa_balancing
        .is_some_and(|on| on != 0)
        && environment.cpu.numa_nodes.is_some_and(|nodes| nodes > 1)
    {
        hazards.push(Hazard::new(
            "numa_balancing",
            "automatic NUMA balancing is on: it takes page faults to see who uses which memory",
            "sysctl kernel.numa_balancing=0",
        ));
    }
    if let Some(quota) = &environment.cpu_quota {
        hazards.push(Hazard::new(
            "cpu_quota",
            format!(
                "a control group limits CPU time ({quota}, in µs): who has used up its \
                         share is stopped until the next period"
            ),
            "run outside the limited container or service, or lift its limit",
        ));
    }
    if environment.memory.transparent_hugepage.as_deref() == Some("always") {
        hazards.push(Hazard::new(
            "transparent_hugepage",
            "transparent huge pages are always on: a page fault may wait until the kernel has \
                 put one together",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ));
    }
    let near: CpuSet = environment
        .cpu
        .server
        .iter()
        .flat_map(|cpu| cpus::siblings(roots, cpu).iter().collect::<Vec<_>>())
        .collect();
    let shared = near.intersection(&environment.cpu.client);
    if !shared.is_empty() {
        hazards.push(Hazard::new(
            "shared_core",
            format!(
                "CPU {shared} of the load generator shares a core with the server's: the \
                         spinning generator slows the server"
            ),
            "choose CPUs of different cores, or switch SMT off",
        ));
    }
    hazards
}
