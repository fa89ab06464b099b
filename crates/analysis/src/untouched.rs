//! Recorded blocks of load, and the same blocks without the causes that a change of a setting does not
//! touch.
//!
//! On a shared machine, a stall of the hypervisor or a burst of another program decides the p99.9 of a
//! block. If a change does not treat such causes, they are noise. The replay removes them from the blocks
//! without and with the change alike, as a control variate does (Lavenberg and Welch 1981), so that the
//! ratio of the rest has a narrower interval.

use std::num::NonZeroU32;

use taillab_model::explanation::{Cause, Origin};
use taillab_model::summary::BusyPeriods;
use taillab_model::{Monotonic, Nanos, Recording, RecordingContext};

use crate::ideal::IdealArrivals;
use crate::matched::Matched;
use crate::matcher::{ParseFramingError, match_recording};
use crate::predict::mitigation::MITIGATIONS;
use crate::predict::{scenario, sojourns};
use crate::replay::{Change, Cores, Fitted, Observed, fit};
use crate::service_time::busy_periods;
use crate::timeline::Timeline;

/// Causes outside of the server, and what the probe missed. If a change of a setting does not treat one of
/// these, it does not influence it either. Softirqs, wake-ups, the order and what the server itself
/// does may change as a side effect, so they stay.
fn is_of_others(cause: Cause) -> bool {
    cause.info().origin == Origin::Outside || matches!(cause, Cause::Irq | Cause::Unobserved)
}

/// The quantiles at which the replay of a block must agree with the measurement.
const AGREES_AT: [f64; 2] = [0.5, 0.99];

/// The causes outside of the server that a change does not treat.
pub fn untouched(treats: &[Cause]) -> Vec<Cause> {
    let others = Cause::ALL.into_iter().filter(|cause| is_of_others(*cause));
    others.filter(|cause| !treats.contains(cause)).collect()
}

/// A block of load.
pub struct RecordedBlock {
    context: RecordingContext,
    matched: Matched,
    timeline: Timeline,
    from: Monotonic,
}

impl RecordedBlock {
    /// The block of a recording. Its measurement begins where the recording says, or with its first event.
    ///
    /// # Errors
    /// The recording names an unknown framing.
    pub fn of(recording: Recording) -> Result<Self, ParseFramingError> {
        let from = recording.context.measure_from_ns;
        Ok(Self {
            matched: match_recording(&recording)?,
            timeline: Timeline::build(recording.events(), &recording.context),
            from: from.map_or(recording.base, Monotonic::from_nanos_since_boot),
            context: recording.context,
        })
    }

    /// The sojourns of its requests, T6 − T1. A request without an answer counts with `timeout`, unless
    /// the end of the block may have cut the answer off: if it has not waited longer than the slowest
    /// answer took.
    pub fn sojourns(&self, timeout: Nanos) -> Vec<Nanos> {
        let places = self.matched.measured_places(self.from);
        let mut sojourns: Vec<Nanos> = places
            .map(|place| self.matched.requests.sojourn(place))
            .collect();
        let slowest = sojourns.iter().max().copied().unwrap_or_default();
        let end = self.matched.last.unwrap_or(self.from);
        let lost = self.matched.unmatched.iter().filter(|request| {
            let waited = end.saturating_since(request.t1);
            !request.ambiguous && request.t1 >= self.from && waited > slowest
        });
        let lost = lost.count();
        sojourns.resize(sojourns.len() + lost, timeout);
        sojourns
    }

    /// t as its busy periods show it; `None` where too few requests had to wait.
    pub fn service_time(&self) -> Option<BusyPeriods> {
        busy_periods::measure(&self.matched, &self.timeline, self.from).pooled
    }

    /// The sojourns that its requests would have in the ideal server: the same arrivals, first in, first out, on so many
    /// workers that take `service_time` for each, of which the part `after_response` comes after the response.
    pub fn ideal(
        &self,
        service_time: Nanos,
        after_response: Nanos,
        workers: NonZeroU32,
    ) -> Vec<Nanos> {
        let ideal = IdealArrivals::new(service_time, workers, self.from);
        let mut ideal = ideal.with_work_after_response(after_response);
        ideal.take(&self.matched, Monotonic::MAX).ideal
    }

    /// Its queue for the replay, on a server whose ideal service time is `service_time`. `None` if the
    /// replay of the unchanged block does not agree with the measurement.
    pub fn replayed(&self, service_time: Nanos) -> Option<ReplayedBlock> {
        let cores = Cores::new(&self.timeline, &self.context);
        let observed = Observed::build(&self.matched, &cores, &self.context, self.from);
        ReplayedBlock::of(observed, service_time)
    }
}

/// A block of load whose queue the replay reproduces, so that it can be replayed without some causes.
#[derive(Clone, Debug)]
pub struct ReplayedBlock {
    observed: Observed,
    fitted: Fitted,
    service_time: Nanos,
}

impl ReplayedBlock {
    /// From a queue. `None` if its replay does not agree with the measurement.
    pub fn of(observed: Observed, service_time: Nanos) -> Option<Self> {
        let fitted = fit(&observed, &AGREES_AT).filter(|fitted| fitted.fit.good)?;
        Some(Self {
            observed,
            fitted,
            service_time,
        })
    }

    /// The sojourns of the replay with nothing removed, in no particular order.
    pub fn sojourns(&self) -> &[Nanos] {
        &self.fitted.replayed
    }

    /// The same without these causes, as far as the replay models them.
    pub fn sojourns_without(&self, causes: &[Cause]) -> Vec<Nanos> {
        let mut change = self.unchanged();
        for cause in causes {
            scenario::without(&mut change, &self.observed, *cause, self.service_time);
        }
        sojourns(&self.observed, &change)
    }

    /// The same with the mitigation of this name. `None` if the replay has no model of it.
    pub fn sojourns_with(&self, mitigation: &str) -> Option<Vec<Nanos>> {
        let mut rows = MITIGATIONS.iter();
        let row = rows.find(|row| row.is.name == mitigation && !row.effects.is_empty())?;
        let (observed, mut change) = (&self.observed, self.unchanged());
        // a mitigation that is not possible here changes nothing
        for effect in row.effects.iter().filter(|_| row.is_possible(observed)) {
            scenario::apply(&mut change, observed, effect, self.service_time);
        }
        Some(sojourns(observed, &change))
    }

    /// Whether the replay can remove each of these causes.
    pub fn has_model_of(&self, causes: &[Cause]) -> bool {
        let (observed, mut change) = (&self.observed, self.unchanged());
        let mut causes = causes.iter();
        causes.all(|cause| scenario::without(&mut change, observed, *cause, self.service_time))
    }

    fn unchanged(&self) -> Change {
        self.observed.unchanged(self.fitted.discipline)
    }
}
