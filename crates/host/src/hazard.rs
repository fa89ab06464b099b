//! Conditions that can spoil a measurement: one list for `run`, `trace` and `doctor`.

use std::fs;

use taillab_model::doctor::{FoundHazard, HazardGroup};

use crate::cpus::{self, CpuSet};
use crate::environment::{CaptureSpec, Environment};
use crate::process::{Stat, numbers_in};
use crate::roots::{Roots, read_optional};

/// With fewer CPUs, the rest of the machine has to share those of client or server.
const ENOUGH_CPUS: usize = 3;
/// With less memory available, the kernel reclaims pages while requests wait.
const ENOUGH_MEMORY_BYTES: u64 = 512 << 20;
/// In µs: a wake-up from idle that takes this long or longer shows in the tail.
const DEEP_EXIT_US: u64 = 10;
/// A larger share of CPU time taken by the hypervisor is a hazard.
const STEAL_SHARE: f64 = 0.001;
/// Clock sources that need a microsecond or more for each reading.
const SLOW_CLOCKS: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];

/// What the rules look at.
struct Machine<'a> {
    roots: &'a Roots,
    environment: &'a Environment,
    /// Client and server share the loopback interface.
    loopback: bool,
    /// CPUs that this process may use; `None` where the kernel does not say.
    usable: Option<&'a CpuSet>,
}

/// The commands that check a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckedBy {
    /// `run`, which reports it in its verdict, and `doctor`.
    All,
    /// `doctor` only: settings that most machines have, worth changing before a measurement.
    Doctor,
}

/// A condition with its effect, and what a reader can do.
type Finding = (String, String);

