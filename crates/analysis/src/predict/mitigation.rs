//! Every change of a setting or of the architecture that the tool knows, as data: which
//! causes it treats, what the replay takes out for it, and what it costs.
//!
//! The mitigations are those of *Tales of the Tail*, section 4, and of the tuning guides of
//! Linux; a new one is a row of [`MITIGATIONS`].

use taillab_model::explanation::Cause;

use super::threads::Class;

/// What the replay takes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Threads of this class no longer take the server's CPUs, nor stay there for longer
    /// than `at_most_ns`.
    Threads {
        /// Which.
        class: Class,
        /// How long each time on the CPU still is; 0: none.
        at_most_ns: u32,
    },
    /// Interrupts of devices go elsewhere.
    DeviceInterrupts,
    /// The CPU's own timer stops.
    LocalTimer,
    /// Softirqs of these names run elsewhere; empty: all.
    Softirqs(&'static [&'static str]),
    /// A worker is not woken: it looks for work by itself.
    Wakeup,
    /// CPUs stay out of power states.
    IdleExit,
    /// Workers do not sleep in the middle of a request for this cause.
    Unblock(Cause),
    /// What this cause takes is given back.
    Source(Cause),
    /// Any worker takes any request.
    SharedQueue,
    /// Requests are served in the order in which they came.
    InOrder,
    /// No packet of a request is lost on its way.
    NoLoss,
    /// One CPU of the server less.
    CpuLess,
}

/// When a mitigation is possible at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Always.
    Nothing,
    /// The server has several CPUs.
    SeveralCpus,
    /// The server has several workers.
    SeveralWorkers,
}

/// A change that treats some causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mitigation {
    /// Its name.
    pub key: &'static str,
    /// What it is, in words.
    pub description: &'static str,
    /// The causes that it takes away, wholly or in part.
    pub treats: &'static [Cause],
    /// What of these it leaves; empty: nothing.
    pub keeps: &'static str,
    /// The command that does it. `PID` is replaced by the server's process; the reader fills in
    /// other capitals. `None`: a change of the server itself.
    pub command: Option<&'static str>,
    /// What it costs or risks.
    pub cost: &'static str,
    /// When it is possible.
    pub needs: Needs,
    /// What the replay does for it. Empty: the replay has no model of it, so it is named
    /// without a forecast.
    pub effects: &'static [Effect],
}

const fn threads(class: Class) -> Effect {
    let at_most_ns = 0;
    Effect::Threads { class, at_most_ns }
}

