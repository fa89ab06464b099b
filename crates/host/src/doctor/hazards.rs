//! What may spoil a measurement on this machine.

use std::fs;

use taillab_model::doctor::{FoundHazard, HazardGroup};

use crate::cpus::CpuSet;
use crate::environment::Environment;
use crate::hazard::Hazard;
use crate::process::{Stat, numbers_in};
use crate::roots::{Roots, read_optional};

/// With fewer, the rest of the machine has no CPU of its own.
const ENOUGH_CPUS: usize = 3;
/// An idle CPU that needs longer to wake up shows in the tail, in µs.
const DEEP_EXIT_US: u64 = 10;

/// Those that every run states, and those of a machine that nobody has prepared.
pub(super) fn of(
    roots: &Roots,
    environment: &Environment,
    usable: Option<&CpuSet>,
) -> Vec<FoundHazard> {
    let more = [
        few_cpus(usable),
        memory(roots, environment),
        damon(roots),
        smt(environment),
        sleep_states(roots, environment),
        clock(environment),
        not_isolated(environment, usable),
        real_time_throttling(roots, environment),
        timer_slack(roots),
    ];
    let mut all: Vec<FoundHazard> = (environment.hazards.iter().cloned())
        .chain(more.into_iter().flatten())
        .map(found)
        .collect();
    all.sort_by_key(|hazard| hazard.group);
    all
}

fn found(hazard: Hazard) -> FoundHazard {
    let group = match hazard.key.as_str() {
        "busy_processes" | "irqbalance" | "cpu_quota" | "few_cpus" | "memory_pressure"
        | "kdamond" => HazardGroup::Load,
        "virtual_machine" | "steal" | "frequency_governor" | "smt" | "sleep_states"
        | "shared_core" | "slow_clock" | "clock_not_tsc" => HazardGroup::Hardware,
        _ => HazardGroup::Setting,
    };
    FoundHazard {
        group,
        key: hazard.key,
        text: hazard.text,
        remedy: hazard.remedy,
    }
}

fn few_cpus(usable: Option<&CpuSet>) -> Option<Hazard> {
    let usable = usable.filter(|set| set.len() < ENOUGH_CPUS)?;
    Some(Hazard::new(
        "few_cpus",
        format!(
            "{} usable CPUs: server and generator take all, and everything else of the machine \
             runs beside them",
            usable.len()
        ),
        "use a machine with four CPUs or more",
    ))
}

fn memory(roots: &Roots, environment: &Environment) -> Option<Hazard> {
    const ENOUGH_BYTES: u64 = 512 << 20;
    let pressure = read_optional(&roots.proc.join("pressure/memory")).and_then(|text| {
        let (_, rest) = text.lines().next()?.split_once("avg10=")?;
        rest.split(' ').next()?.parse::<f64>().ok()
    });
    let available = environment.memory.available_bytes;
    let text = match (pressure, available) {
        (Some(share), _) if share >= 1.0 => {
            format!("tasks waited for memory {share:.0} % of the last ten seconds")
        }
        (_, Some(bytes)) if bytes < ENOUGH_BYTES => format!(
            "{} MiB of memory are left: the kernel reclaims while requests wait",
            bytes >> 20
        ),
        _ => return None,
    };
    Some(Hazard::new(
        "memory_pressure",
        text,
        "stop what takes the memory (ps --sort=-rss -eo rss,pid,comm | head)",
    ))
}

