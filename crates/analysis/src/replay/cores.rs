//! A [`Timeline`] in the form that the replay reads.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use taillab_model::explanation::{Cause, Culprit};
use taillab_model::{Monotonic, RecordingContext, Tid};

use super::track::{CoreTimeline, CpuStretch, Occupant, SourceId, StretchEnd};
use crate::chain::{ChainEnd, Chains};
use crate::ledger::{CulpritId, GroupKey, Label, Labels, of_storage, of_top};
use crate::timeline::{
    self, FAR, Policies, Segments, Sleep, SpanCursor, Timeline, Top, WorkerLine, WorkerSpan,
    WorkerState, on_its_way_until, throttled_ns,
};

/// The maximum number of sources; further ones count as an earlier one with the same cause.
const MAX_SOURCES: usize = 30_000;

/// A thread was held back, and not just slow to wake, if it was woken longer ago than this, its CPU is
/// idle, and its group was throttled.
const HELD_BACK_NS: u64 = 100_000;

/// With more threads than this, short idle times are not searched for a thread that is held back.
const MANY_THREADS: usize = 64;

/// A CPU with less than this fraction (1 ÷ n) of the threads' time is not one of the server's.
const NOTABLE_CPU: u64 = 1_000;

/// A timeline, with the names of what makes CPUs unavailable.
pub struct Cores<'a> {
    timeline: &'a Timeline,
    policies: Policies,
    /// The server had connections of its own to others.
    asks_others: bool,
    /// Filled while the segments are read.
    sources: RefCell<Sources>,
}

struct Sources {
    labels: Labels,
    /// By id. A program's threads of one name are one source, with the label of the first of them.
    named: Vec<Label>,
    of: HashMap<Label, SourceId>,
    of_group: HashMap<(Cause, GroupKey), SourceId>,
}

impl Sources {
    fn id(&mut self, cause: Cause, who: CulpritId) -> SourceId {
        let label = self.labels.label(cause, who);
        if let Some(id) = self.of.get(&label) {
            return *id;
        }
        let group = self.labels.group(label);
        let id = self.of_group.get(&group).copied().unwrap_or_else(|| {
            let full = self.named.len() >= MAX_SOURCES;
            let mut known = self.named.iter().filter(|_| full);
            let same = known.position(|known| self.labels.cause(*known) == cause);
            let place = same.unwrap_or_else(|| {
                self.named.push(label);
                self.named.len() - 1
            });
            SourceId(place as u16)
        });
        self.of_group.insert(group, id);
        self.of.insert(label, id);
        id
    }
}

impl<'a> Cores<'a> {
    /// The CPUs of `timeline`, with the names in `context`.
    pub fn new(timeline: &'a Timeline, context: &RecordingContext) -> Self {
        Self {
            timeline,
            policies: Policies::of(context),
            asks_others: !context.upstreams.is_empty(),
            sources: RefCell::new(Sources {
                labels: Labels::new(context),
                named: Vec::new(),
                of: HashMap::new(),
                of_group: HashMap::new(),
            }),
        }
    }

    fn id(&self, cause: Cause, who: CulpritId) -> Occupant {
        Occupant::Other(self.sources.borrow_mut().id(cause, who))
    }

    /// When a thread that sleeps until `span` begins can run. Until then its wake-up is in progress, and
    /// the thread that runs on the CPU does not delay it.
    fn wakes_ns(&self, span: &WorkerSpan) -> u64 {
        let wait = since_boot_ns(span);
        match span.state {
            WorkerState::Woken { cpu, .. } => match self.timeline.cpu(cpu) {
                Some(line) => on_its_way_until(line.segments_from(span.from), wait),
                None => wait.start,
            },
            _ => wait.start,
        }
    }