/// A rule of the list.
struct Rule {
    /// Name for programs, snake_case; never changes once released.
    key: &'static str,
    group: HazardGroup,
    checked_by: CheckedBy,
    find: fn(&Machine<'_>) -> Option<Finding>,
}

const fn rule(
    key: &'static str,
    group: HazardGroup,
    checked_by: CheckedBy,
    find: fn(&Machine<'_>) -> Option<Finding>,
) -> Rule {
    Rule {
        key,
        group,
        checked_by,
        find,
    }
}

fn finding(text: impl Into<String>, remedy: impl Into<String>) -> Finding {
    (text.into(), remedy.into())
}

fn when(there: bool, text: impl Into<String>, remedy: impl Into<String>) -> Option<Finding> {
    there.then(|| finding(text, remedy))
}

/// All rules, in the order in which results state them.
const RULES: [Rule; 20] = {
    use CheckedBy::{All, Doctor};
    use HazardGroup::{Hardware, Load, Setting};
    [
        rule("loopback_receive_on_sender", Setting, All, loopback),
        rule("busy_processes", Load, All, busy_processes),
        rule("steal", Hardware, All, steal),
        rule("virtual_machine", Hardware, All, virtual_machine),
        rule("irqbalance", Load, All, irqbalance),
        rule("frequency_governor", Hardware, All, frequency_governor),
        rule("slow_clock", Hardware, All, slow_clock),
        rule("numa_balancing", Setting, All, numa_balancing),
        rule("cpu_quota", Load, All, cpu_quota),
        rule("transparent_hugepage", Setting, All, transparent_hugepage),
        rule("shared_core", Hardware, All, shared_core),
        rule("few_cpus", Load, Doctor, few_cpus),
        rule("memory_pressure", Load, Doctor, memory_pressure),
        rule("kdamond", Load, Doctor, damon),
        rule("smt", Hardware, Doctor, smt),
        rule("sleep_states", Hardware, Doctor, sleep_states),
        rule("clock_not_tsc", Hardware, Doctor, clock_not_tsc),
        rule("no_isolated_cpus", Setting, Doctor, not_isolated),
        rule("rt_throttling", Setting, Doctor, real_time_throttling),
        rule("timer_slack", Setting, Doctor, timer_slack),
    ]
};

/// Reads the machine and finds which of its conditions can spoil a measurement. Takes as long as
/// [`CaptureSpec::observe`].
pub fn capture_environment(spec: &CaptureSpec<'_>) -> Environment {
    let mut environment = Environment::read(spec);
    environment.hazards = apply(
        &Machine {
            roots: spec.roots,
            environment: &environment,
            loopback: spec.loopback,
            usable: None,
        },
        |by| by == CheckedBy::All,
    );
    environment
}

/// The hazards that `doctor` shows, by group.
pub(crate) fn for_doctor(
    roots: &Roots,
    environment: &Environment,
    usable: Option<&CpuSet>,
) -> Vec<FoundHazard> {
    let machine = Machine {
        roots,
        environment,
        loopback: false,
        usable,
    };
    let mut all = apply(&machine, |_| true);
    all.sort_by_key(|hazard| hazard.group);
    all
}

fn apply(machine: &Machine<'_>, wanted: impl Fn(CheckedBy) -> bool) -> Vec<FoundHazard> {
    let rules = RULES.iter().filter(|rule| wanted(rule.checked_by));
    rules
        .filter_map(|rule| {
            let (text, remedy) = (rule.find)(machine)?;
            Some(FoundHazard {
                group: rule.group,
                key: rule.key.to_owned(),
                text,
                remedy: Some(remedy),
            })
        })
        .collect()
}

fn loopback(machine: &Machine<'_>) -> Option<Finding> {
    when(
        machine.loopback,
        "on loopback the receive work of every packet runs on the sender's core, inside its \
             send call, so the server's stack receive time is charged to the load generator and \
             the client's to the server",
        "use the veth testbed (the default; needs root)",
    )
}

fn busy_processes(machine: &Machine<'_>) -> Option<Finding> {
    let busy = &machine.environment.activity.as_ref()?.busy_processes;
    let named: Vec<String> = (busy.iter().take(5))
        .map(|p| format!("{} (pid {}) {:.0} %", p.name, p.pid, p.cpus * 100.0))
        .collect();
    when(
        !named.is_empty(),
        format!(
            "other processes use the CPUs of the measurement: {}",
            named.join(", ")
        ),
        "stop them, or move them to other CPUs (taskset -p)",
    )
}

fn steal(machine: &Machine<'_>) -> Option<Finding> {
    let usage = machine.environment.activity.as_ref()?.usage?;
    when(
        usage.steal_share > STEAL_SHARE,
        "the hypervisor takes CPU time away (steal): part of the tail is not this machine's",
        "use a machine or an instance type with dedicated CPUs",
    )
}

fn virtual_machine(machine: &Machine<'_>) -> Option<Finding> {
    when(
        machine.environment.virtualization.hypervisor().is_some(),
        "this is a virtual machine: the hypervisor pauses its CPUs without a trace, and \
             steal may read 0 nevertheless; interprocessor interrupts are expensive",
        "measure on the real machine where the tail beyond p99.9 matters",
    )
}

fn irqbalance(machine: &Machine<'_>) -> Option<Finding> {
    when(
        machine.environment.irqbalance_running,
        "irqbalance runs and may move interrupts to the CPUs of the measurement",
        "stop it during the measurement (systemctl stop irqbalance)",
    )
}

fn frequency_governor(machine: &Machine<'_>) -> Option<Finding> {
    let governor = machine.environment.power.governor.as_deref()?;
    when(
        ["powersave", "ondemand", "conservative", "schedutil"].contains(&governor),
        format!("the frequency governor is {governor}: service times depend on the load"),
        "cpupower frequency-set -g performance",
    )
}

fn slow_clock(machine: &Machine<'_>) -> Option<Finding> {
    let clock = machine.environment.scheduling.clocksource.as_deref()?;
    when(
        SLOW_CLOCKS.contains(&clock),
        format!("the clock source is {clock}: every time stamp costs a microsecond or more"),
        "boot with clocksource=tsc where the machine's TSC is stable",
    )
}

fn numa_balancing(machine: &Machine<'_>) -> Option<Finding> {
    let Environment {
        scheduling, cpu, ..
    } = machine.environment;
    when(
        scheduling.numa_balancing? != 0 && cpu.numa_nodes? > 1,
        "automatic NUMA balancing is on: it takes page faults to see who uses which memory",
        "sysctl kernel.numa_balancing=0",
    )
}

fn cpu_quota(machine: &Machine<'_>) -> Option<Finding> {
    let quota = machine.environment.cpu_quota.as_ref()?;
    Some(finding(
        format!(
            "a control group limits CPU time ({quota}, in µs): its tasks are stopped until the \
             next period once they have used up their share"
        ),
        "run outside the limited container or service, or lift its limit",
    ))
}

fn transparent_hugepage(machine: &Machine<'_>) -> Option<Finding> {
    when(
        machine.environment.memory.transparent_hugepage.as_deref() == Some("always"),
        "transparent huge pages are always on: a page fault may wait until the kernel has \
         assembled one",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )
}

fn shared_core(machine: &Machine<'_>) -> Option<Finding> {
    let cpu = &machine.environment.cpu;
    let near: CpuSet = (cpu.server.iter())
        .flat_map(|cpu| {
            cpus::siblings(machine.roots, cpu)
                .iter()
                .collect::<Vec<_>>()
        })
        .collect();
    let shared = near.intersection(&cpu.client);
    when(
        !shared.is_empty(),
        format!(
            "CPU {shared} of the load generator shares a core with the server's: the \
                 spinning generator slows the server"
        ),
        "choose CPUs of different cores, or switch SMT off",
    )
}

fn few_cpus(machine: &Machine<'_>) -> Option<Finding> {
    let usable = machine.usable.filter(|set| set.len() < ENOUGH_CPUS)?;
    let text = match usable.len() {
        1 => {
            "1 usable CPU: server and generator share it with everything else on the machine".into()
        }
        n => format!(
            "{n} usable CPUs: server and generator take them all, and everything else on the \
             machine shares them"
        ),
    };
    Some(finding(text, "use a machine with four CPUs or more"))
}

fn memory_pressure(machine: &Machine<'_>) -> Option<Finding> {
    let path = machine.roots.proc.join("pressure/memory");
    let pressure = read_optional(&path).and_then(|text| {
        let (_, rest) = text.lines().next()?.split_once("avg10=")?;
        rest.split(' ').next()?.parse::<f64>().ok()
    });
    let text = match (pressure, machine.environment.memory.available_bytes) {
        (Some(share), _) if share >= 1.0 => {
            format!("tasks waited for memory {share:.0} % of the last ten seconds")
        }
        (_, Some(bytes)) if bytes < ENOUGH_MEMORY_BYTES => format!(
            "{} MiB of memory are left: the kernel reclaims while requests wait",
            bytes >> 20
        ),
        _ => return None,
    };
    Some(finding(
        text,
        "stop whatever takes the memory (ps --sort=-rss -eo rss,pid,comm | head)",
    ))
}

/// DAMON's thread samples page accesses, for up to milliseconds at a time.
fn damon(machine: &Machine<'_>) -> Option<Finding> {
    let Roots { proc, sys, .. } = machine.roots;
    let thread = numbers_in(proc)
        .into_iter()
        .filter_map(|pid| Stat::of(machine.roots, pid))
        .find(|stat| stat.comm.starts_with("kdamond"))?;
    let module = ["damon_reclaim", "damon_lru_sort", "damon_stat"]
        .into_iter()
        .find(|module| {
            let path = format!("module/{module}/parameters/enabled");
            read_optional(&sys.join(path)).as_deref() == Some("Y")
        });
    let number = thread
        .comm
        .rsplit_once('.')
        .map_or("0", |(_, number)| number);
    Some(finding(
        format!(
            "{} samples memory accesses (DAMON) and holds a CPU for milliseconds at a time",
            thread.comm
        ),
        match module {
            Some(module) => format!("echo N | sudo tee /sys/module/{module}/parameters/enabled"),
            None => {
                format!("echo off | sudo tee /sys/kernel/mm/damon/admin/kdamonds/{number}/state")
            }
        },
    ))
}

fn smt(machine: &Machine<'_>) -> Option<Finding> {
    when(
        machine.environment.cpu.smt_active == Some(true),
        "cores run two threads (SMT): a CPU is slower while its sibling works",
        "echo off | sudo tee /sys/devices/system/cpu/smt/control",
    )
}

fn sleep_states(machine: &Machine<'_>) -> Option<Finding> {
    let cpu = machine.environment.cpu.server.first().unwrap_or(0);
    let folder = format!("devices/system/cpu/cpu{cpu}/cpuidle");
    let states = fs::read_dir(machine.roots.sys.join(folder)).ok()?;
    let (exit_us, name) = states
        .filter_map(|entry| {
            let state = entry.ok()?.path();
            // switched off by hand
            let off = read_optional(&state.join("disable")).is_some_and(|value| value != "0");
            let exit_us: u64 = read_optional(&state.join("latency"))?.parse().ok()?;
            (!off).then_some((exit_us, read_optional(&state.join("name"))?))
        })
        .max()
        .filter(|(exit_us, _)| *exit_us >= DEEP_EXIT_US)?;
    Some(finding(
        format!("idle CPUs sleep as deeply as {name}: waking up takes up to {exit_us} µs"),
        "as root, in a shell kept open: exec 3>/dev/cpu_dma_latency; printf '\\0\\0\\0\\0' >&3",
    ))
}

/// The processor has a time stamp counter and the kernel does not use it. Sources that cost a
/// microsecond are [`slow_clock`]'s.
fn clock_not_tsc(machine: &Machine<'_>) -> Option<Finding> {
    let scheduling = &machine.environment.scheduling;
    let current = scheduling.clocksource.as_deref()?;
    let available = scheduling.clocksources_available.as_deref()?;
    let has_tsc = available.split_ascii_whitespace().any(|c| c == "tsc");
    when(
        has_tsc && current != "tsc" && !SLOW_CLOCKS.contains(&current),
        format!("the clock source is {current}: a time stamp costs more than with tsc"),
        "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource",
    )
}

fn not_isolated(machine: &Machine<'_>) -> Option<Finding> {
    let usable = machine.usable.filter(|set| set.len() >= ENOUGH_CPUS)?;
    let cpu = &machine.environment.cpu;
    if cpu.isolated.is_some() {
        return None;
    }
    let measured: CpuSet = cpu.server.iter().chain(cpu.client.iter()).collect();
    Some(finding(
        format!("no CPU is isolated: other tasks may run on CPU {measured} too"),
        format!(
            "with systemd: for u in init.scope system.slice user.slice; do sudo systemctl \
             set-property --runtime $u AllowedCPUs={}; done",
            usable.difference(&measured)
        ),
    ))
}

/// `sched_rt_runtime_us`, and from Linux 6.12 on the fair server that replaces it.
fn real_time_throttling(machine: &Machine<'_>) -> Option<Finding> {
    let scheduling = &machine.environment.scheduling;
    let runtime_us = scheduling.rt_runtime_us.filter(|&us| us >= 0)?;
    let period_us = scheduling.rt_period_us?;
    let stopped_us = (runtime_us < period_us).then(|| period_us - runtime_us)?;
    let fair_server = machine.roots.sys.join("kernel/debug/sched/fair_server");
    Some(finding(
        format!(
            "a server with SCHED_FIFO that never sleeps is stopped for {} ms of every {} ms",
            stopped_us / 1000,
            period_us / 1000
        ),
        if fair_server.exists() {
            "sudo sysctl kernel.sched_rt_runtime_us=-1, and as root: for f in \
             /sys/kernel/debug/sched/fair_server/cpu*/runtime; do echo 0 > $f; done"
        } else {
            "sudo sysctl kernel.sched_rt_runtime_us=-1"
        },
    ))
}

/// `PR_SET_TIMERSLACK`: 50 µs unless someone asked for less.
fn timer_slack(machine: &Machine<'_>) -> Option<Finding> {
    let slack = read_optional(&machine.roots.proc.join("self/timerslack_ns"))?;
    let slack_ns: u64 = slack.parse().ok()?;
    when(
        slack_ns > 1000,
        format!(
            "timers of ordinary threads may fire {} µs late, so a server that sleeps wakes \
                 up late",
            slack_ns / 1000
        ),
        "in the server: prctl(PR_SET_TIMERSLACK, 1)",
    )
}

#[cfg(test)]
mod tests;
