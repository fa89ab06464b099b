//! The screen of `--live`: what the last second was like, again and again.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use taillab_model::{Event, Nanos, RecordingContext};
use taillab_report::live::{self, Moment};
use taillab_report::terminal::Style;

use super::whole::Whole;
use crate::cli::{AnalysisArgs, TraceArgs};
use crate::commands::explain::evaluate::{self, Beside, Evaluated};
use crate::commands::sim::outputs::style;

/// The p99 of so many seconds is shown.
const HISTORY: usize = 240;
/// Windows that wait to be drawn; a screen that falls behind leaves seconds out.
const WAITING: usize = 2;
/// At the start of a window some requests came in before it.
const SETTLE: Nanos = Nanos::from_millis(20);

/// A screen of its own, given back at the end: the shell's text stays as it was.
pub struct Screen {
    context: RecordingContext,
    analysis: AnalysisArgs,
    windows: Option<Receiver<Vec<Event>>>,
    whole: Whole,
    p99: VecDeque<Option<Nanos>>,
    shown: Option<live::Screen>,
}

impl Screen {
    /// Takes the screen.
    pub fn new(context: &RecordingContext, args: &TraceArgs) -> Self {
        show("\x1b[?1049h\x1b[?25l\x1b[H\x1b[2Jwaiting for the first second ...");
        Self {
            context: context.clone(),
            analysis: AnalysisArgs {
                slowest: Some(0),
                ..args.analysis
            },
            windows: None,
            whole: Whole::default(),
            p99: VecDeque::new(),
            shown: None,
        }
    }

    /// Where the events of each window are sent to.
    pub fn batches(&mut self) -> SyncSender<Vec<Event>> {
        let (out, windows) = sync_channel(WAITING);
        self.windows = Some(windows);
        out
    }

    /// Draws the windows that have come since the last time, and how far we are.
    pub fn draw(&mut self, elapsed: Duration, length: Duration) {
        let new: Vec<_> = (self.windows.iter()).flat_map(Receiver::try_iter).collect();
        for window in new {
            self.take(window);
        }
        let Some(screen) = &mut self.shown else {
            return;
        };
        let in_ns = |time: Duration| Nanos::new(time.as_nanos() as u64);
        screen.elapsed = in_ns(elapsed);
        screen.total = Some(in_ns(length));
        let (rows, columns) = console::Term::stdout().size();
        let style = Style {
            width: usize::from(columns),
            ..style()
        };
        // each line to its end, then all below
        let lines = screen.lines(style, usize::from(rows)).join("\x1b[K\r\n");
        show(&format!("\x1b[H{lines}\x1b[K\x1b[J"));
    }

    fn take(&mut self, window: Vec<Event>) {
        let mut context = self.context.clone();
        let from = window.first().map(|first| first.at + SETTLE);
        context.measure_from_ns = from.map(|from| from.nanos_since_boot());
        let beside = Beside {
            command: "trace",
            ..Beside::default()
        };
        let analysed = evaluate::events(window, context, &self.analysis, beside);
        let (last, note) = match &analysed {
            Ok(evaluated) => (self.moment(evaluated), None),
            Err(failure) => (None, Some(failure.to_string())),
        };
        let last = last.unwrap_or_else(|| self.whole.nothing());
        self.p99.push_back(last.p99);
        if self.p99.len() > HISTORY {
            self.p99.pop_front();
        }
        self.shown = Some(live::Screen {
            target: self.context.server.clone(),
            elapsed: Nanos::ZERO,
            total: None,
            last,
            whole: self.whole.moment(),
            p99_history: self.p99.iter().copied().collect(),
            observer: None,
            note,
        });
    }

    fn moment(&mut self, evaluated: &Evaluated) -> Option<Moment> {
        let summary = evaluated.summary();
        self.whole.add(evaluated);
        Some(Moment::of(&summary.result, summary.arrival_rate_per_s))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        show("\x1b[?25h\x1b[?1049l");
    }
}

fn show(text: &str) {
    let mut out = io::stdout().lock();
    // a terminal that has gone shows nothing, and the recording goes on
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
