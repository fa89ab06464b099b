//! What the report of `taillab load` has besides the load: the generator and its floor, a closed
//! loop, the loads of a sweep or a search.
//!
//! Times are integer nanoseconds and their names end in `_ns`. The JSON Schema is made from these
//! types: `schemas/load.schema.json`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::summary::{ClientCost, LoadErrors, LoadSummary, Report, Verdict};
use crate::{Distribution, Nanos, ParseNanosError};

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
    /// What was spoken: `memcached-ascii`, `http`, `redis`, `echo` …
    pub protocol: String,
    /// What carried it: `udp`, `tcp` or `unix`.
    pub transport: String,
    /// Connections, or ports of the client.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Threads that sent and received.
    #[schemars(range(min = 1))]
    pub threads: u32,
    /// All CPUs of the client's machine were kept from sleeping, the server's too if it is
    /// the same.
    pub kept_awake: bool,
    /// The server's peak, where the load was given as a share of it.
    pub capacity: Option<Capacity>,
    /// The load by the stamps of the kernel, where there are any.
    pub wire: Option<Wire>,
    /// The first answer that was an error or none of this protocol's: its first line. Absent where
    /// all were good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong_answer: Option<String>,
    /// What a closed loop or a ping-pong measured; `None` with a schedule.
    pub closed_loop: Option<ClosedLoop>,
    /// The loads of a sweep or a search, in the order in which they were measured.
    pub steps: Vec<LoadStep>,
    /// What a search found.
    pub found: Option<SearchResult>,
    /// The client's own floor.
    pub floor: Option<Floor>,
    /// Why there is no floor; there whenever `floor` is not.
    pub floor_absent_because: Option<String>,
}

/// What was measured without a schedule: the next request is sent when an answer is there. Says
/// what the server can do, not what a user waits.
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
    /// The same schedule, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadSummary>,
    /// The same closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<ClosedLoop>,
}

impl Floor {
    /// What is compared with the load: the response time of a schedule, the service time of a
    /// closed loop.
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
    /// By schedules that look for the highest rate that holds an objective.
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

/// What the kernel's stamps say: the client's own delays inside its process left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Wire {
    /// Requests with both stamps.
    pub stamped: u64,
    /// From the intended send to the packet's leaving.
    pub lateness: Distribution,
    /// From the packet's leaving to the response's coming in.
    pub service_time: Distribution,
}

/// One load of a sweep or of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadStep {
    /// The measurement ended before its time.
    pub partial: bool,
    /// The load as wanted and as the client saw it.
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
    /// What was to hold.
    pub objective: Objective,
    /// Some rate holds it.
    pub held: bool,
    /// The highest rate that holds it, below all that do not; `None` if none holds.
    #[schemars(range(min = 0))]
    pub rate_per_s: Option<f64>,
    /// That rate as a share of the capacity, where this is known.
    #[schemars(range(min = 0))]
    pub utilization: Option<f64>,
    /// The lowest rate that does not hold it; `None` if all do.
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

/// A limit on a quantile of the response time, as `p99.9<=200us`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Objective {
    /// The probability, in (0, 1).
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// The most that the quantile may be.
    pub limit_ns: Nanos,
}

/// A step of a search against the objective.
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

/// Why a text is not an objective.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseObjectiveError {
    /// There is no `<=`, or no percentile before it.
    #[error("`{0}` is not an objective; write a percentile and its limit, e.g. p99.9<=200us")]
    Form(String),
    /// The percentile is not between 0 and 100.
    #[error("the percentile of an objective lies between p0 and p100, not at p{0}")]
    Percentile(f64),
    /// The limit is not a length of time.
    #[error("the limit of an objective: {0}")]
    Limit(#[from] ParseNanosError),
}

impl FromStr for Objective {
    type Err = ParseObjectiveError;

    /// `p99.9<=200us`; `<` and `≤` mean the same.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseObjectiveError::Form(text.to_owned());
        let parts = ["<=", "≤", "<"]
            .iter()
            .find_map(|sign| text.split_once(sign));
        let (percentile, limit) = parts.ok_or_else(form)?;
        let percent = percentile.trim().strip_prefix(['p', 'P']);
        let percent: f64 = (percent.and_then(|text| text.trim().parse().ok())).ok_or_else(form)?;
        if !(percent > 0.0 && percent < 100.0) {
            return Err(ParseObjectiveError::Percentile(percent));
        }
        // 99.9 / 100 is not the double nearest to 0.999, which the quantiles have
        let q = (percent * 1e9).round() / 1e11;
        let limit_ns = limit.trim().parse()?;
        Ok(Self { q, limit_ns })
    }
}

impl fmt::Display for Objective {
    /// As [`Objective::from_str`] reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.q * 1e11).round() / 1e9;
        write!(f, "p{percent}<={}", self.limit_ns.to_exact_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_and_written_back() {
        for (text, q, limit, again) in [
            ("p99.9<=200us", 0.999, 200_000, "p99.9<=200us"),
            ("p50 < 1.5ms", 0.5, 1_500_000, "p50<=1500us"),
            ("P99.999 ≤ 2s", 0.99999, 2_000_000_000, "p99.999<=2s"),
        ] {
            let objective: Objective = text.parse().unwrap();
            assert_eq!(
                (objective.q, objective.limit_ns.get()),
                (q, limit),
                "{text}"
            );
            assert_eq!(objective.to_string(), again);
            assert_eq!(again.parse(), Ok(objective));
        }
    }

    #[test]
    fn what_is_no_objective_is_refused_with_a_remedy() {
        for text in ["", "p99", "200us", "p99>200us", "99<=200us", "pxx<=1ms"] {
            let error = text.parse::<Objective>().unwrap_err();
            assert!(
                error.to_string().contains("p99.9<=200us"),
                "{text}: {error}"
            );
        }
        for text in ["p0<=1ms", "p100<=1ms", "p-1<=1ms", "pnan<=1ms"] {
            let error = text.parse::<Objective>().unwrap_err();
            assert!(
                matches!(error, ParseObjectiveError::Percentile(_)),
                "{text}"
            );
        }
        let error = "p99<=200".parse::<Objective>().unwrap_err();
        assert!(error.to_string().contains("a number and a unit"), "{error}");
    }
}
