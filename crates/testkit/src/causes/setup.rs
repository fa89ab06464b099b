//! Each kind: its server, the injection, and what a right explanation says.

use taillab_model::Nanos;
use taillab_model::explanation::Cause;

use super::CauseKind;
use crate::injection::Schedule;

/// How it is known what a kind cost each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// From the times of what was injected.
    HeldBack,
    /// From the order of arrivals and departures.
    Order,
    /// From one queue for all workers.
    Imbalance,
    /// From when packets were dropped and came again.
    Loss,
    /// Nothing is injected: the run is the control.
    Nothing,
}

/// A disturbance of the machine around the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Of a thread on its CPU.
    Background(Schedule),
    /// Of packets received there.
    Flood(Schedule),
    /// Of timers there.
    Timers(Schedule),
    /// Of a quota.
    Quota(Schedule),
    /// Of real-time throttling.
    RtHog,
    /// No throttling, although another real-time thread runs.
    RtHogWithPauses,
    /// No disturbance: the server's threads have priority over all ordinary ones.
    RealTime,
    /// One request in this number is lost.
    Loss(u32),
}

/// How a cause is really removed, and the forecast that is compared with the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// What is then measured.
    pub setup: Setup,
    /// The forecast that is compared with it.
    pub promise: Promise,
    /// What is done, for people.
    pub done: &'static str,
}

/// Which forecast is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// That all stays as it is.
    Same,
    /// Of a cause's removal.
    Without(Cause),
    /// Of a mitigation, by its key.
    Mitigation(&'static str),
}

/// One kind, ready to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The kind of cause.
    pub kind: CauseKind,
    /// What a right explanation calls it.
    pub cause: Option<Cause>,
    /// How the truth is turned into delays.
    pub oracle: Oracle,
    /// What the server does wrong.
    pub faults: Vec<&'static str>,
    /// What disturbs the machine around it.
    pub disturbances: Vec<Disturbance>,
    /// The server that is disturbed.
    pub server: BaseServer,
    /// A service of this length in place of the server's own.
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

const BURSTS: Disturbance = Disturbance::Background(schedule(40, 2_000));
const SLOW: &str = "slow:1000,500us";

/// The injection for testing a forecast: large enough to dominate p99.9 whatever else the machine
/// does.
const LONG_BURSTS: Disturbance = Disturbance::Background(schedule(120, 8_000));

/// A group without a quota.
const NEVER: Schedule = schedule(3_600_000, 1_000);

/// The service of a server whose forecasts are tested: its queue alone reaches far into the tail, so
/// that p99.9 follows from the arrivals and not from the machine's few worst moments.
const LONG_SERVICE: &str = "spin:deterministic:300us";

/// The load on that server.
const LONG_SERVICE_UTILIZATION: f64 = 0.55;

/// The same where p99.9 must come from requests that overtake each other.
const LONG_QUEUE_UTILIZATION: f64 = 0.75;

impl Setup {
    /// What is done for a kind.
    pub fn of(kind: CauseKind) -> Self {
        use Oracle::{HeldBack, Imbalance, Loss, Nothing, Order};
        let by_fault = |cause, fault| {
            (
                Some(cause),
                HeldBack,
                vec![fault],
                vec![],
                BaseServer::Datagrams,
            )
        };
        let by_machine = |cause, what| {
            (
                Some(cause),
                HeldBack,
                vec![],
                vec![what],
                BaseServer::Datagrams,
            )
        };
        let by_structure = |cause, oracle, server| (Some(cause), oracle, vec![], vec![], server);
        let (cause, oracle, faults, disturbances, server) = match kind {
            CauseKind::Control | CauseKind::Idle => {
                (None, Nothing, vec![], vec![], BaseServer::Datagrams)
            }
            CauseKind::Background => by_machine(Cause::Background, BURSTS),
            CauseKind::Softirq => {
                by_machine(Cause::Softirq, Disturbance::Flood(schedule(25, 1_000)))
            }
            CauseKind::Irq => by_machine(Cause::Irq, Disturbance::Timers(schedule(25, 2_000))),
            CauseKind::Order => by_structure(Cause::Order, Order, BaseServer::Threads),
            CauseKind::Imbalance => by_structure(Cause::Imbalance, Imbalance, BaseServer::Assigned),
            CauseKind::Lock => by_fault(Cause::BlockedLock, "lock:40ms,1ms"),
            CauseKind::Fault => by_fault(Cause::BlockedFault, "major-fault:500,8"),
            CauseKind::MinorFault => by_fault(Cause::SlowService, "fault:500,256"),
            CauseKind::Io => by_fault(Cause::BlockedIo, "io:500,4"),
            CauseKind::Slow => by_fault(Cause::SlowService, SLOW),
            CauseKind::Quota => {
                by_machine(Cause::Throttled, Disturbance::Quota(schedule(150, 8_000)))
            }
            CauseKind::RtThrottle => by_machine(Cause::Throttled, Disturbance::RtHog),
            CauseKind::Loss => {
                let dropped = vec![Disturbance::Loss(2_000)];
                (
                    Some(Cause::Retransmit),
                    Loss,
                    vec![],
                    dropped,
                    BaseServer::Streams,
                )
            }
            CauseKind::Two => (
                None,
                HeldBack,
                vec![SLOW],
                vec![BURSTS],
                BaseServer::Datagrams,
            ),
        };
        Self {
            kind,
            cause,
            oracle,
            faults,
            disturbances,
            server,
            service: None,
        }
    }