    /// The cause to which the longest part of a sleep is charged, of those that the replay can take away; `next` is the
    /// state that follows.
    fn slept_for(&self, sleep: Sleep, span: &WorkerSpan, next: Option<&WorkerSpan>) -> Cause {
        let own = blocked(sleep);
        let by = match (sleep, next.map(|next| next.state)) {
            (Sleep::Lock { .. } | Sleep::Work, Some(WorkerState::Woken { by, .. })) => by,
            _ => return own,
        };
        let sleep = since_boot_ns(span);
        let mut from_ns = sleep.start;
        let chains = Chains::new(self.timeline, self.asks_others);
        if by == 0 || !chains.runs_at(by, sleep.end) {
            return own;
        }
        let mut lengths = [
            (own, 0),
            (Cause::BlockedIo, 0),
            (Cause::BlockedFault, 0),
            (Cause::BlockedOther, 0),
        ];
        for part in chains.parts(sleep, by) {
            let place = match part.end {
                ChainEnd::Storage(_) => 1,
                ChainEnd::Fault => 2,
                // as where a worker asks another server itself
                ChainEnd::Upstream(_) => 3,
                _ => 0,
            };
            lengths[place].1 += part.to_ns - from_ns;
            from_ns = part.to_ns;
        }
        let longest = lengths.into_iter().max_by_key(|(_, length)| *length);
        longest.map_or(own, |(cause, _)| cause)
    }

    /// Whether thread `tid`, which waits for its CPU in this span, is held back.
    fn is_held_back(&self, tid: Tid, span: &WorkerSpan) -> bool {
        let Some(line) = span.state.cpu().and_then(|cpu| self.timeline.cpu(cpu)) else {
            return false;
        };
        let segments = line.segments_from(span.from);
        let (policies, timeline) = (&self.policies, self.timeline);
        policies.hold_back(timeline, tid, since_boot_ns(span), segments)
    }
}

impl CoreTimeline for Cores<'_> {
    fn cpus(&self, threads: &[Tid]) -> Vec<u16> {
        let mut on_core: BTreeMap<u16, u64> = BTreeMap::new();
        for line in threads.iter().filter_map(|tid| self.timeline.worker(*tid)) {
            for span in line.spans() {
                if let WorkerState::OnCore { cpu } = span.state {
                    *on_core.entry(cpu).or_default() += span.to.saturating_since(span.from).get();
                }
            }
        }
        let least = on_core.values().sum::<u64>() / NOTABLE_CPU;
        let notable = on_core.into_iter().filter(|(_, time)| *time > least);
        notable.map(|(cpu, _)| cpu).collect()
    }

    fn segments(&self, cpu: u16) -> impl Iterator<Item = CpuStretch> + '_ {
        let line = self.timeline.cpu(cpu);
        let segments = line.map(timeline::CpuLine::segments);
        CoreSegments {
            cores: self,
            cpu,
            segments,
            states: HashMap::new(),
            current: None,
            pending: None,
        }
    }

    fn sources(&self) -> usize {
        self.sources.borrow().named.len()
    }

    fn source(&self, id: SourceId) -> (Cause, Option<Culprit>) {
        let sources = self.sources.borrow();
        let Some(&label) = sources.named.get(usize::from(id.0)) else {
            return (Cause::Unexplained, None);
        };
        let culprit = sources.labels.culprit_of_group(label);
        (sources.labels.cause(label), culprit)
    }

    fn retransmissions(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let all = self.timeline.retransmissions().iter();
        all.map(|(at, client)| (at.nanos_since_boot(), *client))
    }
}

/// A span in nanoseconds since boot.
fn since_boot_ns(span: &WorkerSpan) -> Range<u64> {
    span.from.nanos_since_boot()..span.to.nanos_since_boot()
}

/// The spans of one thread, read forwards.
struct States<'a> {
    line: &'a WorkerLine,
    cursor: SpanCursor,
    current: Option<WorkerSpan>,
    next: Option<WorkerSpan>,
    /// Whether the thread is held back in the current span, if that has been determined.
    held_back: Option<bool>,
}

impl<'a> States<'a> {
    fn of(line: &'a WorkerLine) -> Self {
        let mut cursor = line.cursor_from(Monotonic::from_nanos_since_boot(0));
        Self {
            line,
            next: cursor.next(line),
            cursor,
            current: None,
            held_back: None,
        }
    }

