//! The slowest requests in detail.

use std::cmp::Reverse;

use taillab_model::explanation::{Activity, SlowRequest, Stretch, join_shortest};
use taillab_model::{Monotonic, Nanos};

use crate::ledger::{CulpritId, Entry, Labels, Piece};
use crate::timeline::{CpuLine, Segment, Timeline, Top};

/// The largest number of stretches of a request; the shortest are joined to the stretch before.
const MAX_STRETCHES: usize = 200;

/// The largest number of activities of a CPU during a request; the shortest are left out.
const MAX_ACTIVITIES: usize = 60;

/// The largest number of CPUs that are shown; if there are more, those of the worker come first.
const MAX_CPUS: usize = 8;

/// Everything that is known about a slow request.
pub fn slow_request(timeline: &Timeline, entry: &Entry<'_>, labels: &Labels) -> SlowRequest {
    let stamps = entry.stamps;
    let [t2, t3, t4, t5] = stamps.middle();
    let since = |at: Option<Monotonic>| at.and_then(|at| at.checked_since(stamps.t1));
    let stamps_ns = [t2, t3, t4, t5, Some(stamps.t6)].map(since);
    let worker = (entry.worker != 0).then(|| labels.named(CulpritId::Worker(entry.worker)));
    let stretch = |piece: &Piece| Stretch {
        from_ns: Nanos::new(piece.from_ns),
        lasted_ns: Nanos::new(piece.lasted_ns),
        cause: labels.cause(piece.label),
        culprit: labels.culprit(piece.label),
        inherited: piece.inherited,
    };
    // names are strings, so they are made only for what is shown
    let (pieces, joined_stretches) = joined(entry.pieces);
    let (mut activities, mut omitted_activities) = (Vec::new(), 0);
    for line in shown(timeline, entry) {
        let inside = line
            .segments_from(stamps.t1)
            .take_while(|segment| segment.from < stamps.t6);
        let (of_cpu, omitted) = longest(stays(inside, stamps.t1, stamps.t6));
        omitted_activities += omitted;
        activities.extend(of_cpu.into_iter().map(|stay| Activity {
            cpu: line.cpu(),
            from_ns: stay.from_ns,
            lasted_ns: stay.lasted_ns,
            who: stay.who.and_then(|who| labels.named(who)),
        }));
    }
    SlowRequest {
        t1: stamps.t1,
        port: entry.port,
        sojourn_ns: Nanos::new(entry.sojourn_ns),
        ideal_ns: Some(Nanos::new(entry.ideal_ns)),
        stamps_ns,
        worker: worker.flatten(),
        stretches: pieces.iter().map(stretch).collect(),
        joined_stretches,
        activities,
        omitted_activities,
    }
}

/// The CPUs whose activities are shown, in order of their numbers.
fn shown<'t>(timeline: &'t Timeline, entry: &Entry<'_>) -> Vec<&'t CpuLine> {
    let mut lines: Vec<&CpuLine> = timeline.cpus().iter().collect();
    if lines.len() <= MAX_CPUS {
        return lines;
    }
    let mut of_worker: Vec<u16> = Vec::new();
    if let Some(worker) = timeline.worker(entry.worker) {
        let spans = worker.spans_from(entry.stamps.t1);
        for span in spans.take_while(|span| span.from < entry.stamps.t6) {
            // it may come back to a CPU thousands of times
            let cpu = span.state.cpu().filter(|cpu| !of_worker.contains(cpu));
            of_worker.extend(cpu);
        }
    }
    // the sort is stable
    lines.sort_by_key(|line| !of_worker.contains(&line.cpu()));
    lines.truncate(MAX_CPUS);
    lines.sort_by_key(|line| line.cpu());
    lines
}

/// The pieces as a report shows them, and how many were joined to the piece before.
fn joined(pieces: &[Piece]) -> (Vec<Piece>, u64) {
    let mut pieces = pieces.to_vec();
    let joined = join_shortest(&mut pieces, MAX_STRETCHES, |next, last, shortest| {
        let same = next.label == last.label && next.inherited == last.inherited;
        let joined = same || next.lasted_ns < shortest.get();
        if joined {
            last.lasted_ns += next.lasted_ns;
        }
        joined
    });
    (pieces, joined)
}

/// What a CPU was busy with for a while; `None`: it was idle.
struct Stay {
    who: Option<CulpritId>,
    /// The beginning, since T1.
    from_ns: Nanos,
    lasted_ns: Nanos,
}

fn who(segment: &Segment) -> Option<CulpritId> {
    match segment.top {
        Top::Softirq { vector } => Some(CulpritId::Softirq(vector)),
        Top::Interrupt(interrupt) => Some(CulpritId::Interrupt(interrupt)),
        Top::Idle { state } => Some(CulpritId::Idle(state)),
        _ => (segment.thread != 0).then_some(CulpritId::Thread(segment.thread)),
    }
}

fn stays(segments: impl Iterator<Item = Segment>, from: Monotonic, to: Monotonic) -> Vec<Stay> {
    let mut list: Vec<Stay> = Vec::new();
    for segment in segments {
        let begin = segment.from.max(from);
        let lasted_ns = segment.to.min(to).saturating_since(begin);
        let who = who(&segment);
        match list.last_mut() {
            Some(last) if last.who == who => last.lasted_ns += lasted_ns,
            _ => list.push(Stay {
                who,
                from_ns: begin.saturating_since(from),
                lasted_ns,
            }),
        }
    }
    list
}

/// The longest stays, in order of time, and how many were left out.
fn longest(mut stays: Vec<Stay>) -> (Vec<Stay>, u64) {
    let omitted = stays.len().saturating_sub(MAX_ACTIVITIES);
    if omitted > 0 {
        let first = |stay: &Stay| (Reverse(stay.lasted_ns), stay.from_ns);
        stays.select_nth_unstable_by_key(MAX_ACTIVITIES, first);
        stays.truncate(MAX_ACTIVITIES);
        stays.sort_unstable_by_key(|stay| (stay.from_ns, stay.lasted_ns));
    }
    (stays, omitted as u64)
}
