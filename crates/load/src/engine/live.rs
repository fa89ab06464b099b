//! A histogram that one thread fills while others read it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use taillab_model::histogram::{cell, cell_of};
use taillab_model::{Nanos, quantile_ranks};

/// log2 of the buckets for each power of two: a bucket is at most a 32nd of its value wide.
const BITS: u32 = 5;

/// For every length that there is.
const BUCKETS: usize = cell(u64::MAX, BITS) + 1;

/// Counts times in logarithmic buckets, for the progress line of a running load.
///
/// Counting takes a load and a store. A reader may see counts of slightly different moments.
/// Results are made from the record, never from this.
#[derive(Debug)]
pub struct LiveHistogram {
    counts: [AtomicU32; BUCKETS],
}

impl Default for LiveHistogram {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU32::new(0) }; BUCKETS],
        }
    }
}

impl LiveHistogram {
    /// Nothing counted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one length; for one thread at a time.
    #[inline]
    pub fn count(&self, length: Nanos) {
        let bucket = &self.counts[bucket_of(length)];
        bucket.store(bucket.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// What was counted since `before`, which is set to the present counts.
    pub fn since(&self, before: &mut LiveCounts) -> LiveCounts {
        let mut window = LiveCounts::default();
        for (i, count) in self.counts.iter().enumerate() {
            let now = count.load(Relaxed);
            window.0[i] = now.wrapping_sub(before.0[i]);
            before.0[i] = now;
        }
        window
    }
}

/// Counts of a [`LiveHistogram`], of a window or since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveCounts([u32; BUCKETS]);

impl Default for LiveCounts {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl LiveCounts {
    /// Adds those of another thread.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.wrapping_add(*more);
        }
    }

    /// Number of times counted.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|&n| u64::from(n)).sum()
    }

    /// How many are in the bucket of `length` or in a longer one.
    pub fn at_least(&self, length: Nanos) -> u64 {
        let those = &self.0[bucket_of(length)..];
        those.iter().map(|&n| u64::from(n)).sum()
    }

    /// The quantile `q`, accurate to 3 %; `None` unless about four values lie above it.
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        if q >= 1.0 {
            return None;
        }
        let rank = quantile_ranks(self.total(), q.max(f64::MIN_POSITIVE), 1.0)?.value;
        let mut below = 0;
        for (i, &count) in self.0.iter().enumerate() {
            below += u64::from(count);
            if below > rank {
                return Some(middle_of(i));
            }
        }
        None
    }
}

#[inline]
fn bucket_of(length: Nanos) -> usize {
    cell(length.get(), BITS)
}

fn middle_of(bucket: usize) -> Nanos {
    let (low, width) = cell_of(bucket, BITS);
    Nanos::new(low + width / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_near_its_bucket() {
        let mut previous = 0;
        for exponent in 0..58 {
            for step in 0..64_u64 {
                let ns = (1_u64 << exponent) + (step << exponent) / 64;
                let bucket = bucket_of(Nanos::new(ns));
                assert!(bucket >= previous, "{ns}");
                previous = bucket;
                let middle = middle_of(bucket).get();
                assert!(middle.abs_diff(ns) * 32 <= ns, "{ns}: {middle}");
            }
        }
        assert_eq!(bucket_of(Nanos::MAX), BUCKETS - 1);
        assert_eq!(bucket_of(Nanos::ZERO), 0);
    }

    #[test]
    fn a_window_holds_what_came_since_the_last() {
        let histogram = LiveHistogram::new();
        let mut seen = LiveCounts::default();
        (1..=1000).for_each(|us| histogram.count(Nanos::from_micros(us)));
        let first = histogram.since(&mut seen);
        assert_eq!(first.total(), 1000);
        let p50 = first.quantile(0.5).unwrap().as_micros_f64();
        assert!((p50 / 500.0 - 1.0).abs() < 0.04, "{p50}");
        assert_eq!(first.quantile(0.999), None);
        histogram.count(Nanos::from_secs(2));
        let mut second = histogram.since(&mut seen);
        assert_eq!((second.total(), second.quantile(0.5)), (1, None));
        second.add(&first);
        assert_eq!(second.total(), 1001);
    }
}
