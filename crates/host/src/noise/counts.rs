//! How often each time between two reads occurred: bounded, however long the loop runs.

use taillab_model::{Histogram, Nanos};

/// Each time below this many ticks has a counter of its own (27 µs at 2.4 GHz).
const FINE: usize = 1 << 16;

/// Times between two reads, in ticks. Counting one costs the loop one write to memory.
#[derive(Clone, Debug)]
pub struct TickCounts {
    fine: Box<[u64]>,
    /// In ticks, though it calls them nanoseconds.
    coarse: Histogram,
}

impl Default for TickCounts {
    fn default() -> Self {
        // written, so that the loop takes no page fault
        let mut fine = vec![1; FINE].into_boxed_slice();
        fine.fill(0);
        Self {
            fine,
            coarse: Histogram::default(),
        }
    }
}

impl TickCounts {
    /// Below this many ticks [`TickCounts::count_short`] can be used.
    pub const SHORT: u64 = FINE as u64;

    /// Counts a time that is shorter than [`TickCounts::SHORT`].
    #[inline(always)]
    pub fn count_short(&mut self, ticks: u64) {
        self.fine[ticks as usize % FINE] += 1;
    }

    /// Counts any time.
    pub fn count(&mut self, ticks: u64) {
        if ticks < Self::SHORT {
            self.count_short(ticks);
        } else {
            self.coarse.record(Nanos::new(ticks));
        }
    }

    /// The counts in nanoseconds, of a counter that ticks `frequency_hz` times a second.
    pub fn in_nanos(&self, frequency_hz: f64) -> Histogram {
        let length = |ticks: u64| Nanos::new((ticks as f64 * 1e9 / frequency_hz).round() as u64);
        let mut histogram = Histogram::default();
        for (ticks, &times) in self.fine.iter().enumerate() {
            histogram.record_times(length(ticks as u64), times);
        }
        for (ticks, times) in self.coarse.ranked().counts() {
            histogram.record_times(length(ticks.get()), times);
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_times_come_back_in_nanoseconds() {
        let mut counts = TickCounts::default();
        for ticks in [40, 40, 80, TickCounts::SHORT, 4_000_000] {
            counts.count(ticks);
        }
        let found = counts.in_nanos(2e9);
        assert_eq!(found.count(), 5);
        assert_eq!(found.least(), Some(Nanos::new(20)));
        let greatest = found.greatest().unwrap().as_micros_f64();
        assert!((greatest - 2_000.0).abs() < 2.0, "{greatest}");
    }
}
