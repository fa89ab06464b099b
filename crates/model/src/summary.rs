//! The result of measuring a server, as `summary.json` and `--json` carry it.
//!
//! Times are integer nanoseconds and their names end in `_ns`. The JSON Schema is
//! made from these types: `schemas/report.schema.json`.

mod clients;
mod cut;
mod load;
mod scaling;
mod scheduled;
mod verdict;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::clients::{
    ClientKind, ClientsSummary, Closing, Connect, ConnectingSummary, NOTABLE_WAITING_SHARE,
};
pub use self::cut::{CutSummary, CutsForReason, MAX_CUT_SHARE, MAX_UNSETTLED_SHARE, UnsettledAt};
pub use self::load::{
    ArrivalsReference, ArrivalsVerdict, ClientCost, DeadTime, DispersionAt, LoadErrors,
    LoadSegment, LoadSummary,
};
pub use self::scaling::{NoScaling, Scaling};
pub use self::scheduled::{ReplayedSchedule, Scheduled};
pub use self::verdict::{
    Claim, ClaimName, MAX_MISSING_SHARE, Reason, TOO_FEW, ValidPercentiles, Verdict, spoiled_from,
    unbounded_from,
};
pub use crate::ideal::{
    BusyPeriods, BusyPeriodsOfCpu, CpuTaken, Ideal, IdealBounds, Overload, OwnWork,
    ServiceTimeSource, TakenBy, Withdrawn, WorkersSource,
};

use crate::explanation::{CauseShare, DividedRatio, Explanation, ModelFit, Prediction};
use crate::fix::{Factorial, Fix};
use crate::threshold::Assertion;
use crate::{Distribution, MiddleStamps, Nanos};

/// Version of the shape of [`Report`].
pub const SCHEMA_VERSION: u32 = 1;

/// At least this share of the responses must have T1 and T6.
pub const MIN_MATCHED_SHARE: f64 = 0.999;

/// At least this share of the responses should have all six stamps.
pub const MIN_COMPLETE_SHARE: f64 = 0.995;

/// When more than this share of the requests went wrong, the far percentiles are spoiled.
pub const MAX_ERROR_SHARE: f64 = 1e-4;

/// A client busier than this is the bottleneck: what it measures is itself.
pub const MAX_CLIENT_BUSY_SHARE: f64 = 0.95;

/// At least this share of the rate that the schedule planned must have been sent.
pub const MIN_SENT_SHARE: f64 = 0.99;

/// If the lateness at a percentile is above this share of the response time there, the generator
/// contributed at least as much to it as the server.
pub const MAX_LATENESS_SHARE: f64 = 0.5;

/// Lateness at a percentile above this share of the response time there is worth a remark.
pub const NOTABLE_LATENESS_SHARE: f64 = 0.1;

/// What a measurement of a server found: the result of every command that measures one.
///
/// `Server` is what is known of the server's side: all that the probe saw, or, in a report of
/// `taillab load`, only what its client measured ([`ClientOnly`](crate::load_result::ClientOnly)).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("allOf" = [
    {
        "if": {"properties": {"command": {"const": "run"}}},
        "then": {"required": ["load", "client_minus_server", "calibration", "scheduled"]},
        "else": {"properties": {"client_minus_server": false, "calibration": false}},
    },
    {
        "if": {"properties": {"command": {"enum": ["trace", "explain"]}}},
        "then": {"properties": {"load": false}},
    },
]))]
pub struct Report<Server = ServerResult> {
    /// Version of this shape: [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// The command that wrote this: `run`, `trace` or `explain`.
    #[schemars(extend("enum" = ["run", "trace", "explain"]))]
    pub command: String,
    /// What was measured: `memcached over UDP`, `pid 4711 (nginx), port 80 over TCP`,
    /// `memcached+udp://127.0.0.1:11211`.
    pub target: String,
    /// Start of the measurement, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// It ended before its time (Ctrl-C, or the server died), or the file was cut off; of a sweep,
    /// some of the loads are missing or short.
    pub partial: bool,
    /// Length of what was measured: from the start of the measurement to the last event; of a
    /// sweep, all loads together.
    pub duration_ns: Nanos,
    /// Requests that came in per second; of a sweep, over all loads.
    #[schemars(range(min = 0))]
    pub arrival_rate_per_s: f64,
    /// One load by a schedule, where the generator was ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadSummary>,
    /// Where the generator was ours: the client's service time − (T6 − T1), request by request, of the
    /// requests of `scheduled`. That is the way there and back, including the client's own stack and its
    /// reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_minus_server: Option<Distribution>,
    /// How the peak was measured, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What requests that were sent on schedule saw; absent where the generator was not ours. Everything
    /// else is of all requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<Scheduled>,
    /// The server's side: what the probe saw and what follows from it.
    #[serde(flatten)]
    pub server: Server,
    /// What watching cost; `None` where the recording does not say, or nothing was watched.
    pub observer: Option<Observer>,
    /// What `--fix` tried, in this order; absent without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<Fix>,
    /// What `--factorial` measured; absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factorial: Option<Factorial>,
    /// Whether the result can be believed.
    pub verdict: Verdict,
    /// The limits that the result was to hold (`--assert`). Absent where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assertions: Vec<Assertion>,
}