    /// The span in which `at_ns` lies, which never decreases from call to call.
    fn at(&mut self, at_ns: u64) -> Option<WorkerSpan> {
        let begun = |span: &WorkerSpan| span.from.nanos_since_boot() <= at_ns;
        let mut passed = 0;
        while let Some(span) = self.next.filter(begun) {
            self.current = Some(span);
            self.held_back = None;
            passed += 1;
            if passed == FAR {
                let at = Monotonic::from_nanos_since_boot(at_ns);
                self.cursor = self.line.cursor_from(at);
            }
            self.next = self.cursor.next(self.line);
        }
        self.current
    }
}

struct CoreSegments<'a> {
    cores: &'a Cores<'a>,
    cpu: u16,
    segments: Option<Segments<'a>>,
    /// The threads that were on this CPU; `None` for those that are not the server's.
    states: HashMap<Tid, Option<States<'a>>>,
    /// The server's thread whose last stretch ended with [`StretchEnd::Interrupted`].
    current: Option<Tid>,
    /// The stretch that follows the one returned last.
    pending: Option<CpuStretch>,
}

impl CoreSegments<'_> {
    fn is_server(&mut self, tid: Tid) -> bool {
        let timeline = self.cores.timeline;
        let states = self.states.entry(tid);
        let states = states.or_insert_with(|| timeline.worker(tid).map(States::of));
        states.is_some()
    }

    /// How one of the server's threads that is no longer current at `at_ns` left its CPU.
    fn end_of(&mut self, tid: Tid, at_ns: u64) -> StretchEnd {
        let states = self.states.get_mut(&tid).and_then(Option::as_mut);
        let Some((states, span)) = states.and_then(|states| {
            let span = states.at(at_ns)?;
            Some((states, span))
        }) else {
            return StretchEnd::Preempted;
        };
        match span.state {
            WorkerState::Asleep(sleep) => StretchEnd::Sleeps {
                cause: self.cores.slept_for(sleep, &span, states.next.as_ref()),
                until_ns: match &states.next {
                    Some(next) => self.cores.wakes_ns(next),
                    None => span.to.nanos_since_boot(),
                },
            },
            // woken in the same nanosecond
            WorkerState::Woken { .. } => StretchEnd::Sleeps {
                cause: Cause::BlockedOther,
                until_ns: at_ns,
            },
            _ => StretchEnd::Preempted,
        }
    }

    /// Whether one of the server's threads that was on this CPU is held back: the CPU is idle, or the
    /// thread's policy or quota does not let it run.
    fn holds_back(&mut self, span: Range<u64>, is_idle: bool) -> bool {
        let (at_ns, to_ns) = (span.start, span.end);
        let (cpu, cores) = (self.cpu, self.cores);
        let may = cores.policies.may_hold_back(cores.timeline);
        if !is_idle && !may || self.states.len() > MANY_THREADS && to_ns - at_ns < HELD_BACK_NS {
            return false;
        }
        let threads = self.states.iter_mut();
        let mut threads = threads.filter_map(|(tid, states)| Some((*tid, states.as_mut()?)));
        threads.any(|(tid, states)| {
            let Some(span) = states.at(at_ns) else {
                return false;
            };
            let is_idle = is_idle
                && match span.state {
                    WorkerState::Preempted { .. } => true,
                    // otherwise, its wake-up is slow
                    WorkerState::Woken { .. } => {
                        at_ns.saturating_sub(span.from.nanos_since_boot()) >= HELD_BACK_NS
                            && throttled_ns(cores.timeline, at_ns, to_ns) > 0
                    }
                    _ => false,
                };
            let waits = matches!(span.state,
                WorkerState::Preempted { cpu: of } | WorkerState::Woken { cpu: of, .. } if of == cpu);
            let held_back = &mut states.held_back;
            waits && (is_idle || *held_back.get_or_insert_with(|| cores.is_held_back(tid, &span)))
        })
    }
}

/// The cause to which a sleep in the middle of a request is charged.
fn blocked(sleep: Sleep) -> Cause {
    match sleep {
        Sleep::Lock { .. } => Cause::BlockedLock,
        Sleep::Fault => Cause::BlockedFault,
        Sleep::Io { .. } => Cause::BlockedIo,
        Sleep::Stopped => Cause::Pause,
        Sleep::Work | Sleep::Other { .. } | Sleep::Unknown => Cause::BlockedOther,
    }
}

