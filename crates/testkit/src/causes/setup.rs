//! Each kind: its server, the injection, and what a right explanation says.

use taillab_model::Nanos;
use taillab_model::explanation::Cause;

use super::CauseKind;
use crate::ground_truth::{GroundTruth, InjectedSource};
use crate::injection::{Appetite, Schedule};

/// How the true cost of an injection is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// From the intervals in which the server was held back.
    HeldBack,
    /// From when packets were dropped and when they arrived again.
    Loss,
    /// From how the server is built: the cost for a single request is not known.
    Structure,
    /// The injection is outside the server, so nothing may be charged for it.
    Outside,
    /// Nothing is injected.
    Nothing,
}

/// A disturbance of the machine around the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Bursts of a thread on the server's CPU.
    Background(Schedule),
    /// Bursts of a thread on the generator's CPU.
    OnGenerator(Schedule),
    /// Every N-th thread of the server yields to all others; the threads are real-time.
    Yielding(usize),
    /// Packets received on the server's CPU.
    Flood(Schedule),
    /// Timer interrupts on the server's CPU.
    Timers(Schedule),
    /// A CPU quota.
    Quota(Schedule),
    /// A real-time thread that makes the kernel throttle all real-time threads, unless it pauses.
    RtHog(Appetite),
    /// No disturbance: the server's threads have priority over all ordinary ones.
    RealTime,
    /// One request in this number is lost.
    Loss(u32),
}

/// The forecast that is compared with what is measured without the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Which forecast is compared.
    pub promise: Promise,
    /// How the cause is removed, in words.
    pub done: &'static str,
}

/// Which forecast is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The forecast without a cause.
    Without(Cause),
    /// The forecast of a mitigation, by its key.
    Mitigation(&'static str),
}

/// One kind, ready to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The kind of cause.
    pub kind: CauseKind,
    /// The cause that a right explanation names.
    pub cause: Option<Cause>,
    /// How its true cost is known.
    pub oracle: Oracle,
    /// The fault of the server, in the notation of [`crate::fault::Fault`].
    pub fault: Option<&'static str>,
    /// What disturbs the machine around it.
    pub disturbances: Vec<Disturbance>,
    /// The server that is disturbed.
    pub server: BaseServer,
    /// The service that replaces the server's own, as `serve --service` takes it.
    pub service: Option<&'static str>,
}

/// The servers that are measured; each has its own capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BaseServer {
    /// One worker on one UDP socket.
    Datagrams,
    /// One worker on one epoll instance, over TCP.
    Streams,
    /// A thread for each TCP connection.
    Threads,
    /// Workers with their own connections, which wait and so need no CPU each.
    Assigned,
    /// The same, but any worker takes any request.
    Pooled,
}

const fn schedule(every_ms: u64, lasts_us: u64) -> Schedule {
    Schedule {
        every: Nanos::from_millis(every_ms),
        lasts: Nanos::from_micros(lasts_us),
    }
}

/// Large enough to outweigh other disturbances of the machine, like every injection here.
const BURSTS: Schedule = schedule(120, 8_000);

/// One in this number of the server's threads is delayed in `order`.
const ONE_IN: usize = 4;

/// So rare that the group has no quota during a measurement.
const NEVER: Schedule = schedule(3_600_000, 1_000);

/// The service: long enough that the arrivals, not a few bad moments of the machine, shape the queue.
const SERVICE: &str = "spin:deterministic:300us";

/// The lowest utilisation, so that an injection affects many requests.
const UTILIZATION: f64 = 0.55;

/// The lowest utilisation for kinds in which requests must overtake each other.
const LONG_QUEUE_UTILIZATION: f64 = 0.75;

/// The lowest utilisation for kinds in which requests must wait while a worker is idle.
const ASSIGNED_UTILIZATION: f64 = 0.7;

/// The right cause, how it is known what was injected, the server's fault, and what disturbs the
/// machine.
type Injection = (
    Option<Cause>,
    Oracle,
    Option<&'static str>,
    Option<Disturbance>,
);

