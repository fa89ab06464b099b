//! What the replay needs to know about the server's CPUs.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};

use taillab_model::Tid;
use taillab_model::explanation::{Cause, Culprit};

/// A source of vacations: an index into a [`CoreTimeline`]'s sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u16);

/// How a stretch of one of the server's threads on a CPU ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StretchEnd {
    /// The thread is interrupted, and still current.
    Interrupted,
    /// The thread is switched out, and still runnable.
    Preempted,
    /// The thread goes to sleep.
    Sleeps {
        /// The cause to which the sleep is charged if it falls into the middle of a request.
        cause: Cause,
        /// When the thread becomes runnable again, as far as that is known.
        until_ns: u64,
    },
}

/// What runs on a CPU. The innermost counts: a handler, and not the thread that it interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// Nobody.
    Idle {
        /// The CPU is in a power state deeper than the shallowest one.
        deep: bool,
    },
    /// One of the server's threads.
    Server {
        /// The thread.
        tid: Tid,
        /// How the stretch ends.
        end: StretchEnd,
    },
    /// Anything else.
    Other(SourceId),
}

/// A stretch of one CPU with one occupant. Times are nanoseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuStretch {
    /// When it begins.
    pub from_ns: u64,
    /// When it ends; not included.
    pub to_ns: u64,
    /// What runs on the CPU.
    pub who: Occupant,
}

/// The server's CPUs over time: stretches that neither overlap nor leave gaps.
pub trait CoreTimeline {
    /// The CPUs on which these threads of the server ran.
    fn cpus(&self, threads: &[Tid]) -> Vec<u16>;

    /// The stretches of a CPU, in order of time.
    fn segments(&self, cpu: u16) -> impl Iterator<Item = CpuStretch> + '_;

    /// The number of sources; their ids count from 0.
    fn sources(&self) -> usize;

    /// The cause and the culprit of a source.
    fn source(&self, id: SourceId) -> (Cause, Option<Culprit>);

    /// The times of retransmissions since boot, each with its client.
    fn retransmissions(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        std::iter::empty()
    }
}

/// The stretches of all CPUs in order of time, each with the place of its CPU.
pub(super) fn by_time<'a, T: CoreTimeline>(
    timeline: &'a T,
    cpus: &[u16],
) -> impl Iterator<Item = (usize, CpuStretch)> + use<'a, T> {
    let mut streams: Vec<_> = cpus
        .iter()
        .map(|&cpu| timeline.segments(cpu).peekable())
        .collect();
    // when the next stretch of each begins: there may be hundreds
    let begins = streams.iter_mut().enumerate();
    let mut begins: BinaryHeap<Reverse<(u64, usize)>> = begins
        .filter_map(|(cpu, stream)| Some(Reverse((stream.peek()?.from_ns, cpu))))
        .collect();
    std::iter::from_fn(move || {
        let mut first = begins.peek_mut()?;
        let Reverse((_, cpu)) = *first;
        let stretch = streams[cpu].next()?;
        match streams[cpu].peek() {
            Some(next) => *first = Reverse((next.from_ns, cpu)),
            None => {
                PeekMut::pop(first);
            }
        }
        Some((cpu, stretch))
    })
}

/// The CPU of each worker over time: the one on which it runs or will run next.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerCpus {
    /// For each worker, in order of time: since when (since boot), and the place of the CPU.
    changes: Vec<Vec<(u64, usize)>>,
    /// The changes of all workers in the order in which they come into force: since when, the worker, and
    /// the place of the CPU.
    in_order: Vec<(u64, usize, usize)>,
    /// How many of them have come into force; then where each worker is, and who is on each CPU.
    passed: usize,
    place: Vec<Option<usize>>,
    there: Vec<Vec<usize>>,
}

impl WorkerCpus {
    pub(super) fn of(
        timeline: &impl CoreTimeline,
        cpus: &[u16],
        of_tid: &HashMap<Tid, u16>,
    ) -> Self {
        let mut changes = vec![Vec::new(); of_tid.len()];
        let mut left = vec![0_u64; of_tid.len()];
        for (cpu, segment) in by_time(timeline, cpus) {
            let Occupant::Server { tid, .. } = segment.who else {
                continue;
            };
            let Some(worker) = of_tid.get(&tid).map(|w| usize::from(*w)) else {
                continue;
            };
            let changes: &mut Vec<(u64, usize)> = &mut changes[worker];
            if changes.last().is_none_or(|(_, last)| *last != cpu) {
                changes.push((left[worker], cpu));
            }
            left[worker] = segment.to_ns;
        }
        Self::new(changes, cpus.len())
    }

