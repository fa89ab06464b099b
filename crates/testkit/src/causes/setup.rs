//! The server of each kind, with and without what is injected, and what a right explanation says.

use taillab_load::ground_truth::{GroundTruth, InjectedSource};
use taillab_model::Nanos;
use taillab_model::explanation::{Cause, Culprit};

use super::kind::{BaseServer, CauseKind, Disturbance, Fix, JudgedQuantity, Oracle, Workers};

/// One kind, ready to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The kind of cause.
    pub kind: CauseKind,
    /// The cause that a right explanation names.
    pub cause: Option<Cause>,
    /// How its true cost is known.
    pub oracle: Oracle,
    /// The fault of the server, in the notation of [`taillab_load::fault::Fault`].
    pub fault: Option<&'static str>,
    /// What disturbs the machine around it.
    pub disturbances: Vec<Disturbance>,
    /// The server that is disturbed.
    pub server: BaseServer,
    /// The service that replaces the server's own, as `serve --service` takes it.
    pub service: Option<&'static str>,
    /// What is judged beside the charge.
    pub told: JudgedQuantity,
}

/// The lowest utilisation, so that an injection affects many requests.
const UTILIZATION: f64 = 0.55;

/// The lowest utilisation for kinds in which requests must overtake each other, or find all of several workers busy.
const LONG_QUEUE_UTILIZATION: f64 = 0.75;

/// The lowest utilisation for kinds in which requests must wait while a worker is idle.
const ASSIGNED_UTILIZATION: f64 = 0.7;

impl Setup {
    /// The setup of a kind.
    pub fn of(kind: CauseKind) -> Self {
        let injection = kind.injection();
        let alone = injection.real_time.then_some(Disturbance::RealTime);
        Self {
            kind,
            cause: injection.cause,
            oracle: injection.oracle,
            fault: injection.fault,
            disturbances: alone.into_iter().chain(injection.disturbance).collect(),
            server: injection.server,
            service: injection.service,
            told: injection.told,
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
            (Oracle::HeldBack | Oracle::Loss | Oracle::Client | Oracle::Log, _) => {
                let mut sources = truth.sources.clone();
                sources.extend(self.also_right());
                sources.extend(self.works_for(truth));
                sources
            }
        }
    }

    /// What the holder of the lock works for its reads is its own.
    fn works_for(&self, truth: &GroundTruth) -> Option<InjectedSource> {
        let (source, culprit) = truth
            .sources
            .iter()
            .find_map(|source| Some((source, source.culprit.as_ref()?)))?;
        let Culprit::Chain { name, pid, tid, .. } = culprit.clone() else {
            return None;
        };
        Some(InjectedSource {
            injected: source.injected.clone(),
            cause: Cause::BlockedLock,
            culprit: Some(Culprit::Thread {
                name,
                pid,
                tid,
                process: None,
            }),
        })
    }

    /// Where each worker has a queue of its own, what waits after a burst is spared by the end of the bursts and by a
    /// queue for all alike: `imbalance` is right, too. Where workers share a CPU, they take turns on it while there is work
    /// for several, which is after a burst: of a request whose worker waits meanwhile, `own_threads` is right.
    fn also_right(&self) -> Option<InjectedSource> {
        let BaseServer::Several(workers) = self.server else {
            return None;
        };
        let cause = match workers {
            Workers { shared: false, .. } => Cause::Imbalance,
            Workers { number, cpus, .. } if number > cpus => Cause::OwnThreads,
            Workers { .. } => return None,
        };
        Some(InjectedSource {
            injected: self.kind.name(),
            cause,
            culprit: None,
        })
    }

    /// The CPUs of the server, the first of which is disturbed: that which was asked for, and the next ones that the
    /// generator does not have.
    pub fn server_cpus(&self, asked: &BenchOptions) -> Vec<u32> {
        let number = match self.server {
            BaseServer::Several(workers) => workers.cpus,
            _ => 1,
        };
        let others = (0..).filter(|cpu| ![asked.server_cpu, asked.client_cpu].contains(cpu));
        let all = std::iter::once(asked.server_cpu).chain(others);
        all.take(number as usize).collect()
    }

    /// How many CPUs the server and its generator need.
    pub const fn needs_cpus(&self) -> u32 {
        match self.server {
            BaseServer::Several(workers) => workers.cpus + 1,
            _ => 2,
        }
    }

    /// Whether something outside the server holds it back.
    pub fn disturbs(&self) -> bool {
        let mut disturbances = self.disturbances.iter();
        !matches!(self.oracle, Oracle::Structure | Oracle::Nothing)
            && disturbances.any(|disturbance| *disturbance != Disturbance::RealTime)
    }

    /// N and a place below it, if the connection at this place of each N has a thread that the injection delays. Only the
    /// requests of these connections are judged, in both blocks: the order of service delays one request and speeds up
    /// another.
    pub fn delayed_connections(&self) -> Option<(usize, usize)> {
        match self.kind.injection().disturbance {
            // the first worker has the connection that asked whether the server is ready
            Some(Disturbance::Yielding(one_in)) if self.server == BaseServer::Siblings => {
                Some((one_in, one_in - 2))
            }
            Some(Disturbance::Yielding(one_in)) => Some((one_in, one_in - 1)),
            _ => None,
        }
    }

    /// The same without the cause: the other block of each pair.
    pub fn without(&self) -> Self {
        let disturbances = match self.kind.injection().without {
            Some(other) => vec![other],
            None => (self.disturbances.iter().copied())
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
        self.kind.injection().fix
    }

    /// The utilisation: the one asked for, or a higher one that the kind needs. A request can be
    /// overtaken, or wait while a worker is idle, only if there are several.
    pub fn utilization(&self, asked: f64) -> f64 {
        asked.max(match self.server {
            BaseServer::Threads | BaseServer::Siblings | BaseServer::Several(_) => {
                LONG_QUEUE_UTILIZATION
            }
            BaseServer::Datagrams
            | BaseServer::Streams
            | BaseServer::LongStreams
            | BaseServer::ManyStreams => UTILIZATION,
            BaseServer::Assigned | BaseServer::Pooled => ASSIGNED_UTILIZATION,
        })
    }

    /// The same server without injections.
    pub fn undisturbed(&self) -> Self {
        Self {
            fault: None,
            disturbances: Vec::new(),
            oracle: Oracle::Nothing,
            told: JudgedQuantity::default(),
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
            Cause::Order,
            "the built-in servers take their requests as they come",
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
