//! Progress on stderr: one bar for each phase, nothing when stderr is no terminal.

use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two drawings. Drawing takes a core of the testbed for some ten
/// microseconds, so it is rare.
const PERIOD: Duration = Duration::from_millis(500);

/// Whether and how progress is shown.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Shows progress unless asked to be quiet; a stderr that is no terminal shows none.
    pub fn new(quiet: bool) -> Self {
        Self { shown: !quiet }
    }

    /// Runs `work` on a thread of its own while the calling thread sleeps and now and then
    /// draws the share of `total` that `done` returns.
    ///
    /// A panic of `work` goes on in the caller.
    pub fn during<T: Send>(
        self,
        phase: &'static str,
        total: u64,
        done: impl Fn() -> u64,
        work: impl FnOnce() -> T + Send,
    ) -> T {
        let bar = self.bar(phase, total);
        let waiting = thread::current();
        let result = thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let result = work();
                waiting.unpark();
                result
            });
            while !worker.is_finished() {
                bar.set_position(done().min(total));
                thread::park_timeout(PERIOD);
            }
            worker.join()
        });
        bar.finish_and_clear();
        match result {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn bar(self, phase: &'static str, total: u64) -> ProgressBar {
        let target = if self.shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        if let Ok(style) =
            ProgressStyle::with_template("{prefix:<22} [{bar:32}] {percent:>3} %  {elapsed}, {eta} left")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(phase);
        bar
    }
}
