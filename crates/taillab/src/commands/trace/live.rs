//! The screen of `--live`: what the last second was like, again and again.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use taillab_model::{Event, Nanos, RecordingContext};
use taillab_report::terminal;

use crate::cli::{AnalysisArgs, TraceArgs};
use crate::commands::explain::evaluate::{self, Beside};
use crate::commands::sim::outputs::style;

/// A screen of its own, given back at the end: the shell's text stays as it was.
pub struct Screen {
    context: RecordingContext,
    analysis: AnalysisArgs,
    windows: Option<Receiver<Vec<Event>>>,
}

impl Screen {
    /// Takes the screen.
    pub fn new(context: &RecordingContext, args: &TraceArgs) -> Self {
        show("\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J");
        show("waiting for the first second ...");
        Self {
            context: context.clone(),
            analysis: args.analysis,
            windows: None,
        }
    }

    /// Where the events of each window are sent to.
    pub fn batches(&mut self) -> Sender<Vec<Event>> {
        let (out, windows) = channel();
        self.windows = Some(windows);
        out
    }

    /// Draws the newest window, if there is one that was not drawn.
    pub fn draw(&mut self, elapsed: Duration, length: Duration) {
        let Some(newest) = self.windows.as_ref().and_then(|w| w.try_iter().last()) else {
            return;
        };
        let mut context = self.context.clone();
        context.measure_from_ns = None;
        let beside = Beside {
            command: "trace",
            quiet: true,
            ..Beside::default()
        };
        let analysed = evaluate::events(newest, context, &self.analysis, beside);
        let text = match analysed {
            Ok(evaluated) => {
                let in_ns = |time: Duration| Nanos::new(time.as_nanos() as u64);
                let (elapsed, length) = (in_ns(elapsed), in_ns(length));
                terminal::render_live(evaluated.summary(), elapsed, length, style())
            }
            Err(failure) => failure.to_string(),
        };
        // each line to its end, then all below
        let text = text.replace('\n', "\x1b[K\r\n");
        show(&format!("\x1b[H{text}\x1b[J"));
    }

    /// Gives the screen back.
    pub fn leave(self) {}
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