/// DAMON's thread samples page accesses, for up to milliseconds at a time.
fn damon(roots: &Roots) -> Option<Hazard> {
    let name = |pid: u32| Stat::read(&roots.proc.join(pid.to_string()).join("stat"));
    let thread = numbers_in(&roots.proc)
        .into_iter()
        .filter_map(name)
        .find(|stat| stat.comm.starts_with("kdamond"))?;
    let module = ["damon_reclaim", "damon_lru_sort", "damon_stat"]
        .into_iter()
        .find(|module| {
            let path = format!("module/{module}/parameters/enabled");
            read_optional(&roots.sys.join(path)).as_deref() == Some("Y")
        });
    let number = thread
        .comm
        .rsplit_once('.')
        .map_or("0", |(_, number)| number);
    Some(Hazard::new(
        "kdamond",
        format!(
            "{} samples memory accesses (DAMON) and holds a CPU for up to milliseconds",
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

fn smt(environment: &Environment) -> Option<Hazard> {
    (environment.cpu.smt_active == Some(true)).then(|| {
        Hazard::new(
            "smt",
            "cores run two threads (SMT): a CPU is slower while its sibling works",
            "echo off | sudo tee /sys/devices/system/cpu/smt/control",
        )
    })
}

fn sleep_states(roots: &Roots, environment: &Environment) -> Option<Hazard> {
    let cpu = environment.cpu.server.first().unwrap_or(0);
    let folder = roots
        .sys
        .join(format!("devices/system/cpu/cpu{cpu}/cpuidle"));
    let deepest = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let state = entry.ok()?.path();
            // switched off by hand
            let off = read_optional(&state.join("disable")).is_some_and(|value| value != "0");
            let exit_us: u64 = read_optional(&state.join("latency"))?.parse().ok()?;
            (!off).then_some((exit_us, read_optional(&state.join("name"))?))
        })
        .max()
        .filter(|(exit_us, _)| *exit_us >= DEEP_EXIT_US)?;
    Some(Hazard::new(
        "sleep_states",
        format!(
            "idle CPUs sleep as deep as {}: waking up takes up to {} µs",
            deepest.1, deepest.0
        ),
        "as root, in a shell kept open: exec 3>/dev/cpu_dma_latency; printf '\\0\\0\\0\\0' >&3",
    ))
}

/// Where the processor has a time stamp counter and the kernel does not use it; the
/// sources that cost a microsecond have a hazard of their own (`slow_clock`).
fn clock(environment: &Environment) -> Option<Hazard> {
    let current = environment.scheduling.clocksource.as_deref()?;
    let available = environment.scheduling.clocksources_available.as_deref();
    let has_tsc = available.is_some_and(|all| all.split_ascii_whitespace().any(|c| c == "tsc"));
    (has_tsc && current != "tsc" && environment.hazards.iter().all(|h| h.key != "slow_clock")).then(
        || {
            Hazard::new(
                "clock_not_tsc",
                format!("the clock source is {current}: a time stamp costs more than with tsc"),
                "echo tsc | sudo tee \
                 /sys/devices/system/clocksource/clocksource0/current_clocksource",
            )
        },
    )
}

fn not_isolated(environment: &Environment, usable: Option<&CpuSet>) -> Option<Hazard> {
    let usable = usable.filter(|set| set.len() >= ENOUGH_CPUS)?;
    if environment.cpu.isolated.is_some() {
        return None;
    }
    let measured: CpuSet = (environment.cpu.server.iter())
        .chain(environment.cpu.client.iter())
        .collect();
    Some(Hazard::new(
        "no_isolated_cpus",
        format!("no CPU is isolated: other tasks may run on CPU {measured} too"),
        format!(
            "with systemd: for u in init.scope system.slice user.slice; do sudo systemctl \
             set-property --runtime $u AllowedCPUs={}; done",
            usable.difference(&measured)
        ),
    ))
}

/// `sched_rt_runtime_us`, and from Linux 6.12 the fair server that stands in for it.
fn real_time_throttling(roots: &Roots, environment: &Environment) -> Option<Hazard> {
    let runtime_us = environment.scheduling.rt_runtime_us.filter(|&us| us >= 0)?;
    let period_us = environment.scheduling.rt_period_us?;
    let stopped_us = (runtime_us < period_us).then(|| period_us - runtime_us)?;
    let fair_server = roots.sys.join("kernel/debug/sched/fair_server").exists();
    Some(Hazard::new(
        "rt_throttling",
        format!(
            "a server with SCHED_FIFO that never sleeps is stopped for {} ms of every {} ms",
            stopped_us / 1000,
            period_us / 1000
        ),
        if fair_server {
            "sudo sysctl kernel.sched_rt_runtime_us=-1, and as root: for f in \
             /sys/kernel/debug/sched/fair_server/cpu*/runtime; do echo 0 > $f; done"
        } else {
            "sudo sysctl kernel.sched_rt_runtime_us=-1"
        },
    ))
}

/// `PR_SET_TIMERSLACK`: 50 µs unless someone asked for less.
fn timer_slack(roots: &Roots) -> Option<Hazard> {
    let slack_ns: u64 = read_optional(&roots.proc.join("self/timerslack_ns"))?
        .parse()
        .ok()?;
    (slack_ns > 1000).then(|| {
        Hazard::new(
            "timer_slack",
            format!(
                "timers of ordinary threads may fire {} µs late, so a server that sleeps wakes \
                 up late",
                slack_ns / 1000
            ),
            "in the server: prctl(PR_SET_TIMERSLACK, 1)",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::tree;
    use super::*;
    use crate::cpus::Placement;
    use crate::environment::CaptureSpec;

    /// The hazards of a machine with these files and this many CPUs.
    fn hazards(files: &[(&str, &str)], cpus: u32) -> Vec<FoundHazard> {
        let (_folder, roots) = tree(files);
        let placement = Placement {
            server: CpuSet::single(0),
            client: CpuSet::single(1),
        };
        let environment = Environment::capture(&CaptureSpec {
            roots: &roots,
            placement: &placement,
            command_line: Vec::new(),
            taillab_version: String::new(),
            server: None,
            observe: Duration::ZERO,
        });
        of(&roots, &environment, Some(&(0..cpus).collect()))
    }

    /// The only hazard of a machine that is otherwise well.
    fn only(files: &[(&str, &str)]) -> FoundHazard {
        let mut all = vec![("sys/devices/system/cpu/isolated", "0-1\n")];
        all.extend_from_slice(files);
        let mut found = hazards(&all, 8);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[track_caller]
    fn says(hazard: &FoundHazard, key: &str, text: &str, remedy: &str) {
        assert_eq!(hazard.key, key);
        assert!(hazard.text.contains(text), "{hazard:?}");
        assert!(
            hazard.remedy.as_ref().unwrap().contains(remedy),
            "{hazard:?}"
        );
    }

    #[test]
    fn a_prepared_machine_has_none() {
        let prepared = [
            ("sys/devices/system/cpu/isolated", "0-1\n"),
            ("sys/devices/system/cpu/smt/active", "0\n"),
            ("proc/sys/kernel/sched_rt_runtime_us", "-1\n"),
            ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
            ("proc/self/timerslack_ns", "1\n"),
            (
                "proc/pressure/memory",
                "some avg10=0.00 avg60=9.00 total=1\n",
            ),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C1\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2\n"),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc\n",
            ),
        ];
        assert_eq!(hazards(&prepared, 8), []);
    }

    #[test]
    fn too_few_cpus_and_no_isolated_ones() {
        let few = hazards(&[], 2);
        assert_eq!(few.len(), 1);
        says(&few[0], "few_cpus", "2 usable CPUs", "four CPUs");
        let all = hazards(&[], 4);
        assert_eq!(all.len(), 1);
        says(
            &all[0],
            "no_isolated_cpus",
            "CPU 0-1 too",
            "AllowedCPUs=2-3",
        );
    }

    #[test]
    fn memory_that_is_waited_for_or_nearly_gone() {
        let waited = only(&[("proc/pressure/memory", "some avg10=12.30 avg60=0 total=1\n")]);
        says(&waited, "memory_pressure", "12 %", "stop what");
        let gone = only(&[("proc/meminfo", "MemAvailable: 102400 kB\n")]);
        says(&gone, "memory_pressure", "100 MiB", "stop what");
    }

    #[test]
    fn damon_is_switched_off_where_it_was_switched_on() {
        let stat = "77 (kdamond.3) S 2 0 0 0 -1 0 0 0 0 0 0 1 0 0 0 20 0 1 0 5 \
                    0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0";
        let by_hand = only(&[("proc/77/stat", stat)]);
        says(&by_hand, "kdamond", "kdamond.3", "kdamonds/3/state");
        let by_module = only(&[
            ("proc/77/stat", stat),
            ("sys/module/damon_reclaim/parameters/enabled", "Y\n"),
        ]);
        let remedy = "/sys/module/damon_reclaim/parameters/enabled";
        says(&by_module, "kdamond", "DAMON", remedy);
    }

    #[test]
    fn threads_that_share_a_core_and_states_that_are_deep() {
        let smt = only(&[("sys/devices/system/cpu/smt/active", "1\n")]);
        says(&smt, "smt", "sibling", "smt/control");
        let folder = "sys/devices/system/cpu/cpu0/cpuidle";
        let name = format!("{folder}/state3/name");
        let latency = format!("{folder}/state3/latency");
        let disable = format!("{folder}/state3/disable");
        let mut deep = vec![(name.as_str(), "C6\n"), (latency.as_str(), "133\n")];
        says(
            &only(&deep),
            "sleep_states",
            "C6: waking up takes up to 133 µs",
            "cpu_dma_latency",
        );
        deep.push((disable.as_str(), "1\n"));
        deep.push(("sys/devices/system/cpu/isolated", "0-1\n"));
        assert_eq!(hazards(&deep, 8), []);
    }

    #[test]
    fn a_clock_that_is_not_the_best_one_there_is() {
        let clock = "sys/devices/system/clocksource/clocksource0";
        let current = format!("{clock}/current_clocksource");
        let available = format!("{clock}/available_clocksource");
        let all = (available.as_str(), "tsc kvm-clock hpet\n");
        let slower = only(&[(current.as_str(), "kvm-clock\n"), all]);
        says(&slower, "clock_not_tsc", "kvm-clock", "echo tsc");
        let slow = only(&[(current.as_str(), "hpet\n"), all]);
        says(&slow, "slow_clock", "hpet", "clocksource=tsc");
        let arm = [
            (current.as_str(), "arch_sys_counter\n"),
            ("sys/devices/system/cpu/isolated", "0-1\n"),
        ];
        assert_eq!(hazards(&arm, 8), []);
    }

    #[test]
    fn what_the_scheduler_does_by_default() {
        let throttled = [
            ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
            ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
        ];
        let old = only(&throttled);
        says(
            &old,
            "rt_throttling",
            "50 ms of every 1000 ms",
            "sched_rt_runtime_us=-1",
        );
        let mut new = throttled.to_vec();
        new.push((
            "sys/kernel/debug/sched/fair_server/cpu0/runtime",
            "50000000\n",
        ));
        says(&only(&new), "rt_throttling", "50 ms", "fair_server");
        let slack = only(&[("proc/self/timerslack_ns", "50000\n")]);
        says(&slack, "timer_slack", "50 µs late", "PR_SET_TIMERSLACK");
    }

    #[test]
    fn hazards_of_a_run_are_here_too_each_with_its_remedy() {
        for (files, key, remedy) in [
            (
                vec![("proc/cpuinfo", "flags\t: fpu hypervisor\n")],
                "virtual_machine",
                "real machine",
            ),
            (
                vec![(
                    "proc/9/stat",
                    "9 (irqbalance) S 1 0 0 0 -1 0 0 0 0 0 0 1 0 0 0 20 0 1 0 5 \
                     0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0",
                )],
                "irqbalance",
                "systemctl stop",
            ),
            (
                vec![(
                    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                    "powersave\n",
                )],
                "frequency_governor",
                "performance",
            ),
            (
                vec![(
                    "sys/kernel/mm/transparent_hugepage/enabled",
                    "[always] never\n",
                )],
                "transparent_hugepage",
                "madvise",
            ),
            (
                vec![
                    ("proc/sys/kernel/numa_balancing", "1\n"),
                    ("sys/devices/system/node/online", "0-1\n"),
                ],
                "numa_balancing",
                "numa_balancing=0",
            ),
            (
                vec![
                    ("proc/self/cgroup", "0::/a\n"),
                    ("sys/fs/cgroup/a/cpu.max", "5000 10000\n"),
                ],
                "cpu_quota",
                "lift its limit",
            ),
        ] {
            let hazard = only(&files);
            says(&hazard, key, "", remedy);
        }
    }
}
