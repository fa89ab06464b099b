//! Two threads on two CPUs hand a number to and fro in memory: the floor of any kernel bypass.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use taillab_model::Nanos;

use super::error::ComponentError;
use crate::cpus::{self, CpuSet};

/// A cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Round trips between these two CPUs, at most `most`, for at most `length`.
///
/// # Errors
/// [`ComponentError::Cpu`].
pub fn shared_memory(
    here: u32,
    there: u32,
    most: usize,
    length: Duration,
) -> Result<Vec<Nanos>, ComponentError> {
    let (ask, answer) = (Line::default(), Line::default());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<(), ComponentError> {
            cpus::pin_current_thread(&CpuSet::single(there))?;
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                let asked = ask.0.load(Ordering::Acquire);
                if asked != seen {
                    seen = asked;
                    answer.0.store(asked, Ordering::Release);
                }
                hint::spin_loop();
            }
            Ok(())
        });
        let asking = scope.spawn(|| -> Result<Vec<Nanos>, ComponentError> {
            let pinned = cpus::pin_current_thread(&CpuSet::single(here));
            let mut taken = Vec::with_capacity(most);
            let end = Instant::now() + length;
            let mut turn = 0;
            while pinned.is_ok() && taken.len() < most {
                turn += 1;
                let began = Instant::now();
                if began > end {
                    break;
                }
                ask.0.store(turn, Ordering::Release);
                while answer.0.load(Ordering::Acquire) != turn {
                    // the other thread may have been refused its CPU
                    if stop.load(Ordering::Relaxed) || began.elapsed() > length {
                        break;
                    }
                    hint::spin_loop();
                }
                taken.push(Nanos::new(began.elapsed().as_nanos() as u64));
            }
            stop.store(true, Ordering::Relaxed);
            pinned.map(|()| taken).map_err(Into::into)
        });
        let taken = joined(asking.join());
        joined(other.join())?;
        taken
    })
}

/// What a thread found; a panic of it goes on here.
fn joined<T>(ended: thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_answer_each_other_and_a_missing_one_is_said() {
        let allowed = cpus::allowed().unwrap();
        let mut numbers = allowed.iter();
        if let (Some(here), Some(there)) = (numbers.next(), numbers.next()) {
            let taken = shared_memory(here, there, 500, Duration::from_secs(30)).unwrap();
            assert_eq!(taken.len(), 500);
        }
        let missing = cpus::MAX_CPUS - 1;
        let refused = shared_memory(missing, 0, 10, Duration::from_millis(200));
        assert!(matches!(refused, Err(ComponentError::Cpu(_))));
    }
}
