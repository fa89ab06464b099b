//! The progress line of a running load, on stderr.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use taillab_console::messages::{self, Messages};
use taillab_console::progress::{self, meanwhile};
use taillab_console::terminal::can_be_drawn_on;
use taillab_load::{FleetProgress, LiveCounts};
use taillab_model::Nanos;
use taillab_report::load::{LiveWindow, live_line};

/// Between two rolling lines.
const WINDOW: Duration = Duration::from_secs(1);

/// Runs `work`, a load of this length, on its own thread and shows a line that is renewed once a
/// second. Where stderr is not a terminal, `-v` prints each line instead.
pub fn load<T: Send>(
    messages: Messages,
    name: &str,
    length: Nanos,
    progress: &FleetProgress,
    work: impl FnOnce() -> T + Send,
) -> T {
    let terminal = can_be_drawn_on(&std::io::stderr());
    let shown = !messages.quiet && (terminal || messages.verbose);
    let bar = (shown && terminal).then(|| rolling(name, length));
    let mut view = View::new(progress);
    let look = || {
        // after the last send we only wait for answers
        let over = view.elapsed() > length;
        if !shown || over || view.is_young() {
            return;
        }
        let line = live_line(&view.window());
        match &bar {
            Some(bar) => {
                bar.set_position(view.elapsed().get().min(length.get()));
                bar.set_message(line);
            }
            None => messages::line(&line),
        }
    };
    let result = meanwhile(WINDOW, look, work);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    result
}

/// A line that is drawn over itself.
fn rolling(name: &str, length: Nanos) -> ProgressBar {
    let style = "{prefix:<16} [{bar:32}] {percent:>3} %   sent → answered\n{wide_msg}";
    progress::bar(name, Some(length.get()), style, true)
}

/// The last look at a load's counters.
struct View<'a> {
    progress: &'a FleetProgress,
    began: Instant,
    last: Instant,
    sent: u64,
    received: u64,
    /// Of each thread: response times, lateness.
    seen: Vec<(LiveCounts, LiveCounts)>,
}

impl<'a> View<'a> {
    fn new(progress: &'a FleetProgress) -> Self {
        let mut view = Self {
            progress,
            began: Instant::now(),
            last: Instant::now(),
            sent: 0,
            received: 0,
            seen: progress.threads().map(|_| Default::default()).collect(),
        };
        // skip what earlier loads have counted
        view.counts();
        view
    }

    /// Whether the last look was too short a time ago.
    fn is_young(&self) -> bool {
        self.last.elapsed() < WINDOW / 2
    }

    fn elapsed(&self) -> Nanos {
        Nanos::new(self.began.elapsed().as_nanos() as u64)
    }

    /// What came since the last look.
    fn window(&mut self) -> LiveWindow {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let (sent, received) = (self.progress.sent(), self.progress.received());
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let (responses, lateness) = self.counts();
        let window = LiveWindow {
            elapsed: self.elapsed(),
            sent_per_s: rate(sent, self.sent),
            answered_per_s: rate(received, self.received),
            p50: responses.quantile(0.5),
            p99: responses.quantile(0.99),
            lateness_p99: lateness.quantile(0.99),
            errors: self.progress.threads().map(|thread| thread.failed()).sum(),
        };
        (self.sent, self.received) = (sent, received);
        window
    }

    fn counts(&mut self) -> (LiveCounts, LiveCounts) {
        let mut sums = (LiveCounts::default(), LiveCounts::default());
        for (thread, seen) in self.progress.threads().zip(&mut self.seen) {
            sums.0.add(&thread.response_times().since(&mut seen.0));
            sums.1.add(&thread.lateness().since(&mut seen.1));
        }
        sums
    }
}
