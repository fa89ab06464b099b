//! The ground truth that an explanation is compared with: what was really done to a server.
//!
//! Each injection stamps its own occurrences, by the clock of the kernel's events and independently of the
//! probe.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use taillab_model::explanation::{Cause, Culprit};
use taillab_model::{Monotonic, Nanos, Tid};

/// Everything that was injected into one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroundTruth {
    /// What was injected, each with its own schedule.
    pub sources: Vec<InjectedSource>,
    /// When the sources disturbed the server; in order of time within each source.
    pub intervals: Vec<InjectedInterval>,
    /// Occurrences for which there was no room, so that the truth is not complete.
    pub unrecorded: u64,
}

/// One injected cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InjectedSource {
    /// The injection as it was asked for, e.g. `background:20ms,3ms`.
    pub injected: String,
    /// The cause that a right explanation names.
    pub cause: Cause,
    /// Who did it; `None` if the cause alone identifies it.
    pub culprit: Option<Culprit>,
}

/// One occurrence: a stretch in which the server could not work on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedInterval {
    /// Index into [`GroundTruth::sources`].
    pub source: u16,
    /// The CPU that was taken, if it was a CPU.
    pub cpu: Option<u16>,
    /// The thread that was held back, if it was one thread of the server.
    pub held: Option<Tid>,
    /// When it began.
    pub from_ns: Monotonic,
    /// When it ended.
    pub to_ns: Monotonic,
    /// How often it happened in it: a quota may throttle more than once in one of its windows.
    #[serde(default = "once")]
    pub times: u32,
}

const fn once() -> u32 {
    1
}

impl InjectedInterval {
    /// A stretch of a CPU as the truth of the one source.
    pub fn on_cpu(cpu: u32, stretch: Range<Monotonic>) -> Self {
        Self {
            source: 0,
            cpu: Some(u16::try_from(cpu).unwrap_or(u16::MAX)),
            held: None,
            from_ns: stretch.start,
            to_ns: stretch.end,
            times: 1,
        }
    }

    /// How long it lasted.
    pub fn length(&self) -> Nanos {
        self.to_ns.saturating_since(self.from_ns)
    }
}

impl GroundTruth {
    /// The truth of one source.
    pub fn of_one(
        injected: String,
        cause: Cause,
        culprit: Option<Culprit>,
        intervals: Vec<InjectedInterval>,
    ) -> Self {
        let source = InjectedSource {
            injected,
            cause,
            culprit,
        };
        Self {
            sources: vec![source],
            intervals,
            unrecorded: 0,
        }
    }

    /// Adds what another injection did during the same measurement.
    pub fn extend(&mut self, other: Self) {
        let first = self.sources.len() as u16;
        self.sources.extend(other.sources);
        self.intervals.extend(
            other
                .intervals
                .into_iter()
                .map(|interval| InjectedInterval {
                    source: first + interval.source,
                    ..interval
                }),
        );
        self.unrecorded += other.unrecorded;
    }

    /// The total length of all intervals.
    pub fn total(&self) -> Nanos {
        self.intervals.iter().map(InjectedInterval::length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(cause: Cause, from: u64, to: u64) -> GroundTruth {
        let at = Monotonic::from_nanos_since_boot;
        let interval = InjectedInterval::on_cpu(0, at(from)..at(to));
        GroundTruth {
            unrecorded: 1,
            ..GroundTruth::of_one(cause.key().to_owned(), cause, None, vec![interval])
        }
    }

    #[test]
    fn two_truths_become_one_and_keep_their_sources() {
        let mut both = truth(Cause::Background, 10, 30);
        both.extend(truth(Cause::SlowService, 20, 25));
        let causes: Vec<Cause> = both
            .intervals
            .iter()
            .map(|interval| both.sources[usize::from(interval.source)].cause)
            .collect();
        assert_eq!(causes, [Cause::Background, Cause::SlowService]);
        assert_eq!(both.total(), Nanos::new(25));
        assert_eq!(both.unrecorded, 2);
    }
}
