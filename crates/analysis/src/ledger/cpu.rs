//! How far the attribution has followed the timeline of a CPU.

use std::collections::VecDeque;

use taillab_model::{Monotonic, Tid};

use super::disturbances::PieceOrigin;
use super::label::Label;
use crate::id_map::LastFound;
use crate::timeline::{CpuLine, Segment, SegmentCursor, Top};

/// The number of segments that are kept, to look back from T2 to T1.
const RECENT: usize = 128;

/// A stretch of time in which a CPU did one thing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) thread: Tid,
    pub(super) top: Top,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// The workers of a shared queue that are on a CPU or wait for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) queue: usize,
    pub(super) workers: u64,
    /// Those of them that have no request.
    pub(super) lent: u64,
}

/// A CPU, and the workers that need it.
#[derive(Default)]
pub(super) struct CpuClock {
    /// Its number.
    pub(super) number: u16,
    /// The place of its line in the timeline, and the place in that line.
    pub(super) line: Option<usize>,
    cursor: SegmentCursor,
    /// The segment in which `upto_ns` lies.
    pub(super) segment: Option<Segment>,
    /// Everything before has been charged.
    upto_ns: u64,
    /// The worker that is current.
    pub(super) worker: Option<usize>,
    /// The segments before `segment`, at most [`RECENT`], oldest first.
    pub(super) recent: VecDeque<Segment>,
    /// Workers with requests whose home this is.
    pub(super) active: usize,
    /// How many of them wait for the CPU, and how many of these were preempted.
    pub(super) waiting: usize,
    pub(super) preempted: usize,
    /// For how long workers have worked here, within the time that their services may take.
    pub(super) worked_ns: u64,
    /// Workers with requests that sleep and should be woken here.
    pub(super) unwoken: usize,
    /// The shared queues whose capacity is lost where it is lost here.
    pub(super) capacities: Vec<Capacity>,
    /// Until then, the workers that wait are held back.
    pub(super) held_back_until_ns: u64,
    /// Until then, a wake-up is under way. `on_its_way` is what it is charged to: the cause of the sleep,
    /// if that was in the middle of a request.
    pub(super) on_its_way_until_ns: u64,
    pub(super) on_its_way: Label,
    /// The worker that is on its way.
    pub(super) on_its_way_of: usize,
    /// Where in its history the busy period began.
    pub(super) busy_floor: u64,
    /// The last T2 here.
    pub(super) last_queued_ns: u64,
    /// When the current thread came onto it.
    pub(super) thread_since_ns: u64,
}

impl CpuClock {
    pub(super) fn new(number: u16) -> Self {
        Self {
            number,
            recent: VecDeque::with_capacity(RECENT + 1),
            ..Self::default()
        }
    }

    /// Continues in the next window's `line`, where the previous window ended.
    pub(super) fn read_on(&mut self, place: usize, line: &CpuLine, workers: &mut LastFound<usize>) {
        self.line = Some(place);
        self.cursor = line.cursor_from(Monotonic::from_nanos_since_boot(self.upto_ns));
        if self.segment.is_some() {
            // the end of the previous window may have truncated it
            self.segment = self.cursor.next(line).or(self.segment);
        }
        self.find_worker(workers);
    }

    /// Whether something before `upto_ns` is not charged yet.
    #[inline]
    pub(super) fn is_behind(&self, upto_ns: u64) -> bool {
        let ends = |segment: &Segment| segment.to.nanos_since_boot() <= upto_ns;
        self.upto_ns < upto_ns || self.segment.as_ref().is_some_and(ends)
    }

