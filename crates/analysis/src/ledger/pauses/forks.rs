//! Forks of large processes: the kernel copies the page tables in the thread that called `fork`, which serves
//! nothing meanwhile. The first time that the child is on a CPU marks the end.

use std::collections::BTreeMap;

use taillab_model::explanation::ServerStop;
use taillab_model::{Monotonic, Tid};

use super::{Pause, last_until, served_at};
use crate::id_map::IdMap;
use crate::ledger::label::Labels;
use crate::matched::Matched;
use crate::timeline::{CpuLine, Timeline, WorkerLine, WorkerState};

/// A shorter fork is not told apart from other work.
const LEAST_NS: u64 = 1_000_000;

/// A process that is first seen so early in a recording may be an old one.
const MAYBE_OLD_NS: u64 = 100_000_000;

/// No fork takes longer.
const LONGEST_NS: u64 = 10_000_000_000;

/// The child may wait for a CPU for so long after its parent has gone on.
const LONGEST_WAIT_NS: u64 = 30_000_000;

/// It may come onto an idle one so long after its parent sleeps.
const LONGEST_WAY_NS: u64 = 200_000;

/// When the processes that are called like one of the server's were first seen on a CPU.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Forks {
    began_ns: Option<u64>,
    /// In nanoseconds since boot; 0 where that may have been long after their beginning.
    first_ns: IdMap<u64>,
}

impl Forks {
    /// The forks in a window.
    pub(super) fn find(
        &mut self,
        matched: &Matched,
        timeline: &Timeline,
        labels: &mut Labels,
    ) -> Vec<Pause> {
        let mut found = Vec::new();
        for (name, processes) in alike(labels) {
            self.note_first(timeline, &processes);
            let Some(parent) = self.only_old(labels, &processes) else {
                continue;
            };
            let began_ns = timeline.from().nanos_since_boot();
            let first_ns = processes.iter().filter(|child| **child > parent);
            let first_ns = first_ns.filter_map(|child| self.first_ns.get(child).copied());
            let ends: Vec<u64> = first_ns.filter(|at_ns| *at_ns > began_ns).collect();
            let before = found.len();
            if !ends.is_empty() && matched.workers.contains(&parent) {
                found.extend(forks_of(parent, ends, matched, timeline));
            }
            if found.len() > before {
                labels.stopped_by(ServerStop::Fork, &name);
            }
        }
        found
    }

    /// The only one of these processes that is the server's and is not new: that of a server which forks to copy
    /// itself. Where there are several, it is not known which of them forked. One that was not on a CPU yet did not.
    fn only_old(&self, labels: &Labels, processes: &[Tid]) -> Option<Tid> {
        let is_old = |process: &Tid| self.first_ns.get(process) == Some(&0);
        let mut old = (processes.iter().copied())
            .filter(|process| labels.is_own(*process) && is_old(process));
        old.next().filter(|_| old.next().is_none())
    }

    /// Notes when these processes were first on a CPU.
    fn note_first(&mut self, timeline: &Timeline, processes: &[Tid]) {
        let began_ns = *(self.began_ns).get_or_insert(timeline.from().nanos_since_boot());
        let unseen = processes
            .iter()
            .filter(|process| !self.first_ns.contains_key(process));
        let mut unseen: IdMap<u64> = unseen.map(|process| (*process, u64::MAX)).collect();
        if unseen.is_empty() {
            return;
        }
        for segment in timeline.cpus().iter().flat_map(CpuLine::segments) {
            if let Some(first_ns) = unseen.get_mut(&segment.thread) {
                *first_ns = segment.from.nanos_since_boot().min(*first_ns);
            }
        }
        unseen.retain(|_, first_ns| *first_ns < u64::MAX);
        for (process, at_ns) in unseen {
            let is_new = at_ns >= began_ns + MAYBE_OLD_NS && !was_woken(timeline, process, at_ns);
            let at_ns = if is_new { at_ns } else { 0 };
            self.first_ns.insert(process, at_ns);
        }
    }
}

/// Processes that have their name in common with others, one of which is the server's.
fn alike(labels: &Labels) -> BTreeMap<String, Vec<Tid>> {
    let mut alike: BTreeMap<String, Vec<Tid>> = BTreeMap::new();
    for (tid, name, _) in labels.own().filter(|(tid, _, pid)| tid == pid) {
        alike.entry(name.to_owned()).or_default().push(tid);
    }
    let others = labels
        .threads()
        .filter(|(tid, _, pid)| tid == pid && !labels.is_own(*tid));
    for (tid, name, _) in others {
        if let Some(processes) = alike.get_mut(name) {
            processes.push(tid);
        }
    }
    alike.retain(|_, processes| processes.len() > 1);
    alike
}

/// The forks of this process, which ended at these times.
fn forks_of(parent: Tid, ends_ns: Vec<u64>, matched: &Matched, timeline: &Timeline) -> Vec<Pause> {
    let Some(line) = timeline.worker(parent) else {
        return Vec::new();
    };
    let served = served_at(matched, parent);
    let forks = ends_ns.into_iter().filter_map(|child_ns| {
        let (from_ns, to_ns) = last_work(line, &served, child_ns)?;
        (to_ns - from_ns >= LEAST_NS).then_some(Pause {
            from_ns,
            to_ns,
            why: ServerStop::Fork,
            of: Some(parent),
        })
    });
    forks.collect()
}

/// The longest stretch in which a thread worked without reading or writing, shortly before a child of its came
/// onto a CPU then.
fn last_work(line: &WorkerLine, served: &[u64], child_ns: u64) -> Option<(u64, u64)> {
    let upto = served.partition_point(|&at_ns| at_ns < child_ns);
    let lately = served[..upto].iter().rev().copied();
    let lately = lately.take_while(|at_ns| at_ns + LONGEST_WAIT_NS > child_ns);
    let ends_ns = [child_ns].into_iter().chain(lately);
    let stretches = ends_ns.filter_map(|to_ns| {
        let before_ns = last_until(served, to_ns.saturating_sub(1));
        Some((awake_since(line, to_ns)?.max(before_ns), to_ns))
    });
    stretches.max_by_key(|(from_ns, to_ns)| to_ns - from_ns)
}

/// Since when a thread had been on a CPU, or had waited for one, without a sleep; `None` if it slept then.
fn awake_since(line: &WorkerLine, at_ns: u64) -> Option<u64> {
    let from = Monotonic::from_nanos_since_boot(at_ns.saturating_sub(LONGEST_NS));
    let (mut since, mut until_ns) = (None, 0);
    let mut was_asleep = true;
    for span in line.spans_from(from) {
        let from_ns = span.from.nanos_since_boot();
        if from_ns >= at_ns {
            break;
        }
        let is_awake = matches!(
            span.state,
            WorkerState::OnCore { .. } | WorkerState::Preempted { .. }
        );
        if is_awake {
            since = since.filter(|_| !was_asleep).or(Some(from_ns));
            until_ns = span.to.nanos_since_boot();
        }
        was_asleep = !is_awake;
    }
    since.filter(|_| until_ns + LONGEST_WAY_NS >= at_ns)
}

/// Whether a thread was woken before it came onto a CPU then: the first time, a new one is not.
fn was_woken(timeline: &Timeline, thread: Tid, at_ns: u64) -> bool {
    let Some(line) = timeline.worker(thread) else {
        return false;
    };
    let spans = line.spans();
    let mut before = spans.take_while(|span| span.from.nanos_since_boot() < at_ns);
    before.any(|span| !matches!(span.state, WorkerState::Unknown))
}
