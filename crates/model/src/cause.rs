//! What a nanosecond of a request was spent on, and who is responsible for it.
//!
//! Everything that is said about a cause is in its row of `causes!`. How to add one:
//! `crates/analysis/src/ledger/README.md`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Tid;
use crate::send_wait::SendWait;
use crate::stopped::ServerStop;

/// What kind of thing a cause is; pages colour by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The ideal queue has it, too.
    Ideal,
    /// The server itself: its threads, its locks, its order.
    Server,
    /// The kernel, for the network and its devices.
    Kernel,
    /// Something outside the server that took the CPU.
    Outside,
    /// It was not observed, or is not known.
    Unknown,
}

/// The names and phrases for a cause.
#[derive(Clone, Copy, Debug)]
pub struct CauseInfo {
    /// The name in JSON: `background`, `blocked_lock`.
    pub key: &'static str,
    /// What a person reads in tables and legends.
    pub label: &'static str,
    /// What kind of thing it is.
    pub origin: Origin,
    /// What a sentence about it begins with, except for the large letter.
    blame: &'static str,
    /// The same where culprits are named; they replace `{}`.
    blame_culprits: Option<&'static str>,
    /// Completes "without it there would be no".
    pub absence: &'static str,
    /// What to do about it where no setting removes it.
    pub advice: Option<&'static str>,
}

const SERVER: &str = "Only a change to the server helps: the slowest requests (report.html, or \
                      --slowest 3) show in which calls it sleeps.";
const STACK: &str =
    "Look at where packets are received: compare the stages T1 to T2 and T5 to T6, and see RPS.";

/// The second value if it is given, else the first.
macro_rules! or {
    ($none:expr, ) => {
        $none
    };
    ($none:expr, $some:expr) => {
        $some
    };
}

/// The causes with their names and phrases, in the order in which tables show them.
macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident: $origin:ident {
        key: $key:literal,
        label: $label:literal,
        blame: $blame:literal,
        $(by: $by:literal,)?
        $(absence: $absence:literal,)?
        $(advice: $advice:expr,)?
    })+) => {
        /// What a nanosecond between T1 and T6 was spent on.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum Cause {
            $($(#[$doc])* $cause,)+
        }

        const CAUSES: &[CauseInfo] = &[
            $(CauseInfo {
                key: $key,
                label: $label,
                origin: Origin::$origin,
                blame: $blame,
                blame_culprits: or!(None, $(Some($by))?),
                absence: or!("such cause", $($absence)?),
                advice: or!(None, $(Some($advice))?),
            },)+
        ];

        impl Cause {
            /// All of them, in the order in which tables show them.
            pub const ALL: [Self; CAUSES.len()] = [$(Self::$cause),+];
        }
    };
}

