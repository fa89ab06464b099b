//! When a measurement ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use taillab_model::Nanos;

/// When a measurement ends: at the bound that is reached first.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// Most samples to take; all of them stay in memory.
    pub most: usize,
    /// How long to measure, at most.
    pub length: Duration,
    /// Set by whoever wants it to end early.
    pub stop: &'a AtomicBool,
}

impl Bounds<'_> {
    /// Takes one sample after the other, numbered from 1. `one` returns `None` for a sample that did
    /// not come back; it has no latency and is left out.
    pub(super) fn samples<E>(
        self,
        mut one: impl FnMut(u64) -> Result<Option<Nanos>, E>,
    ) -> Result<Vec<Nanos>, E> {
        let mut taken = Vec::with_capacity(self.most);
        let end = Instant::now() + self.length;
        for number in 1..=self.most as u64 {
            if Instant::now() > end || self.stop.load(Ordering::Relaxed) {
                break;
            }
            taken.extend(one(number)?);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_a_time_and_a_wish_end_it_and_what_is_lost_is_no_sample() {
        let stop = AtomicBool::new(false);
        let bounds = |most, length| Bounds {
            most,
            length,
            stop: &stop,
        };
        let hour = Duration::from_secs(3_600);
        let odd = |number: u64| Ok::<_, ()>((number % 2 == 1).then(|| Nanos::new(number)));
        let taken = bounds(4, hour).samples(odd).unwrap();
        assert_eq!(taken, [Nanos::new(1), Nanos::new(3)]);
        let short = bounds(1 << 20, Duration::ZERO).samples(|_| {
            std::thread::sleep(Duration::from_millis(1));
            Ok::<_, ()>(Some(Nanos::ZERO))
        });
        assert!(short.unwrap().len() < 1_000_000);
        let stopped = bounds(1_000, hour).samples(|number| {
            stop.store(number == 3, Ordering::Relaxed);
            Ok::<_, ()>(Some(Nanos::ZERO))
        });
        assert_eq!(stopped.unwrap().len(), 3);
    }
}
