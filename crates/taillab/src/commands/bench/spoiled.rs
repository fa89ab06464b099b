//! Whether the machine spoilt a measurement: decided by what it did, not by the result.

use taillab_analysis::Matched;
use taillab_analysis::timeline::{CpuLine, Timeline, Top, WorkerState};
use taillab_model::truth::Truth;
use taillab_model::{Monotonic, Nanos};

/// A measurement is repeated at most so often.
pub const ATTEMPTS: u32 = 3;

/// Stalls may cost so much of what the injection costs.
const MOST: f64 = 0.1;

/// Injected intervals that are nearer to each other are one disturbance (the handlers of a
/// storm, a burst that an interrupt cut).
const TOGETHER: Nanos = Nanos::from_micros(100);

/// An idle CPU that somebody wants to wake takes so long at most: coming out of the deepest
/// power state, or back onto a CPU of the host, is a matter of some 10 µs.
const AWAKE: Nanos = Nanos::from_micros(200);

/// Proven stalls of the server's CPUs, and wake-ups of them that took far too long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    count: usize,
    all: Nanos,
    cost: f64,
}

impl Stalls {
    /// Those of a measurement.
    pub fn of(timeline: &Timeline, matched: &Matched, measure_from: Monotonic) -> Self {
        let lengths: Vec<Nanos> = (timeline.cpus().iter())
            .flat_map(|line| line.stalls())
            .filter(|stall| stall.from >= measure_from)
            .map(|stall| stall.to.saturating_since(stall.from))
            .chain(slept_on(timeline, matched, measure_from))
            .collect();
        Self {
            count: lengths.len(),
            all: lengths.iter().copied().sum(),
            cost: cost(lengths.into_iter()),
        }
    }

    /// Why a measurement says little about what was injected at a cost of `injected`: the
    /// stalls cost more than a tenth of that.
    pub fn spoil(&self, injected: f64) -> Option<String> {
        let Self { count, all, cost } = self;
        (injected > 0.0 && *cost > MOST * injected).then(|| {
            format!(
                "the hypervisor held the server's CPU up, or did not wake it, {count} times, for \
                 {all} in all, which cost more than a tenth of what was injected"
            )
        })
    }
}

/// What was injected costs, in the unit of [`cost`].
pub fn injected_cost(truth: &Truth, measure_from: Monotonic) -> f64 {
    let mut injected: Vec<(Monotonic, Monotonic)> = (truth.intervals.iter())
        .filter(|interval| interval.from_ns >= measure_from)
        .map(|interval| (interval.from_ns, interval.to_ns))
        .collect();
    injected.sort_unstable();
    let bursts = injected.chunk_by(|before, after| after.0.saturating_since(before.1) < TOGETHER);
    cost(bursts.map(|burst| {
        let parts = burst.iter().map(|(from, to)| to.saturating_since(*from));
        parts.sum::<Nanos>()
    }))
}

/// Requests come all the time and each waits for the end of a disturbance, so one costs as the
/// square of its length.
fn cost(lengths: impl Iterator<Item = Nanos>) -> f64 {
    lengths.map(|length| length.as_secs_f64().powi(2)).sum()
}

/// For how long a CPU idled on though a packet had come for the server, or a thread of it had
/// been woken there.
fn slept_on(timeline: &Timeline, matched: &Matched, measure_from: Monotonic) -> Vec<Nanos> {
    let requests = &matched.requests;
    let packets = (0..requests.len()).map(|place| requests.t1(place));
    let mut calls: Vec<Vec<Monotonic>> = vec![packets.collect(); timeline.cpus().len()];
    for span in timeline.workers().iter().flat_map(|line| line.spans()) {
        if let WorkerState::Woken { cpu, .. } = span.state
            && let Some(place) = (timeline.cpus().iter()).position(|line| line.cpu() == cpu)
        {
            calls[place].push(span.from);
        }
    }
    let of_cpu = |(line, calls): (&CpuLine, &mut Vec<Monotonic>)| {
        calls.sort_unstable();
        let idle = line.segments().filter(|segment| {
            segment.thread == 0
                && matches!(segment.top, Top::Idle { .. } | Top::Nothing)
                && segment.from >= measure_from
                && segment.length() > AWAKE
        });
        idle.filter_map(|segment| {
            let first = calls.partition_point(|at| *at < segment.from);
            let called = calls.get(first).filter(|at| **at < segment.to)?;
            Some(segment.to.saturating_since(*called)).filter(|late| *late > AWAKE)
        })
        .collect::<Vec<_>>()
    };
    (timeline.cpus().iter().zip(&mut calls))
        .flat_map(of_cpu)
        .collect()
}

#[cfg(test)]
mod tests {
    use taillab_analysis::{MatchOptions, match_events};
    use taillab_model::explanation::Cause;
    use taillab_model::truth::{TruthInterval, TruthSource};
    use taillab_model::{Asleep, Event, EventKind, RecordingContext, Tid};

    use super::*;

    const WORKER: Tid = 7;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(1_000 * us)
    }

    fn switched(at_us: u64, prev: Tid, next: Tid) -> Event {
        let kind = EventKind::Switched {
            prev,
            next,
            preempted: false,
            asleep: (prev == WORKER).then_some(Asleep {
                call: None,
                uninterruptible: false,
            }),
        };
        Event {
            at: at(at_us),
            cpu: 0,
            kind,
        }
    }

    /// A disturbance of 1 ms, and a worker that is woken at 5 ms and runs some time later.
    fn judged(later_us: u64) -> Option<String> {
        let woken = Event {
            at: at(5_000),
            cpu: 1,
            kind: EventKind::Woken { tid: WORKER, by: 0 },
        };
        let events = [
            switched(100, 0, WORKER),
            switched(200, WORKER, 0),
            woken,
            switched(5_000 + later_us, 0, WORKER),
            switched(9_000, WORKER, 0),
        ];
        let timeline = Timeline::build(events, &RecordingContext::default());
        let matched = match_events(events, &MatchOptions::default());
        let truth = Truth {
            sources: vec![TruthSource {
                injected: "io".to_owned(),
                cause: Cause::BlockedIo,
                culprit: None,
            }],
            intervals: vec![TruthInterval {
                source: 0,
                cpu: None,
                held: Some(WORKER),
                from_ns: at(1_000),
                to_ns: at(2_000),
            }],
            unrecorded: 0,
        };
        Stalls::of(&timeline, &matched, at(0)).spoil(injected_cost(&truth, at(0)))
    }

    #[test]
    fn an_idle_cpu_that_wakes_late_spoils_what_is_not_much_longer() {
        assert_eq!(judged(50), None);
        // 0.3² is less than a tenth of 1²
        assert_eq!(judged(300), None);
        let why = judged(500).unwrap_or_default();
        assert!(why.contains("did not wake it, 1 times, for 500"), "{why}");
    }
}
