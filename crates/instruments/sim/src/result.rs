//! What `taillab sim` found.

use schemars::JsonSchema;
use serde::Serialize;
use taillab_model::{Distribution, Nanos};

/// Version of the shape of the JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// One call of `taillab sim`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SimulationReport {
    /// Version of this shape: [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Always `sim`.
    #[schemars(extend("const" = "sim"))]
    pub command: &'static str,
    /// It was interrupted; the results are those so far.
    pub partial: bool,
    /// One system, or several.
    #[serde(flatten)]
    pub runs: Runs,
    /// What is swept, in the order of the loops; empty without a sweep.
    #[serde(skip)]
    pub swept: Vec<SweepAxis>,
}

/// One system is at the top level of the JSON, several are in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Runs {
    /// The only one.
    One(Box<SimulatedRun>),
    /// All of them, on common random numbers.
    Several {
        /// In the order of the command line.
        runs: Vec<SimulatedRun>,
    },
}

/// What differs between the runs of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepAxis {
    /// The utilisation.
    Utilization,
    /// The number of workers.
    Workers,
    /// The discipline.
    Discipline,
}

/// One simulated system.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SimulatedRun {
    /// The arrival process as on the command line, or `trace:FILE`.
    pub arrivals: String,
    /// The service times as on the command line.
    pub service: String,
    /// Their mean, in nanoseconds.
    #[schemars(range(min = 0))]
    pub service_mean_ns: f64,
    /// The number of workers.
    #[schemars(range(min = 1))]
    pub workers: u32,
    /// The discipline as on the command line.
    pub discipline: String,
    /// Arrival rate · mean service time / capacity.
    #[schemars(range(min = 0))]
    pub utilization: f64,
    /// The seed of every random choice.
    pub seed: u64,
    /// Why it stopped: `finished`, `precise`, `limit` or `interrupted`.
    #[schemars(extend("enum" = ["finished", "precise", "limit", "interrupted"]))]
    pub stopped: &'static str,
    /// Arrival to departure.
    pub sojourn: Distribution,
    /// Arrival to the start of service.
    pub wait: Distribution,
    /// Standard error of the mean sojourn, in nanoseconds.
    #[schemars(range(min = 0))]
    pub mean_standard_error_ns: Option<f64>,
    /// The share of requests that waited at all.
    #[schemars(range(min = 0, max = 1))]
    pub waited_share: Option<f64>,
    /// What was discarded.
    pub warm_up: WarmUp,
    /// Independent replications; 1 for a trace.
    #[schemars(range(min = 1))]
    pub replications: u64,
    /// How it was calculated.
    pub engine: Engine,
    /// The largest of several parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fanout: Option<Fanout>,
    /// What theory says; `None` when it was not asked for, `Some(None)` when it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<Option<Exact>>,
    /// How far the simulation is from it, in standard errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub z: Option<Z>,
    /// Why the numbers may be wrong.
    pub warnings: Vec<String>,
    /// For each quantile that the sample does not support: about how many requests it needs.
    #[serde(skip)]
    pub needs: Vec<(f64, u64)>,
    /// The quantiles that are longer than a result can hold.
    #[serde(skip)]
    pub beyond: Vec<f64>,
    /// The share of requests that take longer than a time in nanoseconds.
    #[serde(skip)]
    pub points: Vec<(f64, f64)>,
}

/// The start of each replication, which is discarded.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct WarmUp {
    /// Requests of each replication.
    pub requests: u64,
    /// Shorter than the estimate.
    pub capped: bool,
}

/// How a result was calculated.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Engine {
    /// The kernel.
    pub kernel: String,
    /// The vector instructions.
    pub isa: String,
    /// The threads.
    #[schemars(range(min = 1))]
    pub threads: usize,
    /// Requests simulated, the discarded ones included.
    pub requests: u64,
    /// How long it took.
    pub elapsed_ns: Nanos,
    /// Requests in a second of real time.
    #[schemars(range(min = 0))]
    pub requests_per_second: f64,
}

/// The largest of `parts` requests that are sent together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Fanout {
    /// How many.
    #[schemars(range(min = 1))]
    pub parts: u32,
    /// Each part to a separate system: quantiles of the largest of independent sojourns.
    pub independent: Vec<taillab_model::Quantile>,
    /// All parts at the same instants, each to a separate worker: fork and join, simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork_join: Option<Distribution>,
}

