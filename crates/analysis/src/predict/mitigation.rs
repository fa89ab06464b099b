//! What the replay changes for each mitigation, as data.
//!
//! [`taillab_model::mitigation`] says what each mitigation is, which causes it treats and what it costs.

use taillab_model::explanation::Cause;
use taillab_model::mitigation;

use super::threads::Class;
use crate::replay::Observed;

/// A change that a mitigation makes, as the replay models it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Threads of this class have one of the server's CPUs for at most `at_most_ns` at a time.
    Threads {
        /// The class.
        class: Class,
        /// The limit; 0: they do not delay the server.
        at_most_ns: u64,
        /// They stay on these CPUs, and run there when the server does not.
        stay: bool,
    },
    /// Interrupts of devices are handled on other CPUs.
    DeviceInterrupts,
    /// The CPU's own timer stops.
    LocalTimer,
    /// Softirqs of these names run on other CPUs; empty: all of them.
    Softirqs(&'static [&'static str]),
    /// There is nothing of this cause, as in the forecast without it: a worker that polls is not woken, a CPU
    /// enters no power state, no packet is lost.
    Without(Cause),
    /// Any worker takes any request.
    SharedQueue,
    /// Requests are served in the order of arrival.
    InOrder,
    /// The server has one CPU less.
    CpuLess,
}

/// The condition under which a mitigation is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Always.
    Nothing,
    /// The server has several CPUs.
    SeveralCpus,
    /// The server has several workers.
    SeveralWorkers,
    /// All workers are real-time threads; the limit of real-time threads holds back no others.
    RealTimeWorkers,
    /// No worker is a real-time thread; a group's quota (CFS bandwidth control) holds back no real-time
    /// threads.
    OrdinaryWorkers,
}

/// A mitigation, as the replay models it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mitigation {
    /// Its name, the causes that it treats, its cost.
    pub is: mitigation::Mitigation,
    /// What remains of those causes; empty: nothing.
    pub keeps: &'static str,
    /// `taillab tune` can make this change. Otherwise it is a change of the server itself, or needs a reboot.
    pub by_tune: bool,
    /// When it is possible.
    pub needs: Needs,
    /// Its effects in the replay. Empty: the replay has no model of it, so there is no forecast.
    pub effects: &'static [Effect],
}

impl Mitigation {
    const fn keeps(self, keeps: &'static str) -> Self {
        Self { keeps, ..self }
    }

    const fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    const fn effects(self, effects: &'static [Effect]) -> Self {
        Self { effects, ..self }
    }

    /// Whether it is possible for this queue.
    pub(crate) fn is_possible(&self, observed: &Observed) -> bool {
        match self.needs {
            Needs::Nothing => true,
            Needs::SeveralCpus => observed.vacations.len() > 1,
            Needs::SeveralWorkers => observed.workers.len() > 1,
            Needs::RealTimeWorkers => observed.real_time == Some(true),
            Needs::OrdinaryWorkers => observed.real_time == Some(false),
        }
    }
}

/// Threads of this class run on other CPUs, or not at all.
const fn gone(class: Class) -> Effect {
    Effect::Threads {
        class,
        at_most_ns: 0,
        stay: false,
    }
}

/// Threads of this class run when the server does not.
const fn give_way(class: Class) -> Effect {
    Effect::Threads {
        class,
        at_most_ns: 0,
        stay: true,
    }
}

/// A mitigation without a model in the replay.
const fn of(is: mitigation::Mitigation) -> Mitigation {
    Mitigation {
        is,
        keeps: "",
        by_tune: !is.by_hand,
        needs: Needs::Nothing,
        effects: &[],
    }
}

