//! Two results side by side: `taillab compare`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
