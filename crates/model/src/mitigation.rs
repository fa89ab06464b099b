//! The names of all mitigations: what each is, which causes it treats and what it costs.
//!
//! They are those of *Tales of the Tail*, section 4, and of the tuning guides of Linux.
//! `analysis::predict` says what each would bring, `host::tune` makes the change; both refer to
//! the rows here. How to add one: `CONTRIBUTING.md`.

use crate::cause::Cause;

/// A change of a setting or of the architecture that treats some causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mitigation {
    /// Its name, for the command line and for scripts.
    pub name: &'static str,
    /// What it is, in words.
    pub description: &'static str,
    /// The causes that it takes away, wholly or in part.
    pub treats: &'static [Cause],
    /// What it costs or risks.
    pub cost: &'static str,
}

/// `rt-priority`.
pub const RT_PRIORITY: Mitigation = Mitigation {
    name: "rt-priority",
    description: "the server's threads under SCHED_FIFO",
    treats: &[Cause::Background, Cause::Order],
    cost: "a server that never sleeps starves every other thread on its CPUs, including \
           ksoftirqd; without rt-runtime, the kernel stops the server for 50 ms of each second at \
           full load",
};
/// `rt-runtime`.
pub const RT_RUNTIME: Mitigation = Mitigation {
    name: "rt-runtime",
    description: "no limit on the time of real-time threads (sched_rt_runtime_us = -1)",
    treats: &[Cause::Throttled],
    cost: "a real-time thread that never sleeps locks up its CPU",
};
/// `cpu-quota`.
pub const CPU_QUOTA: Mitigation = Mitigation {
    name: "cpu-quota",
    description: "a higher CPU quota for the server's cgroup, or none",
    treats: &[Cause::Throttled],
    cost: "the server can take CPU time from others on the machine",
};
/// `others-idle`.
pub const OTHERS_IDLE: Mitigation = Mitigation {
    name: "others-idle",
    description: "every other program under SCHED_IDLE",
    treats: &[Cause::Background],
    cost: "other programs run only while the server's CPUs are idle",
};
/// `slice`.
pub const SLICE: Mitigation = Mitigation {
    name: "slice",
    description: "time slices of 0.1 ms for the fair scheduler (sched_attr.sched_runtime)",
    treats: &[Cause::Background],
    cost: "more context switches",
};
/// `dedicated-cpus`.
pub const DEDICATED_CPUS: Mitigation = Mitigation {
    name: "dedicated-cpus",
    description: "the server's CPUs for the server alone (isolated cpuset)",
    treats: &[Cause::Background],
    cost: "everything else loses these CPUs",
};
/// `housekeeping`.
pub const HOUSEKEEPING: Mitigation = Mitigation {
    name: "housekeeping",
    description: "the kernel's unbound work and its watchdogs on other CPUs",
    treats: &[Cause::Background],
    cost: "little: other CPUs do that work",
};
/// `memory-daemons`.
pub const MEMORY_DAEMONS: Mitigation = Mitigation {
    name: "memory-daemons",
    description: "no transparent huge pages, compaction and memory monitoring in the \
                  background",
    treats: &[Cause::Background, Cause::BlockedFault],
    cost: "more TLB misses in large heaps",
};
/// `irq-affinity`.
pub const IRQ_AFFINITY: Mitigation = Mitigation {
    name: "irq-affinity",
    description: "device interrupts on other CPUs",
    treats: &[Cause::Irq],
    cost: "another CPU handles them; irqbalance must leave them there",
};
/// `softirq-cpu`.
pub const SOFTIRQ_CPU: Mitigation = Mitigation {
    name: "softirq-cpu",
    description: "receive softirqs on a CPU of their own (RPS)",
    treats: &[Cause::Softirq],
    cost: "another CPU spends that time, about one for every three of the server's",
};
/// `interrupt-cpu`.
pub const INTERRUPT_CPU: Mitigation = Mitigation {
    name: "interrupt-cpu",
    description: "one of the server's CPUs for interrupts and softirqs only",
    treats: &[Cause::Softirq, Cause::Irq],
    cost: "the server has one CPU fewer",
};
/// `threaded-napi`.
pub const THREADED_NAPI: Mitigation = Mitigation {
    name: "threaded-napi",
    description: "receive work in a separate thread on another CPU (threaded NAPI)",
    treats: &[Cause::Softirq],
    cost: "another CPU spends that time, and each batch of packets a wake-up",
};
/// `coalescing`.
pub const COALESCING: Mitigation = Mitigation {
    name: "coalescing",
    description: "fewer interrupts for more packets (ethtool -C)",
    treats: &[Cause::Irq],
    cost: "each packet waits for the device's timer, which the forecast does not include",
};
/// `busy-poll`.
pub const BUSY_POLL: Mitigation = Mitigation {
    name: "busy-poll",
    description: "workers that poll and do not sleep (SO_BUSY_POLL, spinning on epoll)",
    treats: &[Cause::Wakeup, Cause::IdleExit],
    cost: "each worker's CPU is busy all the time",
};
/// `irq-suspension`.
pub const IRQ_SUSPENSION: Mitigation = Mitigation {
    name: "irq-suspension",
    description: "device interrupts off while the server polls (irq-suspend-timeout)",
    treats: &[Cause::Irq, Cause::Wakeup],
    cost: "each worker's CPU is busy all the time; the driver must support it",
};
/// `cpu-dma-latency`.
pub const CPU_DMA_LATENCY: Mitigation = Mitigation {
    name: "cpu-dma-latency",
    description: "no deep idle states (/dev/cpu_dma_latency held open)",
    treats: &[Cause::IdleExit],
    cost: "power, and less turbo for the other CPUs",
};
/// `governor`.
pub const GOVERNOR: Mitigation = Mitigation {
    name: "governor",
    description: "the highest frequency at all times (governor performance)",
    treats: &[Cause::SlowService],
    cost: "power",
};
/// `numa`.
pub const NUMA: Mitigation = Mitigation {
    name: "numa",
    description: "the server's memory on the node of its CPUs (cpuset.mems), no NUMA balancing",
    treats: &[Cause::SlowService, Cause::BlockedFault],
    cost: "one instance for each node",
};
/// `smt`.
pub const SMT: Mitigation = Mitigation {
    name: "smt",
    description: "one thread for each physical core",
    treats: &[Cause::SlowService],
    cost: "half of the machine's threads",
};
/// `nohz-full`.
pub const NOHZ_FULL: Mitigation = Mitigation {
    name: "nohz-full",
    description: "no timer tick on the server's CPUs (nohz_full, rcu_nocbs)",
    treats: &[Cause::Irq, Cause::Softirq],
    cost: "a reboot, and slower system calls",
};
/// `memory-lock`.
pub const MEMORY_LOCK: Mitigation = Mitigation {
    name: "memory-lock",
    description: "the server's memory kept in place: never reclaimed nor swapped (memory.min; or mlockall by the \
                  server itself)",
    treats: &[Cause::BlockedFault],
    cost: "all of its memory is resident; others lose theirs first",
};
/// `global-fifo`.
pub const GLOBAL_FIFO: Mitigation = Mitigation {
    name: "global-fifo",
    description: "one queue for all ordinary threads, first come first served (sched_ext)",
    treats: &[Cause::Order],
    cost: "threads of all programs wait in one queue: whoever has the CPU keeps it for up to 20 ms, whatever its \
           priority",
};
/// `server-threads`.
pub const SERVER_THREADS: Mitigation = Mitigation {
    name: "server-threads",
    description: "as many threads of the server as it has CPUs, by its own option",
    treats: &[Cause::Order, Cause::Imbalance],
    cost: "a restart of the server",
};
/// `async-io`.
pub const ASYNC_IO: Mitigation = Mitigation {
    name: "async-io",
    description: "storage in separate threads, or data in memory",
    treats: &[Cause::BlockedIo],
    cost: "a change to the server",
};
/// `finer-locks`.
pub const FINER_LOCKS: Mitigation = Mitigation {
    name: "finer-locks",
    description: "no lock held across requests (finer or none)",
    treats: &[Cause::BlockedLock],
    cost: "a change to the server",
};
/// `shared-queue`.
pub const SHARED_QUEUE: Mitigation = Mitigation {
    name: "shared-queue",
    description: "one queue for all workers (a shared socket or epoll, or work stealing)",
    treats: &[Cause::Imbalance, Cause::Order],
    cost: "a change to the server; contention on the queue",
};
/// `tcp-loss`.
pub const TCP_LOSS: Mitigation = Mitigation {
    name: "tcp-loss",
    description: "no lost segments: room for more on receive (netdev_max_backlog, tcp_rmem), paced senders",
    treats: &[Cause::Retransmit],
    cost: "memory",
};
/// `nice`.
pub const NICE: Mitigation = Mitigation {
    name: "nice",
    description: "the server's threads at niceness -20",
    treats: &[Cause::Background],
    cost: "kernel threads and real-time threads still run, and other programs still get a share",
};
/// `others-affinity`.
pub const OTHERS_AFFINITY: Mitigation = Mitigation {
    name: "others-affinity",
    description: "every other program on other CPUs (plain affinity)",
    treats: &[Cause::Background],
    cost: "other programs lose these CPUs; each can move itself back",
};
/// `rfs`.
pub const RFS: Mitigation = Mitigation {
    name: "rfs",
    description: "receive work on the CPU of the thread that reads (RFS)",
    treats: &[Cause::Softirq, Cause::Wakeup],
    cost: "a table of flows, and an interrupt between the CPUs where a thread moves",
};
/// `xps`.
pub const XPS: Mitigation = Mitigation {
    name: "xps",
    description: "each CPU sends through its own transmit queue (XPS)",
    treats: &[Cause::Softirq],
    cost: "queues fill unevenly where few CPUs send",
};
/// `offloads`.
pub const OFFLOADS: Mitigation = Mitigation {
    name: "offloads",
    description: "no batches of packets on receive (GRO and LRO off)",
    treats: &[Cause::Softirq],
    cost: "more packets for the stack, and so less throughput",
};
/// `resume-latency`.
pub const RESUME_LATENCY: Mitigation = Mitigation {
    name: "resume-latency",
    description: "no deep idle states on the server's CPUs (pm_qos_resume_latency_us)",
    treats: &[Cause::IdleExit],
    cost: "power",
};
/// `energy-preference`.
pub const ENERGY_PREFERENCE: Mitigation = Mitigation {
    name: "energy-preference",
    description: "the processor prefers performance to energy (EPP)",
    treats: &[Cause::SlowService],
    cost: "power",
};
/// `boost`.
pub const BOOST: Mitigation = Mitigation {
    name: "boost",
    description: "frequencies above the nominal one (boost)",
    treats: &[Cause::SlowService],
    cost: "heat; on a poorly cooled machine, a frequency that varies",
};
/// `timer-slack`.
pub const TIMER_SLACK: Mitigation = Mitigation {
    name: "timer-slack",
    description: "the server's timers fire when they are due (timer slack 1 ns)",
    treats: &[Cause::Wakeup],
    cost: "more wake-ups where many timers are set",
};
/// `tcp-latency`.
pub const TCP_LATENCY: Mitigation = Mitigation {
    name: "tcp-latency",
    description: "TCP sends at once (autocorking off, no slow start after idle, little unsent \
                  data)",
    treats: &[Cause::StackTx, Cause::Retransmit],
    cost: "more and smaller packets",
};

