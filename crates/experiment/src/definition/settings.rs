//! The settings of an experiment, section by section.

use serde::{Deserialize, Serialize};
use taillab_model::summary::{ClientKind, Connect};
use taillab_model::{MiddleStamps, Nanos};
use taillab_probe::Disturbances;
use taillab_simulator::simulation::Precision;

use super::server::Server;
use super::text::{length, optional_length, words};

/// Every setting of `taillab run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What is measured.
    pub server: Server,
    /// The generator.
    pub client: Client,
    /// The requests, and how fast they are sent.
    pub workload: Workload,
    /// What else uses the server's CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// Where both run.
    pub testbed: Testbed,
    /// How t and the probe's cost are found.
    pub calibration: Calibration,
    /// The kernel probe.
    pub probe: Probe,
}

/// The generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// CPUs, e.g. `1` or `4-7`. On each of them a thread spins, with its share of the connections and of the
    /// rate.
    pub cpus: String,
    /// Who the requests come from: `independent` clients, one for each connection, or the `pooled` connections of
    /// one client.
    pub kind: ClientKind,
    /// How long a connection lasts: `once` it is opened, it is kept, or `each` request has one of its own.
    #[serde(default)]
    pub connect: Connect,
    /// TCP connections, or UDP sockets; each has a port of its own. With `connect = "each"`, the most that are open at
    /// once.
    pub connections: u16,
    /// More TCP connections of a pool, which take a request only when no other one is idle; 0 otherwise.
    pub reserve: u16,
    /// The most requests under way on a TCP connection at once; a request that finds so many waits in its client. 0: no
    /// limit.
    pub pipeline: u16,
    /// How long to wait for a response.
    #[serde(with = "length")]
    pub timeout: Nanos,
}

/// The requests, and how fast they are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Length of the measurement.
    #[serde(with = "length")]
    pub duration: Nanos,
    /// Measure until a percentile is known this well, written as `p99.9=20%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// The longest measurement for that precision.
    #[serde(
        default,
        with = "optional_length",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_duration: Option<Nanos>,
    /// Load before it, not measured.
    #[serde(with = "length")]
    pub warmup: Nanos,
    /// Load as a share of the capacity, above 0 and at most 1.5. Used without a rate.
    pub utilization: f64,
    /// Load as requests per second; takes precedence over `utilization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Seed of the schedule and of the mix.
    pub seed: u64,
    /// Share of gets; the rest are sets. This and the next three are for key-value stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub get_share: Option<f64>,
    /// Distinct keys, all stored before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u32>,
    /// Length of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_bytes: Option<u16>,
    /// Length of a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_bytes: Option<u32>,
    /// The path of HTTP requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Length of a request: of an echo, or of an HTTP request, which a header fills up to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u32>,
    /// Length of a response, where the server lets us choose it: echo servers, and our nginx including its
    /// header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u32>,
}

/// Processes of ours that use the server's CPUs in bursts, from the end of the calibration on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// The number of processes.
    pub processes: u32,
    /// CPU time of each burst.
    #[serde(with = "length")]
    pub busy: Nanos,
    /// The mean time from the start of one burst to the next in each process. It is exponential, from the
    /// seed of the workload.
    #[serde(with = "length")]
    pub every: Nanos,
}

/// Where server and generator run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Testbed {
    /// How they are connected.
    pub kind: TestbedKind,
}

/// How server and generator are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TestbedKind {
    /// Two network namespaces and a veth pair, receive work steered to each side's CPU.
    Veth,
    /// The loopback device; receive work runs on the sender's CPU.
    Loopback,
}

impl Workload {
    /// The percentile that decides how long the measurement lasts, and the precision wanted.
    pub fn precision(&self) -> Option<Precision> {
        self.precision.as_ref()?.parse().ok()
    }

    /// The longest measurement: twice the duration, to make up for stalls of the generator; three times the
    /// duration for a precision; or as given.
    pub fn longest(&self) -> Nanos {
        let times = |n| Nanos::new(self.duration.get().saturating_mul(n));
        match (&self.precision, self.max_duration) {
            (None, _) => times(2),
            (Some(_), None) => times(3),
            (Some(_), Some(most)) => most,
        }
    }
}

/// How t and the probe's cost are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Interleaved pairs of closed-loop blocks, without and with the probe.
    pub pairs: u32,
    /// Length of a block.
    #[serde(with = "length")]
    pub block: Nanos,
    /// Requests kept outstanding in a block. Without it, as many as give the highest throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<u16>,
    /// A service time given instead of the measured one.
    #[serde(
        default,
        with = "optional_length",
        skip_serializing_if = "Option::is_none"
    )]
    pub service_time: Option<Nanos>,
}

/// The kernel probe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Ring buffer of each CPU, in bytes; a power of two.
    pub ring_bytes: u32,
    /// When T2 to T5 and disturbances are recorded: `all` the time, `sampled:1/N` of it, or never (`ends`).
    #[serde(default, with = "words")]
    pub stamps: MiddleStamps,
    /// The kinds of disturbance to record: `all`, `none`, or a list.
    #[serde(with = "words")]
    pub disturbances: Disturbances,
}
