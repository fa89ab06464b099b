//! What the replay takes out for each mitigation, as data.
//!
//! What a mitigation is, which causes it treats and what it costs is in
//! [`taillab_model::mitigation`].

use taillab_model::explanation::Cause;
use taillab_model::mitigation;

use super::threads::Class;
use crate::replay::Observed;

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
    /// All workers are real-time threads. The limit of real-time threads holds back no others.
    RealTimeWorkers,
    /// No worker is a real-time thread: a group's quota (CFS bandwidth control) holds back none.
    OrdinaryWorkers,
}

/// A mitigation, as the replay takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mitigation {
    /// Its name, what it treats, what it costs.
    pub is: mitigation::Mitigation,
    /// What of these it leaves; empty: nothing.
    pub keeps: &'static str,
    /// `taillab tune` makes it. Otherwise it is a change of the server itself, or asks for a reboot.
    pub by_tune: bool,
    /// When it is possible.
    pub needs: Needs,
    /// What the replay does for it. Empty: the replay has no model of it, so it is named
    /// without a forecast.
    pub effects: &'static [Effect],
}

impl Mitigation {
    /// It is possible for this queue.
    pub(super) fn is_possible(&self, observed: &Observed) -> bool {
        match self.needs {
            Needs::Nothing => true,
            Needs::SeveralCpus => observed.vacations.len() > 1,
            Needs::SeveralWorkers => observed.workers.len() > 1,
            Needs::RealTimeWorkers => observed.real_time == Some(true),
            Needs::OrdinaryWorkers => observed.real_time == Some(false),
        }
    }
}

const fn threads(class: Class) -> Effect {
    let at_most_ns = 0;
    Effect::Threads { class, at_most_ns }
}