fn injection(kind: CauseKind) -> Injection {
    use Oracle::{HeldBack, Loss, Nothing, Outside, Structure};
    let fault = |cause, fault| (Some(cause), HeldBack, Some(fault), None);
    let held_back = |cause, by| (Some(cause), HeldBack, None, Some(by));
    match kind {
        CauseKind::Control | CauseKind::Idle => (None, Nothing, None, None),
        CauseKind::Background => held_back(Cause::Background, Disturbance::Background(BURSTS)),
        CauseKind::Softirq => held_back(Cause::Softirq, Disturbance::Flood(BURSTS)),
        // the handlers take half of this time
        CauseKind::Irq => held_back(Cause::Irq, Disturbance::Timers(schedule(120, 16_000))),
        CauseKind::Order => {
            let yielding = Disturbance::Yielding(ONE_IN);
            (Some(Cause::Order), Structure, None, Some(yielding))
        }
        CauseKind::Imbalance => (Some(Cause::Imbalance), Structure, Some("skew:2"), None),
        CauseKind::Lock => fault(Cause::BlockedLock, "lock:120ms,8ms"),
        CauseKind::Fault => fault(Cause::BlockedFault, "major-fault:100,6"),
        CauseKind::MinorFault => fault(Cause::SlowService, "fault:100,4096"),
        CauseKind::Io => fault(Cause::BlockedIo, "io:100,6"),
        CauseKind::Slow => fault(Cause::SlowService, "slow:100,5ms"),
        CauseKind::Quota => held_back(Cause::Throttled, Disturbance::Quota(schedule(150, 12_000))),
        CauseKind::RtThrottle => held_back(Cause::Throttled, Disturbance::RtHog(Appetite::All)),
        CauseKind::Loss => {
            let loss = Disturbance::Loss(300);
            (Some(Cause::Retransmit), Loss, None, Some(loss))
        }
        CauseKind::Generator => (None, Outside, None, Some(Disturbance::OnGenerator(BURSTS))),
        CauseKind::Two => {
            // the forecast removes only the bursts, so they cause most of the delay
            let bursts = Disturbance::Background(BURSTS);
            (
                Some(Cause::Background),
                HeldBack,
                Some("slow:200,2ms"),
                Some(bursts),
            )
        }
    }
}

impl Setup {
    /// The setup of a kind. The server is real-time if the kind allows it, so that other programs do
    /// not disturb it.
    pub fn of(kind: CauseKind) -> Self {
        let (cause, oracle, fault, disturbance) = injection(kind);
        let alone = (!matches!(
            kind,
            CauseKind::Background
                | CauseKind::Quota
                | CauseKind::RtThrottle
                | CauseKind::Two
                | CauseKind::Order
        ))
        .then_some(Disturbance::RealTime);
        let server = match kind {
            CauseKind::Order => BaseServer::Threads,
            CauseKind::Imbalance => BaseServer::Assigned,
            CauseKind::Loss => BaseServer::Streams,
            _ => BaseServer::Datagrams,
        };
        Self {
            kind,
            cause,
            oracle,
            fault,
            disturbances: alone.into_iter().chain(disturbance).collect(),
            server,
            service: (kind != CauseKind::Imbalance).then_some(SERVICE),
        }
    }

    /// The right causes and culprits, given what was injected.
    pub fn sources(&self, truth: &GroundTruth) -> Vec<InjectedSource> {
        match (self.oracle, self.cause) {
            (Oracle::Structure, Some(cause)) => vec![InjectedSource {
                injected: self.kind.name(),
                cause,
                culprit: None,
            }],
            (Oracle::Structure, None) | (Oracle::Outside | Oracle::Nothing, _) => Vec::new(),
            (Oracle::HeldBack | Oracle::Loss, _) => truth.sources.clone(),
        }
    }

    /// Whether something outside the server holds it back.
    pub fn disturbs(&self) -> bool {
        let mut disturbances = self.disturbances.iter();
        !matches!(self.oracle, Oracle::Structure | Oracle::Nothing)
            && disturbances.any(|disturbance| *disturbance != Disturbance::RealTime)
    }

    /// N, if the last of each N connections has a delayed thread. Only the requests of these
    /// connections are judged: the order of service delays one request and speeds up another.
    pub fn delayed_connections(&self) -> Option<usize> {
        self.disturbances
            .iter()
            .find_map(|disturbance| match disturbance {
                Disturbance::Yielding(one_in) => Some(*one_in),
                _ => None,
            })
    }

    /// The same without the cause: the other block of each pair.
    pub fn without(&self) -> Self {
        let disturbances = match self.kind {
            CauseKind::Order => vec![Disturbance::RealTime],
            // a group without a quota
            CauseKind::Quota => vec![Disturbance::Quota(NEVER)],
            // without the other thread each request would also be cheaper
            CauseKind::RtThrottle => vec![Disturbance::RtHog(Appetite::WithPauses)],
            _ => (self.disturbances.iter().copied())
                .filter(|it| *it == Disturbance::RealTime)
                .collect(),
        };
        Self {
            disturbances,
            server: match self.server {
                BaseServer::Assigned => BaseServer::Pooled,
                server => server,
            },
            ..self.undisturbed()
        }
    }

