//! What the server did between two instants at which it had work to begin.

use std::ops::Range;

use taillab_model::{Monotonic, Nanos};

use super::departures::Departure;
use crate::matched::Matched;
use crate::timeline::{CpuLine, NET_RX, Segment, Timeline, Top};

const RECEIVE: Top = Top::Softirq { vector: NET_RX };

/// A group ends after this many responses at the latest, even if a request has been begun. A server that
/// waits within its requests always has begun some.
const LARGEST: usize = 64;

/// Time on a CPU in which nothing is recorded for so long may be a stall of the hypervisor.
pub(super) const SILENCE: Nanos = Nanos::from_micros(100);

/// A softirq that begins so soon after an interrupt was raised by it.
const RAISED: Nanos = Nanos::from_micros(1);

/// Consecutive responses of a CPU, before the first of which a request already waited.
///
/// Where a server answers one request after the other, a group is one response. A server that reads several
/// requests and then answers them all has groups of so many: what it did for the last of them, it did
/// before it answered the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group {
    /// T6 of the response before it.
    pub(super) from: Monotonic,
    /// T6 of its last response.
    pub(super) to: Monotonic,
    /// Its responses.
    pub(super) responses: u32,
    /// Time of the server's threads on the CPU, with nothing on top of them, in nanoseconds.
    pub(super) own_ns: u64,
    /// Time of the network's receive softirq on the CPU, and of the interrupts that it followed, in
    /// nanoseconds.
    pub(super) receive_ns: u64,
    /// Requests that the CPU received meanwhile: whose T2 lies in a receive softirq of its own. Those whose
    /// response could not be matched are estimated from the others.
    pub(super) received: f64,
    /// Another CPU may have received some of them, because it was in a receive softirq too.
    pub(super) received_elsewhere: bool,
    /// Another program's thread had the CPU for a while, or all of it stood still. What comes meanwhile is received in a
    /// burst, which takes less for each packet than what comes to a server that works.
    pub(super) disturbed: bool,
    /// A thread of the server was on the CPU for [`SILENCE`] without any event.
    pub(super) silent: bool,
    /// It is not known who was on the CPU, or how many responses it sent.
    blind: bool,
}

/// When requests were at their sockets: T2 in order of time.
pub(super) struct Queued {
    at: Vec<Monotonic>,
    /// How many CPUs were in a receive softirq then.
    receivers: Vec<u8>,
}

impl Queued {
    pub(super) fn of(matched: &Matched, timeline: &Timeline) -> Self {
        let t2 = |place: usize| matched.requests.stamps(place).t2;
        let mut at: Vec<Monotonic> = (0..matched.requests.len()).filter_map(t2).collect();
        at.sort_unstable();
        let receivers = vec![0; at.len()];
        let mut queued = Self { at, receivers };
        for line in timeline.cpus() {
            let segments = line.segments();
            for segment in segments.filter(|segment| segment.top == RECEIVE) {
                for place in queued.within(segment.from, segment.to) {
                    queued.receivers[place] = queued.receivers[place].saturating_add(1);
                }
            }
        }
        queued
    }

    /// The places of those between two instants.
    fn within(&self, from: Monotonic, to: Monotonic) -> Range<usize> {
        let before = |end: Monotonic| self.at.partition_point(|at| *at < end);
        let first = before(from);
        first..before(to).max(first)
    }
}

/// The responses that could not be matched with one request: T6 in order of time.
pub(super) struct Unpaired {
    at: Vec<Monotonic>,
    /// One CPU sent all responses, so these, too.
    one_cpu: bool,
    /// All responses for each that was matched.
    per_matched: f64,
}

impl Unpaired {
    pub(super) fn of(matched: &Matched, departures: &[Vec<Departure>]) -> Self {
        let mut at = [&matched.ambiguous[..], &matched.without_request].concat();
        at.sort_unstable();
        let serve = departures.iter().filter(|of_cpu| !of_cpu.is_empty());
        let one_cpu = serve.count() == 1;
        let found = departures.iter().map(Vec::len).sum::<usize>().max(1);
        let per_matched = (found + at.len()) as f64 / found as f64;
        Self {
            at,
            one_cpu,
            per_matched,
        }
    }

    /// Adds those of a group to its responses. Where several CPUs serve, it is not known whose they are.
    fn count_in(&self, group: &mut Group) {
        let upto = |end: Monotonic| self.at.partition_point(|at| *at <= end);
        let within = upto(group.to) - upto(group.from);
        group.responses += within as u32;
        group.blind |= within > 0 && !self.one_cpu;
    }
}

