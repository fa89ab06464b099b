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

/// Everything known of one slow request.
pub fn slow_request(timeline: &Timeline, entry: &Entry<'_>, labels: &Labels) -> SlowRequest {
    let stamps = entry.stamps;
    let [t2, t3, t4, t5] = stamps.middle;
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
    let pieces = bounded(entry.pieces);
    let cpus = timeline.cpus().iter().take(MAX_CPUS);
    let activities = cpus.flat_map(|line| {
        let inside = line
            .segments_from(stamps.t1)
            .take_while(|segment| segment.from < stamps.t6);
        activities(line.cpu(), inside, stamps.t1, stamps.t6, labels)
    });
    SlowRequest {
        t1: stamps.t1,
        port: entry.key.port,
        sojourn_ns: Nanos::new(entry.sojourn_ns),
        ideal_ns: Nanos::new(entry.ideal_ns),
        stamps_ns,
        worker: worker.flatten(),
        stretches: pieces.iter().map(stretch).collect(),
        activities: activities.collect(),
    }
}

/// At most [`MAX_STRETCHES`], of the same length together.
fn bounded(pieces: &[Piece]) -> Vec<Piece> {
    let mut list = pieces.to_vec();
    let mut shortest_ns = 100;
    while list.len() > MAX_STRETCHES {
        let mut joined: Vec<Piece> = Vec::with_capacity(list.len());
        for piece in list {
            match joined.last_mut() {
                Some(last)
                    if piece.lasted_ns < shortest_ns
                        || last.label == piece.label && last.inherited == piece.inherited =>
                {
                    last.lasted_ns += piece.lasted_ns;
                }
                _ => joined.push(piece),
            }
        }
        list = joined;
        shortest_ns *= 2;
    }
    list
}

fn who(segment: &Segment, labels: &Labels) -> Option<Culprit> {
    let who = match segment.top {
        Top::Softirq { vector } => Who::Softirq(vector),
        Top::Interrupt(interrupt) => Who::Interrupt(interrupt),
        Top::Idle { state } => Who::Idle(state),
        Top::Nothing | Top::KernelLock | Top::Blind | Top::Stall if segment.thread == 0 => {
            return None;
        }
        Top::Nothing | Top::KernelLock | Top::Blind | Top::Stall => Who::Thread(segment.thread),
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
    if list.len() > MAX_ACTIVITIES {
        let mut lengths: Vec<Nanos> = list.iter().map(|activity| activity.lasted_ns).collect();
        let cut = lengths.len() - MAX_ACTIVITIES;
        let shortest = *lengths.select_nth_unstable(cut).1;
        list.retain(|activity| activity.lasted_ns >= shortest);
        list.truncate(MAX_ACTIVITIES);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_keeps_the_length() {
        let piece = |i: u64| Piece {
            from_ns: i * 50,
            lasted_ns: 50,
            label: (i % 3) as u32,
            inherited: false,
        };
        let pieces: Vec<Piece> = (0..1_000).map(piece).collect();
        let joined = bounded(&pieces);
        assert!(joined.len() <= MAX_STRETCHES);
        let total: u64 = joined.iter().map(|piece| piece.lasted_ns).sum();
        assert_eq!(total, 50_000);
        assert_eq!(bounded(&pieces[..9]), &pieces[..9]);
    }
}
