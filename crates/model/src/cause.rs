//! What a nanosecond of a request was spent on, and on whose account.
//!
//! Everything that is said of a cause is one row of [`CAUSES`]. How to add one:
//! `CONTRIBUTING.md`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Tid;

/// What a nanosecond between T1 and T6 was spent on.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The network stack received this request.
    StackRx,
    /// Waiting behind other requests that the ideal queue knows as well.
    Queue,
    /// The application served this request, for up to t.
    Service,
    /// The network stack sent this response.
    StackTx,
    /// Another thread was on the worker's CPU.
    Background,
    /// An interrupt's handler was.
    Irq,
    /// A softirq was, for packets of other requests or for something else.
    Softirq,
    /// A request that came later was served first.
    Order,
    /// Another worker was idle while this request waited for its own.
    Imbalance,
    /// The CPU came out of an idle state.
    IdleExit,
    /// The woken worker was not on a CPU yet, and nothing else explains it.
    Wakeup,
    /// The worker slept on a lock, or spun on one of the kernel's.
    BlockedLock,
    /// The worker slept in a page fault, or handled one that had to wait for storage.
    BlockedFault,
    /// The worker slept on storage or on another file.
    BlockedIo,
    /// The worker slept in the middle of the request, on anything else.
    BlockedOther,
    /// A quota of the cgroup, or of real-time threads, held the worker back.
    Throttled,
    /// The worker was on its core, undisturbed, for longer than t.
    SlowService,
    /// The worker's CPU was slower than usual: the same work took longer, while nothing else ran.
    SlowCpu,
    /// TCP had to send again.
    Retransmit,
    /// The hypervisor took the CPU, by its own account or by a stall that others saw.
    Hypervisor,
    /// The probe was blind.
    Unobserved,
    /// Nothing that was recorded explains it.
    Unexplained,
}

/// What kind of thing a cause is; pages colour by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The ideal queue has it as well.
    Ideal,
    /// The server itself: its threads, its locks, its order.
    Server,
    /// The kernel, for the network and its devices.
    Kernel,
    /// Somebody else who took the CPU.
    Outside,
    /// It was not observed, or is not known.
    Unknown,
}

/// Everything that is said of a cause.
#[derive(Clone, Copy, Debug)]
pub struct CauseInfo {
    cause: Cause,
    /// The name in JSON: `background`, `blocked_lock`.
    pub key: &'static str,
    /// What a person reads in tables and legends.
    pub label: &'static str,
    /// What kind of thing it is.
    pub origin: Origin,
    /// Completes "82 % of the excess comes from".
    blame: &'static str,
    /// The same where culprits are named, which replace the braces.
    blame_culprits: Option<&'static str>,
    /// Completes "without it there would be no".
    pub absence: &'static str,
    /// What to do about it where no setting removes it.
    pub advice: Option<&'static str>,
}

const SERVER: &str = "Only a change to the server helps: the slowest requests, on the page, show \
                      in which calls it sleeps.";
const STACK: &str =
    "Look at where packets are received: compare the stages T1 to T2 and T5 to T6, and see RPS.";

