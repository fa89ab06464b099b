//! The screen of `--live`, which shows the last second, every second.

mod exporter;
mod names;
mod tty;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use taillab_console::args::AnalysisArgs;
use taillab_console::exit::Failure;
use taillab_console::print::style;
use taillab_experiment::pipeline::{Analysed, LiveWindows};
use taillab_host::Roots;
use taillab_host::observe::OwnCost;
use taillab_model::summary::Observer;
use taillab_model::{Event, Nanos, RecordingContext};
use taillab_report::live::{self, Moment};
use taillab_report::terminal::Style;

use self::exporter::Exporter;
use self::names::Names;
use self::tty::Tty;
pub use self::tty::ensure_there;
use super::totals::Totals;
use crate::cli::TraceArgs;

/// The p99 of this many seconds is shown.
const HISTORY: usize = 240;
/// Windows that may wait to be drawn; a screen that falls behind skips seconds.
const WAITING: usize = 2;
/// Requests at the very start may have come in before the probe was attached.
const SETTLE: Nanos = Nanos::from_millis(100);

/// The events of one second.
pub struct Window {
    pub events: Vec<Event>,
    /// Windows since the start that the screen did not take in time, or that had too many events for it.
    pub skipped: u64,
}

/// How much has been recorded.
#[derive(Clone, Copy, Default)]
pub struct RecordedAmount {
    pub events: u64,
    pub bytes: u64,
}

/// The terminal's second screen, given back at the end: the shell's text stays as it was.
pub struct Screen<'a> {
    /// `None` where only figures are served.
    tty: Option<Tty>,
    exporter: Option<Exporter>,
    context: RecordingContext,
    names: Names,
    analysis: AnalysisArgs,
    roots: &'a Roots,
    /// The server's processes.
    processes: &'a [u32],
    /// Where the recording is saved, if it is.
    place: Option<&'a Path>,
    since: OwnCost,
    windows: Option<Receiver<Window>>,
    skipped: u64,
    failure: Option<Failure>,
    /// `None` before the first window, and after a skipped one.
    analysed: Option<LiveWindows>,
    whole: Totals,
    p99: VecDeque<Option<Nanos>>,
    shown: live::Screen,
}

impl<'a> Screen<'a> {
    /// With `--live`, takes the terminal, and the address at which figures are served.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn if_asked(
        context: &RecordingContext,
        args: &TraceArgs,
        roots: &'a Roots,
        processes: &'a [u32],
        place: Option<&'a Path>,
    ) -> Result<Option<Self>, Failure> {
        if !args.result.live {
            return Ok(None);
        }
        let metrics = args.result.metrics.map(|address| address.0);
        let exporter = metrics.map(Exporter::bind).transpose()?;
        let draws = exporter.is_none() || tty::is_there();
        Ok(Some(Self {
            tty: draws.then(Tty::take),
            exporter,
            context: context.clone(),
            names: Names::default(),
            analysis: AnalysisArgs {
                slowest: Some(0),
                ..args.analysis
            },
            roots,
            processes,
            place,
            since: OwnCost::now(),
            windows: None,
            skipped: 0,
            failure: None,
            analysed: None,
            whole: Totals::default(),
            p99: VecDeque::new(),
            shown: live::Screen {
                target: context.server.clone(),
                total: args.length(),
                ..live::Screen::default()
            },
        }))
    }

    /// Where the events of each window are sent to.
    pub fn batches(&mut self) -> SyncSender<Window> {
        let (out, windows) = sync_channel(WAITING);
        self.windows = Some(windows);
        out
    }

    /// Draws the windows since the last call, and the progress.
    pub fn draw(&mut self, elapsed: Duration, written: RecordedAmount) {
        let new: Vec<_> = (self.windows.iter()).flat_map(Receiver::try_iter).collect();
        for window in new {
            self.take(window);
        }
        if let Some(exporter) = &mut self.exporter {
            exporter.counted.set_skipped(self.skipped);
            exporter.answer(&self.context.server);
        }
        let Some(tty) = &self.tty else {
            return;
        };
        self.shown.elapsed = Nanos::new(elapsed.as_nanos() as u64);
        self.shown.observer = Some(self.observer(elapsed, written));
        self.shown.note = Some(self.note(written));
        let (rows, columns) = Tty::size();
        let style = Style {
            width: columns,
            ..style()
        };
        tty.draw(&self.shown.lines(style, rows), rows);
    }

    /// Whether the user has pressed q since the last call.
    pub fn is_left(&self) -> bool {
        self.tty.as_ref().is_some_and(|tty| tty.pressed(b'q'))
    }

    fn observer(&self, elapsed: Duration, written: RecordedAmount) -> Observer {
        let responses = self.shown.whole.matching.responses.max(1) as f64;
        Observer {
            cpu_share: OwnCost::now().cpu_share_since(&self.since),
            program_ns_per_request: None,
            events_per_request: written.events as f64 / responses,
            written_bytes_per_s: match self.place {
                Some(_) => written.bytes as f64 / elapsed.as_secs_f64().max(1e-9),
                None => 0.0,
            },
            peak_memory_bytes: OwnCost::peak_memory_bytes(self.roots),
        }
    }

    fn note(&self, written: RecordedAmount) -> String {
        let mut note = "q or Ctrl-C ends".to_owned();
        if let Some(failure) = &self.failure {
            note = format!("{note}; {failure}");
        } else if self.skipped > 0 {
            note = format!(
                "{note}; this screen skipped {} s, which the recording has",
                self.skipped
            );
        } else if let Some(place) = self.place {
            let megabytes = written.bytes as f64 / 1e6;
            note = format!("{note}; {megabytes:.1} MB recorded in {}", place.display());
        }
        note
    }

    fn take(&mut self, window: Window) {
        let Window { events, skipped } = window;
        if std::mem::replace(&mut self.skipped, skipped) != skipped {
            self.analysed = None;
        }
        (self.names).update(&events, &mut self.context, self.roots, self.processes);
        let Some(first) = events.first() else {
            return;
        };
        let going_on = match self.analysed.take() {
            Some(windows) => Ok(windows),
            None => LiveWindows::new(&self.context, first.at + SETTLE),
        };
        let analysed = going_on.and_then(|mut windows| {
            let next = windows.next(&events, &self.context, &self.analysis);
            self.analysed = Some(windows);
            next.transpose()
        });
        let (last, failure) = match analysed {
            Ok(Some((analysed, sojourns))) => (self.moment(&analysed, sojourns), None),
            // keep the last picture until more is settled
            Ok(None) => return,
            // as in a second without a request
            Err(failure) => (Totals::default().moment(), Some(failure)),
        };
        self.failure = failure;
        self.p99.push_back(last.p99);
        if self.p99.len() > HISTORY {
            self.p99.pop_front();
        }
        // where only figures are served, nobody sees it
        if self.tty.is_some() {
            self.shown.last = last;
            self.shown.whole = self.whole.moment();
            self.shown.p99_history = self.p99.iter().copied().collect();
        }
    }

    fn moment(&mut self, analysed: &Analysed, sojourns: Vec<Nanos>) -> Moment {
        let report = &analysed.report;
        if let Some(exporter) = &mut self.exporter {
            exporter.counted.add(&report.server, &sojourns);
        }
        self.whole.add(analysed, sojourns);
        Moment::of(&report.server, report.arrival_rate_per_s)
    }
}
