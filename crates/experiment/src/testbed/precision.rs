//! The precision of a percentile while the measurement runs (`--precision`).

use taillab_load::{FleetProgress, LiveCounts};
use taillab_model::interval::half_width_of_mean;
use taillab_model::{Monotonic, Nanos};
use taillab_simulator::simulation::Precision;

/// The shortest stretch of time that is counted separately; we look about twice a second.
const PIECE: Nanos = Nanos::from_millis(400);

/// Pieces in a segment, which lasts about 2 s. Requests closer together than that depend on each other,
/// because they may share a queue.
const PIECES: usize = 4;

/// The fewest segments from which the spread between them is estimated.
const FEWEST: usize = 5;

/// The client's response times so far, in pieces of at least [`PIECE`].
pub struct Watched {
    wanted: Precision,
    /// The counts of each generator thread at the last cut between pieces.
    before: Vec<LiveCounts>,
    cut_at: Option<Monotonic>,
    pieces: Vec<LiveCounts>,
}

impl Watched {
    /// Starts with no response times.
    pub fn new(wanted: Precision) -> Self {
        Self {
            wanted,
            before: Vec::new(),
            cut_at: None,
            pieces: Vec::new(),
        }
    }

    /// Takes the response times so far. Call this about twice a second during the measurement.
    pub fn look(&mut self, now: Monotonic, progress: &FleetProgress) {
        let is_due = |cut_at: Monotonic| now.saturating_since(cut_at) >= PIECE;
        if self.cut_at.is_none_or(is_due) {
            let is_first = self.cut_at.replace(now).is_none();
            let counts = self.cut(progress);
            // earlier counts belong to the warm-up
            self.pieces.extend((!is_first).then_some(counts));
        }
    }

    /// Whether the percentile is known as precisely as wanted. This compares all pieces, perhaps on the
    /// generator's CPU, so ask only where the answer decides.
    pub fn is_known(&self) -> bool {
        let width = relative_half_width(&self.pieces, self.wanted.quantile);
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
/// (batch means with inversion: Heidelberger and Lewis 1984, Operations Research 32(1)). If the capacity
/// drifts, segments are not independent, and quarters of the time are compared, as the result does.
fn relative_half_width(pieces: &[LiveCounts], q: f64) -> Option<f64> {
    let segments: Vec<LiveCounts> = pieces.chunks_exact(PIECES).map(sum_of).collect();
    if segments.len() < FEWEST {
        return None;
    }
    let all = sum_of(&segments);
    let value = all.quantile(q)?;
    let mut reach = half_interval(&segments, value);
    if drifts(pieces, &all) {
        let quarters = split(pieces, QUARTERS);
        reach = reach.max(half_interval(&quarters, value));
    }
    let (lo, hi) = (
        all.quantile((q - reach).max(0.0))?,
        all.quantile(q + reach)?,
    );
    let width = hi.as_secs_f64() - lo.as_secs_f64();
    Some(width / 2.0 / value.as_secs_f64())
}

/// The number of parts that are compared if the capacity drifts.
const QUARTERS: usize = 4;

/// Half of Student's interval of the share of requests that take at least `value`, from equally long parts.
fn half_interval(parts: &[LiveCounts], value: Nanos) -> f64 {
    half_width_of_mean(&shares(parts, value)).1
}

/// Whether the capacity drifts: tenths of the time differ by more than what neighbouring pieces explain, as
/// in `taillab_analysis::statistics`.
fn drifts(pieces: &[LiveCounts], all: &LiveCounts) -> bool {
    const TENTHS: usize = 10;
    const CRITICAL: f64 = 2.5;
    if pieces.len() < 2 * TENTHS {
        return false;
    }
    let (tenths, length) = (split(pieces, TENTHS), pieces.len() as f64 / TENTHS as f64);
    [0.5, 0.9].into_iter().any(|q| {
        let Some(value) = all.quantile(q) else {
            return false;
        };
        let neighbours = shares(pieces, value);
        let steps = neighbours
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).powi(2));
        let explained = steps.sum::<f64>() / 2.0 / (neighbours.len() - 1) as f64;
        let found = variance(&shares(&tenths, value)) * length;
        explained > 0.0 && found > CRITICAL * explained
    })
}

