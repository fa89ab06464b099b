//! What arrivals on schedule would have seen, where our own client was held up: the recorded queue, with the same
//! disturbances at the same times, and each request sent when it was due.

use taillab_model::explanation::{Cause, PredictedPoint};

use super::replayed::replayed;
use super::{Forecaster, scenario};
use crate::replay::Change;

/// What holds up the generator, too, where it has the CPU.
pub(super) const OTHERS: Cause = Cause::Background;

impl Forecaster<'_> {
    /// The percentiles of all requests on schedule; empty where every request was sent on schedule. Late sends may
    /// make the measured ones longer (bursts) or shorter (a queue in front of the server).
    pub(super) fn on_schedule(&self) -> Vec<PredictedPoint> {
        if !self.observed.has_late_sends() {
            return Vec::new();
        }
        let change = Change {
            on_schedule: true,
            ..self.unchanged()
        };
        let replayed = replayed(self.observed, &change);
        self.points(self.ratios(&replayed), &replayed, f64::INFINITY)
    }

    /// No other threads, and every request sent on schedule; `None` where either changes nothing.
    pub(super) fn undisturbed_on_schedule(&self) -> Option<Change> {
        let mut change = Change {
            on_schedule: true,
            ..self.unchanged()
        };
        let service_time = self.basis.service_time;
        let is_known = scenario::without(&mut change, self.observed, OTHERS, service_time);
        (is_known && self.observed.has_late_sends()).then_some(change)
    }
}
