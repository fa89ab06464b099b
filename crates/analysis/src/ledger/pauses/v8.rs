//! Collections of V8. Its threads are called like the program (`node`), as those of libuv's pool are.
//!
//! The main thread hands parts of a collection to the others, collects as well, and then sleeps in `futex` until
//! the last of them has finished and wakes it. For work in libuv's pool it does not: it goes on serving, and is
//! told in `epoll_wait`. (It may sleep in `futex` for a moment, if a thread of the pool has a lock that it wants.)
//! So a thread that wakes the main thread mostly out of `futex` is one of V8's. A collection reaches from when
//! these threads came onto CPUs, or from when the main thread last read or wrote, until it is on a CPU again.
//! Where such a thread has the CPU that the main thread waits for, that is the collection's doing as well.

use taillab_model::explanation::ServerStop;
use taillab_model::{Nanos, Tid};

use super::{LONGEST_GAP_NS, Pause, last_until, served_at};
use crate::id_map::IdMap;
use crate::ledger::label::Labels;
use crate::matched::Matched;
use crate::timeline::{Sleep, Timeline, WorkerSpan, WorkerState};

/// What the main thread of Node.js is called.
const MAIN: [&str; 3] = ["node", "nodejs", "node-MainThread"];

/// What V8's threads are called in later versions; in others, like the main thread.
const HELPER: &str = "V8Worker";

/// A stay of one of the helpers on a CPU.
#[derive(Clone, Copy, Debug)]
struct Stay {
    from_ns: u64,
    to_ns: u64,
    cpu: u16,
    thread: Tid,
}

/// The collections of all processes of Node.js among the server's.
pub(super) fn collections(matched: &Matched, timeline: &Timeline, labels: &Labels) -> Vec<Pause> {
    let is_main = |(tid, name, pid): &(Tid, &str, Tid)| tid == pid && MAIN.contains(name);
    let mut found = Vec::new();
    for (main, name, _) in labels.own().filter(is_main) {
        let helpers = labels.own().filter(|&(tid, called, pid)| {
            pid == main && tid != main && (called == name || called == HELPER)
        });
        let helpers: IdMap<()> = helpers.map(|(tid, ..)| (tid, ())).collect();
        let stays = stays(timeline, &helpers);
        if let Some(line) = timeline.worker(main).filter(|_| !stays.is_empty()) {
            let spans: Vec<WorkerSpan> = line.spans().collect();
            let served = served_at(matched, main);
            let pauses = pauses(&spans, &stays, &helpers, &served);
            found.extend(pauses.into_iter().map(|(from_ns, to_ns)| Pause {
                from_ns,
                to_ns,
                why: ServerStop::CollectionOfV8,
                of: Some(main),
            }));
        }
    }
    found
}

/// When the helpers were on CPUs, in order of their beginnings.
fn stays(timeline: &Timeline, helpers: &IdMap<()>) -> Vec<Stay> {
    let mut stays: Vec<Stay> = Vec::new();
    if helpers.is_empty() {
        return stays;
    }
    for line in timeline.cpus() {
        let before = stays.len();
        for segment in line.segments() {
            if !helpers.contains_key(&segment.thread) {
                continue;
            }
            let from_ns = segment.from.nanos_since_boot();
            let to_ns = segment.to.nanos_since_boot();
            match stays[before..].last_mut() {
                Some(last) if last.thread == segment.thread && last.to_ns == from_ns => {
                    last.to_ns = to_ns;
                }
                _ => stays.push(Stay {
                    from_ns,
                    to_ns,
                    cpu: line.cpu(),
                    thread: segment.thread,
                }),
            }
        }
    }
    stays.sort_unstable_by_key(|stay| stay.from_ns);
    stays
}

