//! Progress of work that may be short: a bar appears only after a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done before this needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const PERIOD: Duration = Duration::from_millis(200);

/// How far the work has come, told by its threads.
#[derive(Debug, Default)]
pub struct Gauge {
    done: AtomicU64,
    total: AtomicU64,
}

impl Gauge {
    pub fn set(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread of its own; after two seconds a bar on stderr shows the gauge,
/// unless `quiet` or stderr is no terminal. A panic of `work` goes on in the caller.
pub fn watched<T: Send>(
    name: &str,
    quiet: bool,
    gauge: &Gauge,
    work: impl FnOnce() -> T + Send,
) -> T {
    let waiting = thread::current();
    let started = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    let result = thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let result = work();
            waiting.unpark();
            result
        });
        while !worker.is_finished() {
            if !quiet && started.elapsed() > PATIENCE {
                let bar = bar.get_or_insert_with(|| new_bar(name));
                bar.set_length(gauge.total.load(Ordering::Relaxed).max(1));
                bar.set_position(gauge.done.load(Ordering::Relaxed));
            }
            thread::park_timeout(PERIOD);
        }
        worker.join()
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    match result {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn new_bar(name: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(
        "{prefix:<28} [{bar:32}] {percent:>3} %  {elapsed}, {eta} left",
    ) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(name.to_owned());
    bar
}
