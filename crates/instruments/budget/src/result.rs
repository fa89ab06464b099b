//! What `taillab budget` finds: the latency of each component on the way between two programs
//! across a network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taillab_model::{Distribution, Nanos};

/// The version of this shape.
pub const SCHEMA_VERSION: u32 = 1;

/// One call of `taillab budget`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetResult {
    /// Version of this shape: [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// `budget`, or `reproduce` where it was called as `taillab reproduce time-gone`.
    #[schemars(extend("enum" = ["budget", "reproduce"]))]
    pub command: String,
    /// Version of taillab.
    pub taillab_version: String,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// It was interrupted: rows and topologies are missing.
    pub partial: bool,
    /// Release of the kernel, where it is known.
    pub kernel: Option<String>,
    /// The hypervisor, where there is one.
    pub hypervisor: Option<String>,
    /// The paper's rows, in its order.
    pub rows: Vec<BudgetRow>,
    /// Round trips through networks, computed from these rows and stated constants.
    pub topologies: Vec<Topology>,
    /// The table of the earlier study, with today's figures added.
    pub earlier: Vec<EarlierRow>,
    /// The limitations of the figures, in a sentence each.
    pub notes: Vec<String>,
}

/// How a row came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Measured as in the paper.
    Measured,
    /// A substitute was measured.
    Substituted,
    /// Neither this nor a substitute could be measured.
    Unavailable,
}

taillab_model::display_as_in_json!(Standing);

/// How bad a latency is, by the paper: good up to 1 µs, bad up to 100 µs, ugly beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// At most 1 µs.
    Good,
    /// At most 100 µs.
    Bad,
    /// More.
    Ugly,
}

impl Class {
    /// The class of a latency.
    pub fn of(latency: Nanos) -> Self {
        match latency {
            latency if latency <= Nanos::from_micros(1) => Self::Good,
            latency if latency <= Nanos::from_micros(100) => Self::Bad,
            _ => Self::Ugly,
        }
    }
}

taillab_model::display_as_in_json!(Class);

/// The paper's figures for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PaperFigures {
    /// The minimum, in nanoseconds.
    pub min_ns: Nanos,
    /// The median, in nanoseconds.
    pub median_ns: Nanos,
    /// The 99.9th percentile, in nanoseconds.
    pub p999_ns: Nanos,
    /// The maximum, in nanoseconds.
    pub tail_ns: Nanos,
}

/// One component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetRow {
    /// The paper's name for it.
    pub component: String,
    /// Whether it is what the paper measured.
    pub standing: Standing,
    /// What was measured; for a substituted row, the substitute; for an unavailable one, why.
    pub how: String,
    /// Name and value of each parameter of the measurement.
    pub parameters: Vec<(String, String)>,
    /// The latency; `None` where it is not available.
    pub latency: Option<Distribution>,
    /// (nanoseconds, share that took longer), for figures.
    pub ccdf: Vec<(u64, f64)>,
    /// The class of the median.
    pub class_of_median: Option<Class>,
    /// The class of the maximum.
    pub class_of_tail: Option<Class>,
    /// What the paper found in 2016.
    pub paper: Option<PaperFigures>,
}

/// A round trip through a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Topology {
    /// `rack`, `hft`, `fat-tree`, `large-fat-tree`, or a name of the user's.
    pub name: String,
    /// What it is, in a sentence.
    pub description: String,
    /// The latency of the round trip.
    pub round_trip: Distribution,
    /// (nanoseconds, share that took longer), for figures.
    pub ccdf: Vec<(u64, f64)>,
    /// The class of the median.
    pub class_of_median: Option<Class>,
    /// The class of the 99.9th percentile.
    pub class_of_p999: Option<Class>,
    /// What each part adds.
    pub parts: Vec<TopologyPart>,
}

/// A part of a round trip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopologyPart {
    /// What it is.
    pub name: String,
    /// It is a row of this result; otherwise it is a stated constant.
    pub measured: bool,
    /// How often a round trip passes through it.
    pub traversals: u32,
    /// Its distribution, or the row that it is taken from.
    pub law: String,
    /// Its mean in round trips around the median, in nanoseconds.
    pub at_median_ns: Nanos,
    /// Its mean in the slowest thousandth of the round trips, in nanoseconds.
    pub in_tail_ns: Nanos,
}

/// A row of the earlier study (It's Time for Low Latency, 2011), with today's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EarlierRow {
    /// The name of the component.
    pub component: String,
    /// One traversal in 2011.
    pub delay_2011: String,
    /// Its part of a round trip in 2011.
    pub round_trip_2011: String,
    /// One traversal today.
    pub today: String,
    /// Its part of the median round trip through the large fat tree today.
    pub round_trip_today: String,
    /// Where today's figures come from.
    pub source: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_the_papers() {
        let classes = [999, 1_000, 1_001, 100_000, 100_001].map(|ns| Class::of(Nanos::new(ns)));
        use Class::{Bad, Good, Ugly};
        assert_eq!(classes, [Good, Good, Bad, Bad, Ugly]);
    }
}