/// Every mitigation, one row each.
pub const MITIGATIONS: &[Mitigation] = &[
    of(mitigation::RT_PRIORITY)
        .effects(&[give_way(Class::LowerThanRealTime), Effect::InOrder])
        .keeps("threads of still higher priority (migration, stop, interrupt threads), and the server's own other threads"),
    of(mitigation::RT_RUNTIME)
        .needs(Needs::RealTimeWorkers)
        .effects(&[Effect::Without(Cause::Throttled)])
        .keeps("cgroup quotas"),
    of(mitigation::CPU_QUOTA)
        .needs(Needs::OrdinaryWorkers)
        .effects(&[Effect::Without(Cause::Throttled)]),
    of(mitigation::OTHERS_IDLE)
        .effects(&[give_way(Class::Programs)])
        .keeps("threads of the kernel, and the server's own other threads"),
    of(mitigation::SLICE)
        .effects(&[Effect::Threads { class: Class::Fair, at_most_ns: 100_000, stay: true }])
        .keeps("0.1 ms of each time that another thread takes the CPU"),
    of(mitigation::DEDICATED_CPUS)
        .effects(&[gone(Class::Movable)])
        .keeps("the kernel's per-CPU threads (kworker/N, ksoftirqd/N), and the server's own other threads"),
    of(mitigation::IRQ_AFFINITY)
        .effects(&[Effect::DeviceInterrupts])
        .keeps("the CPU's own timer, and interrupts from other CPUs"),
    of(mitigation::SOFTIRQ_CPU)
        .effects(&[Effect::Softirqs(&["NET_RX", "NET_TX"])])
        .keeps("one interrupt between the CPUs for each wake-up, and the timer and scheduler softirqs"),
    of(mitigation::INTERRUPT_CPU)
        .needs(Needs::SeveralCpus)
        .effects(&[Effect::Softirqs(&[]), Effect::DeviceInterrupts, Effect::CpuLess])
        .keeps("the CPU's own timer"),
    of(mitigation::BUSY_POLL)
        .effects(&[Effect::Without(Cause::Wakeup), Effect::Without(Cause::IdleExit)]),
    of(mitigation::IRQ_SUSPENSION)
        .effects(&[Effect::DeviceInterrupts, Effect::Without(Cause::Wakeup)])
        .keeps("the CPU's own timer"),
    of(mitigation::CPU_DMA_LATENCY)
        .effects(&[Effect::Without(Cause::IdleExit)]),
    of(mitigation::GOVERNOR),
    of(mitigation::NUMA)
        .needs(Needs::SeveralCpus),
    of(mitigation::NOHZ_FULL)
        .effects(&[Effect::LocalTimer, Effect::Softirqs(&["TIMER", "SCHED", "RCU", "HRTIMER"])])
        .keeps("interrupts of devices, receive softirqs"),
    of(mitigation::ASYNC_IO)
        .effects(&[Effect::Without(Cause::BlockedIo)])
        .keeps("the storage's own time in requests that need it"),
    of(mitigation::SERVER_THREADS)
        .needs(Needs::SeveralWorkers)
        .effects(&[Effect::Without(Cause::OwnThreads)]),
    of(mitigation::FINER_LOCKS)
        .effects(&[Effect::Without(Cause::BlockedLock)]),
    of(mitigation::SHARED_QUEUE)
        .needs(Needs::SeveralWorkers)
        .effects(&[Effect::SharedQueue, Effect::InOrder]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use taillab_model::explanation::Origin;

    #[test]
    fn each_mitigation_has_one_row() {
        let mut names = HashSet::new();
        for row in MITIGATIONS {
            assert!(names.insert(row.is.name), "{} is there twice", row.is.name);
        }
    }

    #[test]
    fn every_known_cause_of_excess_has_a_mitigation_or_advice() {
        let treated: HashSet<Cause> = MITIGATIONS
            .iter()
            .flat_map(|m| m.is.treats)
            .copied()
            .collect();
        for cause in Cause::ALL {
            let info = cause.info();
            let something = treated.contains(&cause) || info.advice.is_some();
            let nothing = matches!(info.origin, Origin::Ideal | Origin::Unknown);
            assert_ne!(something, nothing, "{cause:?}");
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
                    Effect::Without(cause) => *cause,
                    Effect::SharedQueue => Cause::Imbalance,
                    Effect::InOrder => Cause::Order,
                    Effect::CpuLess => continue,
                };
                assert!(row.is.treats.contains(&cause), "{} {effect:?}", row.is.name);
            }
        }
    }
}
