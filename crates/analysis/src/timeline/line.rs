//! Lines of time: what happened on each CPU, and what each thread of the server did.

use std::ops::Range;
use std::sync::Arc;

use taillab_model::{Monotonic, Nanos, Tid};

use super::codes;
use super::column::{Column, ColumnChange, Reader};
use super::questions::Questions;
use super::stalls::Stall;
use super::state::{Top, WorkerState};
use crate::id_map::IdMap;

/// A thread that comes back to a CPU may have been on many others. So after this many segments or spans, the
/// rest is not read one by one: the one at the wanted time is looked up.
pub(crate) const FAR: usize = 64;

/// A stretch of a CPU's time in which nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// When it begins.
    pub from: Monotonic,
    /// When it ends: the next segment's `from`.
    pub to: Monotonic,
    /// The current thread; 0: the idle thread, or not known yet.
    pub thread: Tid,
    /// What ran on top of it.
    pub top: Top,
}

impl Segment {
    /// How long it lasted.
    pub fn length(&self) -> Nanos {
        self.to.saturating_since(self.from)
    }
}

/// What a thread of the server did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerSpan {
    /// When it begins.
    pub from: Monotonic,
    /// When it ends: the next span's `from`.
    pub to: Monotonic,
    /// The state of the thread.
    pub state: WorkerState,
}

/// A stretch of time in which the server's cgroup may have been held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleWindow {
    /// Before this, it was not held back: when the cgroup's counter last grew, or a second and the time by
    /// which it grew before `to`, if that is later.
    pub from: Monotonic,
    /// The first reading of the counter after it grew.
    pub to: Monotonic,
    /// By how much it grew, summed over the CPUs.
    pub held_back: Nanos,
}

/// Which kinds of events a recording has; the others cannot be charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedKinds {
    /// Changes of threads.
    pub switches: bool,
    /// Wake-ups of the server's threads.
    pub wakes: bool,
    /// Handlers of interrupts.
    pub interrupts: bool,
    /// Softirqs.
    pub softirqs: bool,
    /// Power states.
    pub idle: bool,
    /// Page faults.
    pub faults: bool,
    /// Reasons why threads slept.
    pub sleeps: bool,
    /// Lost time, as a canary or the hypervisor reports it.
    pub stalls: bool,
    /// Throttling of the cgroup.
    pub throttling: bool,
}

/// The timeline of a recording, or of a window of it. Clones share their data.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub(super) span: Option<(Monotonic, Monotonic)>,
    pub(super) cpus: Arc<[CpuLine]>,
    pub(super) workers: Arc<[WorkerLine]>,
    pub(super) places: Arc<IdMap<usize>>,
    pub(super) throttled: Arc<[ThrottleWindow]>,
    pub(super) retransmissions: Arc<[(Monotonic, u32)]>,
    pub(super) seen: RecordedKinds,
    pub(super) forgotten: u64,
}

impl Timeline {
    /// The time of the first event; boot if there is none.
    pub fn from(&self) -> Monotonic {
        let boot = Monotonic::from_nanos_since_boot(0);
        self.span.map_or(boot, |(from, _)| from)
    }

    /// The time of the last event; boot if there is none.
    pub fn to(&self) -> Monotonic {
        let boot = Monotonic::from_nanos_since_boot(0);
        self.span.map_or(boot, |(_, to)| to)
    }

    /// The CPUs whose switches, interrupts or power states were recorded, in order of their numbers.
    pub fn cpus(&self) -> &[CpuLine] {
        &self.cpus
    }

    /// The CPU with this number.
    pub fn cpu(&self, cpu: u16) -> Option<&CpuLine> {
        let place = self.cpus.binary_search_by_key(&cpu, |line| line.cpu);
        place.ok().map(|place| &self.cpus[place])
    }

    /// The server's threads that did anything, in order of their ids.
    pub fn workers(&self) -> &[WorkerLine] {
        &self.workers
    }

    /// The thread with this id.
    pub fn worker(&self, tid: Tid) -> Option<&WorkerLine> {
        Some(&self.workers[self.worker_place(tid)?])
    }

    /// How many threads were forgotten while they were in use, since there were too many.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The place of this thread in [`Self::workers`].
    pub(crate) fn worker_place(&self, tid: Tid) -> Option<usize> {
        self.places.get(&tid).copied()
    }

    /// When the cgroup was held back, in order of time.
    pub fn throttled(&self) -> &[ThrottleWindow] {
        &self.throttled
    }

