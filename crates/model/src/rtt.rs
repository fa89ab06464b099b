//! Measured round trips: a row for each combination of protocol, mode, size and connections.
//!
//! Times are integer nanoseconds and their names end in `_ns`. The JSON Schema is made from
//! them: `schemas/rtt.schema.json`.

mod explained;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counts::counts;
use crate::explanation::{Clustering, FanOut};
use crate::load_result::Capacity;
use crate::summary::{LoadSummary, Verdict};
use crate::{Distribution, Monotonic, Nanos};

pub use self::explained::{
    RttAdded, RttBand, RttDisturbance, RttElimination, RttEnd, RttExplanation, RttPart,
    RttPartMean, RttSuspect,
};

/// What is between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// The loopback interface, or memory: both ends on this host, in one namespace.
    Loopback,
    /// Two network namespaces of this host, joined by veth.
    Veth,
    /// The network to a server that taillab did not start.
    Target,
}

/// One combination of parameters, and its round trips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttRow {
    /// What carries the messages: `tcp`, `udp`, `unix`, `shm`, `xdp`, `rdma-send`, `rdma-read` or
    /// `rdma-write`.
    pub proto: String,
    /// How the client (and our server) waits: `blocking`, `nonblocking`, `epoll`, `busy-poll`
    /// or `io_uring`.
    pub mode: String,
    /// Length of a message in bytes, the same both ways.
    #[schemars(range(min = 1))]
    pub size_bytes: u32,
    /// Connections at once, each with one message under way.
    #[schemars(range(min = 1))]
    pub conns: u32,
    /// What was sent and what became of it, over all runs.
    pub counts: RttCounts,
    /// Round trips of all runs together. A lost message counts with the time that it was waited for,
    /// since its round trip took at least that long.
    pub rtt: Distribution,
    /// Each run separately, in order of time.
    pub runs: Vec<RttRun>,
    /// For each quantile the mean over the runs, without the slowest and the fastest run.
    pub trimmed: Vec<TrimmedQuantile>,
    /// The slowest round trip divided by the median: both as means over the runs without the extremes, or of all runs
    /// together where there are fewer than three.
    #[schemars(range(min = 1))]
    pub worst_to_median: Option<f64>,
    /// Whether slow round trips come singly or in bursts; `None` with too few of them.
    pub bursts: Option<RttBursts>,
    /// The slowest of several nodes that are asked at once, each with this distribution of round trips.
    pub fan_out: Vec<FanOut>,
    /// Quantiles that the sample cannot support, and about how many round trips each would need.
    pub needs: Vec<QuantileNeed>,
    /// The load, where messages were sent by a schedule; then `rtt` counts from when each was due,
    /// and `conns` share one schedule.
    pub open_loop: Option<RttOpenLoop>,
    /// Where the tail comes from; `None` where it was not asked for, or no packet can be stamped.
    pub explanation: Option<RttExplanation>,
    /// Why there is no explanation although it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unexplained_because: Option<String>,
    /// Why the times say nothing about the protocol, where that is so: the row then shows only that the
    /// exchange works.
    pub functional_only: Option<String>,
    /// Where the kernel takes the packets of AF_XDP; `generic` if it is so at one of the two ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp_attachment: Option<XdpAttachment>,
    /// The row ended early: it has only what was measured until then.
    pub partial: bool,
    /// The longest that a run could last, where this limit ended a run before its count.
    pub ended_after_ns: Option<Nanos>,
    /// Why the row ended early, in one sentence, where it was neither this limit nor an interruption.
    pub failure: Option<String>,
}

/// The load of a row whose messages were sent by a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttOpenLoop {
    /// The peak, where the load was given as a share of it.
    pub capacity: Option<Capacity>,
    /// The load of all runs, one after another.
    pub load: LoadSummary,
    /// Whether it can be believed; a percentile that it withdraws is nowhere in the row.
    pub verdict: Verdict,
}

/// Where the kernel passes a packet to an XDP program, the earlier place first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum XdpAttachment {
    /// In the driver (native mode), before the kernel makes a socket buffer for it.
    Native,
    /// After that, which works with every driver (generic mode, also called SKB mode).
    Generic,
}

/// One round trip, as the client measured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// When the message was handed to the send call; in an open loop, when it was due.
    pub sent: Monotonic,
    /// From then until its answer had been received; for a lost message, how long it was
    /// waited for.
    pub rtt: Nanos,
    /// The connection, from 0.
    pub connection: u16,
    /// No answer came within the timeout.
    pub lost: bool,
}

counts! {
    /// What became of the messages.
    RttCounts {
        /// Messages sent, without the warm-up.
        sent,
        /// Round trips completed.
        answered,
        /// Messages without an answer within the timeout.
        lost,
        /// Answers that came after their message had been given up.
        late,
        /// Answers to a message that had been answered already.
        duplicated,
        /// Messages that answer none of ours.
        foreign,
    }
}

/// One run of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttRun {
    /// How long it took, without the warm-up.
    pub length_ns: Nanos,
    /// CPU time of the client's threads per round trip.
    pub client_cpu_ns_per_round_trip: Option<Nanos>,
    /// The round trips of this run.
    pub rtt: Distribution,
}

impl RttRow {
    /// The slowest round trip as the paper gives it: the mean of the slowest of each run, without the extremes. Of fewer
    /// than three runs, the slowest of all.
    pub fn slowest(&self) -> Option<Nanos> {
        let each: Option<Vec<Nanos>> = self.runs.iter().map(|run| run.rtt.max).collect();
        mean_without_extremes(each?).or(self.rtt.max)
    }
}

/// The mean of the values without the smallest and the largest; `None` with fewer than three.
pub fn mean_without_extremes(mut values: Vec<Nanos>) -> Option<Nanos> {
    values.sort_unstable();
    let [_, kept @ .., _] = values.as_slice() else {
        return None;
    };
    let (sum, n): (Nanos, u64) = (kept.iter().copied().sum(), kept.len() as u64);
    (n > 0).then(|| Nanos::new((sum.get() + n / 2) / n))
}

/// The paper's average of runs at one quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrimmedQuantile {
    /// The probability.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// The mean over the runs without the slowest and the fastest at this quantile; `None` with fewer than three
    /// runs, or where one of them has too few round trips for it. A run whose slow round trips come in bursts is in the
    /// mean too: the spread of the runs shows what it is worth.
    pub mean_ns: Option<Nanos>,
    /// Runs that are in the mean.
    pub runs: u32,
}

/// Whether slow round trips are single events or come in bursts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttBursts {
    /// How correlated slow round trips are, and their episodes.
    #[serde(flatten)]
    pub clustering: Clustering,
    /// A round trip is slow if it took longer than this.
    pub threshold_ns: Nanos,
    /// Runs of consecutive slow round trips: (length of the run, how many such runs); the
    /// last entry is for its length and all longer ones.
    pub run_lengths: Vec<(u32, u64)>,
    /// The length of the longest such run.
    pub longest: u32,
}

/// A quantile that needs more round trips than there are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantileNeed {
    /// The probability.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// About how many round trips it needs.
    pub round_trips: u64,
}

/// What the figures of a row show; not in the JSON, because the samples are in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RttCurves {
    /// (round trip, share of round trips that took at least this long), in ascending order.
    pub ccdf: Vec<(Nanos, f64)>,
    /// Blocks of neighbouring round trips: the number of the first one, the median, the slowest.
    pub over_time: Vec<(u64, Nanos, Nanos)>,
    /// The slowest round trip and its neighbours, each with its number within its run.
    pub around_slowest: Vec<(u64, Nanos)>,
}
