//! Idle CPUs that did not wake when they should have.

use taillab_analysis::timeline::{CpuLine, Timeline, Top, WorkerState};
use taillab_model::{Monotonic, Nanos};

use super::hold_up::Stretch;

/// The longest that an idle CPU takes to wake: leaving the deepest power state, or getting a CPU of
/// the host back, takes some tens of microseconds.
const AWAKE: Nanos = Nanos::from_micros(200);

/// The parts of timed waits beyond their usual length; all waits of this server should be equal.
pub(crate) fn late_timers(timeline: &Timeline) -> Vec<Stretch> {
    let waits: Vec<Stretch> = (timeline.workers().iter())
        .flat_map(|line| line.spans())
        .filter(|span| span.state.is_timer())
        .map(|span| (span.from, span.to))
        .collect();
    let mut lengths: Vec<Nanos> = (waits.iter())
        .map(|(from, to)| to.saturating_since(*from))
        .collect();
    lengths.sort_unstable();
    let Some(usual) = lengths.get(lengths.len() / 2) else {
        return Vec::new();
    };
    (waits.into_iter())
        .map(|(from, to)| (from + *usual, to))
        .filter(|(due, to)| to.saturating_since(*due) > AWAKE)
        .collect()
}

/// When a CPU stayed idle although a packet had come for the server (T1) or one of its threads had
/// been woken there.
pub(crate) fn slept_on(timeline: &Timeline, came: &[Monotonic]) -> Vec<Stretch> {
    let mut calls: Vec<Vec<Monotonic>> = vec![came.to_vec(); timeline.cpus().len()];
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
                && segment.length() > AWAKE
        });
        idle.filter_map(|segment| {
            let first = calls.partition_point(|at| *at < segment.from);
            let called = calls.get(first).filter(|at| **at < segment.to)?;
            let late = segment.to.saturating_since(*called) > AWAKE;
            late.then_some((*called, segment.to))
        })
        .collect::<Vec<_>>()
    };
    (timeline.cpus().iter().zip(&mut calls))
        .flat_map(of_cpu)
        .collect()
}

#[cfg(test)]
mod tests {
    use taillab_model::{Event, RecordingContext};

    use super::super::samples::{self, WORKER, at, woken};
    use super::*;

    const CLOCK_NANOSLEEP: u16 = 230;

    fn switched(at_us: u64, prev: u32, next: u32) -> Event {
        samples::switched(at_us, prev, next, Some(CLOCK_NANOSLEEP))
    }

    /// A worker is woken at 5 ms and runs some time later, or a packet comes then.
    fn slept(later_us: u64, is_packet: bool) -> Vec<Stretch> {
        let mut events = vec![
            switched(100, 0, WORKER),
            switched(200, WORKER, 0),
            woken(5_000),
            switched(5_000 + later_us, 0, WORKER),
            switched(9_000, WORKER, 0),
        ];
        let came = if is_packet {
            events.remove(2);
            vec![at(5_000)]
        } else {
            Vec::new()
        };
        let timeline = Timeline::build(events, &RecordingContext::default());
        slept_on(&timeline, &came)
    }

    #[test]
    fn an_idle_cpu_that_is_called_wakes_at_once() {
        for is_packet in [false, true] {
            assert!(slept(150, is_packet).is_empty());
            assert_eq!(slept(500, is_packet), [(at(5_000), at(5_500))]);
        }
    }

    #[test]
    fn a_wait_that_is_longer_than_the_others_was_not_ended_in_time() {
        let waits = |lengths_us: &[u64]| {
            let mut events = Vec::new();
            let mut now = 100;
            for us in lengths_us {
                events.extend([switched(now, 0, WORKER), switched(now + 10, WORKER, 0)]);
                now += 10 + us;
            }
            events.push(switched(now, 0, WORKER));
            late_timers(&Timeline::build(events, &RecordingContext::default()))
        };
        assert!(waits(&[1_000, 1_010, 1_150, 990, 1_005]).is_empty());
        let late = waits(&[1_000, 1_000, 3_000, 1_000]);
        assert_eq!(late, [(at(3_130), at(5_130))]);
        assert!(waits(&[]).is_empty());
    }
}
