//! How well a percentile is known while the measurement goes on (`--precision`).

use taillab_load::{FleetProgress, LiveCounts};
use taillab_model::{Monotonic, Nanos, student_975};
use taillab_simulator::simulation::Precision;

/// Requests closer than this depend on each other, as they may share a queue.
const SEGMENT: Nanos = Nanos::from_secs(2);

/// Fewer segments do not show the spread between them.
const FEWEST: usize = 5;

/// The client's response times by segment.
pub struct Watched {
    wanted: Precision,
    /// What each thread of the generator had counted at the last cut between segments.
    before: Vec<LiveCounts>,
    cut_at: Option<Monotonic>,
    segments: Vec<LiveCounts>,
}

impl Watched {
    /// Nothing is seen yet.
    pub fn new(wanted: Precision) -> Self {
        Self {
            wanted,
            before: Vec::new(),
            cut_at: None,
            segments: Vec::new(),
        }
    }

    /// To be called about twice a second during the measurement: whether the percentile is known as
    /// well as wanted.
    pub fn is_known(&mut self, now: Monotonic, progress: &FleetProgress) -> bool {
        let is_due = |cut_at: Monotonic| now.saturating_since(cut_at) >= SEGMENT;
        if self.cut_at.is_none_or(is_due) {
            let is_first = self.cut_at.replace(now).is_none();
            let counts = self.cut(progress);
            // earlier counts belong to the warm-up
            self.segments.extend((!is_first).then_some(counts));
        }
        let width = relative_half_width(&self.segments, self.wanted.quantile);
        width.is_some_and(|width| width <= self.wanted.relative)
    }

    /// What all threads have counted since the last cut.
    fn cut(&mut self, progress: &FleetProgress) -> LiveCounts {
        let mut sum = LiveCounts::default();
        for (place, thread) in progress.threads().enumerate() {
            if place == self.before.len() {
                self.before.push(LiveCounts::default());
            }
            sum.add(&thread.response_times().since(&mut self.before[place]));
        }
        sum
    }
}

/// Half the 95 % interval of a quantile ÷ its value, from the spread between segments of the share of
/// requests that reach it; `None` if there are too few segments.
///
/// The shares of the segments are nearly independent, however correlated the requests within them are. So
/// their mean has Student's interval, whose ends give the interval of the quantile
/// (batch means with inversion: Heidelberger and Lewis 1984, Operations Research 32(1)).
fn relative_half_width(segments: &[LiveCounts], q: f64) -> Option<f64> {
    if segments.len() < FEWEST {
        return None;
    }
    let mut all = LiveCounts::default();
    segments.iter().for_each(|segment| all.add(segment));
    let value = all.quantile(q)?;
    let share = |of: &LiveCounts| of.at_least(value) as f64 / of.total().max(1) as f64;
    let shares: Vec<f64> = segments.iter().map(share).collect();
    let n = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / n;
    let squares = shares.iter().map(|share| (share - mean).powi(2));
    let error = (squares.sum::<f64>() / (n - 1.0) / n).sqrt();
    let reach = student_975(shares.len() - 1) * error;
    let (lo, hi) = (
        all.quantile((q - reach).max(0.0))?,
        all.quantile(q + reach)?,
    );
    let width = hi.as_secs_f64() - lo.as_secs_f64();
    Some(width / 2.0 / value.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use taillab_load::LiveHistogram;

    use super::*;

    /// A segment of 1,000 requests of 1 to 1,000 µs, of which `slow` take 10 ms instead.
    fn segment(slow: u64) -> LiveCounts {
        let histogram = LiveHistogram::new();
        for request in 1..=1_000 {
            let us = if request <= slow { 10_000 } else { request };
            histogram.count(Nanos::from_micros(us));
        }
        histogram.since(&mut LiveCounts::default())
    }

    #[test]
    fn equal_segments_know_their_quantiles() {
        let segments: Vec<LiveCounts> = (0..10).map(|_| segment(0)).collect();
        // as wide as a bucket of the histogram, at most
        assert!(relative_half_width(&segments, 0.5).unwrap() < 0.02);
        assert!(relative_half_width(&segments, 0.9).unwrap() < 0.02);
    }

    #[test]
    fn what_differs_between_segments_is_not_known() {
        let segments: Vec<LiveCounts> = (0..10)
            .map(|number| segment(if number == 3 { 200 } else { 0 }))
            .collect();
        let median = relative_half_width(&segments, 0.5).unwrap();
        // one burst in 20 s makes p99
        let tail = relative_half_width(&segments, 0.99);
        assert!(tail.is_none_or(|tail| tail > 0.3), "{tail:?}");
        assert!(median < 0.2, "{median}");
    }

    #[test]
    fn too_little_says_nothing() {
        let few: Vec<LiveCounts> = (0..4).map(|_| segment(0)).collect();
        assert_eq!(relative_half_width(&few, 0.5), None);
        let many: Vec<LiveCounts> = (0..10).map(|_| segment(0)).collect();
        assert_eq!(relative_half_width(&many, 0.9999), None);
    }

    /// More of the same: the interval shrinks.
    #[test]
    fn longer_is_better_known() {
        let of = |count: u64| -> f64 {
            let segments: Vec<LiveCounts> = (0..count).map(|k| segment(k % 4)).collect();
            relative_half_width(&segments, 0.998).unwrap_or(f64::INFINITY)
        };
        assert!(of(200) < of(8));
    }
}