/// One row for each cause, in the order in which tables show them.
const CAUSES: [CauseInfo; Cause::Unexplained as usize + 1] = [
    CauseInfo {
        cause: Cause::StackRx,
        key: "stack_rx",
        label: "stack, receiving",
        origin: Origin::Kernel,
        blame: "receiving in the network stack",
        blame_culprits: None,
        absence: "such cause",
        advice: Some(STACK),
    },
    CauseInfo {
        cause: Cause::Queue,
        key: "queue",
        label: "ideal queueing",
        origin: Origin::Ideal,
        blame: "queueing that the ideal has too",
        blame_culprits: None,
        absence: "such cause",
        advice: None,
    },
    CauseInfo {
        cause: Cause::Service,
        key: "service",
        label: "ideal service",
        origin: Origin::Ideal,
        blame: "the service itself",
        blame_culprits: None,
        absence: "such cause",
        advice: None,
    },
    CauseInfo {
        cause: Cause::StackTx,
        key: "stack_tx",
        label: "stack, sending",
        origin: Origin::Kernel,
        blame: "sending in the network stack",
        blame_culprits: None,
        absence: "such cause",
        advice: Some(STACK),
    },
    CauseInfo {
        cause: Cause::Background,
        key: "background",
        label: "other threads on the core",
        origin: Origin::Outside,
        blame: "other threads running on the server's core",
        blame_culprits: Some("{} running on the server's core"),
        absence: "other threads on the server's CPUs",
        advice: None,
    },
    CauseInfo {
        cause: Cause::Irq,
        key: "irq",
        label: "interrupts",
        origin: Origin::Kernel,
        blame: "interrupts on the server's core",
        blame_culprits: Some("the interrupts {} on the server's core"),
        absence: "interrupts on the server's CPUs",
        advice: None,
    },
    CauseInfo {
        cause: Cause::Softirq,
        key: "softirq",
        label: "softirqs",
        origin: Origin::Kernel,
        blame: "softirqs on the server's core, for other requests' packets",
        blame_culprits: Some("the softirqs {} on the server's core, for other requests' packets"),
        absence: "softirqs on the server's CPUs",
        advice: None,
    },
    CauseInfo {
        cause: Cause::Order,
        key: "order",
        label: "served out of order",
        origin: Origin::Server,
        blame: "later requests that were served first",
        blame_culprits: Some("later requests that were served first {}"),
        absence: "overtaking among requests",
        advice: None,
    },
    CauseInfo {
        cause: Cause::Imbalance,
        key: "imbalance",
        label: "imbalance of workers",
        origin: Origin::Server,
        blame: "waiting for a busy worker while another was idle",
        blame_culprits: None,
        absence: "imbalance: any worker takes any request",
        advice: None,
    },
    CauseInfo {
        cause: Cause::IdleExit,
        key: "idle_exit",
        label: "leaving idle",
        origin: Origin::Server,
        blame: "CPUs leaving an idle state",
        blame_culprits: Some("CPUs leaving an idle state {}"),
        absence: "power states to leave",
        advice: None,
    },
    CauseInfo {
        cause: Cause::Wakeup,
        key: "wakeup",
        label: "wake-up",
        origin: Origin::Server,
        blame: "waking workers up",
        blame_culprits: None,
        absence: "wake-ups of sleeping workers",
        advice: None,
    },
    CauseInfo {
        cause: Cause::BlockedLock,
        key: "blocked_lock",
        label: "blocked on a lock",
        origin: Origin::Server,
        blame: "workers waiting for a lock",
        blame_culprits: Some("workers waiting for a lock {}"),
        absence: "sleeping on locks",
        advice: Some(SERVER),
    },
    CauseInfo {
        cause: Cause::BlockedFault,
        key: "blocked_fault",
        label: "blocked in a page fault",
        origin: Origin::Server,
        blame: "page faults waiting for storage",
        blame_culprits: None,
        absence: "page faults waiting for storage, nor the work they cause",
        advice: Some(SERVER),
    },
    CauseInfo {
        cause: Cause::BlockedIo,
        key: "blocked_io",
        label: "blocked on storage",
        origin: Origin::Server,
        blame: "workers waiting for storage",
        blame_culprits: Some("workers waiting for storage {}"),
        absence: "waiting for storage, nor the work it causes",
        advice: Some(SERVER),
    },
    CauseInfo {
        cause: Cause::BlockedOther,
        key: "blocked_other",
        label: "blocked",
        origin: Origin::Server,
        blame: "workers sleeping in the middle of a request",
        blame_culprits: Some("workers sleeping in the middle of a request {}"),
        absence: "sleeping in the middle of requests",
        advice: Some(SERVER),
    },
    CauseInfo {
        cause: Cause::Throttled,
        key: "throttled",
        label: "throttled",
        origin: Origin::Outside,
        blame: "the server being held back by a quota",
        blame_culprits: None,
        absence: "throttling",
        advice: None,
    },
    CauseInfo {
        cause: Cause::SlowService,
        key: "slow_service",
        label: "slow service",
        origin: Origin::Server,
        blame: "requests that themselves take longer than t, undisturbed on the \
               core",
        blame_culprits: None,
        absence: "request that takes longer than t on the CPU",
        advice: Some(
            "Look at what these requests ask for: take a profile of the server during the \
             slowest ones (the page says when they were).",
        ),
    },
    CauseInfo {
        cause: Cause::SlowCpu,
        key: "slow_cpu",
        label: "slow CPU",
        origin: Origin::Outside,
        blame: "the server's CPU, on which all work took longer at times, though nothing else ran",
        blame_culprits: None,
        absence: "slow times of the server's CPU",
        advice: Some(
            "No setting of a guest changes it: use a host with CPUs of your own. On a machine of \
             your own, look at frequency, heat, and what the other thread of the core does.",
        ),
    },
    CauseInfo {
        cause: Cause::Retransmit,
        key: "retransmit",
        label: "retransmission",
        origin: Origin::Kernel,
        blame: "segments that TCP had to retransmit",
        blame_culprits: None,
        absence: "lost and retransmitted requests",
        advice: Some("Look for lost packets: nstat TcpRetransSegs, ethtool -S."),
    },
    CauseInfo {
        cause: Cause::Hypervisor,
        key: "hypervisor",
        label: "hypervisor",
        origin: Origin::Outside,
        blame: "the hypervisor, which took the server's CPU away",
        blame_culprits: None,
        absence: "stalls by the hypervisor",
        advice: Some(
            "No setting of this machine changes that: use a host with dedicated CPUs, or a less \
             crowded one.",
        ),
    },
    CauseInfo {
        cause: Cause::Unobserved,
        key: "unobserved",
        label: "not observed",
        origin: Origin::Unknown,
        blame: "times when the probe was blind",
        blame_culprits: None,
        absence: "times when the probe was blind",
        advice: None,
    },
    CauseInfo {
        cause: Cause::Unexplained,
        key: "unexplained",
        label: "unexplained",
        origin: Origin::Unknown,
        blame: "nothing that was recorded",
        blame_culprits: None,
        absence: "such cause",
        advice: None,
    },
];