/// Sums the pieces into this many parts of nearly equal length.
fn split(pieces: &[LiveCounts], parts: usize) -> Vec<LiveCounts> {
    let at = |part: usize| part * pieces.len() / parts;
    (0..parts)
        .map(|part| sum_of(&pieces[at(part)..at(part + 1)]))
        .collect()
}

fn sum_of(parts: &[LiveCounts]) -> LiveCounts {
    let mut sum = LiveCounts::default();
    parts.iter().for_each(|part| sum.add(part));
    sum
}

fn shares(parts: &[LiveCounts], value: Nanos) -> Vec<f64> {
    let share = |of: &LiveCounts| of.at_least(value) as f64 / of.total().max(1) as f64;
    parts.iter().map(share).collect()
}

fn variance(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / (n - 1.0)
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

    /// [`relative_half_width`] of segments whose requests are all in their first pieces.
    fn half_width(segments: &[LiveCounts], q: f64) -> Option<f64> {
        let none = || (1..PIECES).map(|_| LiveCounts::default());
        let pieces = (segments.iter()).flat_map(|all| std::iter::once(all.clone()).chain(none()));
        relative_half_width(&pieces.collect::<Vec<_>>(), q)
    }

    /// Pieces with a burst now and then, and a capacity that falls from the first half to the second.
    #[test]
    fn a_drift_is_less_well_known() {
        let pieces = |drift: u64| -> Vec<LiveCounts> {
            (0..80)
                .map(|k| segment(100 + k * 7_919 % 13 + if k < 40 { 0 } else { drift }))
                .collect()
        };
        let all = |of: &[LiveCounts]| drifts(of, &sum_of(of));
        assert!(!all(&pieces(0)));
        assert!(all(&pieces(300)));
        // too few pieces to detect a drift
        assert!(!all(&pieces(300)[35..45]));
        let width = |drift| relative_half_width(&pieces(drift), 0.5).unwrap();
        assert!(width(300) > 2.0 * width(0), "{} {}", width(300), width(0));
    }

    #[test]
    fn equal_segments_know_their_quantiles() {
        let segments: Vec<LiveCounts> = (0..10).map(|_| segment(0)).collect();
        // at most the width of a histogram bucket
        assert!(half_width(&segments, 0.5).unwrap() < 0.02);
        assert!(half_width(&segments, 0.9).unwrap() < 0.02);
    }

    #[test]
    fn what_differs_between_segments_is_not_known() {
        let segments: Vec<LiveCounts> = (0..10)
            .map(|number| segment(if number == 3 { 200 } else { 0 }))
            .collect();
        let median = half_width(&segments, 0.5).unwrap();
        // a single burst in 20 s determines p99
        let tail = half_width(&segments, 0.99);
        assert!(tail.is_none_or(|tail| tail > 0.3), "{tail:?}");
        assert!(median < 0.2, "{median}");
    }

    #[test]
    fn too_little_says_nothing() {
        let few: Vec<LiveCounts> = (0..4).map(|_| segment(0)).collect();
        assert_eq!(half_width(&few, 0.5), None);
        let many: Vec<LiveCounts> = (0..10).map(|_| segment(0)).collect();
        assert_eq!(half_width(&many, 0.9999), None);
    }

    /// With more segments of the same kind the interval shrinks.
    #[test]
    fn longer_is_better_known() {
        let of = |count: u64| -> f64 {
            let segments: Vec<LiveCounts> = (0..count).map(|k| segment(k % 4)).collect();
            half_width(&segments, 0.998).unwrap_or(f64::INFINITY)
        };
        assert!(of(200) < of(8));
    }
}