    /// Returns the next stretch to be charged and moves past it; `None` once the clock has reached
    /// `upto_ns`.
    #[inline]
    pub(super) fn advance(
        &mut self,
        line: Option<&CpuLine>,
        upto_ns: u64,
        workers: &mut LastFound<usize>,
    ) -> Option<Stretch> {
        while self.upto_ns < upto_ns {
            let from_ns = self.upto_ns;
            let live = |segment: &&Segment| segment.to.nanos_since_boot() > from_ns;
            let Some(segment) = self.segment.as_ref().filter(live) else {
                if !self.next_segment(line, workers) {
                    // the line has ended, or not begun
                    self.upto_ns = upto_ns;
                }
                continue;
            };
            let begin_ns = segment.from.nanos_since_boot();
            if begin_ns > from_ns {
                self.upto_ns = begin_ns.min(upto_ns);
                continue;
            }
            let to_ns = segment.to.nanos_since_boot().min(upto_ns);
            let (thread, top) = (segment.thread, segment.top);
            self.upto_ns = to_ns;
            return Some(Stretch {
                thread,
                top,
                from_ns,
                to_ns,
            });
        }
        if let Some(segment) = self.segment
            && segment.to.nanos_since_boot() <= upto_ns
        {
            self.next_segment(line, workers);
        }
        None
    }

    fn next_segment(&mut self, line: Option<&CpuLine>, workers: &mut LastFound<usize>) -> bool {
        let Some(line) = line else {
            return false;
        };
        let before = self.segment.take();
        self.segment = self.cursor.next(line);
        if let Some(before) = before {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(before);
        }
        let thread = |segment: Option<Segment>| segment.map(|segment| segment.thread);
        if thread(before) != thread(self.segment) {
            let since = self.segment.map(|segment| segment.from);
            self.thread_since_ns = since.map_or(0, Monotonic::nanos_since_boot);
            self.find_worker(workers);
        }
        self.segment.is_some()
    }

    /// Finds out which worker the current thread is.
    fn find_worker(&mut self, workers: &mut LastFound<usize>) {
        let thread = self.segment.map_or(0, |segment| segment.thread);
        self.worker = (thread != 0).then(|| workers.get(thread)).flatten();
    }

    /// A worker of a shared queue is on it or waits for it from now on, or no longer.
    pub(super) fn count(&mut self, queue: usize, lent: bool, comes: bool) {
        let found = self.capacities.iter().position(|it| it.queue == queue);
        let place = found.unwrap_or_else(|| {
            self.capacities.push(Capacity {
                queue,
                workers: 0,
                lent: 0,
            });
            self.capacities.len() - 1
        });
        let capacity = &mut self.capacities[place];
        let lent = u64::from(lent);
        if comes {
            capacity.workers += 1;
            capacity.lent += lent;
        } else {
            capacity.workers -= 1;
            capacity.lent -= lent;
        }
        if capacity.workers == 0 {
            self.capacities.swap_remove(place);
        }
    }

    /// Whether the workers that wait for it are held back.
    pub(super) fn holds_back(&self, at_ns: u64) -> bool {
        self.waiting > 0 && at_ns < self.held_back_until_ns
    }

    /// The present segment, in which `at_ns` lies.
    pub(super) fn segment_at(&self, at_ns: u64) -> PieceOrigin {
        let since = self
            .segment
            .map_or(at_ns, |segment| segment.from.nanos_since_boot());
        PieceOrigin::Stay {
            since_ns: since.min(at_ns),
        }
    }

    /// What comes after the present segment.
    pub(super) fn following(&self, line: Option<&CpuLine>) -> Option<Segment> {
        line.and_then(|line| self.cursor.peek(line))
    }

    /// The present segment and all that follow.
    pub(super) fn ahead<'a>(&self, line: &'a CpuLine) -> impl Iterator<Item = Segment> + use<'a> {
        let mut cursor = self.cursor.clone();
        let following = std::iter::from_fn(move || cursor.next(line));
        self.segment.into_iter().chain(following)
    }

    /// Whether the wake-up of the worker that waits for it is still under way.
    pub(super) fn is_on_its_way(&self, at_ns: u64) -> bool {
        self.waiting > 0 && at_ns < self.on_its_way_until_ns
    }
}