    /// What is done for a kind whose cause is then removed: a larger injection into a server whose
    /// own tail is steady. The server is real-time where the kind allows it, so that other programs do
    /// not disturb it. `order` and `imbalance` are large enough already.
    pub fn to_be_fixed(kind: CauseKind) -> Self {
        let usual = Self::of(kind);
        let (faults, disturbances): (&[&'static str], Vec<_>) = match kind {
            CauseKind::Imbalance => return usual,
            CauseKind::Order => {
                return Self {
                    service: Some(LONG_SERVICE),
                    ..usual
                };
            }
            CauseKind::Control | CauseKind::Idle => (&[], vec![]),
            CauseKind::Background => (&[], vec![LONG_BURSTS]),
            CauseKind::Softirq => (&[], vec![Disturbance::Flood(schedule(120, 8_000))]),
            CauseKind::Irq => (&[], vec![Disturbance::Timers(schedule(120, 8_000))]),
            CauseKind::Lock => (&["lock:120ms,8ms"], vec![]),
            CauseKind::Fault => (&["major-fault:100,60"], vec![]),
            CauseKind::MinorFault => (&["fault:100,4096"], vec![]),
            CauseKind::Io => (&["io:100,20"], vec![]),
            CauseKind::Slow => (&["slow:100,5ms"], vec![]),
            CauseKind::Quota => (&[], vec![Disturbance::Quota(schedule(150, 12_000))]),
            CauseKind::RtThrottle => (&[], vec![Disturbance::RtHog]),
            CauseKind::Loss => (&[], vec![Disturbance::Loss(300)]),
            // the fix ends only the bursts, so they must cause most of the delay
            CauseKind::Two => (&["slow:200,2ms"], vec![LONG_BURSTS]),
        };
        let alone = match kind {
            CauseKind::Background | CauseKind::Quota | CauseKind::RtThrottle | CauseKind::Two => {
                None
            }
            _ => Some(Disturbance::RealTime),
        };
        Self {
            faults: faults.to_vec(),
            disturbances: alone.into_iter().chain(disturbances).collect(),
            service: Some(LONG_SERVICE),
            ..usual
        }
    }

    /// Whether something outside the server holds it back.
    pub fn disturbs(&self) -> bool {
        let mut disturbances = self.disturbances.iter();
        self.oracle != Oracle::Nothing
            && disturbances.any(|disturbance| *disturbance != Disturbance::RealTime)
    }

    /// How it is removed; `None` where it cannot be.
    pub fn fix(&self) -> Option<Fix> {
        let fix = |setup: Self, promise, done| {
            Some(Fix {
                setup: Self {
                    oracle: Oracle::Nothing,
                    ..setup
                },
                promise,
                done,
            })
        };
        match self.kind {
            CauseKind::Idle => None,
            CauseKind::Control => fix(self.clone(), Promise::Same, "measured again"),
            CauseKind::Order => fix(
                Self {
                    disturbances: vec![Disturbance::RealTime],
                    ..self.clone()
                },
                Promise::Mitigation("rt-priority"),
                "put the workers under SCHED_FIFO",
            ),
            CauseKind::Imbalance => fix(
                Self {
                    server: BaseServer::Pooled,
                    ..self.clone()
                },
                Promise::Mitigation("shared-queue"),
                "let all workers take from one queue",
            ),
            CauseKind::Quota => fix(
                Self {
                    disturbances: vec![Disturbance::Quota(NEVER)],
                    ..self.clone()
                },
                Promise::Without(Cause::Throttled),
                "lifted the quota of the server's group",
            ),
            // a fix that stops the other thread would also make each request cheaper
            CauseKind::RtThrottle => fix(
                Self {
                    disturbances: vec![Disturbance::RtHogWithPauses],
                    ..self.clone()
                },
                Promise::Without(Cause::Throttled),
                "made the other real-time thread pause",
            ),
            CauseKind::Two => fix(
                Self {
                    disturbances: Vec::new(),
                    ..self.clone()
                },
                Promise::Without(Cause::Background),
                "ended the bursts alone",
            ),
            _ => fix(
                Self {
                    disturbances: (self.disturbances.iter().copied())
                        .filter(|it| *it == Disturbance::RealTime)
                        .collect(),
                    ..self.undisturbed()
                },
                Promise::Without(self.cause?),
                "ended what was injected",
            ),
        }
    }

    /// The load: high enough for the kind to show. Only where there are several requests can one be
    /// overtaken, or wait while a worker is idle.
    pub fn utilization(&self, asked: f64) -> f64 {
        match self.server {
            BaseServer::Threads if self.service.is_some() => asked.max(LONG_QUEUE_UTILIZATION),
            _ if self.service.is_some() => asked.max(LONG_SERVICE_UTILIZATION),
            BaseServer::Datagrams | BaseServer::Streams => asked,
            BaseServer::Threads => asked.max(0.7),
            BaseServer::Assigned | BaseServer::Pooled => asked.max(0.6),
        }
    }

    /// The same server without injections.
    pub fn undisturbed(&self) -> Self {
        Self {
            faults: Vec::new(),
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
    /// Load.
    pub utilization: f64,
    /// The server's CPU.
    pub server_cpu: u32,
    /// The generator's.
    pub client_cpu: u32,
    /// Seed of the schedule of arrivals.
    pub seed: i64,
}
