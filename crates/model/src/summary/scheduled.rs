//! The experiment's view of a measurement: what requests that were sent on schedule saw.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Claim, CutSummary, TOO_FEW};
use crate::Distribution;
use crate::explanation::PredictedPoint;

/// What arrivals by the schedule see of the server: the experiment's view, where the generator is ours.
///
/// `measured`, `ideal` and all that follows from them are of every request, with the arrivals as they came:
/// they hold whatever the generator did. This view is of the parts of the measurement in which the generator
/// kept its schedule. Only here something is cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"properties": {"same_as_measured": {"const": true}}},
    "then" = {"properties": {"sojourn": false, "ideal": false, "replayed": false, "at_worst": false, "cut": false}},
    "else" = {"required": ["sojourn", "cut"]},
))]
pub struct Scheduled {
    /// Nothing was cut: the distributions of this view are `measured.sojourn` and `ideal.sojourn`, and are
    /// not repeated.
    pub same_as_measured: bool,
    /// T6 − T1 of the requests that are not cut. Absent where nothing was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sojourn: Option<Distribution>,
    /// The ideal sojourn of the same requests. Absent where nothing was cut, or where there is no comparison
    /// with the ideal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ideal: Option<Distribution>,
    /// The same for all requests, cut or not, by a replay. Absent where nothing was cut, or where the replay does
    /// not reproduce the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<ReplayedSchedule>,
    /// What the client waited, from when each request was due, for all requests, cut or not: an upper bound of this view.
    /// It holds where what held the generator up held the server up too, as a stall of the whole machine does, so that
    /// the cut takes away what other clients would have waited. `sojourn` and `load.response_time` are the lower bound.
    /// Absent where nothing was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_worst: Option<Distribution>,
    /// What was cut. Absent where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutSummary>,
    /// The percentiles of this view, and whether each holds. Those that do not are taken out, here and in
    /// what the client saw (`load.response_time`, `load.service_time`, `client_minus_server`).
    pub claims: Vec<Claim>,
}

/// The recorded queue replayed with the same disturbances at the same times, and each request sent when it was due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayedSchedule {
    /// The percentiles of the sojourn, as measured and on schedule.
    pub points: Vec<PredictedPoint>,
    /// The same without other threads on the server's CPUs. Empty where they did not delay requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_other_threads: Vec<PredictedPoint>,
}

impl Scheduled {
    /// The view where nothing was cut.
    pub fn same_as_measured() -> Self {
        Self {
            same_as_measured: true,
            ..Self::default()
        }
    }

    /// The view with what a replay of the schedule says, unless nothing was cut.
    #[must_use]
    pub fn with_replayed(mut self, replayed: Option<ReplayedSchedule>) -> Self {
        self.replayed = replayed.filter(|_| !self.same_as_measured);
        self
    }

    /// The view with what the client waited at worst, unless nothing was cut.
    #[must_use]
    pub fn with_worst(mut self, at_worst: Option<Distribution>) -> Self {
        self.at_worst = at_worst.filter(|_| !self.same_as_measured);
        self
    }

    /// The lowest percentile that is withdrawn for another reason than too few requests.
    pub fn withdrawn_from(&self) -> Option<f64> {
        let by_another = |claim: &&Claim| claim.because.iter().any(|key| key != TOO_FEW);
        let first = self.claims.iter().find(by_another);
        first.and_then(|claim| claim.claim.quantile())
    }
}
