//! Two results side by side: `taillab compare`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::summary::Verdict;
use crate::threshold::Assertion;

pub use crate::quantile_ratio::{Change, ComparedAt, compared};

/// Version of the shape of [`Comparison`].
pub const SCHEMA_VERSION: u32 = 1;

/// What two results say of the same latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Version of this shape: [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Always `compare`.
    #[schemars(extend("const" = "compare"))]
    pub command: String,
    /// The latency that is compared.
    pub latency: ComparedLatency,
    /// The first result.
    pub before: ComparedResult,
    /// The second one.
    pub after: ComparedResult,
    /// The reported percentiles, in ascending order.
    pub quantiles: Vec<ComparedAt>,
    /// The limits that the second result was to hold (`--assert`).
    pub assertions: Vec<Assertion>,
    /// What further starts of both say (`--again`). Absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Starts>,
}

/// Both experiments started again and again, in turn: what differs between starts is in the interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Starts {
    /// How often each was started.
    #[schemars(range(min = 6))]
    pub of_each: u32,
    /// The order within each pair of starts is drawn with it, and the loads have seeds from it on.
    pub seed: u64,
    /// Where the results of the starts are.
    pub folder: String,
    /// The probability that a change that does nothing is found to be lower or higher at any percentile.
    #[schemars(range(min = 0, max = 1))]
    pub level: f64,
    /// The percentiles that every start knows, in ascending order.
    pub quantiles: Vec<StartsAt>,
}

/// A percentile of the starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartsAt {
    /// Its probability.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// In each start of the first experiment, in nanoseconds.
    pub before_ns: Vec<Nanos>,
    /// In each start of the second one; those at the same place were started one after the other.
    pub after_ns: Vec<Nanos>,
    /// The second ÷ the first in a typical pair of starts: the median.
    #[schemars(range(min = 0))]
    pub ratio: f64,
    /// Lower end of its 95 % interval, over starts (sign test).
    #[schemars(range(min = 0))]
    pub lo: f64,
    /// Upper end.
    #[schemars(range(min = 0))]
    pub hi: f64,
    /// The second is lower: proven by exchanging the starts of pairs.
    pub is_lower: bool,
    /// The second is higher: proven likewise.
    pub is_higher: bool,
}

/// Which latency two results have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ComparedLatency {
    /// From the intended send to the answer, by the client.
    ResponseTime,
    /// From the arrival at the server to its response, of all requests, with the arrivals as they came.
    Sojourn,
}

/// One of the two results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedResult {
    /// The file that it was read from.
    pub file: String,
    /// The command that measured it.
    pub command: String,
    /// What was measured.
    pub target: String,
    /// Start of the measurement, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// Requests per second.
    #[schemars(range(min = 0))]
    pub rate_per_s: f64,
    /// It ended before its time.
    pub partial: bool,
    /// Whether it can be believed.
    pub verdict: Verdict,
}
