//! A sign of life when the diagnosis takes long.

use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;

/// Faster work shows nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two drawings.
const PERIOD: Duration = Duration::from_millis(100);

/// Draws on stderr, where that is a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    silent: bool,
}

impl Waiting {
    pub const fn new(silent: bool) -> Self {
        Self { silent }
    }

    /// Runs `work`, which says at which step it is.
    pub fn during<T>(self, work: impl FnOnce(&dyn Fn(&'static str)) -> T) -> T {
        if self.silent {
            return work(&|_| {});
        }
        let step = Mutex::new("");
        thread::scope(|scope| {
            // dropped when the work ends, even if it panics
            let (end, ended) = mpsc::channel::<()>();
            let step = &step;
            scope.spawn(move || draw(step, &ended));
            let result = work(&|name| {
                if let Ok(mut step) = step.lock() {
                    *step = name;
                }
            });
            drop(end);
            result
        })
    }
}

fn draw(step: &Mutex<&'static str>, ended: &mpsc::Receiver<()>) {
    let still = |wait| ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout);
    if !still(PATIENCE) {
        return;
    }
    let spinner = ProgressBar::new_spinner();
    loop {
        if let Ok(step) = step.lock() {
            spinner.set_message(*step);
        }
        spinner.tick();
        if !still(PERIOD) {
            break;
        }
    }
    spinner.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_comes_back_whether_or_not_anything_is_drawn() {
        for silent in [true, false] {
            let result = Waiting::new(silent).during(|step| {
                step("one");
                7
            });
            assert_eq!(result, 7);
        }
    }
}
