//! All mitigations: what each is, which causes it treats and what it costs.
//!
//! `analysis::predict` says what each would achieve; `host::tune` makes the change, and says what shows that it can
//! win. Both refer to the rows here. What else may help is advice: `docs/advice.md`. How to add one:
//! `crates/host/src/tune/mitigations/README.md`.

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
    /// No setting does it: it has a section of `docs/advice.md`.
    pub by_hand: bool,
}

/// Defines a constant for each row, and the list of all of them.
macro_rules! mitigations {
    ($($constant:ident = $name:literal, $description:literal, treats [$($cause:ident),+],
       costs $cost:literal $(, $by_hand:ident)?;)+) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $constant: Mitigation = Mitigation {
                name: $name,
                description: $description,
                treats: &[$(Cause::$cause),+],
                cost: $cost,
                by_hand: mitigations!(@is_by_hand $($by_hand)?),
            };
        )+

        /// All mitigations.
        pub const MITIGATIONS: &[Mitigation] = &[$($constant),+];
    };
    (@is_by_hand by_hand) => { true };
    (@is_by_hand) => { false };
}

mitigations! {
    RT_PRIORITY = "rt-priority",
        "the server's threads under SCHED_FIFO",
        treats [Background, Order],
        costs "a server that never sleeps starves every other thread on its CPUs, including \
               ksoftirqd, and can lock them up: the limit on real-time threads is lifted, too (as by \
               rt-runtime)";
    RT_RUNTIME = "rt-runtime",
        "no limit on the time of real-time threads (sched_rt_runtime_us = -1)",
        treats [Throttled],
        costs "a real-time thread that never sleeps locks up its CPU";
    CPU_QUOTA = "cpu-quota",
        "a higher CPU quota for the server's cgroup, or none",
        treats [Throttled],
        costs "the server can take CPU time from others on the machine";
    OTHERS_IDLE = "others-idle",
        "every other program under SCHED_IDLE",
        treats [Background],
        costs "other programs run only while the server's CPUs are idle";
    SLICE = "slice",
        "time slices of 0.1 ms for the fair scheduler (sched_attr.sched_runtime)",
        treats [Background],
        costs "more context switches";
    DEDICATED_CPUS = "dedicated-cpus",
        "the server's CPUs for the server alone (isolated cpuset)",
        treats [Background],
        costs "everything else loses these CPUs";
    IRQ_AFFINITY = "irq-affinity",
        "device interrupts on other CPUs",
        treats [Irq],
        costs "another CPU handles them; irqbalance must leave them there";
    SOFTIRQ_CPU = "softirq-cpu",
        "receive softirqs on a CPU of their own (RPS)",
        treats [Softirq],
        costs "another CPU spends that time, about one for every three of the server's";
    INTERRUPT_CPU = "interrupt-cpu",
        "one of the server's CPUs for interrupts and softirqs only",
        treats [Softirq, Irq],
        costs "the server has one CPU fewer";
    BUSY_POLL = "busy-poll",
        "workers that poll and do not sleep (SO_BUSY_POLL, spinning on epoll)",
        treats [Wakeup, IdleExit],
        costs "each worker's CPU is busy all the time";
    IRQ_SUSPENSION = "irq-suspension",
        "device interrupts off while the server polls (irq-suspend-timeout)",
        treats [Irq, Wakeup],
        costs "each worker's CPU is busy all the time; the driver must support it";
    CPU_DMA_LATENCY = "cpu-dma-latency",
        "no deep idle states (/dev/cpu_dma_latency held open)",
        treats [IdleExit],
        costs "power, and less turbo for the other CPUs";
    GOVERNOR = "governor",
        "the highest frequency at all times (governor performance)",
        treats [SlowService],
        costs "power";
    NUMA = "numa",
        "the server's memory on the node of its CPUs (cpuset.mems), no NUMA balancing",
        treats [SlowService, BlockedFault],
        costs "one instance for each node";
    NOHZ_FULL = "nohz-full",
        "no timer tick on the server's CPUs (nohz_full, rcu_nocbs)",
        treats [Irq, Softirq],
        costs "a reboot, and slower system calls", by_hand;
    ASYNC_IO = "async-io",
        "storage in separate threads, or data in memory",
        treats [BlockedIo],
        costs "a change to the server", by_hand;
    SERVER_THREADS = "server-threads",
        "no more workers than the server has CPUs",
        treats [OwnThreads],
        costs "a restart of the server; a worker that blocks leaves its CPU idle", by_hand;
    FINER_LOCKS = "finer-locks",
        "no lock held across requests (finer or none)",
        treats [BlockedLock],
        costs "a change to the server", by_hand;
    SHARED_QUEUE = "shared-queue",
        "one queue for all workers (a shared socket or epoll, or work stealing)",
        treats [Imbalance, Order],
        costs "a change to the server; contention on the queue", by_hand;
    NICE = "nice",
        "the server's threads at niceness -20",
        treats [Background],
        costs "kernel threads and real-time threads still run, and other programs still get a \
               share";
    OTHERS_AFFINITY = "others-affinity",
        "every other program on other CPUs (plain affinity)",
        treats [Background],
        costs "other programs lose these CPUs; each can move itself back";
}

/// What may help and is done by hand, without a forecast.
const ADVICE: &[&str] = &[
    "housekeeping",
    "memory-daemons",
    "smt",
    "timer-slack",
    "global-fifo",
    "rfs",
    "xps",
    "threaded-napi",
    "coalescing",
    "offloads",
    "tcp-latency",
    "tcp-loss",
    "resume-latency",
    "energy-preference",
    "boost",
    "memory-lock",
];

/// The sections of `docs/advice.md`, in any order: all that is done by hand.
pub fn advice() -> impl Iterator<Item = &'static str> {
    let rows = MITIGATIONS.iter().filter(|row| row.by_hand);
    (ADVICE.iter().copied()).chain(rows.map(|row| row.name))
}

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

    #[test]
    fn each_advice_has_its_section() {
        const DOCS: &str = include_str!("../../../docs/advice.md");
        let sections = DOCS.lines().filter_map(|line| line.strip_prefix("### "));
        let (mut sections, mut named): (Vec<_>, Vec<_>) = (sections.collect(), advice().collect());
        sections.sort_unstable();
        named.sort_unstable();
        assert_eq!(sections, named);
    }
}