/// What watching cost the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observer {
    /// CPU time of taillab's own threads while it recorded, as a share of one CPU.
    #[schemars(range(min = 0))]
    pub cpu_share: f64,
    /// Time in the eBPF programs per request, in nanoseconds, as counted by the kernel. The count was on for
    /// the first requests only. Its own cost is included; the time to enter the programs is not.
    /// `None` where that was not counted.
    #[schemars(range(min = 0))]
    pub program_ns_per_request: Option<f64>,
    /// Events recorded per request.
    #[schemars(range(min = 0))]
    pub events_per_request: f64,
    /// Bytes written to disk per second; 0 when nothing was saved.
    #[schemars(range(min = 0))]
    pub written_bytes_per_s: f64,
    /// The most memory that taillab had resident.
    pub peak_memory_bytes: u64,
}

impl Observer {
    /// Recording takes so much of a CPU that the reader should know.
    pub fn is_notable(&self) -> bool {
        self.cpu_share > 0.2
    }
}

/// The server as the probe saw it, and what follows from that. It does not matter who sent the
/// requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerResult {
    /// t: the ideal service time of a request.
    pub service_time_ns: Nanos,
    /// How t was found.
    pub service_time_source: ServiceTimeSource,
    /// Lower end of the interval of t; `None` where t was given.
    #[serde(default)]
    pub service_time_lo_ns: Option<Nanos>,
    /// Upper end of the interval of t.
    #[serde(default)]
    pub service_time_hi_ns: Option<Nanos>,
    /// The service time as the server's busy periods show it; absent where hardly any request had to wait, or
    /// where it was not recorded who was on the CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_periods: Option<BusyPeriods>,
    /// The same for each CPU by itself, where several served and show it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy_periods_by_cpu: Vec<BusyPeriodsOfCpu>,
    /// What was measured of the server.
    pub measured: Measured,
    /// The same arrivals through the ideal queue.
    pub ideal: Ideal,
    /// Measured − ideal, request by request, where the measured one is longer.
    pub excess: Distribution,
    /// The stages over all complete requests.
    pub stages: Stages,
    /// Where the requests around each percentile of the sojourn spent their time.
    pub stages_at: Vec<StagesAt>,
    /// How well events were matched with responses.
    pub matching: Matching,
    /// What is not counted there, since it says nothing about how the server answers.
    #[serde(default, skip_serializing_if = "Exclusions::is_nothing")]
    pub left_out: Exclusions,
    /// Responses that were sent again; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_again: Option<ResentResponses>,
    /// What the probe costs.
    pub overhead: Overhead,
    /// Causes of the excess: first each cause as a whole, which together make up all of it, then their
    /// culprits. Empty where disturbances were not recorded.
    pub causes: Vec<CauseShare>,
    /// Measured ÷ ideal at p50, p99 and p99.9, divided among what makes it more than 1. Empty where
    /// there is no ideal, or where disturbances were not recorded.
    #[serde(default)]
    pub ratio: Vec<DividedRatio>,
    /// Error of the causal replay; `None` where there is none.
    pub model_fit: Option<ModelFit>,
    /// Forecasts by the causal replay, the best first; empty where it does not fit.
    pub predictions: Vec<Prediction>,
    /// The rest of the explanation; `None` where disturbances were not recorded.
    pub explanation: Option<Explanation>,
}