    fn new(changes: Vec<Vec<(u64, usize)>>, cpus: usize) -> Self {
        let mut in_order = Vec::new();
        for (worker, changes) in changes.iter().enumerate() {
            let mut since = 0;
            for (place, &(from, cpu)) in changes.iter().enumerate() {
                // it is on its first CPU from the beginning, and none of its changes overtakes another
                if place > 0 {
                    since = from.max(since);
                }
                in_order.push((since, worker, cpu));
            }
        }
        // the sort is stable
        in_order.sort_by_key(|(since, ..)| *since);
        Self {
            place: vec![None; changes.len()],
            there: vec![Vec::new(); cpus],
            passed: 0,
            in_order,
            changes,
        }
    }

    /// Whether a worker may have been on `cpu` between these times (since boot): when they began, or
    /// later. One that was never seen may have been on any.
    pub(super) fn may_be_on(&self, worker: usize, cpu: usize, [from_ns, to_ns]: [u64; 2]) -> bool {
        let changes = &self.changes[worker];
        let begun = changes.partition_point(|(since, _)| *since < from_ns);
        let mut there = changes[begun.saturating_sub(1)..]
            .iter()
            .take_while(|(since, _)| *since < to_ns);
        changes.is_empty() || there.any(|(_, on)| *on == cpu)
    }

    /// The workers on `cpu` at `at_ns` (since boot), which never decreases from call to call.
    pub(super) fn workers_on(&mut self, cpu: usize, at_ns: u64) -> &[usize] {
        while let Some(&(since, worker, to)) = self.in_order.get(self.passed)
            && since <= at_ns
        {
            self.passed += 1;
            if let Some(from) = self.place[worker].replace(to) {
                self.there[from].retain(|other| *other != worker);
            }
            let there = &mut self.there[to];
            let behind = there.partition_point(|other| *other < worker);
            there.insert(behind, worker);
        }
        &self.there[cpu]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_may_be_where_it_was_and_where_it_comes_to() {
        let changes = vec![vec![(0, 0), (100, 1), (200, 2)], Vec::new()];
        let cpus = WorkerCpus::new(changes, 3);
        let on = |worker, from, to| [0, 1, 2].map(|cpu| cpus.may_be_on(worker, cpu, [from, to]));
        // it left the first CPU when this began
        assert_eq!(on(0, 100, 150), [true, true, false]);
        assert_eq!(on(0, 110, 200), [false, true, false]);
        assert_eq!(on(0, 150, 250), [false, true, true]);
        assert_eq!(on(1, 0, 10), [true; 3]);
    }

    #[test]
    fn a_worker_is_where_it_went_last() {
        let changes = vec![
            vec![(0, 0), (100, 1)],
            vec![(30, 2), (50, 1), (40, 0), (200, 2)],
            Vec::new(),
        ];
        let mut cpus = WorkerCpus::new(changes, 4);
        let mut on = |at_ns| [0, 1, 2, 3].map(|cpu| cpus.workers_on(cpu, at_ns).to_vec());
        assert_eq!(on(0), [vec![0], vec![], vec![1], vec![]]);
        assert_eq!(on(49), [vec![0], vec![], vec![1], vec![]]);
        assert_eq!(on(99), [vec![0, 1], vec![], vec![], vec![]]);
        assert_eq!(on(100), [vec![1], vec![0], vec![], vec![]]);
        assert_eq!(on(200), [vec![], vec![0], vec![1], vec![]]);
    }

    /// When the stretches of each CPU begin.
    struct StretchStarts(Vec<Vec<u64>>);

    impl CoreTimeline for StretchStarts {
        fn cpus(&self, _: &[Tid]) -> Vec<u16> {
            (0..self.0.len() as u16).collect()
        }

        fn segments(&self, cpu: u16) -> impl Iterator<Item = CpuStretch> + '_ {
            let begins = self.0[usize::from(cpu)].iter();
            begins.map(|&from_ns| CpuStretch {
                from_ns,
                to_ns: from_ns + 1,
                who: Occupant::Idle { deep: false },
            })
        }

        fn sources(&self) -> usize {
            0
        }

        fn source(&self, _: SourceId) -> (Cause, Option<Culprit>) {
            (Cause::Unexplained, None)
        }
    }

    #[test]
    fn of_stretches_that_begin_together_those_of_the_first_cpu_come_first() {
        let begins = StretchStarts(vec![vec![5, 5, 9], vec![1, 5], vec![], vec![5, 7]]);
        let merged = by_time(&begins, &begins.cpus(&[]));
        let found: Vec<(usize, u64)> = merged.map(|(cpu, it)| (cpu, it.from_ns)).collect();
        let expected = [(1, 1), (0, 5), (0, 5), (1, 5), (3, 5), (3, 7), (0, 9)];
        assert_eq!(found, expected);
    }
}