/// The collections, from the `spans` of the main thread and the `stays` of the helpers; the main thread `served`
/// at these times.
fn pauses(
    spans: &[WorkerSpan],
    stays: &[Stay],
    helpers: &IdMap<()>,
    served: &[u64],
) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let collectors = collectors(spans, helpers);
    for (place, pair) in spans.windows(2).enumerate() {
        let by = joined_by(pair, helpers);
        if by.is_some_and(|by| collectors.contains_key(&by)) {
            let from_ns = begin(&spans[..=place], stays, served);
            let on_core = |span: &&WorkerSpan| matches!(span.state, WorkerState::OnCore { .. });
            let goes_on = spans[place..].iter().find(on_core);
            let to = goes_on.map_or(pair[1].to, |span| span.from);
            found.push((from_ns, to.nanos_since_boot()));
        }
    }
    let waits = spans.iter().filter(|span| {
        matches!(
            span.state,
            WorkerState::Preempted { .. } | WorkerState::Woken { .. }
        )
    });
    for wait in waits {
        let (from_ns, to_ns) = (wait.from.nanos_since_boot(), wait.to.nanos_since_boot());
        let upto = stays.partition_point(|stay| stay.from_ns < to_ns);
        let meanwhile = stays[..upto].iter().rev();
        // a helper keeps a CPU for a slice of the scheduler at a time
        let meanwhile = meanwhile.take_while(|stay| stay.from_ns + LONGEST_STAY_NS > from_ns);
        let here = meanwhile.filter(|stay| {
            stay.to_ns > from_ns
                && wait.state.cpu() == Some(stay.cpu)
                && collectors.contains_key(&stay.thread)
        });
        found.extend(here.map(|stay| (stay.from_ns.max(from_ns), stay.to_ns.min(to_ns))));
    }
    joined(found, served)
}

/// The helper that wakes the main thread out of a wait for it, at the end of the first of these spans.
fn joined_by(pair: &[WorkerSpan], helpers: &IdMap<()>) -> Option<Tid> {
    match (pair[0].state, pair[1].state) {
        (WorkerState::Asleep(Sleep::Lock { call: Some(_) }), WorkerState::Woken { by, .. }) => {
            let is_long = pair[0].to.saturating_since(pair[0].from) >= LEAST_WAIT;
            (is_long && helpers.contains_key(&by)).then_some(by)
        }
        _ => None,
    }
}

/// The helpers that wake the main thread more often out of a wait for them than out of `epoll_wait`.
fn collectors(spans: &[WorkerSpan], helpers: &IdMap<()>) -> IdMap<()> {
    let mut told: IdMap<i64> = IdMap::default();
    for pair in spans.windows(2) {
        if let Some(by) = joined_by(pair, helpers) {
            *told.entry(by).or_default() += 1;
        } else if let WorkerState::Asleep(Sleep::Work) = pair[0].state
            && let WorkerState::Woken { by, .. } = pair[1].state
        {
            *told.entry(by).or_default() -= 1;
        }
    }
    told.retain(|_, more| *more > 0);
    told.into_keys().map(|helper| (helper, ())).collect()
}

/// A shorter wait may be for a lock.
const LEAST_WAIT: Nanos = Nanos::from_micros(100);

/// No thread that is not alone keeps a CPU for longer.
const LONGEST_STAY_NS: u64 = 1_000_000_000;

/// When the collection began in which the main thread, whose last span this is, waits for the helpers.
fn begin(until: &[WorkerSpan], stays: &[Stay], served: &[u64]) -> u64 {
    let waits_ns = until.last().map_or(0, |span| span.from.nanos_since_boot());
    let mut burst_ns = waits_ns;
    let upto = stays.partition_point(|stay| stay.from_ns < waits_ns);
    for stay in stays[..upto].iter().rev() {
        if stay.to_ns + LONGEST_GAP_NS < burst_ns {
            break;
        }
        burst_ns = stay.from_ns;
    }
    // it was about nothing else since
    let awake = until.iter().rev().take_while(|span| {
        matches!(
            span.state,
            WorkerState::OnCore { .. }
                | WorkerState::Preempted { .. }
                | WorkerState::Woken { .. }
                | WorkerState::Asleep(Sleep::Lock { .. })
        )
    });
    let awake_ns = (awake.last()).map_or(waits_ns, |span| span.from.nanos_since_boot());
    burst_ns
        .max(awake_ns)
        .max(last_until(served, waits_ns))
        .min(waits_ns)
}

/// Joins what overlaps, or nearly does if nothing was served in between.
fn joined(mut found: Vec<(u64, u64)>, served: &[u64]) -> Vec<(u64, u64)> {
    found.sort_unstable();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (from_ns, to_ns) in found {
        match spans.last_mut() {
            Some(last)
                if from_ns <= last.1
                    || from_ns - last.1 <= LONGEST_GAP_NS
                        && last_until(served, from_ns) <= last.1 =>
            {
                last.1 = last.1.max(to_ns);
            }
            _ => spans.push((from_ns, to_ns)),
        }
    }
    spans
}