/// The peak of the server, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// Peak throughput of the server without the probe: median over the blocks.
    #[schemars(range(min = 0))]
    pub peak_per_s: f64,
    /// Lower end of its interval.
    #[schemars(range(min = 0))]
    pub peak_lo_per_s: f64,
    /// Upper end of its interval.
    #[schemars(range(min = 0))]
    pub peak_hi_per_s: f64,
    /// Share of the server's CPUs that was not idle at the peak.
    #[schemars(range(min = 0, max = 1))]
    pub server_cpu_busy_share: f64,
    /// What kept the peak from being higher.
    pub limited_by: LimitedBy,
    /// Requests that were kept outstanding: as given, or the number with the highest throughput.
    #[schemars(range(min = 1))]
    pub outstanding: u32,
    /// Blocks measured.
    pub blocks: u32,
    /// What several workers reached of as many times what one reaches by itself. Absent where there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
}

/// What kept a peak from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// The server: its workers used their CPUs all the time, so workers ÷ peak is what a request takes.
    Server,
    /// Other programs: they had a tenth of the server's CPUs or more, which were busy all the time. Alone the
    /// server could answer more than the peak.
    Others,
    /// The client: it had no time to send more, or did not have its CPU. The server can answer more than the
    /// peak.
    Client,
    /// Neither was busy all the time: requests waited for something other than their CPUs. The CPUs of the server
    /// would do for more than the peak.
    Waits,
}

/// The measured sojourn, T6 − T1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// The distribution.
    pub sojourn: Distribution,
    /// Share of the measurement that the server's CPUs were not idle.
    #[schemars(range(min = 0, max = 1))]
    pub server_cpu_busy_share: Option<f64>,
    /// Busy time of the workers ÷ (length × workers of the ideal queue), with the probe and at this
    /// rate; `None` where it was not recorded, or the workers are virtual.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub utilization: Option<f64>,
    /// The same busy time per request, in nanoseconds: what a request cost at this rate, where t is
    /// what it costs at the peak.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub busy_ns_per_request: Option<f64>,
    /// The worst stretch in which work came faster than it was done, for a second or more. Absent
    /// where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
}

/// One distribution for each stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stages {
    /// T1–T2.
    pub t1_t2: Distribution,
    /// T2–T3.
    pub t2_t3: Distribution,
    /// T3–T4.
    pub t3_t4: Distribution,
    /// T4–T5.
    pub t4_t5: Distribution,
    /// T5–T6.
    pub t5_t6: Distribution,
}

/// Mean stages of the complete requests around one percentile of the sojourn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StagesAt {
    /// The percentile's probability; 1 for the slowest request.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// Complete requests in the band.
    pub requests: u64,
    /// Their mean sojourn, in nanoseconds.
    #[schemars(range(min = 0))]
    pub mean_sojourn_ns: f64,
    /// Their mean stages, in nanoseconds; the five sum to the mean sojourn.
    pub mean_stage_ns: [f64; 5],
}

/// How well kernel events were matched with responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Matching {
    /// Responses that the server sent (T6 events in the measurement).
    pub responses: u64,
    /// Responses with T1 and T6.
    pub matched: u64,
    /// When T2 to T5 and disturbances were recorded: `all` the time, `sampled:1/N` (in slices, which
    /// take 1/N of the time) or `ends` (never).
    #[serde(default)]
    #[schemars(with = "String")]
    pub stamps: MiddleStamps,
    /// Matched requests whose T2 to T5 were not to be recorded: those that came in outside of the
    /// slices, or at the edge of one.
    #[serde(default)]
    pub unasked: u64,
    /// Slices with requests of the sample.
    #[serde(default)]
    pub slices: u64,
    /// Requests of the sample that left after the end of their slice: from then on, what happened to
    /// them is not known.
    #[serde(default)]
    pub left_late: u64,
    /// Responses with all six stamps in order. In sampled mode, only requests of the sample count.
    pub complete: u64,
    /// Responses that more than one request could have caused; none of these is matched.
    pub ambiguous: u64,
    /// Responses that the client received, where the client is ours. They are counted without
    /// the probe, so they show what the probe missed.
    pub client_responses: u64,
    /// The client's responses with T1 and T6.
    pub client_matched: u64,
    /// Requests whose packet came in and whose response never left.
    pub unanswered: u64,
    /// Matched requests whose stamps contradict each other (kept, not complete).
    pub out_of_order: u64,
    /// Events lost: ring buffer full, or a program skipped by recursion.
    pub lost_events: u64,
    /// Time in which the probe was blind, summed over the server's CPUs.
    pub blind_ns: Nanos,
    /// Blind windows found.
    pub blind_windows: u64,
    /// Matched requests that overlap a blind window.
    pub blind_requests: u64,
    /// Matched requests that lack T2, T3, T4, T5, in this order, though these were to be recorded.
    pub missing_middle: [u64; 4],
    /// Which hook gave each stamp.
    pub hooks: Vec<Hook>,
}