    /// The forecast that can be compared with it; `None` where there is none that fits.
    pub fn fix(&self) -> Option<Fix> {
        let (promise, done) = match self.kind {
            // for `two` it would cover one of the two causes; for softirqs it would also remove the
            // server's own packets
            CauseKind::Control
            | CauseKind::Idle
            | CauseKind::Two
            | CauseKind::Softirq
            | CauseKind::Generator => return None,
            CauseKind::Order => (
                Promise::Mitigation("rt-priority"),
                "gave all workers the same priority",
            ),
            CauseKind::Imbalance => (
                Promise::Mitigation("shared-queue"),
                "let all workers take from one queue",
            ),
            CauseKind::Quota => (
                Promise::Without(self.cause?),
                "lifted the quota of the server's group",
            ),
            CauseKind::RtThrottle => (
                Promise::Without(self.cause?),
                "made the other real-time thread pause",
            ),
            _ => (Promise::Without(self.cause?), "ended what was injected"),
        };
        Some(Fix { promise, done })
    }

    /// The utilisation: the one asked for, or a higher one that the kind needs. A request can be
    /// overtaken, or wait while a worker is idle, only if there are several.
    pub fn utilization(&self, asked: f64) -> f64 {
        asked.max(match self.server {
            BaseServer::Threads => LONG_QUEUE_UTILIZATION,
            BaseServer::Datagrams | BaseServer::Streams => UTILIZATION,
            BaseServer::Assigned | BaseServer::Pooled => ASSIGNED_UTILIZATION,
        })
    }

    /// The same server without injections.
    pub fn undisturbed(&self) -> Self {
        Self {
            fault: None,
            disturbances: Vec::new(),
            oracle: Oracle::Nothing,
            ..self.clone()
        }
    }
}

/// What was asked for on the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchOptions {
    /// Length of a measurement.
    pub duration: Nanos,
    /// The utilisation that was asked for, as a share of the capacity.
    pub utilization: f64,
    /// The server's CPU.
    pub server_cpu: u32,
    /// The generator's CPU.
    pub client_cpu: u32,
    /// Seed of the schedule of arrivals.
    pub seed: i64,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::ValueEnum;

    use super::*;

    /// What no kind injects, and why.
    const NOT_INJECTED: &[(Cause, &str)] = &[
        (
            Cause::StackRx,
            "the stage between two stamps, of every request",
        ),
        (
            Cause::StackTx,
            "the stage between two stamps, of every request",
        ),
        (Cause::Queue, "the ideal queue has it too"),
        (Cause::Service, "the ideal queue has it too"),
        (
            Cause::IdleExit,
            "`idle` is not implemented: a guest has no power states",
        ),
        (
            Cause::Wakeup,
            "what is left of a wake-up when nothing else explains it",
        ),
        (
            Cause::BlockedOther,
            "the rule of the other sleeps, for the rest of the system calls",
        ),
        (
            Cause::SlowCpu,
            "nothing makes a guest's CPU slower on a schedule",
        ),
        (Cause::Hypervisor, "a guest cannot make it"),
        (Cause::Unobserved, "it says what is not known"),
        (Cause::Unexplained, "it says what is not known"),
    ];

    #[test]
    fn every_cause_is_injected_or_has_a_reason() {
        let kinds = CauseKind::value_variants().iter();
        let injected: HashSet<Cause> = kinds.filter_map(|&kind| Setup::of(kind).cause).collect();
        for cause in Cause::ALL {
            let excused = NOT_INJECTED.iter().any(|(excused, _)| *excused == cause);
            assert_ne!(
                injected.contains(&cause),
                excused,
                "{cause:?} needs a kind that injects it, or a reason in NOT_INJECTED"
            );
        }
    }

    #[test]
    fn every_kind_has_its_row_in_the_documentation() {
        const DOCS: &str = include_str!("../../../../docs/bench-causes.md");
        let (_, table) = DOCS.split_once("| kind | what is injected").unwrap();
        let table = table.split("\n\n").next().unwrap_or_default();
        for name in CauseKind::names() {
            let row = format!("\n| `{name}` |");
            assert_eq!(
                table.matches(&row).count(),
                1,
                "{name} in docs/bench-causes.md"
            );
        }
    }
}