causes! {
    /// The network stack received this request.
    StackRx: Kernel {
        key: "stack_rx",
        label: "stack, receiving",
        blame: "receiving in the network stack",
        advice: STACK,
    }
    /// Waiting behind other requests, as in the ideal queue.
    Queue: Ideal {
        key: "queue",
        label: "ideal queueing",
        blame: "queueing that the ideal has too",
    }
    /// The application served this request, for up to t.
    Service: Ideal {
        key: "service",
        label: "ideal service",
        blame: "the service itself",
    }
    /// The network stack sent this response.
    StackTx: Kernel {
        key: "stack_tx",
        label: "stack, sending",
        blame: "sending in the network stack",
        advice: STACK,
    }
    /// Another thread was on the worker's CPU.
    Background: Outside {
        key: "background",
        label: "other threads on the core",
        blame: "other threads on the server's core",
        by: "{} on the core",
        absence: "other threads on the server's CPUs",
    }
    /// An interrupt handler was on the worker's CPU.
    Irq: Kernel {
        key: "irq",
        label: "interrupts",
        blame: "interrupts on the server's core",
        by: "interrupts {} on the core",
        absence: "interrupts on the server's CPUs",
    }
    /// A softirq was on the worker's CPU, for packets of other requests or for something else.
    Softirq: Kernel {
        key: "softirq",
        label: "softirqs",
        blame: "softirqs on the server's core, for other requests' packets",
        by: "softirqs {} on the core",
        absence: "softirqs on the server's CPUs",
    }
    /// The worker waited for its CPU while another thread of the server had it.
    OwnThreads: Server {
        key: "own_threads",
        label: "own threads compete",
        blame: "the server's own threads keeping each other from the CPU",
        by: "the server's own threads keeping each other from the CPU, {}",
        absence: "own threads that wait for each other's CPU",
        advice: "Give the server no more threads than it has CPUs, or more CPUs.",
    }
    /// A request that came later was served first by the same worker.
    Order: Server {
        key: "order",
        label: "served out of order",
        blame: "later requests that were served first",
        by: "later requests that were served first {}",
        absence: "overtaking among requests",
    }
    /// Another worker was idle while this request waited for its own.
    Imbalance: Server {
        key: "imbalance",
        label: "imbalance of workers",
        blame: "waiting for a busy worker while another was idle",
        absence: "imbalance: any worker takes any request",
    }
    /// The CPU came out of an idle state.
    IdleExit: Server {
        key: "idle_exit",
        label: "leaving idle",
        blame: "CPUs leaving an idle state",
        by: "CPUs leaving an idle state {}",
        absence: "power states to leave",
    }
    /// The woken worker was not on a CPU yet, and nothing else explains it.
    Wakeup: Server {
        key: "wakeup",
        label: "wake-up",
        blame: "waking workers up",
        absence: "wake-ups of sleeping workers",
    }
    /// The worker slept on a lock, or spun on one of the kernel's.
    BlockedLock: Server {
        key: "blocked_lock",
        label: "blocked on a lock",
        blame: "workers waiting for a lock",
        by: "workers waiting for a lock {}",
        absence: "sleeping on locks",
        advice: SERVER,
    }
    /// The worker slept in a page fault, or handled one that had to wait for storage.
    BlockedFault: Server {
        key: "blocked_fault",
        label: "blocked in a page fault",
        blame: "page faults waiting for storage",
        by: "page faults of {} waiting for storage",
        absence: "page faults waiting for storage, nor the work they cause",
        advice: "Keep the server's memory in place (docs/advice.md#memory-lock), or touch it before \
                 requests come.",
    }
    /// The worker slept on storage or on another file.
    BlockedIo: Server {
        key: "blocked_io",
        label: "blocked on storage",
        blame: "workers waiting for storage",
        by: "workers waiting for storage {}",
        absence: "waiting for storage, nor the work it causes",
        advice: SERVER,
    }
    /// The worker slept in the middle of the request, on anything else.
    BlockedOther: Server {
        key: "blocked_other",
        label: "blocked",
        blame: "workers sleeping in the middle of a request",
        by: "workers sleeping in the middle of a request {}",
        absence: "sleeping in the middle of requests",
        advice: SERVER,
    }
    /// The worker waited for a server that it had asked itself.
    Upstream: Server {
        key: "upstream",
        label: "waiting for an upstream",
        blame: "workers waiting for another server, which they had asked in the middle of a request",
        by: "workers waiting for an upstream, {}",
        absence: "waiting for other servers",
        advice: "Look at the servers that this one asks: most of this time is theirs.",
    }
    /// The response was written, and waited for the client, or for the network on the way to it.
    Client: Outside {
        key: "client",
        label: "waiting for the client",
        blame: "responses waiting for the client to take them",
        by: "written responses waiting for {}",
        absence: "responses that wait for the client",
        advice: "Look at the client, and at the path to it: the server had written these responses.",
    }
    /// The whole server stood still: to collect garbage, for a fork, by a signal.
    Pause: Server {
        key: "pause",
        label: "pauses of the whole server",
        blame: "the whole server stopping",
        by: "the whole server stopping for {}",
        absence: "pauses of the whole server",
        advice: "Make the pauses shorter or rarer; the culprits say what they are for.",
    }
    /// A quota of the cgroup, or of real-time threads, held the worker back.
    Throttled: Outside {
        key: "throttled",
        label: "throttled",
        blame: "the server being held back by a quota",
        absence: "throttling",
    }
    /// The worker was on its core, undisturbed, for longer than t.
    SlowService: Server {
        key: "slow_service",
        label: "slow service",
        blame: "requests that themselves take longer than t, undisturbed on the core",
        absence: "request that takes longer than t on the CPU",
        advice: "Look at what these requests ask for: take a profile of the server during the \
                 slowest ones (report.html, or --slowest 3, says when they were).",
    }
    /// The worker's CPU was slower than usual: the same work took longer, while nothing else ran.
    SlowCpu: Outside {
        key: "slow_cpu",
        label: "slow CPU",
        blame: "the server's CPU, on which all work took longer at times, though nothing else ran",
        absence: "slow times of the server's CPU",
        advice: "No setting of a guest changes it: use a host with dedicated CPUs. On a machine of \
                 your own, look at frequency, heat, and what the other thread of the core does (docs/advice.md#smt).",
    }
    /// TCP had to send again.
    Retransmit: Kernel {
        key: "retransmit",
        label: "retransmission",
        blame: "segments that TCP had to retransmit",
        absence: "lost and retransmitted requests",
        advice: "Look for lost packets: nstat TcpRetransSegs, ethtool -S. Where the server drops them, \
                 docs/advice.md#tcp-loss gives it more room.",
    }
    /// The hypervisor took the CPU, by its own account or by a stall that others saw.
    Hypervisor: Outside {
        key: "hypervisor",
        label: "hypervisor",
        blame: "the hypervisor, which took the server's CPU away",
        absence: "stalls by the hypervisor",
        advice: "No setting of this machine changes that: use a host with dedicated CPUs, or a \
                 less crowded one.",
    }
    /// The probe was blind.
    Unobserved: Unknown {
        key: "unobserved",
        label: "not observed",
        blame: "times when the probe was blind",
        absence: "times when the probe was blind",
    }
    /// Nothing that was recorded explains it.
    Unexplained: Unknown {
        key: "unexplained",
        label: "unexplained",
        blame: "something that was not recorded",
    }
}

