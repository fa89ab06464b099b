//! How the part of a recording that is replayed differs from the whole, and what that means for a forecast.
//!
//! A spell of half a second can decide p99. If it lies outside of the part, a replay of the part does not
//! say what p99 would be without it. So a forecast is the measured percentile times the ratio of two replays
//! of the part, and its interval has every way in which the part may stand for the whole.

use taillab_model::explanation::ModelFit;
use taillab_model::interval::Interval;
use taillab_model::{Distribution, Nanos};

use super::PREDICTED_QUANTILES;
use crate::fmt::Percentile;

/// A percentile of the part that differs from that of all requests by more is worth a remark.
const NOTABLE: f64 = 0.25;

/// Each percentile of the part ÷ that of all requests, in order of the percentiles.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayedPart(Vec<(f64, f64)>);

impl ReplayedPart {
    /// Compares the percentiles of a fit with those of all requests, and puts the latter into the fit. The
    /// replay keeps its relative error.
    pub(super) fn compare(fit: &mut ModelFit, all: &Distribution) -> Self {
        let mut relative = Vec::new();
        for point in &mut fit.points {
            let Some(measured) = all.quantile(point.q) else {
                continue;
            };
            let of_all = measured.get().max(1) as f64;
            relative.push((point.q, point.measured_ns.get() as f64 / of_all));
            point.replayed_ns = Nanos::new((of_all * (1.0 + point.error)).round() as u64);
            point.measured_ns = measured;
        }
        Self(relative)
    }

    /// This percentile of the part ÷ that of all requests.
    fn relative(&self, q: f64) -> f64 {
        let mut known = self.0.iter();
        let known = known.find(|(known, _)| *known == q);
        known.map_or(1.0, |(_, relative)| *relative)
    }

    /// The interval of with ÷ without a change at this percentile, from the one that holds in the part. What
    /// the part has too much or too little of may shrink in proportion, be gone with the change, or stay as it
    /// is; the interval has all three.
    pub(super) fn of_all(&self, q: f64, Interval { lo, hi }: Interval<f64>) -> Interval<f64> {
        let part = self.relative(q);
        let gone = |ratio: f64| (part * ratio).min(ratio.max(1.0));
        let stays = |ratio: f64| (1.0 - part * (1.0 - ratio)).max(0.0);
        Interval {
            lo: lo.min(gone(lo)).min(stays(lo)),
            hi: hi.max(gone(hi)).max(stays(hi)),
        }
    }

    /// A curve of the part on the scale of all requests.
    pub(super) fn curve_of_all(&self, mut curve: Vec<(Nanos, f64)>) -> Vec<(Nanos, f64)> {
        let mut least = Nanos::ZERO;
        for (x, share) in &mut curve {
            let scaled = x.get() as f64 / self.relative_beyond(*share).max(f64::MIN_POSITIVE);
            // where the scale changes, the curve must not turn back
            least = least.max(Nanos::new(scaled.round() as u64));
            *x = least;
        }
        curve
    }

    /// The part ÷ all where this share of the requests is slower, between the known percentiles.
    fn relative_beyond(&self, share: f64) -> f64 {
        let depth = |q: f64| -(1.0 - q).ln();
        let at = depth(1.0 - share);
        let behind = self.0.iter().position(|(q, _)| depth(*q) >= at);
        match (behind, self.0.last()) {
            (_, None) => 1.0,
            (None, Some((_, last))) => *last,
            (Some(0), Some(_)) => self.0[0].1,
            (Some(place), Some(_)) => {
                let ((from, before), (to, after)) = (self.0[place - 1], self.0[place]);
                let into = (at - depth(from)) / (depth(to) - depth(from));
                before + (after - before) * into
            }
        }
    }

    /// What makes forecasts uncertain.
    pub(super) fn limits(&self) -> impl Iterator<Item = String> + '_ {
        let is_predicted = |(q, _): &&(f64, f64)| PREDICTED_QUANTILES.contains(q);
        let predicted = self.0.iter().filter(is_predicted);
        let unlike = predicted.filter(|(_, relative)| (relative - 1.0).abs() > NOTABLE);
        unlike.map(|(q, relative)| {
            format!(
                "forecasts of {} have wide intervals: in the requests that are replayed, it is {:.0} % {} \
                 than in all",
                Percentile(*q),
                100.0 * (relative - 1.0).abs(),
                if *relative > 1.0 { "higher" } else { "lower" },
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(relative: f64) -> ReplayedPart {
        ReplayedPart(vec![(0.5, 1.0), (0.99, relative)])
    }

    fn of_all(relative: f64, q: f64, lo: f64, hi: f64) -> (f64, f64) {
        let found = part(relative).of_all(q, Interval { lo, hi });
        (found.lo, found.hi)
    }

    #[test]
    fn a_part_like_the_whole_widens_nothing() {
        assert_eq!(of_all(1.0, 0.99, 0.25, 0.5), (0.25, 0.5));
        assert_eq!(of_all(3.0, 0.5, 0.25, 0.5), (0.25, 0.5));
    }

    #[test]
    fn what_the_part_lacks_may_stay_and_what_it_has_too_much_may_be_all_that_goes() {
        // half of the percentile is in the part, and a tenth of that is left
        assert_eq!(of_all(0.5, 0.99, 0.1, 0.1), (0.05, 0.55));
        // the part is twice as slow: its own remainder, or the difference taken from the whole
        assert_eq!(of_all(2.0, 0.99, 0.1, 0.1), (0.0, 0.2));
        // no change may be no change, whatever the part
        assert_eq!(of_all(2.0, 0.99, 1.0, 1.0), (1.0, 1.0));
    }

    #[test]
    fn a_curve_of_a_part_is_scaled_to_the_whole() {
        let curve = [(100, 1.0), (200, 0.5), (3_000, 0.01), (4_000, 0.001)];
        let curve = curve.map(|(x, share)| (Nanos::new(x), share));
        let scaled = part(0.5).curve_of_all(curve.to_vec());
        let x: Vec<u64> = scaled.iter().map(|(x, _)| x.get()).collect();
        assert_eq!(x, [100, 200, 6_000, 8_000]);
        assert_eq!(ReplayedPart::default().curve_of_all(curve.to_vec()), curve);
    }

    proptest! {
        /// A gain in the part is never a loss of the whole, and the interval has the ratio itself.
        #[test]
        fn the_interval_has_the_ratio_and_no_loss(relative in 0.1_f64..10.0, ratio in 0.0_f64..=1.0) {
            let (lo, hi) = of_all(relative, 0.99, ratio, ratio);
            prop_assert!(0.0 <= lo && lo <= ratio && ratio <= hi && hi <= 1.0, "{} {}", lo, hi);
        }
    }
}
