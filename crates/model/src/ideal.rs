//! The ideal queue that a server is compared with: where its t and its workers come from, why there
//! may be no comparison, and when more work arrived than could be done.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Distribution, Nanos};

/// How the service time t was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceTimeSource {
    /// Workers ÷ peak throughput, measured before the run.
    #[default]
    Calibrated,
    /// Given by the user.
    Given,
    /// The mean wait of virtual workers.
    VirtualWait,
    /// What a request cost in the busy periods of the recording.
    BusyPeriods,
    /// Busy time of the workers ÷ requests, in the most efficient stretches of the recording.
    BusyTime,
    /// Shorter than the busy time: with a longer t the ideal would have been slower than the server was.
    AsFastAsMeasured,
    /// Not found: a recording of T1 and T6 alone does not show it; t is 0, and there is no
    /// comparison.
    Unknown,
}

/// The service time as the server's busy periods show it: what happened on its CPUs between a response and
/// the next one, where the next request already waited at its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BusyPeriods {
    /// The mean cost of a request, with the probe: the server's own time on the CPU and the receive work.
    pub service_time_ns: Nanos,
    /// Lower end of its interval of 95 %.
    pub lo_ns: Nanos,
    /// Upper end of its interval.
    pub hi_ns: Nanos,
    /// The part of it that is the work of the network's receive softirq.
    pub receive_ns: Nanos,
    /// The part of that which comes after the response has left: it is received on the same CPU, as on a virtual
    /// network, or the client acknowledges it. The next request waits for it, the request itself does not.
    #[serde(default)]
    pub after_response_ns: Nanos,
    /// Times that a request waited while a response left.
    pub seen: u64,
    /// Of these, the ones that were left out because the server's thread seemed to run for 100 µs without any
    /// event: the hypervisor may have stopped the CPU. The interval reaches to the mean with them.
    pub left_out: u64,
}

/// The service time as the busy periods of one CPU show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BusyPeriodsOfCpu {
    /// The CPU.
    pub cpu: u16,
    /// What they show.
    #[serde(flatten)]
    pub seen: BusyPeriods,
}

/// How the number of the ideal queue's workers was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkersSource {
    /// Known before the recording, from the server's settings.
    #[default]
    Known,
    /// Given by the user.
    Given,
    /// Threads that were seen to serve, but no more than the server's CPUs.
    Seen,
}

/// The ideal sojourn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ideal {
    /// The distribution.
    pub sojourn: Distribution,
    /// Its percentiles with the ends of t's interval; empty where t has none. The intervals of `sojourn`
    /// contain them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_service_time: Vec<IdealBounds>,
    /// The sojourn that the same queue would give the requests if each had arrived when it was due: a sender
    /// cannot send two requests at once, which takes bursts away. Its percentiles have no intervals of their own.
    /// Absent where the client was not ours, or there is no comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_schedule: Option<Distribution>,
    /// The same queue if each request took as long as its own work did; absent where that was not seen, or there
    /// is no comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_work: Option<OwnWork>,
    /// Workers c of the ideal queue.
    #[schemars(range(min = 1))]
    pub workers: u32,
    /// How c was found.
    #[serde(default)]
    pub workers_source: WorkersSource,
    /// The workers wait on timers, and there are more of them than CPUs.
    pub virtual_workers: bool,
    /// Arrival rate at T1 × t ÷ c: the utilisation of the ideal server. That of the real one is
    /// `measured.utilization`.
    #[schemars(range(min = 0))]
    pub utilization: f64,
    /// Why the measured server is not compared with the ideal one; then there is no ideal sojourn,
    /// no excess, no cause of it and no forecast. Absent where it is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Withdrawn>,
}

impl Ideal {
    /// The sojourn with which the measured one is compared where a ratio is shown: with each request's own work,
    /// where requests differ much in that.
    pub fn base(&self) -> &Distribution {
        let own_work = self.base_of_own_work();
        own_work.map_or(&self.sojourn, |own_work| &own_work.sojourn)
    }

    /// The ideal with each request's own work, where that is the [base](Self::base).
    pub fn base_of_own_work(&self) -> Option<&OwnWork> {
        let own_work = self.own_work.as_ref();
        own_work.filter(|own_work| own_work.is_base && self.is_compared())
    }

    /// Whether the measured server is compared with the ideal one. Otherwise it is known what delayed requests, and not
    /// how much of that was in excess of anything.
    pub const fn is_compared(&self) -> bool {
        self.withdrawn.is_none()
    }
}

/// If the requests' own work varies by more than this coefficient, one t for all of them says little.
const MOST_CV: f64 = 0.5;