impl Cause {
    /// The row of this cause.
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

    /// What a sentence about it begins with, except for the large letter; names `culprits` unless that is empty.
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
        /// The name of its process (that of its main thread), where known and another one: `rustc`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<String>,
    },
    /// A thread of the server's own process that serves no requests but does housekeeping.
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
        /// As in `/proc/interrupts`.
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
    /// What stopped all threads of the server.
    Runtime {
        /// What for: `garbage collection`.
        task: String,
        /// The names of the threads that did it, in alphabetical order; empty where they have none of their own.
        threads: Vec<String>,
    },
    /// What a response waited for that the server had written.
    Sending {
        /// In a few words: `a delayed ACK (Nagle's algorithm)`.
        what: String,
    },
    /// The servers that the recorded one asks itself.
    Upstream {
        /// Address and port of each, with the program if it runs on the same machine: `127.0.0.1:11211
        /// (memcached)`. If there are several, it is not known which of them was waited for.
        servers: Vec<String>,
    },
    /// A CPU that several threads of the server have to share.
    SharedCpu {
        /// Its number.
        cpu: u16,
        /// How many threads with requests shared it.
        threads: u32,
    },
    /// A power state of the CPU.
    IdleState {
        /// Its index.
        state: u8,
    },
    /// What a thread of the server waited for itself, while a worker waited for that thread.
    Chain {
        /// The name (`comm`) of the thread for which the worker waited.
        name: String,
        /// Its process, where known.
        pid: Option<Tid>,
        /// The thread itself; `None` where several of the same name and process are meant.
        tid: Option<Tid>,
        /// Who or what is at the end of the chain, as it is called elsewhere: `pread64`, `dpkg (pid 30122)`; `None` where
        /// the cause says it all.
        end: Option<String>,
    },
}

impl Culprit {
    /// What makes it rarer or shorter, where that depends on the culprit.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Runtime { task, .. } => ServerStop::named(task).map(ServerStop::advice),
            Self::Sending { what } => SendWait::named(what).map(SendWait::advice),
            // workers that share a CPU are `SharedCpu`
            Self::OwnThread { .. } => Some(
                "Let threads that do other work than answering requests run on another CPU (taskset), or have the server \
                 do less of that work.",
            ),
            _ => None,
        }
    }
}

/// A thread, or those of one name and process, as people read it.
struct ThreadText<'a> {
    name: &'a str,
    pid: Option<Tid>,
    tid: Option<Tid>,
}