impl Cause {
    /// All of them, in the order in which tables show them.
    pub const ALL: [Self; CAUSES.len()] = {
        let mut all = [Self::Unexplained; CAUSES.len()];
        let mut place = 0;
        while place < all.len() {
            all[place] = CAUSES[place].cause;
            assert!(all[place] as usize == place, "a row is out of order");
            place += 1;
        }
        all
    };

    /// Everything that is said of it.
    pub const fn info(self) -> &'static CauseInfo {
        &CAUSES[self as usize]
    }

    /// The name in JSON: `background`, `blocked_lock`.
    pub const fn key(self) -> &'static str {
        self.info().key
    }

    /// What a person reads in tables and legends.
    pub const fn label(self) -> &'static str {
        self.info().label
    }

    /// Completes "82 % of the excess comes from"; `culprits` are named unless empty.
    pub fn blame(self, culprits: &str) -> String {
        let info = self.info();
        match info.blame_culprits {
            Some(text) if !culprits.is_empty() => text.replace("{}", culprits),
            _ => info.blame.to_owned(),
        }
    }
}

/// Who or what did it.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Culprit {
    /// A thread that was on the core, or that held the lock.
    Thread {
        /// Its name (`comm`).
        name: String,
        /// Its process, where known.
        pid: Option<Tid>,
        /// The thread itself; `None` where several of the same name and process are meant.
        tid: Option<Tid>,
    },
    /// A thread of the server's own process that serves nobody: one that keeps its house.
    OwnThread {
        /// Its name (`comm`).
        name: String,
        /// The server's process, where known.
        pid: Option<Tid>,
        /// The thread itself.
        tid: Tid,
    },
    /// An interrupt: `virtio0-input.0`, `local timer`.
    Interrupt {
        /// Its name.
        name: String,
        /// The number in `/proc/interrupts`, for a device's.
        number: Option<u32>,
    },
    /// A softirq: `NET_RX`.
    Softirq {
        /// The kernel's name of the vector.
        name: String,
    },
    /// The system call in which the worker slept: `futex`.
    SystemCall {
        /// Its name, or `system call N`.
        name: String,
    },
    /// One worker of the server.
    Worker {
        /// Its thread's name.
        name: String,
        /// The thread.
        tid: Tid,
    },
    /// A power state of the CPU.
    IdleState {
        /// Its index.
        state: u8,
    },
}

impl std::fmt::Display for Culprit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Thread { name, pid, tid } => match (pid, tid) {
                // a thread without a name is called by its number already
                (_, Some(tid)) if *name == nameless(*tid) => f.write_str(name),
                (_, Some(tid)) => write!(f, "{name} (thread {tid})"),
                (Some(pid), None) => write!(f, "{name} (pid {pid})"),
                (None, None) => f.write_str(name),
            },
            Self::OwnThread { name, tid, .. } => {
                write!(f, "{name} (thread {tid} of the server itself)")
            }
            Self::Interrupt { name, number } => match number {
                Some(number) => write!(f, "{name} (irq {number})"),
                None => f.write_str(name),
            },
            Self::Softirq { name } | Self::SystemCall { name } => f.write_str(name),
            Self::Worker { name, tid } if *name == nameless(*tid) => write!(f, "worker {name}"),
            Self::Worker { name, tid } => write!(f, "worker {name} (thread {tid})"),
            Self::IdleState { state } => write!(f, "idle state {state}"),
        }
    }
}

/// What the threads are called that recorded: taillab's own.
pub const THIS_TRACER: &str = "this tracer";

/// What the threads are called that sent the load, where that was taillab too.
pub const THIS_GENERATOR: &str = "this generator";

/// What a thread is called whose name is not known: `thread 4713`.
pub fn nameless(tid: Tid) -> String {
    format!("thread {tid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_one_name_in_the_table_and_in_json() {
        for cause in Cause::ALL {
            let json = serde_json::to_value(cause).unwrap();
            assert_eq!(json, cause.key());
        }
    }

    #[test]
    fn culprits_are_named_where_the_sentence_has_a_place_for_them() {
        assert_eq!(
            Cause::Background.blame("`dpkg`"),
            "`dpkg` running on the server's core"
        );
        assert_eq!(Cause::Wakeup.blame("`dpkg`"), "waking workers up");
        assert_eq!(Cause::Irq.blame(""), "interrupts on the server's core");
    }
}
