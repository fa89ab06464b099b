//! Hazards of machines that are folders of files.

use std::time::Duration;

use super::*;
use crate::cpus::Placement;
use crate::roots::testing::tree;

fn captured(files: &[(&str, &str)], loopback: bool) -> (tempfile::TempDir, Roots, Environment) {
    let (folder, roots) = tree(files);
    let environment = capture_environment(&CaptureSpec {
        roots: &roots,
        placement: &Placement {
            server: CpuSet::single(0),
            client: CpuSet::single(1),
        },
        command_line: Vec::new(),
        taillab_version: String::new(),
        server: None,
        loopback,
        observe: Duration::ZERO,
    });
    (folder, roots, environment)
}

/// The hazards of a machine with these files and this many CPUs.
fn hazards(files: &[(&str, &str)], cpus: u32) -> Vec<FoundHazard> {
    let (_folder, roots, environment) = captured(files, false);
    for_doctor(&roots, &environment, Some(&(0..cpus).collect()))
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
    let one = hazards(&[], 1);
    says(&one[0], "few_cpus", "1 usable CPU:", "four CPUs");
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

#[test]
fn a_run_states_what_its_machine_and_its_testbed_do_to_it() {
    let cpu = "sys/devices/system/cpu/cpu0";
    let files = [
        ("proc/self/cgroup", "0::/box\n"),
        ("sys/fs/cgroup/box/cpu.max", "50000 100000\n"),
        ("proc/cpuinfo", "flags\t\t: fpu hypervisor\n"),
        ("proc/meminfo", "MemAvailable:  1024 kB\n"),
        (
            "proc/77/stat",
            &format!("77 (irqbalance) S {}", "0 ".repeat(40)),
        ),
        (&format!("{cpu}/topology/thread_siblings_list"), "0-1\n"),
        (&format!("{cpu}/cpufreq/scaling_governor"), "powersave\n"),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet\n",
        ),
    ];
    let (_folder, _, environment) = captured(&files, true);
    let hazards = &environment.hazards;
    assert!(hazards[0].text.contains("sender's core"), "{hazards:?}");
    let keys: Vec<&str> = hazards.iter().map(|h| h.key.as_str()).collect();
    let expected = [
        "loopback_receive_on_sender",
        "virtual_machine",
        "irqbalance",
        "frequency_governor",
        "slow_clock",
        "cpu_quota",
        "shared_core",
    ];
    assert_eq!(keys, expected);
}
