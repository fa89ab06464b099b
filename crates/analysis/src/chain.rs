//! Who was waited for in the end. A thread that sleeps until another one wakes it waits for what that one does; and that
//! one may itself wait meanwhile: for a disk, for another server, for a CPU, or for a third thread.
//!
//! For each moment of the sleep, the chain of wake-ups is followed to the thread that was running, or to what the last
//! one in the chain waited for. A wake-up only counts if the thread that made it was on a CPU, with nothing on top of
//! it: else a timer or a packet made it.
//!
//! The way of a wake-up belongs to the sleep that it ends, as in the ledger.

use std::ops::Range;

use taillab_model::{Monotonic, Tid};

use crate::timeline::{
    CpuLine, Sleep, Timeline, Top, WorkerSpan, WorkerState, on_its_way_until, throttled_ns,
};

/// A longer chain ends at the thread that it has reached.
const MOST_LINKS: u32 = 32;

/// After so many states of threads and segments of CPUs, the rest of a sleep is for its waker: otherwise, many threads
/// that wait for a busy one would take more and more time.
const MOST_STEPS: u32 = 512;

/// Where a chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainEnd {
    /// This thread was running; or it slept by a timer, or it is not known why it did not run.
    Thread(Tid),
    /// A thread of the chain read from a disk, or wrote to it, in this system call.
    Storage(u16),
    /// A page fault of a thread of the chain waited for a disk.
    Fault,
    /// A thread of the chain waited for another server: this one, as events number it, where that is known.
    Upstream(Option<u16>),
    /// A thread of the chain could run, and this one had its CPU.
    OnCpu(Tid),
    /// A quota kept a thread of the chain from running.
    Throttled,
    /// A signal or a debugger had stopped a thread of the chain.
    Stopped,
}

/// A part of a sleep; it begins where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainPart {
    /// In nanoseconds since boot.
    pub(crate) to_ns: u64,
    /// What was waited for.
    pub(crate) end: ChainEnd,
}

/// Follows the chains of a timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chains<'t> {
    timeline: &'t Timeline,
    /// The server had connections of its own to others.
    asks_others: bool,
}

impl<'t> Chains<'t> {
    /// Of this timeline; `asks_others`: the server had connections of its own to others.
    pub(crate) const fn new(timeline: &'t Timeline, asks_others: bool) -> Self {
        Self {
            timeline,
            asks_others,
        }
    }

    /// Whether this thread was on a CPU then, and nothing on top of it, so that it can have woken another.
    pub(crate) fn runs_at(&self, tid: Tid, at_ns: u64) -> bool {
        let at = Monotonic::from_nanos_since_boot(at_ns);
        let line = self.timeline.worker(tid);
        let now = line.and_then(|line| line.spans_from(at).next());
        let Some(WorkerState::OnCore { cpu }) =
            now.filter(|now| now.from <= at).map(|now| now.state)
        else {
            return false;
        };
        let segment = self
            .timeline
            .cpu(cpu)
            .and_then(|cpu| cpu.segments_from(at).next());
        segment.is_some_and(|now| now.from <= at && now.thread == tid && now.top == Top::Nothing)
    }

    /// What a sleep between these times was for, which thread `waker` ended. The parts follow each other without a gap,
    /// from the first of these times to the second.
    pub(crate) fn parts(&self, span: Range<u64>, waker: Tid) -> Vec<ChainPart> {
        let mut walk = Walk {
            at_ns: span.start,
            steps: 0,
            parts: Vec::new(),
        };
        let end_ns = span.end;
        self.follow(waker, span, 1, &mut walk);
        walk.until(end_ns, ChainEnd::Thread(waker));
        walk.parts
    }

    /// What thread `tid` did between these times, or waited for.
    fn follow(&self, tid: Tid, wait: Range<u64>, link: u32, walk: &mut Walk) {
        let (from_ns, to_ns) = (wait.start, wait.end);
        let at = Monotonic::from_nanos_since_boot(from_ns);
        let line = self.timeline.worker(tid);
        let mut spans = line
            .into_iter()
            .flat_map(|line| line.spans_from(at))
            .peekable();
        // what it slept for before it was woken
        let mut slept = ChainEnd::Thread(tid);
        while let Some(span) = spans.next() {
            let begin_ns = span.from.nanos_since_boot();
            let end_ns = span.to.nanos_since_boot();
            if begin_ns >= to_ns || !walk.steps_on() {
                break;
            }
            // it was not seen before
            walk.until(begin_ns.min(to_ns), ChainEnd::Thread(tid));
            let part = begin_ns.max(from_ns)..end_ns.min(to_ns);
            let part_ends_ns = part.end;
            match span.state {
                WorkerState::OnCore { .. } | WorkerState::Unknown => {}
                WorkerState::Preempted { cpu } => self.waits_for(cpu, part, tid, walk),
                WorkerState::Woken { cpu, .. } => {
                    self.is_on_its_way(cpu, (&span, slept), part, tid, walk);
                }
                WorkerState::Asleep(sleep) => {
                    let by = match spans.peek().map(|next| next.state) {
                        Some(WorkerState::Woken { by, .. }) => by,
                        _ => 0,
                    };
                    let by = Some(by).filter(|by| *by != 0 && self.runs_at(*by, end_ns));
                    let link = ChainLink {
                        tid,
                        number: link,
                        since_ns: from_ns,
                    };
                    self.sleeps(sleep, by, part, &link, walk);
                    slept = walk.parts.last().map_or(slept, |last| last.end);
                }
            }
            walk.until(part_ends_ns, ChainEnd::Thread(tid));
        }
        walk.until(to_ns, ChainEnd::Thread(tid));
    }

