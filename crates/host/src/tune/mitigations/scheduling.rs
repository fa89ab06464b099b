//! When the server's threads run, and when everybody else's do.

use std::path::PathBuf;

use taillab_model::mitigation;

use super::{ENDS_WITH_THREAD, Evidence, Mitigation, PUT_BACK, existing};
use crate::noise::RtThrottle;
use crate::target::cpu_groups;
use crate::tune::change::Change;
use crate::tune::proposal::{Conflict, Proposal, Unavailable};
use crate::tune::scene::{Scene, Thread};
use crate::tune::setting::{Form, Policy, SchedulingValue, Setting};

const SCHED: &str = "man 7 sched; Tales of the Tail, sections 4.1 and 4.2";

/// Below the kernel's threads for interrupts, which have 50: packets must come in.
const PRIORITY: u32 = 49;
/// The shortest slice that the kernel takes (`__setparam_fair`).
const SLICE_NS: u64 = 100_000;

pub(super) const RT_PRIORITY: Mitigation = Mitigation {
    is: mitigation::RT_PRIORITY,
    needs: "-p; a CPU that the server does not use; CAP_SYS_NICE",
    interface: "sched_setattr of each thread of the server: SCHED_FIFO 49, below the threads of \
                interrupts; and \
                what rt-runtime changes",
    undo: ENDS_WITH_THREAD,
    proof: "/proc/PID/task/TID/status: nonvoluntary_ctxt_switches stays",
    reference: SCHED,
    evidence: Evidence::Paper("sections 4.1 and 4.2"),
    plan: rt_priority,
};

pub(super) const RT_RUNTIME: Mitigation = Mitigation {
    is: mitigation::RT_RUNTIME,
    needs: "root; with -p, a server with real-time threads",
    interface: "/proc/sys/kernel/sched_rt_runtime_us: -1; from Linux 6.12 also \
                /sys/kernel/debug/sched/fair_server/cpuN/runtime: 0, where debugfs is mounted",
    undo: PUT_BACK,
    proof: "dmesg has no new \"RT throttling activated\"",
    reference: "kernel Documentation/scheduler/sched-rt-group.rst",
    evidence: Evidence::Documented,
    plan: rt_runtime,
};

pub(super) const NICE: Mitigation = Mitigation {
    is: mitigation::NICE,
    needs: "-p; CAP_SYS_NICE",
    interface: "sched_setattr of each thread of the server: nice -20",
    undo: ENDS_WITH_THREAD,
    proof: "/proc/PID/task/TID/schedstat: the waiting time (second field) grows more slowly",
    reference: "man 7 sched; Tales of the Tail, section 4.1",
    evidence: Evidence::Paper("section 4.1"),
    plan: nice,
};

pub(super) const OTHERS_IDLE: Mitigation = Mitigation {
    is: mitigation::OTHERS_IDLE,
    needs: "-p; CAP_SYS_NICE",
    interface: "sched_setattr of each thread that may run on the server's CPUs: SCHED_IDLE. \
                Kernel threads, real-time threads and those of this session are left alone",
    undo: "the old value is written back, also for threads that inherited ours; the change ends with the thread",
    proof: "/proc/PID/task/TID/schedstat: the waiting time (second field) of the server's threads",
    reference: "man 7 sched (SCHED_IDLE); Tales of the Tail, section 4.1",
    evidence: Evidence::Documented,
    plan: others_idle,
};

pub(super) const SLICE: Mitigation = Mitigation {
    is: mitigation::SLICE,
    needs: "-p; Linux 6.12 or later",
    interface: "sched_setattr of each thread of the server: sched_runtime 0.1 ms. A thread with \
                a shorter slice \
                preempts one with a longer one when it wakes up",
    undo: ENDS_WITH_THREAD,
    proof: "/proc/PID/task/TID/schedstat: the waiting time (second field) of the server's threads",
    reference: "kernel Documentation/scheduler/sched-eevdf.rst",
    evidence: Evidence::Documented,
    plan: slice,
};

/// How a thread is scheduled, without the slack of its timers, which is a setting of its own; `None` where it has
/// ended meanwhile.
fn value_of(scene: &Scene, thread: &Thread) -> Option<SchedulingValue> {
    let setting = Setting::scheduling(thread.identity);
    let value: SchedulingValue = setting.read(&scene.roots).ok()?.parse().ok()?;
    Some(SchedulingValue {
        timer_slack_ns: 0,
        ..value
    })
}

/// A change of each thread of the server for which `wanted` returns a new value.
fn of_server(
    scene: &Scene,
    why: &str,
    wanted: impl Fn(SchedulingValue) -> Option<SchedulingValue>,
) -> Result<Vec<Change>, Unavailable> {
    let server = scene.server()?;
    let threads = server.threads.iter();
    let change = |thread: &Thread| {
        let new = wanted(value_of(scene, thread)?)?;
        let why = format!("{} of {} {why}", thread.name, server.name);
        let setting = Setting::scheduling(thread.identity);
        Some(Change::new(setting, new.to_string(), why))
    };
    Ok(threads.filter_map(change).collect())
}

