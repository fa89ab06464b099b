//! Outputs of a run or a trace: terminal, JSON, HTML, Perfetto, Parquet and HdrHistogram logs.
//!
//! Small outputs are functions from a result to text; the caller owns files and
//! standard output. What grows with the requests ([`requests`], [`hlog`]) is written
//! through a stream that the caller hands in, so that memory does not grow.

pub mod chart;
mod error;
mod explained;
mod figures;
mod findings;
mod hgrm;
pub mod hlog;
pub mod html;
pub mod json;
mod latency;
pub mod live;
pub mod load;
pub mod perfetto;
pub mod reproduction;
pub mod requests;
mod scale;
mod server;
pub mod simulation;
pub mod terminal;

use taillab_model::Nanos;
use taillab_model::summary::{RunSummary, TraceSummary};

pub use error::ReportError;
pub use figures::utc;

/// What the person's outputs (terminal, HTML) show of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunReport<'a> {
    /// The result.
    pub summary: &'a RunSummary,
    /// Host, kernel and settings, as `environment.json` has them.
    pub environment: &'a serde_json::Value,
    /// The experiment with every default filled in, as `experiment.toml` has it.
    pub experiment_toml: &'a str,
    /// The curves of the figure; one that is missing is left out.
    pub curves: &'a [Curve],
}

/// What the person's outputs (terminal, HTML) show of one trace, or of a recording that is
/// explained again.
#[derive(Clone, Copy, Debug)]
pub struct TraceReport<'a> {
    /// The result.
    pub summary: &'a TraceSummary,
    /// Host, kernel and settings, where they are known.
    pub environment: Option<&'a serde_json::Value>,
    /// The measured and the ideal curve; those that explain stand in the summary.
    pub curves: &'a [Curve],
}

/// A complementary distribution function to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What it is of.
    pub series: Series,
    /// (time, share of requests that took longer), in order of time.
    pub points: Vec<(Nanos, f64)>,
}

/// The three views of one run's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Series {
    /// The sojourn that the ideal queue would give the same arrivals.
    Ideal,
    /// The measured sojourn, T6 − T1.
    Measured,
    /// What the client waits: from the intended send to the response.
    Client,
}

impl Series {
    /// The two of the server's side.
    pub const SERVER: [Self; 2] = [Self::Ideal, Self::Measured];

    /// All three, from the best to what a user sees.
    pub const ALL: [Self; 3] = [Self::Ideal, Self::Measured, Self::Client];

    /// What a person reads.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ideal => "ideal",
            Self::Measured => "measured",
            Self::Client => "client’s view",
        }
    }

    /// The name in machine-readable outputs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Ideal => "ideal",
            Self::Measured => "measured",
            Self::Client => "client_response",
        }
    }
}

/// What the three views are, in one sentence, for every output that a person reads.
pub const EXPLANATION: &str = "“Ideal” is how long each request would have stayed in a perfect \
first-come, first-served server that needs exactly t for each and gets the very same arrivals; \
“measured” is how long it really stayed, from the driver handing its packet to the stack (T1) to \
the driver taking the response (T6); “client’s view” is what a user waits, from the moment the \
schedule wanted the request sent to the moment its response was read.";

/// The same without a client of our own.
pub const SERVER_EXPLANATION: &str = "“Ideal” is how long each request would have stayed in a \
perfect first-come, first-served server that needs exactly t for each and gets the very same \
arrivals; “measured” is how long it really stayed, from the driver handing its packet to the stack \
(T1) to the driver taking the response (T6). What lies between the two is the excess.";