/// The ideal in which each request is served for as long as its own work took on the CPU, undisturbed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnWork {
    /// The sojourn in that queue. Its percentiles have no intervals of their own.
    pub sojourn: Distribution,
    /// The coefficient of variation of the requests' own work.
    #[schemars(range(min = 0))]
    pub cv: f64,
    /// Whether `ratio` is measured ÷ this ideal: above a coefficient of 0.5, the requests are not alike.
    pub is_base: bool,
}

impl OwnWork {
    /// The ideal with this sojourn, for work with this coefficient of variation.
    pub fn new(sojourn: Distribution, cv: f64) -> Self {
        Self {
            sojourn,
            cv,
            is_base: cv > MOST_CV,
        }
    }
}

/// A percentile of the ideal sojourn with the ends of t's interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IdealBounds {
    /// The percentile's probability.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// With the shortest t.
    pub lo_ns: Nanos,
    /// With the longest t.
    pub hi_ns: Nanos,
}

/// Why the comparison with the ideal queue does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Withdrawn {
    /// t is not known: only T1 and T6 were recorded, and the user did not give t.
    ServiceTimeUnknown,
    /// Clients wait for their answers before they ask again: a faster server would have got other
    /// arrivals.
    ClientsWait {
        /// The most requests, or batches of requests, that they have outstanding at once.
        at_once: u64,
    },
    /// The service time that was given is not what a request cost in the busy periods of the recording.
    ServiceTimeDisagrees {
        /// What was given.
        given_ns: Nanos,
        /// What a request cost.
        recorded_ns: Nanos,
    },
    /// The median of the ideal is above the measured one, and no busy periods of the recording confirm t:
    /// it is too long.
    IdealAboveMeasured {
        /// The median of the ideal sojourn.
        ideal_ns: Nanos,
        /// The median of the measured sojourn.
        measured_ns: Nanos,
    },
}

/// A stretch in which work came faster than it was done, for a second or more. Times are since the start of
/// the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overload {
    /// When the queue began to build up.
    pub from_ns: Nanos,
    /// When the queue was longest.
    pub worst_ns: Nanos,
    /// When it was worked off; `None` where the recording ended before.
    pub to_ns: Option<Nanos>,
    /// The queue was still there when the last request came, so the percentiles grow with the length of the
    /// measurement.
    #[serde(default)]
    pub outlasts_load: bool,
    /// Requests that waited when the queue was longest, in the server or, where the client is ours, in the
    /// client.
    pub waiting: u64,
    /// Requests of this stretch that were never answered; 0 where they are too few to be of the overload.
    #[serde(default)]
    pub unanswered: u64,
    /// Requests that came per second while the queue grew: that arrived at the server or, where the client is
    /// ours, were due.
    #[schemars(range(min = 0))]
    pub came_per_s: f64,
    /// Requests that were answered per second while it grew: the capacity at that time.
    #[schemars(range(min = 0))]
    pub done_per_s: f64,
    /// The capacity according to t: workers ÷ t; `None` where t is not known.
    #[schemars(range(min = 0))]
    pub capacity_per_s: Option<f64>,
    /// The t that this capacity was computed with.
    pub service_time_ns: Option<Nanos>,
    /// What the server's CPUs did while the queue grew; `None` where that was not recorded.
    pub cpu: Option<CpuTaken>,
}

/// What took the server's CPUs in an overload, as shares of their time. The rest of it they were idle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTaken {
    /// The server's threads.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub server_share: f64,
    /// The network's receive softirq.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub receive_share: f64,
    /// Threads of other programs.
    #[schemars(range(min = 0, max = 1))]
    pub others_share: f64,
    /// Those of them that took most, by name, the first first.
    #[serde(default)]
    pub others: Vec<TakenBy>,
    /// Interrupts and softirqs, without the network's receive softirq.
    #[schemars(range(min = 0, max = 1))]
    pub interrupts_share: f64,
    /// They stood still: the hypervisor ran something else.
    #[schemars(range(min = 0, max = 1))]
    pub stalled_share: f64,
    /// Time of the server's threads and of the receive softirq per answered request, in nanoseconds.
    #[schemars(range(min = 0))]
    pub busy_ns_per_request: f64,
}

/// A program that took a part of the server's CPU time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TakenBy {
    /// The name of its threads.
    pub name: String,
    /// Its part.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
}

impl CpuTaken {
    /// The share of the time in which the CPUs were not idle.
    pub fn busy_share(&self) -> f64 {
        let parts = [
            self.server_share,
            self.receive_share,
            self.others_share,
            self.interrupts_share,
            self.stalled_share,
        ];
        parts.iter().sum::<f64>().min(1.0)
    }
}
