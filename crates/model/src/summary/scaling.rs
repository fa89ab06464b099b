//! What several workers reach together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::share::Share;

/// What several workers answer together at the peak, compared with as many times what one of them answers by itself.
///
/// Locks, caches and memory that they share, and work that is shared out unevenly, make it less than 1. Some of that may
/// be in `one_per_s`, since the others work a part of the time while one is watched.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scaling {
    /// The workers, each with a core of its own; virtual ones wait and need none.
    #[schemars(range(min = 2))]
    pub workers: u32,
    /// Requests per second that one of them answers, by its own t: 1 / t. Absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub one_per_s: Option<f64>,
    /// The peak ÷ (`workers` × `one_per_s`), either both with the probe or both without it. Absent where that is not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Share>,
    /// Why it is not known what they reach. Absent where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known_because: Option<NoScaling>,
}

/// Why it is not known what several workers reach together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoScaling {
    /// The server was not the limit at the peak: together they may reach more.
    PeakIsNotOfServer,
    /// Too few requests waited to show what one costs a core by itself, so t is an upper bound or comes from the peak.
    OneIsNotKnown,
}