/// All of them.
pub const MITIGATIONS: &[Mitigation] = &[
    Mitigation {
        is: mitigation::RT_PRIORITY,
        keeps: "threads of still higher priority (migration, stop, interrupt threads), and the \
                server's own other threads",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[threads(Class::LowerThanRealTime), Effect::InOrder],
    },
    Mitigation {
        is: mitigation::RT_RUNTIME,
        keeps: "cgroup quotas",
        by_tune: true,
        needs: Needs::RealTimeWorkers,
        effects: &[Effect::Source(Cause::Throttled)],
    },
    Mitigation {
        is: mitigation::CPU_QUOTA,
        keeps: "",
        by_tune: true,
        needs: Needs::OrdinaryWorkers,
        effects: &[Effect::Source(Cause::Throttled)],
    },
    Mitigation {
        is: mitigation::OTHERS_IDLE,
        keeps: "threads of the kernel, and the server's own other threads",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[threads(Class::Programs)],
    },
    Mitigation {
        is: mitigation::SLICE,
        keeps: "0.1 ms of each time that another thread takes the CPU",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[Effect::Threads {
            class: Class::Fair,
            at_most_ns: 100_000,
        }],
    },
    Mitigation {
        is: mitigation::DEDICATED_CPUS,
        keeps: "the kernel's per-CPU threads (kworker/N, ksoftirqd/N), and the server's \
                own other threads",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[threads(Class::Movable)],
    },
    Mitigation {
        is: mitigation::HOUSEKEEPING,
        keeps: "programs, and the kernel's per-CPU threads",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[threads(Class::UnboundKernel)],
    },
    Mitigation {
        is: mitigation::MEMORY_DAEMONS,
        keeps: "all other threads",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[threads(Class::MemoryDaemons)],
    },
    Mitigation {
        is: mitigation::IRQ_AFFINITY,
        keeps: "the CPU's own timer, and interrupts from other CPUs",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[Effect::DeviceInterrupts],
    },
    Mitigation {
        is: mitigation::SOFTIRQ_CPU,
        keeps: "one interrupt between the CPUs for each wake-up, and the timer and scheduler \
                softirqs",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[Effect::Softirqs(&["NET_RX", "NET_TX"])],
    },
    Mitigation {
        is: mitigation::INTERRUPT_CPU,
        keeps: "the CPU's own timer",
        by_tune: true,
        needs: Needs::SeveralCpus,
        effects: &[
            Effect::Softirqs(&[]),
            Effect::DeviceInterrupts,
            Effect::CpuLess,
        ],
    },
    Mitigation {
        is: mitigation::THREADED_NAPI,
        keeps: "the timer and scheduler softirqs",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[Effect::Softirqs(&["NET_RX"])],
    },
    Mitigation {
        is: mitigation::COALESCING,
        keeps: "the softirqs",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[],
    },
    Mitigation {
        is: mitigation::BUSY_POLL,
        keeps: "",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[Effect::Wakeup, Effect::IdleExit],
    },
    Mitigation {
        is: mitigation::IRQ_SUSPENSION,
        keeps: "the CPU's own timer",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[Effect::DeviceInterrupts, Effect::Wakeup],
    },
    Mitigation {
        is: mitigation::CPU_DMA_LATENCY,
        keeps: "",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[Effect::IdleExit],
    },
    Mitigation {
        is: mitigation::GOVERNOR,
        keeps: "",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[],
    },
    Mitigation {
        is: mitigation::NUMA,
        keeps: "",
        by_tune: true,
        needs: Needs::SeveralCpus,
        effects: &[],
    },
    Mitigation {
        is: mitigation::SMT,
        keeps: "",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[],
    },
    Mitigation {
        is: mitigation::NOHZ_FULL,
        keeps: "interrupts of devices, receive softirqs",
        by_tune: false,
        needs: Needs::Nothing,
        effects: &[
            Effect::LocalTimer,
            Effect::Softirqs(&["TIMER", "SCHED", "RCU", "HRTIMER"]),
        ],
    },
    Mitigation {
        is: mitigation::MEMORY_LOCK,
        keeps: "the fault of each page that is touched for the first time",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[Effect::Unblock(Cause::BlockedFault)],
    },
    Mitigation {
        is: mitigation::ASYNC_IO,
        keeps: "the storage's own time in requests that need it",
        by_tune: false,
        needs: Needs::Nothing,
        effects: &[Effect::Unblock(Cause::BlockedIo)],
    },
    Mitigation {
        is: mitigation::FINER_LOCKS,
        keeps: "",
        by_tune: false,
        needs: Needs::Nothing,
        effects: &[Effect::Unblock(Cause::BlockedLock)],
    },
    Mitigation {
        is: mitigation::SHARED_QUEUE,
        keeps: "",
        by_tune: false,
        needs: Needs::SeveralWorkers,
        effects: &[Effect::SharedQueue, Effect::InOrder],
    },
    Mitigation {
        is: mitigation::TCP_LOSS,
        keeps: "",
        by_tune: true,
        needs: Needs::Nothing,
        effects: &[Effect::NoLoss],
    },
    Mitigation {
        is: mitigation::GLOBAL_FIFO,
        keeps: "",
        by_tune: true,
        needs: Needs::SeveralWorkers,
        effects: &[Effect::InOrder],
    },
    Mitigation {
        is: mitigation::SERVER_THREADS,
        keeps: "",
        by_tune: false,
        needs: Needs::SeveralWorkers,
        effects: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_mitigation_has_one_row() {
        let mut names = HashSet::new();
        for row in MITIGATIONS {
            assert!(names.insert(row.is.name), "{} is there twice", row.is.name);
        }
    }

    #[test]
    fn every_cause_that_something_can_be_done_about_has_a_mitigation() {
        let treated: HashSet<Cause> = MITIGATIONS
            .iter()
            .flat_map(|m| m.is.treats)
            .copied()
            .collect();
        for cause in Cause::ALL {
            let none = matches!(
                cause,
                Cause::StackRx
                    | Cause::StackTx
                    | Cause::Queue
                    | Cause::Service
                    | Cause::BlockedOther
                    | Cause::Hypervisor
                    | Cause::SlowCpu
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
                assert!(row.is.treats.contains(&cause), "{} {effect:?}", row.is.name);
            }
        }
    }
}
