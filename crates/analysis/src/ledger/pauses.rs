//! Pauses: times in which the runtime of the server's language runs and has stopped everything else of the
//! server, to collect garbage.
//!
//! At such a moment a thread that is known by name to stop the others is on a CPU, and no other thread of the
//! server's processes is on any, except for those of the runtime that go on meanwhile. The moments of a pause
//! are joined over the gaps in which one thread of the runtime wakes another.

use taillab_model::Tid;

use super::label::Labels;
use crate::id_map::IdMap;
use crate::timeline::Timeline;

/// In a longer gap between two of the runtime's threads, the others could have gone on.
const LONGEST_GAP_NS: u64 = 200_000;

/// Threads that stop all others: how their names begin (the kernel keeps 15 characters), and what they are
/// called. Of HotSpot, OpenJ9, .NET and V8.
const STOPPING: [(&str, &str); 7] = [
    ("VM Thread", "VM Thread"),
    ("GC Thread", "GC Thread"),
    ("GC task thread", "GC task thread"),
    ("ParGC Thread", "ParGC Thread"),
    ("GC Slave", "GC Slave"),
    (".NET Server GC", ".NET Server GC"),
    ("V8Worker", "V8Worker"),
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

/// The pauses in a window, in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    spans: Vec<(u64, u64)>,
}

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
        .filter_map(|(tid, name)| Some((tid, part(name)?)));
    let parts: IdMap<InPause> = parts.collect();
    let any = parts.values().any(|part| *part != InPause::IsStopped);
    any.then_some(parts)
}

impl Pauses {
    /// The pauses in the timeline of a window.
    pub(super) fn of(timeline: &Timeline, labels: &mut Labels) -> Self {
        let Some(parts) = parts(labels) else {
            return Self::default();
        };
        // when how many threads come (or leave, below 0): those that stop others, and the others
        let mut changes: Vec<(u64, [i32; 2])> = Vec::new();
        let mut seen = Vec::new();
        for line in timeline.cpus() {
            let mut before: Tid = 0;
            for segment in line.segments() {
                let change = |thread: Tid, by: i32| match parts.get(&thread) {
                    Some(InPause::Stops(_)) => [by, 0],
                    Some(InPause::IsStopped) => [0, by],
                    None => [0, 0],
                };
                if segment.thread == before {
                    continue;
                }
                let at_ns = segment.from.nanos_since_boot();
                let all = [change(before, -1), change(segment.thread, 1)];
                changes.extend(all.into_iter().filter(|c| *c != [0, 0]).map(|c| (at_ns, c)));
                if let Some(InPause::Stops(name)) = parts.get(&segment.thread) {
                    seen.push(*name);
                }
                before = segment.thread;
            }
        }
        changes.sort_unstable();
        let pauses = Self::between(&changes);
        if !pauses.spans.is_empty() {
            seen.into_iter().for_each(|name| labels.stopped_by(name));
        }
        pauses
    }

    /// The pauses, from the changes of the numbers of threads on CPUs, in order of time.
    fn between(changes: &[(u64, [i32; 2])]) -> Self {
        let mut spans: Vec<(u64, u64)> = Vec::new();
        let (mut stopping, mut others) = (0, 0);
        // since when nothing but the runtime's threads was on a CPU
        let mut alone = false;
        for (place, &(at_ns, [stop, other])) in changes.iter().enumerate() {
            stopping += stop;
            others += other;
            alone &= others == 0;
            let Some(&(next_ns, _)) = changes.get(place + 1) else {
                break;
            };
            if others > 0 || stopping == 0 || next_ns == at_ns {
                continue;
            }
            match spans.last_mut() {
                Some(last) if alone && at_ns - last.1 <= LONGEST_GAP_NS => last.1 = next_ns,
                _ => spans.push((at_ns, next_ns)),
            }
            alone = true;
        }
        Self { spans }
    }

    /// Calls `each` with the parts of a stretch of time, in order; with the beginning of the pause if there
    /// is one.
    pub(super) fn split(
        &self,
        (from_ns, to_ns): (u64, u64),
        mut each: impl FnMut((u64, u64), Option<u64>),
    ) {
        let first = self.spans.partition_point(|span| span.1 <= from_ns);
        let mut at_ns = from_ns;
        for &(begin_ns, end_ns) in &self.spans[first..] {
            if begin_ns >= to_ns {
                break;
            }
            if begin_ns > at_ns {
                each((at_ns, begin_ns), None);
                at_ns = begin_ns;
            }
            let end_ns = end_ns.min(to_ns);
            each((at_ns, end_ns), Some(begin_ns));
            at_ns = end_ns;
        }
        if at_ns < to_ns {
            each((at_ns, to_ns), None);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_runs_in_a_pause() {
        let changes = [
            (0, [0, 1]),
            // a worker leaves; 30 µs later the VM thread comes, and wakes a collector
            (100_000, [0, -1]),
            (130_000, [1, 0]),
            (150_000, [1, 0]),
            (200_000, [-1, 0]),
            (400_000, [-1, 0]),
            (440_000, [1, 0]),
            (900_000, [-1, 0]),
            (910_000, [0, 1]),
            // concurrent
            (950_000, [1, 0]),
            (990_000, [-1, 0]),
            (2_000_000, [0, -1]),
        ];
        assert_eq!(Pauses::between(&changes).spans, [(130_000, 900_000)]);
    }

    #[test]
    fn a_worker_between_two_collections_ends_a_pause() {
        let changes = [
            (0, [1, 0]),
            (500_000, [-1, 0]),
            (510_000, [0, 1]),
            (520_000, [0, -1]),
            (530_000, [1, 0]),
            (900_000, [-1, 0]),
            (950_000, [0, 1]),
        ];
        let pauses = Pauses::between(&changes);
        assert_eq!(pauses.spans, [(0, 500_000), (530_000, 900_000)]);
        let mut found = Vec::new();
        pauses.split((400_000, 600_000), |span, pause| found.push((span, pause)));
        let wanted = [
            ((400_000, 500_000), Some(0)),
            ((500_000, 530_000), None),
            ((530_000, 600_000), Some(530_000)),
        ];
        assert_eq!(found, wanted);
    }
}