    /// Retransmissions by clients or the server, in order of time, each with the client of its connection
    /// ([`taillab_model::RequestKey::client`]).
    pub fn retransmissions(&self) -> &[(Monotonic, u32)] {
        &self.retransmissions
    }

    /// The kinds of events that were recorded.
    pub const fn seen(&self) -> RecordedKinds {
        self.seen
    }

    /// Whether softirqs, interrupts or wake-ups were recorded, so that causes can be found.
    pub const fn has_disturbances(&self) -> bool {
        self.seen.softirqs || self.seen.interrupts || self.seen.wakes
    }
}

/// What happened on one CPU.
#[derive(Clone, Debug)]
pub struct CpuLine {
    pub(super) cpu: u16,
    pub(super) changes: Column,
    /// Meaning of the codes in `changes`. All stretches of a window share it: where many threads move
    /// between many CPUs, each CPU has thousands.
    pub(super) meanings: Arc<[(Tid, Top)]>,
    pub(super) stalls: Vec<Stall>,
    pub(super) end_ns: u64,
}

impl CpuLine {
    /// The number of the CPU.
    pub const fn cpu(&self) -> u16 {
        self.cpu
    }

    /// All segments, in order of time.
    pub fn segments(&self) -> Segments<'_> {
        Segments {
            line: self,
            cursor: self.cursor(self.changes.start()),
        }
    }

    /// The segments from the one in which `at` lies, or from the first.
    pub fn segments_from(&self, at: Monotonic) -> Segments<'_> {
        Segments {
            line: self,
            cursor: self.cursor_from(at),
        }
    }

    /// The place of the segment in which `at` lies, or of the first.
    pub(crate) fn cursor_from(&self, at: Monotonic) -> SegmentCursor {
        let mut cursor = self.cursor(self.changes.reader_from(ns(at)));
        while let Some(next) = cursor.peek(self)
            && next.to <= at
        {
            cursor.next(self);
        }
        cursor
    }

    fn cursor(&self, mut reader: Reader) -> SegmentCursor {
        let current = reader.next(&self.changes);
        let at_ns = current.map_or(0, |current| current.at_ns);
        SegmentCursor {
            current,
            following: reader.next(&self.changes),
            reader,
            next_stall: self.stalls.partition_point(|s| ns(s.to) <= at_ns),
        }
    }

    /// When the CPU stood still, in order of time.
    pub fn stalls(&self) -> &[Stall] {
        &self.stalls
    }
}

pub(super) const fn ns(at: Monotonic) -> u64 {
    at.nanos_since_boot()
}

pub(super) const fn at(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(ns)
}

/// A place in the segments of a CPU. It does not borrow the line.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentCursor {
    /// The rest of the current change.
    current: Option<ColumnChange>,
    following: Option<ColumnChange>,
    reader: Reader,
    next_stall: usize,
}

impl SegmentCursor {
    /// The next segment of the line to which this cursor belongs, without advancing.
    #[inline]
    pub(crate) fn peek(&self, line: &CpuLine) -> Option<Segment> {
        let current = self.current?;
        let end_ns = self.end_ns(line);
        let (thread, top) = line.meanings[current.code as usize];
        let (to_ns, top) = match self.stall(line, current.at_ns, end_ns) {
            Some(stall) => cut(current.at_ns..end_ns, top, stall),
            None => (end_ns.max(current.at_ns), top),
        };
        Some(Segment {
            from: at(current.at_ns),
            to: at(to_ns),
            thread,
            top,
        })
    }

    /// The next segment of the line to which this cursor belongs.
    // inlined, so that a segment need not be moved to where it is used
    #[inline(always)]
    pub(crate) fn next(&mut self, line: &CpuLine) -> Option<Segment> {
        let segment = self.peek(line)?;
        let end_ns = self.end_ns(line);
        if let Some(stall) = self.stall(line, ns(segment.from), end_ns) {
            self.next_stall += usize::from(stall.to == segment.to);
        }
        match &mut self.current {
            Some(current) if ns(segment.to) < end_ns => current.at_ns = ns(segment.to),
            _ => {
                self.current = self.following;
                self.following = self.reader.next(&line.changes);
            }
        }
        Some(segment)
    }

    /// When the current change ends.
    #[inline]
    fn end_ns(&self, line: &CpuLine) -> u64 {
        self.following.map_or(line.end_ns, |next| next.at_ns)
    }

