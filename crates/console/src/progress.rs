//! Progress on stderr: a bar for each phase, nothing if stderr is not a terminal that can be drawn on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::can_be_drawn_on;

/// Between two drawings. Drawing uses a core of the testbed for some ten microseconds, so it is rare.
const PERIOD: Duration = Duration::from_millis(500);

/// A part of a longer piece of work, with its own bar.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// What is being done.
    pub name: &'static str,
    /// How far there is to go, in whatever the caller counts.
    pub total: u64,
}

/// Whether and how progress is shown.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Shows progress on a terminal, unless asked to be quiet.
    pub fn new(quiet: bool) -> Self {
        Self { shown: !quiet }
    }

    /// Runs `work` on a thread of its own. The calling thread draws the progress from time to time; `done`
    /// counts through all phases. A panic of `work` is resumed in the caller.
    pub fn during<T: Send>(
        self,
        phases: &[Phase],
        mut done: impl FnMut() -> u64,
        work: impl FnOnce() -> T + Send,
    ) -> T {
        let mut phases = phases.iter();
        let mut current = phases.next();
        let mut bar = current.map(|phase| self.bar(*phase));
        let mut before = 0;
        let look = || {
            let position = done();
            while let Some(phase) = current
                && position >= before + phase.total
                && phases.len() > 0
            {
                before += phase.total;
                if let Some(bar) = bar.take() {
                    bar.finish();
                }
                current = phases.next();
                bar = current.map(|phase| self.bar(*phase));
            }
            if let Some(bar) = &bar {
                bar.set_position(position - before);
            }
        };
        let result = meanwhile(PERIOD, look, work);
        if let Some(bar) = bar {
            bar.finish();
        }
        result
    }

    fn bar(self, phase: Phase) -> ProgressBar {
        let style = "{prefix:<22} [{bar:32}] {percent:>3} %  {elapsed}, {eta} left";
        bar(phase.name, Some(phase.total), style, self.shown)
    }
}

/// Tells a sleeping thread that the work is over, even if it panicked.
struct CompletionNotice<'a> {
    is_over: &'a AtomicBool,
    sleeper: Thread,
}

impl Drop for CompletionNotice<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.sleeper.unpark();
    }
}

/// Runs `work` on a thread of its own; the calling thread sleeps and calls `look` once in a `period`.
///
/// A panic of `work` is resumed in the caller.
pub fn meanwhile<T: Send>(
    period: Duration,
    mut look: impl FnMut(),
    work: impl FnOnce() -> T + Send,
) -> T {
    // not `is_finished`: the woken thread may look before the worker has ended, and would sleep again
    let is_over = AtomicBool::new(false);
    let tell = CompletionNotice {
        is_over: &is_over,
        sleeper: thread::current(),
    };
    let result = thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let _tell = tell;
            work()
        });
        while !is_over.load(Ordering::Acquire) {
            look();
            thread::park_timeout(period);
        }
        worker.join()
    });
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A bar on stderr, drawn if stderr is a terminal and `shown` is set.
pub fn bar(name: &str, length: Option<u64>, template: &str, shown: bool) -> ProgressBar {
    let target = if shown && can_be_drawn_on(&std::io::stderr()) {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(length, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(name.to_owned());
    bar
}
