//! Whether slow requests come together, and what they began with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::cause::{Cause, Culprit};
use crate::share::Share;

/// Whether slow requests come together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clustering {
    /// Slow means above this quantile of the sojourn.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// Correlation of "the n-th request is slow" with "the (n + lag)-th is", for each lag.
    pub autocorrelation: Vec<(u32, f64)>,
    /// Share of the slow requests that come in runs of two or more.
    #[schemars(range(min = 0, max = 1))]
    pub in_runs_share: f64,
    /// Episodes: slow requests that are neighbours in the order of T1, or were in the server at once.
    pub episodes: u64,
    /// Mean number of requests in an episode.
    #[schemars(range(min = 0))]
    pub mean_episode_requests: f64,
}

/// Bursts of slow requests that began with the same thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstRoot {
    /// The cause of most of their excess.
    pub cause: Cause,
    /// Who or what.
    pub culprit: Option<Culprit>,
    /// How many bursts.
    pub bursts: u64,
    /// Their share of all bursts, with its interval over bursts.
    pub share: Share,
    /// How long it delayed the request that it delayed most, in the burst with the least of it.
    pub shortest_ns: Nanos,
    /// The same in the burst with most of it.
    pub longest_ns: Nanos,
}

/// How many of the slow requests asked for the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlowOperation {
    /// The name of the command or method: `EVALSHA`, `GET`.
    pub name: String,
    /// How many there were.
    pub requests: u64,
}

/// Requests whose own work takes far longer than that of the others, and whom they delayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRequests {
    /// How many there were.
    pub requests: u64,
    /// What they asked for, the most frequent first; empty where their content was not read. Those without a known
    /// name are left out.
    #[serde(default)]
    pub operations: Vec<SlowOperation>,
    /// Their mean own time on the CPU.
    pub mean_own_ns: Nanos,
    /// The same of all others.
    pub others_own_ns: Nanos,
    /// How many others waited for them.
    pub delayed: u64,
    /// For how long on average.
    pub mean_delay_ns: Nanos,
}
