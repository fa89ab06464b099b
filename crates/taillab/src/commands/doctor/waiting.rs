//! A sign of life when the diagnosis takes long.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use taillab_console::progress::meanwhile;

/// Faster work shows nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two drawings.
const PERIOD: Duration = Duration::from_millis(100);

/// Runs `work`, which says at which step it is. Unless this is `silent`, stderr shows the step, where that is
/// a terminal.
pub fn during<T: Send>(silent: bool, work: impl FnOnce(&dyn Fn(&'static str)) -> T + Send) -> T {
    if silent {
        return work(&|_| {});
    }
    let (step, began) = (Mutex::new(""), Instant::now());
    let mut spinner: Option<ProgressBar> = None;
    let look = || {
        if began.elapsed() < PATIENCE {
            return;
        }
        let spinner = spinner.get_or_insert_with(ProgressBar::new_spinner);
        if let Ok(step) = step.lock() {
            spinner.set_message(*step);
        }
        spinner.tick();
    };
    let result = meanwhile(PERIOD, look, || {
        work(&|name| {
            if let Ok(mut step) = step.lock() {
                *step = name;
            }
        })
    });
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_comes_back_whether_or_not_anything_is_drawn() {
        for silent in [true, false] {
            let result = during(silent, |step| {
                step("one");
                7
            });
            assert_eq!(result, 7);
        }
    }
}
