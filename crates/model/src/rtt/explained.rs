//! Where the tail of round trips comes from: what each was spent on, at both ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::explanation::{Cause, Culprit, Share};
use crate::{Distribution, Nanos};

/// What a moment of a round trip was spent on. The parts are exclusive, and the parts of a round
/// trip add up to its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RttPart {
    /// The client's calls and its kernel's protocol stack, both ways.
    ClientStack,
    /// From the moment at which the client's thread was woken until it was on its CPU.
    ClientWakeUp,
    /// Something else had the client's CPU.
    ClientDisturbance,
    /// The server's calls and its kernel's protocol stack, both ways.
    ServerStack,
    /// From the moment at which the request was queued until the server's thread was on its CPU.
    ServerWakeUp,
    /// Between the server's read and its write.
    Application,
    /// Something else had the server's CPU.
    ServerDisturbance,
}

impl RttPart {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::ClientStack,
        Self::ClientWakeUp,
        Self::ClientDisturbance,
        Self::ServerStack,
        Self::ServerWakeUp,
        Self::Application,
        Self::ServerDisturbance,
    ];

    /// The label that a person reads.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ClientStack => "client: calls and stack",
            Self::ClientWakeUp => "client: wake-up",
            Self::ClientDisturbance => "client: disturbances",
            Self::ServerStack => "server: calls and stack",
            Self::ServerWakeUp => "server: wake-up",
            Self::Application => "server: application",
            Self::ServerDisturbance => "server: disturbances",
        }
    }
}

/// One end of a round trip.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RttEnd {
    /// Who sends first.
    Client,
    /// Who answers.
    Server,
}

/// Where the tail comes from: round trips of a separate run, with the kernel probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttExplanation {
    /// Round trips whose six stamps were all found.
    pub round_trips: u64,
    /// Round trips of that run without all stamps; they are in no figure here.
    pub incomplete: u64,
    /// Events that the probe lost.
    pub lost_events: u64,
    /// The round trips with all stamps. Compared with the row's `rtt`, it shows what the probe costs.
    pub rtt: Distribution,
    /// Bands from fast to slow, the usual round trips first.
    pub bands: Vec<RttBand>,
    /// Who had the CPUs in the slow round trips (those above p99), the worst first.
    pub disturbances: Vec<RttDisturbance>,
}

/// The round trips between two quantiles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttBand {
    /// From this quantile of the round trips …
    #[schemars(range(min = 0, max = 1))]
    pub from_q: f64,
    /// … to this one.
    #[schemars(range(min = 0, max = 1))]
    pub to_q: f64,
    /// Number of round trips in the band.
    pub round_trips: u64,
    /// How long they took on average.
    pub mean_ns: Nanos,
    /// What they were spent on, one entry for each part; the means add up to `mean_ns`.
    pub parts: Vec<RttPartMean>,
}

/// What one part took on average.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttPartMean {
    /// Which part.
    pub part: RttPart,
    /// The mean of this part.
    pub mean_ns: Nanos,
    /// Lower end of its interval (95 %); `None` where the sample supports none.
    pub lo_ns: Option<Nanos>,
    /// Upper end in nanoseconds.
    pub hi_ns: Option<Nanos>,
    /// The part's share of the time by which these round trips exceed the usual ones; `None` for
    /// the usual ones.
    pub excess: Option<Share>,
}

/// Something that had a CPU while a slow round trip needed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttDisturbance {
    /// Whose CPU it had.
    pub end: RttEnd,
    /// What kind of disturbance it was.
    pub cause: Cause,
    /// The culprit; `None` when there is no particular one.
    pub culprit: Option<Culprit>,
    /// Slow round trips that it delayed.
    pub round_trips: u64,
    /// How long it delayed them, in all.
    pub total_ns: Nanos,
    /// Its share of the time by which the slow round trips exceed the usual ones.
    pub share: Share,
}

/// How much of a quantile is left when a suspect is taken away: the argument of the paper's section 6,
/// applied to the rows of this result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttElimination {
    /// Length of the messages in bytes.
    pub size_bytes: u32,
    /// Connections at once.
    pub conns: u32,
    /// The suspects, TCP first.
    pub suspects: Vec<RttSuspect>,
}

/// One suspect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttSuspect {
    /// What is suspected: `TCP's own work`, `the kernel's stack and its scheduler`, `the rest`.
    pub suspect: String,
    /// The row that has it: `tcp blocking`.
    pub with: String,
    /// The row without it; `None` where nothing is left to take away.
    pub without: Option<String>,
    /// What it adds at each quantile that both rows support.
    pub adds: Vec<RttAdded>,
}

/// What a suspect adds at one quantile: the difference of two rows. It is negative where the row
/// without the suspect is slower.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttAdded {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// The difference in nanoseconds.
    pub ns: i64,
    /// Lower end in nanoseconds, from the ends of both rows' intervals; `None` where one has none.
    pub lo_ns: Option<i64>,
    /// Upper end in nanoseconds.
    pub hi_ns: Option<i64>,
}