fn rt_priority(scene: &Scene) -> Result<Proposal, Unavailable> {
    let server = scene.server()?;
    // Under RT_GROUP_SCHED a group without a share of real time refuses with EPERM.
    let share = |group: &PathBuf| std::fs::read_to_string(group.join("cpu.rt_runtime_us")).ok();
    let mut groups = (server.processes.iter())
        .filter_map(|pid| cpu_groups(&scene.roots, *pid).into_iter().next());
    let without = groups.find(|group| share(group).is_some_and(|share| share.trim() == "0"));
    if let Some(group) = without {
        return Err(Unavailable(format!(
            "the server's control group has no share of real time (RT_GROUP_SCHED): write e.g. \
             950000 to {}",
            group.join("cpu.rt_runtime_us").display()
        )));
    }
    let mut proposal = without_limit(scene).unwrap_or_default();
    let threads = of_server(scene, "runs before every ordinary thread", |value| {
        value.policy.is_fair().then(|| value.with_fifo(PRIORITY))
    })?;
    if threads.is_empty() {
        return Err(Unavailable(
            "all threads of the server already have a real-time policy".into(),
        ));
    }
    proposal.changes.extend(threads);
    let napi = |thread: &Thread| thread.name.starts_with("napi/");
    if scene.others().iter().any(napi) {
        proposal.harms.push(Conflict {
            who: "threaded NAPI".into(),
            effect: "receives packets in ordinary threads, which a server in real time starves"
                .into(),
            remedy: "keep napi/… off the server's CPUs (others-affinity)".into(),
            is_harmful: false,
        });
    }
    Ok(proposal)
}

fn rt_runtime(scene: &Scene) -> Result<Proposal, Unavailable> {
    if let Some(server) = &scene.server
        && !server.threads.iter().any(|thread| thread.is_real_time)
    {
        return Err(Unavailable(format!(
            "no thread of {} is real-time, and the limit holds back no other thread (rt-priority makes them \
             real-time and lifts the limit)",
            server.name
        )));
    }
    without_limit(scene)
}

/// Lifts the limit of real-time threads.
fn without_limit(scene: &Scene) -> Result<Proposal, Unavailable> {
    let mut changes = Vec::new();
    if RtThrottle::read(&scene.roots).is_some_and(RtThrottle::is_active) {
        changes.extend(existing(
            scene,
            "/proc/sys/kernel/sched_rt_runtime_us",
            Form::Text,
            "-1",
            "the kernel stops real-time threads for the rest of each period",
        ));
    }
    let servers = "/sys/kernel/debug/sched/fair_server";
    for cpu in scene.cpus.iter() {
        let path = format!("{servers}/cpu{cpu}/runtime");
        let why = format!(
            "on CPU {cpu} ordinary threads get a share of each second before real-time ones"
        );
        // kernel lockdown forbids writes to debugfs
        changes.extend(existing(scene, path, Form::Text, "0", why).map(Change::if_possible));
    }
    let is_blind = scene.names("/sys/kernel/debug").is_empty();
    let mut proposal = super::proposal(changes, "real-time threads have no limit here already")?;
    if is_blind {
        proposal.notes.push(
            "debugfs is not mounted: from Linux 6.12 on a fair server may still give ordinary \
             threads 50 ms of \
             each second (mount -t debugfs debugfs /sys/kernel/debug)"
                .into(),
        );
    }
    Ok(proposal)
}

fn nice(scene: &Scene) -> Result<Proposal, Unavailable> {
    let changes = of_server(scene, "gets most of the time that threads share", |value| {
        let new = SchedulingValue { nice: -20, ..value };
        matches!(value.policy, Policy::Other | Policy::Batch).then_some(new)
    })?;
    super::proposal(
        changes,
        "no thread of the server shares time by its niceness",
    )
}

fn slice(scene: &Scene) -> Result<Proposal, Unavailable> {
    let changes = of_server(
        scene,
        "preempts threads with longer slices when it wakes up",
        |value| {
            let has_slice = value.policy.is_fair() && value.runtime_ns > 0;
            has_slice.then_some(SchedulingValue {
                runtime_ns: SLICE_NS,
                ..value
            })
        },
    )?;
    super::proposal(
        changes,
        "this kernel has no slices for single threads: Linux 6.12 or later has them",
    )
}

fn others_idle(scene: &Scene) -> Result<Proposal, Unavailable> {
    let server = scene.server()?;
    let why = format!(
        "may run on CPU {}, and then only while {} does not",
        scene.cpus, server.name
    );
    let mut changes = Vec::new();
    for thread in scene.others() {
        let is_near = !thread.cpus.intersection(&scene.cpus).is_empty();
        if thread.is_kernel || !is_near {
            continue;
        }
        let Some(value) = value_of(scene, &thread) else {
            continue;
        };
        if !matches!(value.policy, Policy::Other | Policy::Batch) {
            continue;
        }
        let new = SchedulingValue {
            policy: Policy::Idle,
            ..value
        };
        let why = format!("{} (pid {}) {why}", thread.name, thread.process);
        changes.push(Change::new(
            Setting::scheduling(thread.identity),
            new.to_string(),
            why,
        ));
    }
    super::proposal(changes, "no other program may run on the server's CPUs")
}
