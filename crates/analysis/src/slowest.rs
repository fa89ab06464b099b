//! The slowest requests, taken apart.

use taillab_model::explanation::{Activity, Culprit, SlowRequest, Stretch};
use taillab_model::{Monotonic, Nanos};

use crate::ledger::{Entry, Labels, Piece, Who};
use crate::timeline::{Segment, Timeline, Top};

/// Stretches of one request at most; shorter ones are joined to the one before.
const MAX_STRETCHES: usize = 200;

/// Activities of one CPU during one request at most; the shortest are left out.
const MAX_ACTIVITIES: usize = 60;

/// CPUs that are shown.
const MAX_CPUS: usize = 8;

/// All that is known of one slow request.
pub fn slow_request(timeline: &Timeline, entry: &Entry<'_>, labels: &Labels) -> SlowRequest {
    let stamps = entry.stamps;
    let [t2, t3, t4, t5] = stamps.middle();
    let since = |at: Option<Monotonic>| at.and_then(|at| at.checked_since(stamps.t1));
    let stamps_ns = [t2, t3, t4, t5, Some(stamps.t6)].map(since);
    let worker = (entry.worker != 0).then(|| labels.named(Who::Worker(entry.worker)));
    let stretch = |piece: &Piece| Stretch {
        from_ns: Nanos::new(piece.from_ns),
        lasted_ns: Nanos::new(piece.lasted_ns),
        cause: labels.cause(piece.label),
        culprit: labels.culprit(piece.label),
        inherited: piece.inherited,
    };
    let cpus = timeline.cpus().iter().take(MAX_CPUS);
    let activities = cpus.flat_map(|line| {
        let inside = line
            .segments_from(stamps.t1)
            .take_while(|segment| segment.from < stamps.t6);
        activities(line.cpu(), inside, stamps.t1, stamps.t6, labels)
    });
    let mut request = SlowRequest {
        t1: stamps.t1,
        port: entry.key.port,
        sojourn_ns: Nanos::new(entry.sojourn_ns),
        ideal_ns: Nanos::new(entry.ideal_ns),
        stamps_ns,
        worker: worker.flatten(),
        stretches: entry.pieces.iter().map(stretch).collect(),
        joined_stretches: 0,
        activities: activities.collect(),
        omitted_activities: 0,
    };
    request.shorten(MAX_STRETCHES, MAX_ACTIVITIES);
    request
}

fn who(segment: &Segment, labels: &Labels) -> Option<Culprit> {
    let who = match segment.top {
        Top::Softirq { vector } => Who::Softirq(vector),
        Top::Interrupt(interrupt) => Who::Interrupt(interrupt),
        Top::Idle { state } => Who::Idle(state),
        _ if segment.thread == 0 => return None,
        _ => Who::Thread(segment.thread),
    };
    labels.named(who)
}

fn activities(
    cpu: u16,
    segments: impl Iterator<Item = Segment>,
    from: Monotonic,
    to: Monotonic,
    labels: &Labels,
) -> Vec<Activity> {
    let mut list: Vec<Activity> = Vec::new();
    for segment in segments {
        let begin = segment.from.max(from);
        let lasted_ns = segment.to.min(to).saturating_since(begin);
        let who = who(&segment, labels);
        match list.last_mut() {
            Some(last) if last.who == who => last.lasted_ns += lasted_ns,
            _ => list.push(Activity {
                cpu,
                from_ns: begin.saturating_since(from),
                lasted_ns,
                who,
            }),
        }
    }
    list
}
