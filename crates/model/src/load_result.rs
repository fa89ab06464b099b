//! What the report of `taillab load` contains besides the load: the generator and its floor, a closed
//! loop, the loads of a sweep or a search.
//!
//! Times are integer nanoseconds and their names end in `_ns`. The JSON Schema is made from these
//! types: `schemas/load.schema.json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::summary::{ClientCost, LoadErrors, LoadSummary, Report, Verdict};
use crate::{Distribution, Nanos, Objective};

/// The report of `taillab load`.
pub type LoadReport = Report<ClientOnly>;

/// The report's part for a server that only its client saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientOnly {
    /// The generator, with what it measured besides one load by a schedule.
    pub generator: Generator,
}

impl LoadReport {
    /// The generator, with what it measured besides one load by a schedule.
    pub fn generator(&self) -> &Generator {
        &self.server.generator
    }
}

/// The generator of `taillab load`: how it was set up, and what it measured besides one load by a
/// schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"properties": {"floor": {"type": "null"}}},
    "then" = {"properties": {"floor_absent_because": {"type": "string"}}},
    "else" = {"properties": {"floor_absent_because": {"type": "null"}}},
))]
pub struct Generator {
    /// How requests were sent.
    pub mode: Mode,
    /// The protocol: `memcached-ascii`, `http`, `redis`, `echo` …
    pub protocol: String,
    /// The transport: `udp`, `tcp` or `unix`.
    pub transport: String,
    /// Connections, or ports of the client.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Threads that sent and received.
    #[schemars(range(min = 1))]
    pub threads: u32,
    /// All CPUs of the client's machine were kept out of idle states, the server's too if it is
    /// the same machine.
    pub kept_awake: bool,
    /// The server's peak, where the load was given as a share of it.
    pub capacity: Option<Capacity>,
    /// The load by the kernel's time stamps, where there are any.
    pub wire: Option<Wire>,
    /// The first line of the first answer that was an error or not of this protocol. Absent where
    /// all were good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong_answer: Option<String>,
    /// When the clients of a larger experiment began together. Absent where this one is alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<CommonStart>,
    /// What a closed loop or a ping-pong measured; `None` with a schedule.
    pub closed_loop: Option<ClosedLoop>,
    /// The loads of a sweep or a search, in the order in which they were measured.
    pub steps: Vec<LoadStep>,
    /// What a search found.
    pub found: Option<SearchResult>,
    /// The client's own floor.
    pub floor: Option<Floor>,
    /// Why there is no floor; set whenever `floor` is absent.
    pub floor_absent_because: Option<String>,
}

/// The start that several clients of one experiment have in common, on the clock of this one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommonStart {
    /// Number of this client, from 0.
    pub client: u32,
    /// Clients of the experiment.
    #[schemars(range(min = 1))]
    pub clients: u32,
    /// The planned start by CLOCK_MONOTONIC of this client's host, nanoseconds since boot.
    pub monotonic_ns: u64,
    /// How far the start may be off that of the others, in nanoseconds: the error of the clocks' offset, and that of
    /// reading two clocks of this host at once.
    pub error_ns: Nanos,
    /// From the planned instant of the first request until it was sent, in nanoseconds. Absent without a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_send_late_ns: Option<Nanos>,
}

/// What was measured without a schedule: each request is sent when an answer has come. It says
/// what the server can do, not how long a user waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClosedLoop {
    /// Requests kept in flight, all connections together.
    #[schemars(range(min = 1))]
    pub outstanding: u32,
    /// Requests sent in the measurement.
    pub requests: u64,
    /// Length of the measurement.
    pub duration_ns: Nanos,
    /// Answers per second.
    #[schemars(range(min = 0))]
    pub answered_rate_per_s: f64,
    /// From the send to the response.
    pub service_time: Distribution,
    /// The client's own cost.
    pub client: ClientCost,
    /// What went wrong, by kind.
    pub errors: LoadErrors,
}

/// The same client and load against a responder that does nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Floor {
    /// What answered, and where: `built-in null responder over udp on 127.0.0.1`.
    pub responder: String,
    /// The result with the same schedule, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadSummary>,
    /// The result with the same closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<ClosedLoop>,
}

impl Floor {
    /// The latency that is compared with the load's: the response time of a schedule, the service time
    /// of a closed loop.
    pub fn latency(&self) -> Option<&Distribution> {
        let scheduled = self.load.as_ref().map(|load| &load.response_time);
        scheduled.or_else(|| Some(&self.closed_loop.as_ref()?.service_time))
    }
}

/// How requests were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By a schedule, whatever the answers.
    #[default]
    OpenLoop,
    /// By schedules of several rates.
    Sweep,
    /// By schedules with different rates, to find the highest one that meets an objective.
    Search,
    /// A fixed number in flight, for the server's peak.
    ClosedLoop,
    /// One in flight on each connection.
    PingPong,
}

/// The server's peak, measured with a closed loop before the load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// Requests answered per second at the peak: median over the blocks.
    #[schemars(range(min = 0))]
    pub peak_per_s: f64,
    /// Lower end of its interval; `None` with too few blocks.
    #[schemars(range(min = 0))]
    pub peak_lo_per_s: Option<f64>,
    /// Upper end of its interval; `None` with too few blocks.
    #[schemars(range(min = 0))]
    pub peak_hi_per_s: Option<f64>,
    /// Blocks measured.
    pub blocks: u32,
}

/// The load by the kernel's time stamps, which leave out the delays within the client's process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Wire {
    /// Requests with both stamps.
    pub stamped: u64,
    /// From the intended send until the packet left.
    pub lateness: Distribution,
    /// From when the packet left until the response's packet came in.
    pub service_time: Distribution,
}

/// One load of a sweep or of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadStep {
    /// The measurement ended before its time.
    pub partial: bool,
    /// The load as planned and as the client saw it.
    #[serde(flatten)]
    pub load: LoadSummary,
    /// The server did not keep up: what was measured depends on how long it was measured.
    pub overloaded: bool,
    /// The step against the objective of the search; `None` in a sweep.
    pub objective: Option<ObjectiveAt>,
    /// Whether the step can be believed.
    pub verdict: Verdict,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchResult {
    /// The objective of the search.
    pub objective: Objective,
    /// Some rate meets it.
    pub held: bool,
    /// The highest rate that meets it, below all that do not; `None` if none does.
    #[schemars(range(min = 0))]
    pub rate_per_s: Option<f64>,
    /// That rate as a share of the capacity, where this is known.
    #[schemars(range(min = 0))]
    pub utilization: Option<f64>,
    /// The lowest rate that does not meet it; `None` if all do.
    #[schemars(range(min = 0))]
    pub fails_at_per_s: Option<f64>,
    /// Lower end of the interval of the true answer: the highest rate at which even the upper
    /// end of the quantile's interval is within the limit.
    #[schemars(range(min = 0))]
    pub surely_holds_per_s: Option<f64>,
    /// Upper end: the lowest rate at which even the lower end is beyond the limit.
    #[schemars(range(min = 0))]
    pub surely_fails_per_s: Option<f64>,
}

/// A step of a search, compared with the objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectiveAt {
    /// The quantile; `None` where the sample cannot support it.
    pub value_ns: Option<Nanos>,
    /// Lower end of its interval.
    pub lo_ns: Option<Nanos>,
    /// Upper end; `None` with a value where it lies beyond the largest observation.
    pub hi_ns: Option<Nanos>,
    /// The quantile is within the limit, and the server kept up and answered.
    pub held: bool,
    /// The interval lies on one side of the limit.
    pub sure: bool,
}