impl std::fmt::Display for ThreadText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name;
        match (self.pid, self.tid) {
            // the substitute name of a nameless thread already contains its number
            (_, Some(tid)) if *name == nameless(tid) => f.write_str(name),
            (_, Some(tid)) => write!(f, "{name} (thread {tid})"),
            (Some(pid), None) => write!(f, "{name} (pid {pid})"),
            (None, None) => f.write_str(name),
        }
    }
}

impl std::fmt::Display for Culprit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Thread { name, pid, tid, .. } => {
                let (pid, tid) = (*pid, *tid);
                ThreadText { name, pid, tid }.fmt(f)
            }
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
            Self::Runtime { task, threads } if threads.is_empty() => f.write_str(task),
            Self::Runtime { task, threads } => write!(f, "{task} ({})", threads.join(", ")),
            Self::Sending { what } => f.write_str(what),
            Self::Upstream { servers } => match servers.as_slice() {
                [] => f.write_str("not known which"),
                [only] => f.write_str(only),
                [one, other] => write!(f, "one of {one} and {other}"),
                [one, other, rest @ ..] => {
                    write!(f, "one of {one}, {other} and {} more", rest.len())
                }
            },
            Self::SharedCpu { cpu, threads } => write!(f, "{threads} threads on CPU {cpu}"),
            Self::IdleState { state } => write!(f, "idle state {state}"),
            Self::Chain {
                name,
                pid,
                tid,
                end,
            } => {
                let (pid, tid) = (*pid, *tid);
                let thread = ThreadText { name, pid, tid };
                match end {
                    Some(end) => write!(f, "{end}, for which {thread} waited"),
                    None => thread.fmt(f),
                }
            }
        }
    }
}

/// The name of taillab's own recording threads.
pub const THIS_TRACER: &str = "this tracer";

/// The name of the threads that sent the load, when taillab sent it.
pub const THIS_GENERATOR: &str = "this generator";

/// Whether a thread's name is one of ours: [`THIS_GENERATOR`] or [`THIS_TRACER`].
pub fn is_our_thread(name: &str) -> bool {
    [THIS_GENERATOR, THIS_TRACER].contains(&name)
}

/// Stands for all threads that have no entry of their own, since there were too many. No thread has this number.
pub const OTHER_THREADS: Tid = 0;

/// The substitute name of a thread whose name is not known: `thread 4713`.
pub fn nameless(tid: Tid) -> String {
    match tid {
        OTHER_THREADS => "other threads".to_owned(),
        tid => format!("thread {tid}"),
    }
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

    /// A paragraph of its own, with what it means, how it is seen and what treats it, in this order.
    #[test]
    fn each_cause_has_its_paragraph_in_the_documentation() {
        const DOCS: &str = include_str!("../../../docs/causes.md");
        let paragraphs: Vec<&str> = DOCS.split("\n\n**`").skip(1).collect();
        for cause in Cause::ALL {
            let begins = format!("{}`**: ", cause.key());
            let own: Vec<&str> = (paragraphs.iter())
                .filter_map(|paragraph| paragraph.strip_prefix(&begins))
                .collect();
            let [text] = own[..] else {
                panic!(
                    "{} paragraphs of docs/causes.md begin with {begins}",
                    own.len()
                );
            };
            let text = text.split("\n## ").next().unwrap_or(text);
            let parts = text.split_once("Seen ");
            let parts = parts.and_then(|(means, rest)| Some((means, rest.split_once("treat")?)));
            let Some((means, (seen, _))) = parts else {
                panic!("docs/causes.md does not say how {begins} is seen, and then what treats it");
            };
            let is_sentence = |text: &str| text.len() > 20 && text.trim_end().ends_with('.');
            assert!(is_sentence(means), "{begins} {means}");
            assert!(seen.len() > 20, "{begins} {seen}");
        }
        assert_eq!(paragraphs.len(), Cause::ALL.len());
    }

    #[test]
    fn culprits_are_named_where_the_sentence_has_a_place_for_them() {
        assert_eq!(Cause::Background.blame("`dpkg`"), "`dpkg` on the core");
        assert_eq!(Cause::Wakeup.blame("`dpkg`"), "waking workers up");
        assert_eq!(Cause::Irq.blame(""), "interrupts on the server's core");
    }
}