/// What theory says.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Exact {
    /// The system in Kendall's notation.
    pub model: String,
    /// Where the law comes from.
    pub source: String,
    /// Always `ns`.
    #[schemars(extend("const" = "ns"))]
    pub unit: &'static str,
    /// The mean sojourn.
    pub mean: f64,
    /// Quantiles of the sojourn; `None` where only moments are known.
    pub quantiles: Vec<ExactQuantile>,
}

/// One exact quantile.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ExactQuantile {
    /// The probability.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// The quantile.
    pub value: Option<Nanos>,
}

/// Deviations in standard errors.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Z {
    /// Of the mean sojourn.
    pub mean: Option<f64>,
    /// Of the share of requests above each exact quantile.
    pub quantiles: Vec<ZQuantile>,
}

/// The deviation at one quantile.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ZQuantile {
    /// The probability.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// `None` where nothing can be tested: no law, too few requests, or a jump of the law.
    pub z: Option<f64>,
}

impl Runs {
    /// The runs, in order.
    pub fn all(&self) -> &[SimulatedRun] {
        match self {
            Self::One(run) => std::slice::from_ref(run),
            Self::Several { runs } => runs,
        }
    }
}

impl SimulationReport {
    /// The report of these runs.
    pub fn new(mut runs: Vec<SimulatedRun>, swept: Vec<SweepAxis>, partial: bool) -> Self {
        let one = runs.len() == 1 && swept.is_empty();
        let runs = match runs.pop() {
            Some(run) if one => Runs::One(Box::new(run)),
            last => {
                runs.extend(last);
                Runs::Several { runs }
            }
        };
        Self {
            schema_version: SCHEMA_VERSION,
            command: "sim",
            partial,
            runs,
            swept,
        }
    }

    /// What all runs have in common, in one line.
    pub fn common(&self) -> String {
        let runs = self.runs.all();
        let same = |of: fn(&SimulatedRun) -> String| -> Option<String> {
            let first = of(runs.first()?);
            runs.iter().all(|run| of(run) == first).then_some(first)
        };
        [
            same(|run| match run.arrivals.strip_prefix("trace:") {
                Some(file) => format!("arrivals from {file}"),
                None => format!("{} arrivals", run.arrivals),
            }),
            same(|run| format!("service {}", run.service)),
            same(|run| workers(run.workers)),
            same(|run| run.discipline.clone()),
            same(|run| format!("{} utilisation", utilisation(run.utilization))),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
    }

    /// What distinguishes a run from the others.
    pub fn label(&self, run: &SimulatedRun) -> String {
        let runs = self.runs.all();
        let first = &runs[0];
        let mut parts = Vec::new();
        let distinct = |same: fn(&SimulatedRun, &SimulatedRun) -> bool| {
            runs.iter().any(|other| !same(first, other))
        };
        if distinct(|a, b| a.workers == b.workers) {
            parts.push(workers(run.workers));
        }
        if distinct(|a, b| a.utilization == b.utilization) {
            parts.push(utilisation(run.utilization));
        }
        if distinct(|a, b| a.discipline == b.discipline) || parts.is_empty() {
            parts.push(run.discipline.clone());
        }
        parts.join(", ")
    }
}

impl SimulatedRun {
    /// Shown instead of a quantile that the sample cannot support, or that is longer than a result can hold.
    pub fn need(&self, q: f64) -> String {
        if self.beyond.contains(&q) {
            return "beyond 584 years".to_owned();
        }
        let needed = self.needs.iter().find(|(of, _)| *of == q);
        needed.map_or_else(
            || "–".to_owned(),
            |(_, n)| {
                format!(
                    "needs {} requests",
                    taillab_report::figures::round_count(*n)
                )
            },
        )
    }

    /// The largest deviation from theory, whichever way.
    pub(crate) fn worst_z(&self) -> Option<f64> {
        let z = self.z.as_ref()?;
        let all = z.quantiles.iter().map(|x| x.z).chain([z.mean]);
        all.flatten().max_by(|a, b| a.abs().total_cmp(&b.abs()))
    }
}

/// `4 workers`.
pub(crate) fn workers(n: u32) -> String {
    taillab_report::figures::counted(u64::from(n), "worker", "workers")
}

/// `80 %`, without trailing zeros.
pub(crate) fn utilisation(share: f64) -> String {
    format!("{} %", taillab_report::figures::percentage(share))
}
