//! Collections by threads with names of their own.
//!
//! At such a moment a thread that is known by name to stop the others is on a CPU, and no other thread of the
//! server's processes is on any, except for those of the runtime that go on meanwhile. The moments of a pause
//! are joined over the gaps in which one thread of the runtime wakes another, and over those in which one of them
//! waits for a CPU that another program has.

use taillab_model::Tid;
use taillab_model::explanation::ServerStop;

use super::{LONGEST_GAP_NS, Pause};
use crate::id_map::IdMap;
use crate::ledger::label::Labels;
use crate::timeline::{Timeline, WorkerState};

/// Threads that stop all others: how their names begin (the kernel keeps 15 characters), and what they are
/// called. Of HotSpot, OpenJ9 and .NET.
const STOPPING: [(&str, &str); 6] = [
    ("VM Thread", "VM Thread"),
    ("GC Thread", "GC Thread"),
    ("GC task thread", "GC task thread"),
    ("ParGC Thread", "ParGC Thread"),
    ("GC Slave", "GC Slave"),
    (".NET Server GC", ".NET Server GC"),
];

/// Threads of the runtime that go on while the others stand still.
const GOING_ON: [&str; 10] = [
    "C1 Compiler",
    "C2 Compiler",
    "G1 ",
    "VM Periodic",
    "Sweeper thread",
    "Shenandoah",
    "ZWorker",
    "ZDriver",
    ".NET Tiered",
    ".NET BGC",
];

/// What a thread of the server's processes is for a pause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InPause {
    Stops(&'static str),
    IsStopped,
}

/// The parts of the server's threads; `None` if none of them stops the others.
fn parts(labels: &Labels) -> Option<IdMap<InPause>> {
    let stops = |name: &str| {
        let mut known = STOPPING.iter();
        known.find(|(begins, _)| name.starts_with(begins))
    };
    let part = |name: &str| match stops(name) {
        Some(&(_, called)) => Some(InPause::Stops(called)),
        None if GOING_ON.iter().any(|known| name.starts_with(known)) => None,
        None => Some(InPause::IsStopped),
    };
    let parts = labels
        .own()
        .filter_map(|(tid, name, _)| Some((tid, part(name)?)));
    let parts: IdMap<InPause> = parts.collect();
    let any = parts.values().any(|part| *part != InPause::IsStopped);
    any.then_some(parts)
}

/// The collections in the timeline of a window.
pub(super) fn collections(timeline: &Timeline, labels: &mut Labels) -> Vec<Pause> {
    let Some(parts) = parts(labels) else {
        return Vec::new();
    };
    let mut changes = readiness(timeline, &parts);
    let mut seen = Vec::new();
    for line in timeline.cpus() {
        let mut before: Tid = 0;
        for segment in line.segments() {
            let change = |thread: Tid, by: i32| match parts.get(&thread) {
                Some(InPause::Stops(_)) => [by, 0, 0],
                Some(InPause::IsStopped) => [0, by, 0],
                None => [0; 3],
            };
            if segment.thread == before {
                continue;
            }
            let at_ns = segment.from.nanos_since_boot();
            let all = [change(before, -1), change(segment.thread, 1)];
            changes.extend(all.into_iter().filter(|c| *c != [0; 3]).map(|c| (at_ns, c)));
            if let Some(InPause::Stops(name)) = parts.get(&segment.thread) {
                seen.push(*name);
            }
            before = segment.thread;
        }
    }
    changes.sort_unstable();
    let spans = between(&changes);
    if !spans.is_empty() {
        seen.into_iter()
            .for_each(|name| labels.stopped_by(ServerStop::Collection, name));
    }
    let pause = |(from_ns, to_ns)| Pause {
        from_ns,
        to_ns,
        why: ServerStop::Collection,
        of: None,
    };
    spans.into_iter().map(pause).collect()
}

