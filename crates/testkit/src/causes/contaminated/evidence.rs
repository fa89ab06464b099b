//! What the machine did to a server, and how that is known.
//!
//! The timeline proves stalls. Because the load on this server is known, three more signs count: idle
//! CPUs that did not wake ([`idle`]), silences in which no work can have been done ([`silence`]), and
//! pauses of the [`generator`].

use crate::ground_truth::GroundTruth;
use taillab_analysis::Matched;
use taillab_analysis::timeline::Timeline;
use taillab_model::{Event, Monotonic, Nanos, RecordingContext};

use super::hold_up::{HoldUp, Proof, Stretch};
use super::silence::Known;
use super::{generator, idle, silence};

/// All that the machine did.
#[derive(Clone, Debug, Default)]
pub(crate) struct MachineEvidence {
    /// To the server.
    pub(crate) hold_ups: Vec<HoldUp>,
    /// Pauses of the generator.
    pub(crate) silent: Vec<Stretch>,
}

impl MachineEvidence {
    /// From a measurement whose requests take `usual` each.
    pub(crate) fn of(
        events: impl IntoIterator<Item = Event>,
        timeline: &Timeline,
        matched: &Matched,
        context: &RecordingContext,
        truth: &GroundTruth,
        usual: Nanos,
    ) -> Self {
        let stalls = timeline.cpus().iter().flat_map(|line| line.stalls());
        let stalls: Vec<Stretch> = stalls.map(|stall| (stall.from, stall.to)).collect();
        let injected = truth.intervals.iter().map(|it| (it.from_ns, it.to_ns));
        let known = Known::of(injected.clone().chain(stalls.iter().copied()));
        let requests = &matched.requests;
        let mut came: Vec<Monotonic> = (0..requests.len())
            .map(|place| requests.t1(place))
            .collect();
        came.sort_unstable();
        let silent = generator::silences(&came, &Known::of(injected));
        let stalls = stalls
            .into_iter()
            .map(|at| HoldUp::of_cpu(at, Proof::Stall));
        let asleep = (idle::slept_on(timeline, &came).into_iter())
            .chain(idle::late_timers(timeline))
            .map(|at| HoldUp::of_cpu(at, Proof::Asleep));
        let silences = (silence::silences(events, context, truth, usual).into_iter())
            .filter_map(|(at, least)| known.longest_outside(at, least))
            .map(|at| HoldUp::of_cpu(at, Proof::Silence));
        let blocked = generator::blocked(timeline, &silent);
        Self {
            hold_ups: stalls
                .chain(asleep)
                .chain(silences)
                .chain(blocked)
                .collect(),
            silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ground_truth::{InjectedInterval, InjectedSource};
    use taillab_analysis::{MatchOptions, match_events};
    use taillab_model::explanation::Cause;

    use super::super::samples::{WORKER, at, context, switched, woken};
    use super::*;

    /// A worker that is woken at 5 ms, runs at 6 ms and is then silent for 2 ms. The injection held
    /// it for `injected_us` of that, from 6 ms on.
    fn hold_ups(injected_us: u64) -> Vec<(Stretch, Proof)> {
        let events = [
            switched(100, 0, WORKER, None),
            switched(150, WORKER, 0, None),
            woken(5_000),
            switched(6_000, 0, WORKER, None),
            switched(8_000, WORKER, 0, None),
        ];
        let context = context(&[]);
        let truth = GroundTruth {
            sources: vec![InjectedSource {
                injected: "slow".to_owned(),
                cause: Cause::SlowService,
                culprit: None,
            }],
            intervals: vec![InjectedInterval {
                source: 0,
                cpu: None,
                held: Some(WORKER),
                from_ns: at(6_000),
                to_ns: at(6_000 + injected_us),
            }],
            unrecorded: 0,
        };
        let timeline = Timeline::build(events, &context);
        let matched = match_events(events, &MatchOptions::default());
        let usual = Nanos::from_micros(20);
        let found = MachineEvidence::of(events, &timeline, &matched, &context, &truth, usual);
        assert_eq!(found.silent, []);
        (found.hold_ups.into_iter())
            .map(|hold_up| (hold_up.at, hold_up.proof))
            .collect()
    }

    #[test]
    fn what_was_injected_is_no_hold_up_and_the_rest_is() {
        let woken_late = ((at(5_000), at(6_000)), Proof::Asleep);
        let rest = ((at(6_500), at(8_000)), Proof::Silence);
        assert_eq!(hold_ups(500), [woken_late, rest]);
        assert_eq!(hold_ups(2_000), [woken_late]);
    }
}