/// All of them.
pub const MITIGATIONS: &[Mitigation] = &[
    Mitigation {
        key: "rt-priority",
        description: "the server's threads under SCHED_FIFO",
        treats: &[Cause::Background, Cause::Order],
        keeps: "threads that rank higher still (migration, stop, interrupt threads), and the \
                server's own other threads",
        command: Some("chrt -a -f -p 50 PID"),
        cost: "a server that never sleeps starves every other thread of its CPUs, ksoftirqd \
               among them; with it belongs rt-runtime, or the kernel stops the server for \
               50 ms of each second at full load",
        needs: Needs::Nothing,
        effects: &[threads(Class::LowerThanRealTime), Effect::InOrder],
    },
    Mitigation {
        key: "rt-runtime",
        description: "no limit on the time of real-time threads (sched_rt_runtime_us = -1)",
        treats: &[Cause::Throttled],
        keeps: "quotas of a cgroup",
        command: Some("sysctl -w kernel.sched_rt_runtime_us=-1"),
        cost: "a real-time thread that never sleeps locks its CPU up",
        needs: Needs::Nothing,
        effects: &[Effect::Source(Cause::Throttled)],
    },
    Mitigation {
        key: "cpu-quota",
        description: "a higher CPU quota for the server's cgroup, or none",
        treats: &[Cause::Throttled],
        keeps: "",
        command: Some("echo max > /sys/fs/cgroup$(sed -n s/^0:://p /proc/PID/cgroup)/cpu.max"),
        cost: "the server can take the time of others on the machine",
        needs: Needs::Nothing,
        effects: &[Effect::Source(Cause::Throttled)],
    },
    Mitigation {
        key: "others-idle",
        description: "every other program under SCHED_IDLE",
        treats: &[Cause::Background],
        keeps: "threads of the kernel, and the server's own other threads",
        command: Some("chrt -a -i -p 0 OTHER_PID"),
        cost: "other programs run only while the server's CPUs are idle",
        needs: Needs::Nothing,
        effects: &[threads(Class::Programs)],
    },
    Mitigation {
        key: "slice",
        description: "time slices of 0.1 ms for the fair scheduler (sched_attr.sched_runtime)",
        treats: &[Cause::Background],
        keeps: "0.1 ms of each time that another thread takes the CPU",
        command: Some("echo 100000 > /sys/kernel/debug/sched/base_slice_ns"),
        cost: "more context switches",
        needs: Needs::Nothing,
        effects: &[Effect::Threads {
            class: Class::Fair,
            at_most_ns: 100_000,
        }],
    },
    Mitigation {
        key: "dedicated-cpus",
        description: "the server's CPUs for the server alone (isolated cpuset)",
        treats: &[Cause::Background],
        keeps: "the kernel's threads for each CPU (kworker/N, ksoftirqd/N), and the server's \
                own other threads",
        command: Some("taskset -a -c -p OTHER_CPUS OTHER_PID"),
        cost: "everything else has these CPUs less",
        needs: Needs::Nothing,
        effects: &[threads(Class::Movable)],
    },
    Mitigation {
        key: "housekeeping",
        description: "the kernel's unbound work and its watchdogs on other CPUs",
        treats: &[Cause::Background],
        keeps: "programs, and the kernel's threads for each CPU",
        command: Some("echo MASK_OF_OTHER_CPUS > /sys/devices/virtual/workqueue/cpumask"),
        cost: "little: other CPUs do that work",
        needs: Needs::Nothing,
        effects: &[threads(Class::UnboundKernel)],
    },
    Mitigation {
        key: "memory-daemons",
        description: "no transparent huge pages, compaction and memory monitoring in the \
                      background",
        treats: &[Cause::Background, Cause::BlockedFault],
        keeps: "all other threads",
        command: Some(
            "echo never > /sys/kernel/mm/transparent_hugepage/enabled; sysctl -w vm.compaction_proactiveness=0; echo off > /sys/kernel/mm/damon/admin/kdamonds/0/state",
        ),
        cost: "more misses of the TLB in large heaps",
        needs: Needs::Nothing,
        effects: &[threads(Class::MemoryDaemons)],
    },
    Mitigation {
        key: "irq-affinity",
        description: "the devices' interrupts on other CPUs",
        treats: &[Cause::Irq],
        keeps: "the CPU's own timer, and what other CPUs ask of it",
        command: Some("echo OTHER_CPUS > /proc/irq/NUMBER/smp_affinity_list"),
        cost: "another CPU handles them; irqbalance must leave them there",
        needs: Needs::Nothing,
        effects: &[Effect::DeviceInterrupts],
    },
    Mitigation {
        key: "softirq-cpu",
        description: "receive softirqs on a CPU of their own (RPS)",
        treats: &[Cause::Softirq],
        keeps: "one interrupt between the CPUs for each wake-up, and the softirqs of timer \
                and scheduler",
        command: Some("echo MASK_OF_OTHER_CPU > /sys/class/net/DEVICE/queues/rx-0/rps_cpus"),
        cost: "another CPU spends that time, about one for each three of the server",
        needs: Needs::Nothing,
        effects: &[Effect::Softirqs(&["NET_RX", "NET_TX"])],
    },
    Mitigation {
        key: "interrupt-cpu",
        description: "one of the server's CPUs for interrupts and softirqs only",
        treats: &[Cause::Softirq, Cause::Irq],
        keeps: "the CPU's own timer",
        command: Some("taskset -a -c -p FEWER_CPUS PID"),
        cost: "the server has one CPU less",
        needs: Needs::SeveralCpus,
        effects: &[
            Effect::Softirqs(&[]),
            Effect::DeviceInterrupts,
            Effect::CpuLess,
        ],
    },
    Mitigation {
        key: "threaded-napi",
        description: "receive work in a separate thread on another CPU (threaded NAPI)",
        treats: &[Cause::Softirq],
        keeps: "the softirqs of timer and scheduler",
        command: Some("echo 1 > /sys/class/net/DEVICE/threaded"),
        cost: "another CPU spends that time, and each batch of packets a wake-up",
        needs: Needs::Nothing,
        effects: &[Effect::Softirqs(&["NET_RX"])],
    },
    Mitigation {
        key: "coalescing",
        description: "fewer interrupts for more packets (ethtool -C)",
        treats: &[Cause::Irq],
        keeps: "the softirqs",
        command: Some("ethtool -C DEVICE rx-usecs 50"),
        cost: "each packet waits for the device's timer, which the forecast does not hold",
        needs: Needs::Nothing,
        effects: &[],
    },
    Mitigation {
        key: "busy-poll",
        description: "workers that poll and do not sleep (SO_BUSY_POLL, spinning on epoll)",
        treats: &[Cause::Wakeup, Cause::IdleExit],
        keeps: "",
        command: Some("sysctl -w net.core.busy_poll=50 net.core.busy_read=50"),
        cost: "each worker's CPU is busy all the time",
        needs: Needs::Nothing,
        effects: &[Effect::Wakeup, Effect::IdleExit],
    },
    Mitigation {
        key: "irq-suspension",
        description: "device interrupts off while the server polls (irq-suspend-timeout)",
        treats: &[Cause::Irq, Cause::Wakeup],
        keeps: "the CPU's own timer",
        command: Some(
            "echo 2 > /sys/class/net/DEVICE/napi_defer_hard_irqs; echo 200000 > /sys/class/net/DEVICE/gro_flush_timeout",
        ),
        cost: "each worker's CPU is busy all the time; needs a driver that can",
        needs: Needs::Nothing,
        effects: &[Effect::DeviceInterrupts, Effect::Wakeup],
    },
    Mitigation {
        key: "cpu-dma-latency",
        description: "no deep idle states (a held /dev/cpu_dma_latency)",
        treats: &[Cause::IdleExit],
        keeps: "",
        command: Some("exec 3> /dev/cpu_dma_latency; printf '\\0\\0\\0\\0' >&3"),
        cost: "power, and less turbo for the other CPUs",
        needs: Needs::Nothing,
        effects: &[Effect::IdleExit],
    },
    Mitigation {
        key: "governor",
        description: "the highest frequency at all times (governor performance)",
        treats: &[Cause::SlowService],
        keeps: "",
        command: Some("cpupower frequency-set -g performance"),
        cost: "power",
        needs: Needs::Nothing,
        effects: &[],
    },
    Mitigation {
        key: "numa",
        description: "the server's memory on the node of its CPUs, no NUMA balancing",
        treats: &[Cause::SlowService, Cause::BlockedFault],
        keeps: "",
        command: Some("numactl --cpunodebind=NODE --membind=NODE SERVER"),
        cost: "one instance for each node",
        needs: Needs::SeveralCpus,
        effects: &[],
    },
    Mitigation {
        key: "smt",
        description: "one thread for each physical core",
        treats: &[Cause::SlowService],
        keeps: "",
        command: Some("echo off > /sys/devices/system/cpu/smt/control"),
        cost: "half of the machine's threads",
        needs: Needs::Nothing,
        effects: &[],
    },
    Mitigation {
        key: "nohz-full",
        description: "no timer tick on the server's CPUs (nohz_full, rcu_nocbs)",
        treats: &[Cause::Irq, Cause::Softirq],
        keeps: "interrupts of devices, receive softirqs",
        command: Some("grubby --update-kernel=ALL --args='nohz_full=CPUS rcu_nocbs=CPUS'"),
        cost: "a reboot, and slower system calls",
        needs: Needs::Nothing,
        effects: &[
            Effect::LocalTimer,
            Effect::Softirqs(&["TIMER", "SCHED", "RCU", "HRTIMER"]),
        ],
    },
    Mitigation {
        key: "memory-lock",
        description: "the server's memory present and locked (mlockall, MAP_POPULATE)",
        treats: &[Cause::BlockedFault],
        keeps: "",
        command: None,
        cost: "all of its memory is resident",
        needs: Needs::Nothing,
        effects: &[Effect::Unblock(Cause::BlockedFault)],
    },
    Mitigation {
        key: "async-io",
        description: "storage in separate threads, or data in memory",
        treats: &[Cause::BlockedIo],
        keeps: "the time of the storage itself in those requests that need it",
        command: None,
        cost: "a change of the server",
        needs: Needs::Nothing,
        effects: &[Effect::Unblock(Cause::BlockedIo)],
    },
    Mitigation {
        key: "finer-locks",
        description: "no lock held across requests (finer or none)",
        treats: &[Cause::BlockedLock],
        keeps: "",
        command: None,
        cost: "a change of the server",
        needs: Needs::Nothing,
        effects: &[Effect::Unblock(Cause::BlockedLock)],
    },
    Mitigation {
        key: "shared-queue",
        description: "one queue for all workers (a shared socket or epoll, or work stealing)",
        treats: &[Cause::Imbalance, Cause::Order],
        keeps: "",
        command: None,
        cost: "a change of the server; contention on the queue",
        needs: Needs::SeveralWorkers,
        effects: &[Effect::SharedQueue, Effect::InOrder],
    },
    Mitigation {
        key: "tcp-loss",
        description: "no lost segments: larger receive queues, paced senders",
        treats: &[Cause::Retransmit],
        keeps: "",
        command: None,
        cost: "memory",
        needs: Needs::Nothing,
        effects: &[Effect::NoLoss],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_row_is_complete_and_its_key_its_own() {
        let mut keys = HashSet::new();
        for row in MITIGATIONS {
            assert!(keys.insert(row.key), "{} is there twice", row.key);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(row.key.chars().all(plain), "{}", row.key);
            assert!(
                !row.treats.is_empty() && !row.cost.is_empty(),
                "{}",
                row.key
            );
            assert!(!row.description.is_empty(), "{}", row.key);
        }
    }

    #[test]
    fn every_cause_that_something_can_be_done_about_has_a_mitigation() {
        let treated: HashSet<Cause> = MITIGATIONS.iter().flat_map(|m| m.treats).copied().collect();
        for cause in Cause::ALL {
            let none = matches!(
                cause,
                Cause::StackRx
                    | Cause::StackTx
                    | Cause::Queue
                    | Cause::Service
                    | Cause::BlockedOther
                    | Cause::Hypervisor
                    | Cause::Unobserved
                    | Cause::Unexplained
            );
            assert_eq!(treated.contains(&cause), !none, "{cause:?}");
        }
    }

    #[test]
    fn no_effect_reaches_beyond_the_causes_that_are_treated() {
        for row in MITIGATIONS {
            for effect in row.effects {
                let cause = match effect {
                    Effect::Threads { .. } => Cause::Background,
                    Effect::DeviceInterrupts | Effect::LocalTimer => Cause::Irq,
                    Effect::Softirqs(_) => Cause::Softirq,
                    Effect::Wakeup => Cause::Wakeup,
                    Effect::IdleExit => Cause::IdleExit,
                    Effect::Unblock(cause) | Effect::Source(cause) => *cause,
                    Effect::NoLoss => Cause::Retransmit,
                    Effect::SharedQueue => Cause::Imbalance,
                    Effect::InOrder => Cause::Order,
                    Effect::CpuLess => continue,
                };
                assert!(row.treats.contains(&cause), "{} {effect:?}", row.key);
            }
        }
    }
}