/// All of them.
pub const MITIGATIONS: &[Mitigation] = &[
    RT_PRIORITY,
    RT_RUNTIME,
    CPU_QUOTA,
    OTHERS_IDLE,
    SLICE,
    DEDICATED_CPUS,
    HOUSEKEEPING,
    MEMORY_DAEMONS,
    IRQ_AFFINITY,
    SOFTIRQ_CPU,
    INTERRUPT_CPU,
    THREADED_NAPI,
    COALESCING,
    BUSY_POLL,
    IRQ_SUSPENSION,
    CPU_DMA_LATENCY,
    GOVERNOR,
    NUMA,
    SMT,
    NOHZ_FULL,
    MEMORY_LOCK,
    ASYNC_IO,
    FINER_LOCKS,
    SHARED_QUEUE,
    TCP_LOSS,
    NICE,
    OTHERS_AFFINITY,
    RFS,
    XPS,
    OFFLOADS,
    RESUME_LATENCY,
    ENERGY_PREFERENCE,
    BOOST,
    TIMER_SLACK,
    TCP_LATENCY,
    GLOBAL_FIFO,
    SERVER_THREADS,
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_row_is_complete_and_its_name_its_own() {
        let mut names = HashSet::new();
        for row in MITIGATIONS {
            assert!(names.insert(row.name), "{} is there twice", row.name);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(row.name.chars().all(plain), "{}", row.name);
            assert!(
                !row.treats.is_empty() && !row.cost.is_empty() && !row.description.is_empty(),
                "{}",
                row.name
            );
        }
    }
}