impl Matching {
    /// How many answered requests the distributions may lack. Where the client is ours, it knows of those that the
    /// probe missed. Otherwise each lost event may have been a stamp of a request that nobody knows of.
    pub fn missing(&self) -> u64 {
        let unmatched = self.responses.saturating_sub(self.matched);
        match self.client_responses {
            0 => unmatched + self.lost_events,
            all => unmatched.max(all.saturating_sub(self.client_matched)),
        }
    }

    /// Those as a share of all answered requests.
    pub fn missing_share(&self) -> f64 {
        let missing = self.missing();
        missing as f64 / (self.matched + missing).max(1) as f64
    }

    /// Responses to requests whose six stamps were all to be recorded. In sampled mode only the
    /// matched ones: the request of an unmatched response is not known.
    pub const fn asked(&self) -> u64 {
        match self.stamps {
            MiddleStamps::All => self.responses,
            MiddleStamps::Sampled(_) | MiddleStamps::Ends => {
                self.matched.saturating_sub(self.unasked)
            }
        }
    }
}

/// Responses that TCP sent again after all of them had left. T6 is when they left first, so they are in no sojourn;
/// where the first packet was lost, the client waited for the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResentResponses {
    /// How many.
    pub responses: u64,
    /// In how many segments.
    pub segments: u64,
    /// The median time from T6 to the last segment that was sent again.
    pub median_ns: Nanos,
    /// The longest such time.
    pub longest_ns: Nanos,
}

/// What [`Matching`] does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Exclusions {
    /// Responses to requests from before the recording.
    pub from_before: u64,
    /// Requests to connections that were open before the recording, from when it was not yet known what these owed: at
    /// most fourteen each.
    pub early: u64,
    /// Requests over TCP to the server's port that none of its sockets received: packets that pass through this
    /// machine, or that nobody accepts.
    pub elsewhere: u64,
    /// Packets over TCP that only began a request: its client sends requests in several packets and waits for the
    /// responses, as far as the server's connections show. Counted without a framing only.
    pub parts: u64,
    /// Requests that another process received, which shares the server's port (SO_REUSEPORT).
    pub other_processes: u64,
    /// Connections on which the server sends without being asked (subscribers, replicas, streams of events),
    /// or goes on for longer than is waited for. Nothing counts that happened there from then on.
    pub unasked: u64,
    /// The client's ports of the first of them.
    pub unasked_ports: Vec<u16>,
    /// Connections and threads that were forgotten while they were in use, since there were too many at
    /// once. What was under way there counts as unanswered.
    pub forgotten: u64,
}

impl Exclusions {
    /// The most ports that are named.
    const MOST_PORTS: usize = 16;

    /// Adds connections on which the server sends unasked, by the client's port.
    pub fn add_unasked(&mut self, ports: &[u16]) {
        self.unasked += ports.len() as u64;
        let room = Self::MOST_PORTS.saturating_sub(self.unasked_ports.len());
        self.unasked_ports.extend(ports.iter().take(room));
    }

    /// Whether everything is counted.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The kernel hook behind a stamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hook {
    /// `T1` … `T6`, or `switch`.
    pub stamp: String,
    /// The hook attached, e.g. `tp_btf/netif_rx`.
    pub hook: String,
    /// What precision it lacks against the best hook known, if any.
    pub lost_precision: Option<String>,
}

/// Peak throughput with the probe compared with that without it, in interleaved blocks on one start of the
/// server: the interval does not include the variation between starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overhead {
    /// Interleaved pairs of blocks; 0 when it was not measured.
    pub pairs: u32,
    /// Median over the pairs of 1 − (with ÷ without).
    pub throughput_loss: Option<f64>,
    /// Lower end of its interval.
    pub throughput_loss_lo: Option<f64>,
    /// Upper end of its interval.
    pub throughput_loss_hi: Option<f64>,
    /// Where all but T1 and T6 is recorded in slices, the loss within a slice; `throughput_loss` is
    /// then the average over the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_loss_in_slices: Option<f64>,
    /// The average loss as CPU time of the server's core per request, in nanoseconds.
    pub cpu_ns_per_request: Option<f64>,
}

impl Overhead {
    /// The probe costs so much of the peak throughput that it changes what it measures.
    pub fn is_notable(&self) -> bool {
        self.throughput_loss.is_some_and(|loss| loss > 0.1)
    }
}