    /// A thread of the chain slept so, until thread `by` woke it.
    fn sleeps(
        &self,
        sleep: Sleep,
        by: Option<Tid>,
        part: Range<u64>,
        link: &ChainLink,
        walk: &mut Walk,
    ) {
        let tid = link.tid;
        let end = match (sleep, by) {
            (Sleep::Lock { .. } | Sleep::Work, Some(by)) if link.number < MOST_LINKS => {
                return self.follow(by, part, link.number + 1, walk);
            }
            (Sleep::Work, None) if self.asks_others => {
                let line = self.timeline.worker(tid);
                let asked =
                    line.and_then(|line| line.questions().waits_for(part.start, link.since_ns));
                ChainEnd::Upstream(asked.map(|question| question.server))
            }
            (Sleep::Io { call }, _) => ChainEnd::Storage(call),
            (Sleep::Fault, _) => ChainEnd::Fault,
            (Sleep::Stopped, _) => ChainEnd::Stopped,
            // a timer, for instance: nobody else is to blame
            _ => ChainEnd::Thread(tid),
        };
        walk.until(part.end, end);
    }

    /// Thread `tid` was woken, and comes onto this CPU at the end of the span.
    fn is_on_its_way(
        &self,
        cpu: u16,
        (span, slept): (&WorkerSpan, ChainEnd),
        part: Range<u64>,
        tid: Tid,
        walk: &mut Walk,
    ) {
        let way_ns = self.timeline.cpu(cpu).map_or(part.start, |cpu| {
            let segments = cpu.segments_from(span.from);
            on_its_way_until(segments, since_boot_ns(span))
        });
        walk.until(way_ns.min(part.end), slept);
        self.waits_for(cpu, way_ns.max(part.start)..part.end, tid, walk);
    }

    /// Thread `tid` could run between these times, but another one had its CPU.
    fn waits_for(&self, cpu: u16, wait: Range<u64>, tid: Tid, walk: &mut Walk) {
        let (from_ns, to_ns) = (wait.start, wait.end);
        let at = Monotonic::from_nanos_since_boot(from_ns);
        let line = self.timeline.cpu(cpu);
        let segments = line
            .into_iter()
            .flat_map(|line: &CpuLine| line.segments_from(at));
        for segment in segments {
            let begin_ns = segment.from.nanos_since_boot();
            if begin_ns >= to_ns || !walk.steps_on() {
                return;
            }
            walk.until(begin_ns, ChainEnd::Thread(tid));
            let end_ns = segment.to.nanos_since_boot().min(to_ns);
            let end = match segment.thread {
                0 if throttled_ns(self.timeline, begin_ns.max(from_ns), end_ns) > 0 => {
                    ChainEnd::Throttled
                }
                0 => ChainEnd::Thread(tid),
                thread if thread == tid => ChainEnd::Thread(tid),
                thread => ChainEnd::OnCpu(thread),
            };
            walk.until(end_ns, end);
        }
    }
}

/// A thread of a chain.
struct ChainLink {
    tid: Tid,
    /// How far it is from the sleep.
    number: u32,
    /// Since when the one before it waits for it.
    since_ns: u64,
}

/// A span in nanoseconds since boot.
const fn since_boot_ns(span: &WorkerSpan) -> Range<u64> {
    span.from.nanos_since_boot()..span.to.nanos_since_boot()
}

/// The parts found so far.
struct Walk {
    /// Where the next part begins.
    at_ns: u64,
    steps: u32,
    parts: Vec<ChainPart>,
}

impl Walk {
    /// Goes on to the next state or segment; `false` after too many of them.
    const fn steps_on(&mut self) -> bool {
        self.steps += 1;
        self.steps <= MOST_STEPS
    }

    /// Up to this time it was that.
    fn until(&mut self, to_ns: u64, end: ChainEnd) {
        if to_ns <= self.at_ns {
            return;
        }
        self.at_ns = to_ns;
        match self.parts.last_mut() {
            Some(last) if last.end == end => last.to_ns = to_ns,
            _ => self.parts.push(ChainPart { to_ns, end }),
        }
    }
}

#[cfg(test)]
mod tests;