impl Iterator for CoreSegments<'_> {
    type Item = CpuStretch;

    fn next(&mut self) -> Option<CpuStretch> {
        if let Some(pending) = self.pending.take() {
            return Some(pending);
        }
        let segments = self.segments.as_mut()?;
        let segment = segments.next()?;
        let next_thread = segments.peek().map(|next| next.thread);
        let from_ns = segment.from.nanos_since_boot();
        let to_ns = segment.to.nanos_since_boot();
        let thread = segment.thread;
        let is_server = thread != 0 && self.is_server(thread);
        let left = self.current.take_if(|tid| *tid != thread);
        let who = match segment.top {
            Top::Nothing | Top::KernelLock | Top::Storage { .. } if is_server => {
                let end = if next_thread == Some(thread) {
                    StretchEnd::Interrupted
                } else {
                    self.end_of(thread, to_ns)
                };
                let stays = end == StretchEnd::Interrupted;
                self.current = stays.then_some(thread);
                if segment.top == Top::Nothing || !stays {
                    Occupant::Server { tid: thread, end }
                } else {
                    let cause = match segment.top {
                        Top::Storage { call } => of_storage(call).0,
                        _ => Cause::BlockedLock,
                    };
                    self.cores.id(cause, CulpritId::Nobody)
                }
            }
            Top::Nothing | Top::Idle { .. } if thread == 0 => {
                if self.holds_back(from_ns..to_ns, true) {
                    self.cores.id(Cause::Throttled, CulpritId::Nobody)
                } else {
                    let deep = matches!(segment.top, Top::Idle { state } if state > 0);
                    Occupant::Idle { deep }
                }
            }
            Top::Nothing | Top::KernelLock | Top::Storage { .. } => {
                match self.holds_back(from_ns..to_ns, false) {
                    true => self.cores.id(Cause::Throttled, CulpritId::Nobody),
                    false => self.cores.id(Cause::Background, CulpritId::Thread(thread)),
                }
            }
            Top::Idle { state } => Occupant::Idle { deep: state > 0 },
            top => match of_top(top) {
                Some((cause, who)) => self.cores.id(cause, who),
                None => Occupant::Idle { deep: false },
            },
        };
        let found = CpuStretch {
            from_ns,
            to_ns,
            who,
        };
        // a thread that left while a handler ran on top of it gets a last stretch, without length
        if let Some(tid) = left {
            let end = self.end_of(tid, from_ns);
            self.pending = Some(found);
            return Some(CpuStretch {
                from_ns,
                to_ns: from_ns,
                who: Occupant::Server { tid, end },
            });
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::{SERVER, of_server, switch};

    /// A thread that comes onto its CPU every 200 ns, 2,000 times, and sleeps again.
    fn timeline() -> Timeline {
        let switched = |number: u64| {
            let (prev, next) = match number % 2 {
                0 => (0, SERVER),
                _ => (SERVER, 0),
            };
            switch(1_000 + 100 * number, prev, next, None)
        };
        Timeline::build((0..4_000).map(switched), &of_server())
    }

    #[test]
    fn a_state_is_the_same_however_many_are_passed() {
        let timeline = timeline();
        let line = timeline.worker(SERVER).unwrap();
        let spans: Vec<WorkerSpan> = line.spans().collect();
        assert_eq!(spans.len(), 4_000);
        let begun = |span: &WorkerSpan, at_ns: u64| span.from.nanos_since_boot() <= at_ns;
        for step in [70, 1_000, 7_000, 50_000] {
            let mut states = States::of(line);
            for at_ns in (0..420_000).step_by(step) {
                let passed = spans.partition_point(|span| begun(span, at_ns));
                let expected = passed.checked_sub(1).map(|last| spans[last]);
                assert_eq!(states.at(at_ns), expected, "{at_ns}");
                assert_eq!(states.next.as_ref(), spans.get(passed), "{at_ns}");
            }
        }
    }
}