/// The groups of a CPU, in order of time.
pub(super) fn of_cpu(
    departures: &[Departure],
    (queued, unpaired): (&Queued, &Unpaired),
    timeline: &Timeline,
    line: &CpuLine,
) -> Vec<Group> {
    let mut groups = spans(departures);
    for group in &mut groups {
        unpaired.count_in(group);
    }
    fill_in(&mut groups, queued, timeline, line);
    for group in &mut groups {
        group.received *= unpaired.per_matched;
    }
    groups.retain(|group| !group.blind && group.own_ns > 0);
    groups
}

/// The groups without what the CPU did.
fn spans(departures: &[Departure]) -> Vec<Group> {
    // the earliest begun and the earliest queued of a response and all later ones
    let earliest = |of: fn(&Departure) -> Monotonic| {
        let mut earliest: Vec<Monotonic> = departures.iter().map(of).collect();
        let mut least = Monotonic::MAX;
        for at in earliest.iter_mut().rev() {
            least = least.min(*at);
            *at = least;
        }
        earliest
    };
    let begun = earliest(|departure| departure.begun);
    let queued = earliest(|departure| departure.queued);
    let mut groups = Vec::new();
    // the response before the group, and whether a request waited when it left
    let mut open: Option<(usize, bool)> = None;
    for last in 0..departures.len() {
        let left = departures[last].at;
        let next = last + 1;
        let is_between = begun.get(next).is_none_or(|begun| *begun > left);
        let is_long = open.is_some_and(|(before, _)| last - before >= LARGEST);
        if !is_between && !is_long {
            continue;
        }
        if let Some((before, true)) = open {
            let from = departures[before].at;
            groups.push(Group::new(from..left, (last - before) as u32));
        }
        let waits = queued.get(next).is_some_and(|queued| *queued < left);
        open = Some((last, waits));
    }
    groups
}

impl Group {
    const fn new(span: Range<Monotonic>, responses: u32) -> Self {
        Self {
            from: span.start,
            to: span.end,
            responses,
            own_ns: 0,
            receive_ns: 0,
            received: 0.0,
            received_elsewhere: false,
            disturbed: false,
            silent: false,
            blind: false,
        }
    }

    /// How much of a segment lies within the group.
    fn part_of(&self, segment: &Segment) -> Nanos {
        let to = segment.to.min(self.to);
        to.saturating_since(segment.from.max(self.from))
    }
}

/// Adds what the CPU did in each group; they are in order of time and do not overlap.
fn fill_in(groups: &mut [Group], queued: &Queued, timeline: &Timeline, line: &CpuLine) {
    let Some(first) = groups.first() else {
        return;
    };
    // thread 0 is the idle thread
    let is_servers = |tid| tid != 0 && timeline.worker_place(tid).is_some();
    let mut next = 0;
    let mut interrupt: Option<Segment> = None;
    for segment in line.segments_from(first.from) {
        while groups
            .get(next)
            .is_some_and(|group| group.to <= segment.from)
        {
            next += 1;
        }
        if next == groups.len() {
            return;
        }
        for group in &mut groups[next..] {
            if group.from >= segment.to {
                break;
            }
            let within = group.part_of(&segment);
            let is_others = segment.thread != 0 && !is_servers(segment.thread);
            group.disturbed |= is_others || segment.top == Top::Stall;
            match segment.top {
                Top::Nothing | Top::KernelLock if is_servers(segment.thread) => {
                    group.own_ns += within.get();
                    group.silent |= within >= SILENCE;
                }
                RECEIVE => {
                    let raised = interrupt.filter(|by| segment.from <= by.to + RAISED);
                    let raised = raised.map_or(Nanos::ZERO, |by| group.part_of(&by));
                    group.receive_ns += (within + raised).get();
                    let (from, to) = (segment.from.max(group.from), segment.to.min(group.to));
                    let received = queued.within(from, to);
                    group.received += received.len() as f64;
                    let mut receivers = queued.receivers[received].iter();
                    group.received_elsewhere |= receivers.any(|receivers| *receivers > 1);
                }
                Top::Blind => group.blind = true,
                _ => {}
            }
        }
        match segment.top {
            Top::Interrupt(_) => interrupt = Some(segment),
            Top::Softirq { .. } => interrupt = None,
            _ => {}
        }
    }
}
