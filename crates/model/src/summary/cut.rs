//! What was left out of the experiment's view of a measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CutReason, Nanos};

/// When more than this share of the time was cut, the rest is too little to say what the schedule's arrivals
/// would have seen.
pub const MAX_CUT_SHARE: f64 = 1.0 / 3.0;

/// A percentile of `scheduled` is withdrawn where more than this share of the requests above it are missing because
/// cuts follow each other too soon. Where a quarter is missing, what is called p99 is p98.7.
pub const MAX_UNSETTLED_SHARE: f64 = 0.25;

/// Stretches in which the load was not what it should have been, by the generator's own clock and
/// schedule. What disturbed only the server is not among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CutSummary {
    /// Share of the measurement's time that was cut.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
    /// The length of all cuts together.
    pub length_ns: Nanos,
    /// Requests that are therefore left out of `scheduled`.
    pub requests: u64,
    /// What is missing because a cut lasts until the server is idle: by percentile, in ascending order.
    pub unsettled: Vec<UnsettledAt>,
    /// The cuts by reason, the longest first.
    pub by_reason: Vec<CutBy>,
}

/// What is missing above a percentile. A request that finds the server busy since before the end of
/// the last cut is not counted, so there are too few requests of long busy periods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnsettledAt {
    /// The percentile's probability.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// About this share of the requests above it is missing.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
}

/// What was cut for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CutBy {
    /// What was wrong.
    pub why: CutReason,
    /// Who did it, as far as that is known: `stress (pid 77) on CPU 1`.
    pub who: String,
    /// Number of cuts.
    pub times: u64,
    /// Their length in all, with the time in which the server worked off the backlog.
    pub length_ns: Nanos,
    /// Requests that were left out.
    pub requests: u64,
}
