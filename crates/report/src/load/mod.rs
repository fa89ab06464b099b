//! What `taillab load` shows and writes.
//!
//! | output | function |
//! |---|---|
//! | terminal | [`crate::terminal::render_load`] |
//! | while it runs | [`live_line`] |
//! | `--json` | [`crate::json::of`] |
//! | `requests.parquet` | [`write_parquet`] |
//! | `latency.hlog`, `.hgrm` | [`write_hlog`], [`LoadTotals::percentiles`] |
//! | figures | [`chart`] |

mod figure;
mod live;
mod parquet;
mod tables;

use std::io;

use hdrhistogram::Histogram;
use taillab_model::load_result::LoadReport;
use taillab_model::{ClientTimes, Monotonic, Nanos, Operation, Outcome, WireTimes};

pub use self::figure::chart;
pub use self::live::{LiveWindow, live_line};
pub use self::parquet::{TABLE, write_parquet};
pub(crate) use self::tables::{closed_table, latency_table, steps_table};
use crate::clients;
use crate::document::Curve;
use crate::error::ReportError;
use crate::figures::counted;
pub use crate::series::LoadSeries;
use crate::{hgrm, hlog};

/// A report of `taillab load`, and what the outputs for people show with it.
#[derive(Clone, Copy, Debug)]
pub struct LoadDocument<'a> {
    /// The result.
    pub report: &'a LoadReport,
    /// The curves of one load's figure; one that is missing is left out.
    pub curves: &'a [LoadCurve],
    /// Quantiles that the load was too short for, each with about how many requests it needs.
    pub needs: &'a [(f64, u64)],
}

impl LoadRow {
    /// From the intended send until the generator came to it: its own delay.
    fn lateness(&self) -> Nanos {
        let late = self.times.sent.saturating_since(self.times.intended);
        late.saturating_sub(self.waited + self.connecting)
    }
}

impl<'a> LoadDocument<'a> {
    /// A report of a sweep, a search or a closed loop: without curves and needs.
    pub const fn of(report: &'a LoadReport) -> Self {
        Self {
            report,
            curves: &[],
            needs: &[],
        }
    }
}

/// A distribution of a load to draw.
pub type LoadCurve = Curve<LoadSeries>;

/// What the distributions are, for every output that a person reads.
pub const EXPLANATION: &str = "“Response time” is how long a user waits, from the moment the \
                               schedule \
wanted the request sent; “service time” counts from the moment it was sent; “lateness” is the \
generator’s own delay before that. Between the two a request may wait for its connection, which is busy with the \
request before (“wait for connection”), or until one of its own is open (“connecting”). The “client’s floor” is the \
response time of the same schedule against a responder that does nothing.";

/// One request as `requests.parquet` and `latency.hlog` of a load take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadRow {
    /// Intended, sent, received.
    pub times: ClientTimes,
    /// The kernel's stamps.
    pub wire: WireTimes,
    /// How long it waited in its client for its connection, before it was sent.
    pub waited: Nanos,
    /// How long its own connection then took to open; zero where connections are kept.
    pub connecting: Nanos,
    /// Its operation.
    pub operation: Operation,
    /// How it ended.
    pub outcome: Outcome,
    /// The connection that carried it, numbered from 0 within its thread.
    pub connection: u32,
    /// The thread that sent it, numbered from 0.
    pub thread: u32,
    /// The client's port, where it has one.
    pub port: Option<u16>,
    /// Which of the requests from that port, as in [`RequestKey::id`](taillab_model::RequestKey::id), where that is known.
    pub id: Option<u16>,
    /// It was sent before the measurement began.
    pub warm_up: bool,
}

/// The series of a load's log, in the order of its tags.
const LOGGED: [LoadSeries; 3] = [
    LoadSeries::ResponseTime,
    LoadSeries::ServiceTime,
    LoadSeries::Lateness,
];

/// The whole load's histograms, from which percentile files are made.
#[derive(Clone, Debug)]
pub struct LoadTotals {
    histograms: [Histogram<u64>; 3],
}

/// Writes one histogram for each second and series (response time, service time,
/// lateness; the tag is [`LoadSeries::key`]) as an HdrHistogram interval log (V2), values in
/// nanoseconds, and returns the sums.
///
/// `rows` come in order of the intended send; `started` is the instant that the log counts
/// from and `started_unix_s` the same in seconds since 1970. Rows of the warm-up and those
/// before `started` are left out.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes.
pub fn write_hlog<W: io::Write>(
    rows: impl IntoIterator<Item = LoadRow>,
    started: Monotonic,
    started_unix_s: u64,
    out: W,
) -> Result<LoadTotals, ReportError> {
    let observed = rows.into_iter().map(|row| {
        let ClientTimes {
            intended,
            sent,
            received,
        } = row.times;
        hlog::Observed {
            due: Some(intended),
            warm_up: row.warm_up,
            latencies: [
                received.map(|at| at.saturating_since(intended)),
                received.map(|at| at.saturating_since(sent)),
                Some(row.lateness()),
            ],
        }
    });
    let tags = LOGGED.map(LoadSeries::key);
    let histograms = hlog::write_tagged(observed, tags, started, started_unix_s, out)?;
    Ok(LoadTotals { histograms })
}

impl LoadTotals {
    /// The percentile file (`.hgrm`) of one series, values in milliseconds, as wrk2 prints
    /// it and HdrHistogram's plotters read it, up to the first percentile that is not known, given as its
    /// probability; `None` for the floor, which is in no log.
    pub fn percentiles(
        &self,
        series: LoadSeries,
        is_known: impl Fn(f64) -> bool,
    ) -> Option<Vec<u8>> {
        let at = LOGGED.iter().position(|logged| *logged == series)?;
        Some(hgrm::percentiles(&self.histograms[at], is_known))
    }
}

/// What sends the load, in a sentence without its full stop.
pub(crate) fn client(report: &LoadReport) -> String {
    let generator = report.generator();
    let steps = generator.steps.iter().map(|step| &step.load);
    let mut loads = report.load.iter().chain(steps);
    let who = match loads.find_map(|load| load.clients.as_ref()) {
        Some(of) => clients::who(of),
        None => {
            let connections = u64::from(generator.connections);
            counted(connections, "connection", "connections")
        }
    };
    format!(
        "{} over {}, {who}, {}{}",
        generator.protocol,
        generator.transport,
        counted(u64::from(generator.threads), "thread", "threads"),
        match generator.kept_awake {
            true => ", CPUs kept awake",
            false => "",
        },
    )
}
