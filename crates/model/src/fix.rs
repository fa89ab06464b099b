//! What `--fix` tried: each mitigation with its forecast, its measured effect and its outcome.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// The name of the trial in which nothing is changed.
pub const CONTROL: &str = "control";

/// A mitigation that was tried on the server, in pairs of blocks without and with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// Its name, as `taillab tune` takes it; `control` where nothing was changed.
    pub mitigation: String,
    /// What it changes, in words.
    pub description: String,
    /// The forecast: latency with it ÷ latency without it, at the quantiles for which the replay has one. After
    /// each winner it is computed again from the blocks that were measured with all winners.
    pub predicted: Vec<RatioAt>,
    /// The latency that the client measured with it ÷ without it; empty where it was not tried.
    pub measured: Vec<RatioAt>,
    /// The same ratio for the server's sojourns, after the replay has taken out what others did to its CPUs,
    /// except what this mitigation treats; empty where the replay does not reproduce enough pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjusted: Vec<RatioAt>,
    /// The latency that the client measured, with it ÷ without it, in a typical pair: the median over the
    /// pairs, with the interval of the sign test. Bursts of disturbance in a few blocks do not move it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub typical: Vec<RatioAt>,
    /// The client's latency in the blocks of each pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_pair: Vec<PairsAt>,
    /// The quantile that decided: the highest that the blocks support; `None` where none did.
    #[schemars(range(min = 0, max = 1))]
    pub decided_at: Option<f64>,
    /// Which list of ratios decided at that quantile; `None` where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<DecidedBy>,
    /// Number of pairs of blocks.
    pub pairs: u32,
    /// Peak throughput with it ÷ without it; only for mitigations that were kept.
    pub throughput: Option<Ratio>,
    /// The client's latency at the quantile that decided, without and with it.
    pub tail: Option<TailAt>,
    /// What became of it.
    pub outcome: FixOutcome,
    /// Why, in a sentence.
    pub reason: String,
    /// The part of a winner that `--keep` cannot leave applied; absent where all of it stays, or nothing was
    /// to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<NotKept>,
}

impl Fix {
    /// A mitigation of which nothing is known yet.
    pub fn blank(mitigation: &str, description: &str) -> Self {
        Self {
            mitigation: mitigation.to_owned(),
            description: description.to_owned(),
            ..Self::default()
        }
    }
}

/// The list of ratios that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// [`Fix::measured`].
    Measured,
    /// [`Fix::adjusted`], where the measured ones do not decide.
    Adjusted,
    /// [`Fix::typical`], where neither of the other two decides.
    Typical,
}

/// Why a winner does not stay applied, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotKept {
    /// Why, in a sentence.
    pub why: String,
    /// The command that applies it.
    pub command: String,
}

/// A ratio with its 95 % confidence interval; a value below 1 means less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// The ratio.
    #[schemars(range(min = 0))]
    pub value: f64,
    /// Lower end of its interval; `None` where there is none.
    pub lo: Option<f64>,
    /// Upper end; `None` where there is none.
    pub hi: Option<f64>,
}

/// The ratio at one quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioAt {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// The ratio there.
    #[serde(flatten)]
    pub ratio: Ratio,
}

/// Latency at one quantile in each pair of blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairsAt {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// Without the mitigation, pair by pair.
    pub before_ns: Vec<Nanos>,
    /// With it, in the same order.
    pub after_ns: Vec<Nanos>,
}

/// Latency at one quantile, without and with a mitigation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TailAt {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// Without it.
    pub before_ns: Nanos,
    /// With it.
    pub after_ns: Nanos,
    /// The ideal sojourn there, from the measurement before all trials; `None` where there is none.
    pub ideal_ns: Option<Nanos>,
}

/// What became of a mitigation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FixOutcome {
    /// It helps: significant, and at least 5 % better.
    Kept,
    /// It does not help enough.
    Reverted,
    /// The blocks do not decide; it was undone.
    #[default]
    Inconclusive,
    /// It cannot be applied here.
    Unavailable,
}

display_as_in_json!(FixOutcome);

/// What `--factorial` measured: the chosen mitigations in all combinations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Factorial {
    /// The names of the mitigations.
    pub mitigations: Vec<String>,
    /// Rounds, each with a block of every combination, in an order drawn at random.
    pub rounds: u32,
    /// The single mitigations' effects, then how pairs of them interact, and so on.
    pub effects: Vec<Effect>,
    /// Every combination, the one without any of them first.
    pub cells: Vec<FactorialCell>,
}

/// The effect of a mitigation, or the interaction of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// The mitigations whose effect or interaction this is.
    pub of: Vec<String>,
    /// For one mitigation: the client's latency with it ÷ without it, as the geometric mean over all
    /// combinations of the others. For several: the factor by which the effect of one differs when
    /// the others are applied too; 1 when they do not interact.
    pub at: Vec<RatioAt>,
}

/// A combination of mitigations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactorialCell {
    /// The mitigations that are applied.
    pub with: Vec<String>,
    /// The client's latency with exactly these, at each quantile.
    pub at: Vec<LatencyAt>,
}

/// A latency at one quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyAt {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// The latency.
    pub ns: Nanos,
}
