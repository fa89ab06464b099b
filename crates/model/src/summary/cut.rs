//! What was left out of the statistics of a measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CutReason, Nanos};

/// A result of which more than this share of the time was cut says too little of the rest.
pub const MAX_CUT_SHARE: f64 = 1.0 / 3.0;

/// More requests than this share so soon after a cut that the queue had not found its state again:
/// they come to an emptier server than they should.
pub const MAX_UNSETTLED_SHARE: f64 = 0.1;

/// Stretches in which the generator was not what it should have been, by its own clock and
/// schedule. Nothing that only the server suffered is among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CutSummary {
    /// Share of the measurement's time that was cut.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
    /// How much that is.
    pub length_ns: Nanos,
    /// Requests that are in no statistic for it.
    pub requests: u64,
    /// Share of the requests that count that came so soon after a cut that the queue had not found
    /// its state again.
    #[schemars(range(min = 0, max = 1))]
    pub unsettled_share: f64,
    /// The same by reason, the longest first.
    pub by_reason: Vec<CutBy>,
}

/// What was cut for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CutBy {
    /// What was wrong.
    pub why: CutReason,
    /// Who did it, as far as that is known.
    pub who: String,
    /// How often.
    pub times: u64,
    /// How long in all, with the time in which the server worked off what it left.
    pub length_ns: Nanos,
    /// Requests.
    pub requests: u64,
}
