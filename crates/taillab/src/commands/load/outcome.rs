//! What a load has measured, whichever kind of load it was.

use taillab_analysis::verdict::LoadEvidence;
use taillab_console::exit::Failure;
use taillab_load::StopReason;
use taillab_model::load_result::{ClosedLoop, LoadStep, Mode, SearchResult};

use super::schedule::Schedule;
use super::session::LoadMeasurement;

/// What was measured, and how it ended.
pub struct LoadOutcome {
    pub mode: Mode,
    pub started_unix_s: u64,
    /// Whether it ended early.
    pub partial: bool,
    pub ending: Ending,
    pub figures: Figures,
    /// The schedule of the load, of several the lowest one's: the floor is measured with its beginning.
    pub schedule: Option<Schedule>,
}

/// The figures of each kind of load.
pub enum Figures {
    /// One load by a schedule, with its requests.
    Load(Box<LoadMeasurement>),
    /// Several loads, one after the other, and what a search among them found.
    Steps {
        steps: Vec<LoadStep>,
        found: Option<SearchResult>,
    },
    /// Requests without a schedule.
    ClosedLoop {
        closed_loop: Box<ClosedLoop>,
        evidence: LoadEvidence,
    },
}

/// What ended a measurement early.
#[derive(Default)]
pub struct Ending {
    /// In the last load.
    pub stopped: Option<StopReason>,
    /// Between two loads, where some had been measured.
    pub failure: Option<Failure>,
}
