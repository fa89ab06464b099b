//! Progress of work that may be short: a bar appears only after a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use taillab_console::progress;

/// Work that is done before this needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const PERIOD: Duration = Duration::from_millis(200);

/// How far the work has come, as its threads report.
#[derive(Debug, Default)]
pub struct Gauge {
    done: AtomicU64,
    total: AtomicU64,
}

impl Gauge {
    /// Says that `done` of `total` is done.
    pub fn set(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread of its own. After two seconds a bar on stderr shows the gauge, unless `quiet` is
/// set or stderr is not a terminal. A panic of `work` is resumed in the caller.
pub fn watched<T: Send>(
    name: &str,
    quiet: bool,
    gauge: &Gauge,
    work: impl FnOnce() -> T + Send,
) -> T {
    let started = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    let look = || {
        if !quiet && started.elapsed() > PATIENCE {
            let style = "{prefix:<28} [{bar:32}] {percent:>3} %  {elapsed}, {eta} left";
            let bar = bar.get_or_insert_with(|| progress::bar(name, None, style, true));
            bar.set_length(gauge.total.load(Ordering::Relaxed).max(1));
            bar.set_position(gauge.done.load(Ordering::Relaxed));
        }
    };
    let result = progress::meanwhile(PERIOD, look, work);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    result
}