/// How the numbers of threads change then: of those on CPUs that stop others, of the others on CPUs, and of those that
/// stop others and are on a CPU or wait for one.
type CountChange = (u64, [i32; 3]);

/// When the threads that stop the others begin and cease to want a CPU.
fn readiness(timeline: &Timeline, parts: &IdMap<InPause>) -> Vec<CountChange> {
    let stops = |part: &InPause| matches!(part, InPause::Stops(_));
    let stopping = parts.iter().filter(|(_, part)| stops(part));
    let mut changes = Vec::new();
    for line in stopping.filter_map(|(tid, _)| timeline.worker(*tid)) {
        let mut was_ready = false;
        for span in line.spans() {
            let is_ready = matches!(
                span.state,
                WorkerState::OnCore { .. }
                    | WorkerState::Preempted { .. }
                    | WorkerState::Woken { .. }
            );
            if is_ready != was_ready {
                let by = if is_ready { 1 } else { -1 };
                changes.push((span.from.nanos_since_boot(), [0, 0, by]));
            }
            was_ready = is_ready;
        }
    }
    changes
}

/// The pauses, from the changes in order of time.
fn between(changes: &[CountChange]) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    let (mut stopping, mut others, mut ready) = (0, 0, 0);
    // since when nothing but the runtime's threads was on a CPU, and one of them wanted to be
    let (mut alone, mut wanted) = (false, false);
    for (place, &(at_ns, [stop, other, wants])) in changes.iter().enumerate() {
        stopping += stop;
        others += other;
        ready += wants;
        alone &= others == 0;
        let Some(&(next_ns, _)) = changes.get(place + 1) else {
            break;
        };
        if next_ns == at_ns {
            continue;
        }
        wanted &= ready > 0;
        if others > 0 || stopping == 0 {
            continue;
        }
        match spans.last_mut() {
            Some(last) if alone && (wanted || at_ns - last.1 <= LONGEST_GAP_NS) => last.1 = next_ns,
            _ => spans.push((at_ns, next_ns)),
        }
        (alone, wanted) = (true, true);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_runs_in_a_pause() {
        let changes = [
            (0, [0, 1, 0]),
            // a worker leaves; 30 µs later the VM thread comes, and wakes a collector
            (100_000, [0, -1, 0]),
            (130_000, [1, 0, 0]),
            (150_000, [1, 0, 0]),
            (200_000, [-1, 0, 0]),
            (400_000, [-1, 0, 0]),
            (440_000, [1, 0, 0]),
            (900_000, [-1, 0, 0]),
            (910_000, [0, 1, 0]),
            // concurrent
            (950_000, [1, 0, 0]),
            (990_000, [-1, 0, 0]),
            (2_000_000, [0, -1, 0]),
        ];
        assert_eq!(between(&changes), [(130_000, 900_000)]);
    }

    #[test]
    fn a_collector_that_waits_for_a_cpu_is_still_in_its_pause() {
        let changes = [
            (0, [1, 0, 1]),
            // another program takes its CPU
            (300_000, [-1, 0, 0]),
            (900_000, [1, 0, 0]),
            // it sleeps, and comes again
            (1_200_000, [-1, 0, -1]),
            (2_000_000, [1, 0, 1]),
            (2_100_000, [-1, 0, -1]),
            (2_200_000, [0, 1, 0]),
        ];
        assert_eq!(between(&changes), [(0, 1_200_000), (2_000_000, 2_100_000)]);
    }

    #[test]
    fn a_worker_between_two_collections_ends_a_pause() {
        let changes = [
            (0, [1, 0, 0]),
            (500_000, [-1, 0, 0]),
            (510_000, [0, 1, 0]),
            (520_000, [0, -1, 0]),
            (530_000, [1, 0, 0]),
            (900_000, [-1, 0, 0]),
            (950_000, [0, 1, 0]),
        ];
        assert_eq!(between(&changes), [(0, 500_000), (530_000, 900_000)]);
    }
}