    /// The next stall, if it overlaps the time between the two.
    #[inline]
    fn stall<'l>(&self, line: &'l CpuLine, from_ns: u64, to_ns: u64) -> Option<&'l Stall> {
        let stall = line.stalls.get(self.next_stall)?;
        (ns(stall.from) < to_ns && ns(stall.to) > from_ns).then_some(stall)
    }
}

/// The part of a change before a stall, or the stall itself: its end, and its top.
#[cold]
fn cut(change: Range<u64>, top: Top, stall: &Stall) -> (u64, Top) {
    if ns(stall.from) > change.start {
        (ns(stall.from), top)
    } else {
        (ns(stall.to).min(change.end), Top::Stall)
    }
}

/// The segments of a CPU: see [`CpuLine::segments`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    line: &'a CpuLine,
    cursor: SegmentCursor,
}

impl Segments<'_> {
    /// The next segment, without advancing.
    pub fn peek(&self) -> Option<Segment> {
        self.cursor.peek(self.line)
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        self.cursor.next(self.line)
    }
}

/// What one thread of the server did.
#[derive(Clone, Debug)]
pub struct WorkerLine {
    pub(super) tid: Tid,
    pub(super) states: Column,
    pub(super) faults: Column,
    pub(super) questions: Questions,
    pub(super) end_ns: u64,
}

impl WorkerLine {
    /// The id of the thread.
    pub const fn tid(&self) -> Tid {
        self.tid
    }

    /// Its questions to other servers.
    pub(crate) const fn questions(&self) -> &Questions {
        &self.questions
    }

    /// All spans, in order of time, from when the thread was first seen.
    pub fn spans(&self) -> impl Iterator<Item = WorkerSpan> {
        let mut cursor = SpanCursor {
            next: None,
            reader: self.states.start(),
        };
        std::iter::from_fn(move || cursor.next(self))
    }

    /// The spans from the one in which `at` lies, or from the first.
    pub(crate) fn spans_from(&self, at: Monotonic) -> impl Iterator<Item = WorkerSpan> {
        let mut cursor = self.cursor_from(at);
        std::iter::from_fn(move || cursor.next(self))
    }

    /// Whether it hardly sleeps between two instants, because it always has work or polls for it.
    pub(crate) fn never_sleeps(&self, from: Monotonic, upto: Monotonic) -> bool {
        /// It sleeps for a smaller share of the time than this.
        const LEAST_SLEEP: f64 = 0.001;
        let (mut asleep, mut awake) = (Nanos::ZERO, Nanos::ZERO);
        let spans = self.spans_from(from);
        for span in spans.take_while(|span| span.from < upto) {
            let length = span.to.min(upto).saturating_since(span.from.max(from));
            match span.state {
                WorkerState::Asleep(_) => asleep += length,
                WorkerState::Unknown => {}
                _ => awake += length,
            }
        }
        let (asleep, awake) = (asleep.as_secs_f64(), awake.as_secs_f64());
        awake > 0.0 && asleep < LEAST_SLEEP * (asleep + awake)
    }

    /// The place of the span in which `at` lies, or of the first.
    pub(crate) fn cursor_from(&self, at: Monotonic) -> SpanCursor {
        SpanCursor {
            next: None,
            reader: self.states.reader_from(ns(at)),
        }
    }

    /// When the thread began to handle each page fault.
    pub fn faults(&self) -> impl Iterator<Item = Monotonic> + '_ {
        self.faults.changes().map(|fault| at(fault.at_ns))
    }
}

/// A place in the spans of a thread. It does not borrow the line.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanCursor {
    next: Option<ColumnChange>,
    reader: Reader,
}

impl SpanCursor {
    /// The state after the last returned span, if there is one.
    pub(crate) fn following(&self) -> Option<WorkerState> {
        self.next.map(|next| codes::unpack_state(next.code))
    }

    /// The next span of the line to which this cursor belongs.
    #[inline]
    pub(crate) fn next(&mut self, line: &WorkerLine) -> Option<WorkerSpan> {
        let current = self
            .next
            .take()
            .or_else(|| self.reader.next(&line.states))?;
        self.next = self.reader.next(&line.states);
        let end_ns = self.next.map_or(line.end_ns, |next| next.at_ns);
        Some(WorkerSpan {
            from: at(current.at_ns),
            to: at(end_ns.max(current.at_ns)),
            state: codes::unpack_state(current.code),
        })
    }
}
