//! What arrivals on schedule would have seen, where our own client was held up: the recorded queue, with the same
//! disturbances at the same times, and each request sent when it was due.

use taillab_model::explanation::{Cause, PredictedPoint};
use taillab_model::summary::ReplayedSchedule;

use super::replayed::replayed;
use super::{Forecaster, scenario};
use crate::replay::Change;

impl Forecaster<'_> {
    /// The percentiles of all requests on schedule; `None` where every request was sent on schedule. Late sends may
    /// make the measured ones longer (bursts) or shorter (a queue in front of the server).
    pub(super) fn on_schedule(&self) -> Option<ReplayedSchedule> {
        if !self.observed.has_late_sends() {
            return None;
        }
        let mut change = Change {
            on_schedule: true,
            ..self.unchanged()
        };
        let points = self.of_schedule(&change);
        let (others, t) = (Cause::Background, self.basis.service_time);
        let is_disturbed =
            self.is_present(others) && scenario::without(&mut change, self.observed, others, t);
        Some(ReplayedSchedule {
            points,
            without_other_threads: match is_disturbed {
                true => self.of_schedule(&change),
                false => Vec::new(),
            },
        })
    }

    fn of_schedule(&self, change: &Change) -> Vec<PredictedPoint> {
        let replayed = replayed(self.observed, change);
        self.points(self.ratios(&replayed), &replayed, f64::INFINITY)
    }
}
