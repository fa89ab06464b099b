//! One CPU while the sweep goes over it.

use std::collections::VecDeque;

use taillab_model::Monotonic;

use super::order::InOrder;
use super::tape::Tape;
use crate::timeline::{CpuLine, Segment, SegmentCursor};

/// Segments that are remembered, to look back from T2 to T1.
const RECENT: usize = 128;

pub(super) struct CpuState {
    /// Its number.
    pub(super) cpu: u16,
    /// The place of its line in the timeline, and the place in that line.
    pub(super) line: Option<usize>,
    pub(super) cursor: SegmentCursor,
    /// The one in which `upto_ns` lies.
    pub(super) segment: Option<Segment>,
    /// Everything before is on the tape.
    pub(super) upto_ns: u64,
    pub(super) tape: Tape,
    /// Receive softirqs within ρ, while somebody was here.
    pub(super) received_ns: u64,
    /// The worker that is current.
    pub(super) worker: Option<usize>,
    /// Workers with requests whose home this is.
    pub(super) active: usize,
    /// Of those, how many wait for the CPU, and how many of these were preempted.
    pub(super) waiting: usize,
    pub(super) preempted: usize,
    /// Until then those that wait may not run.
    pub(super) held_back_until_ns: u64,
    /// Workers with requests that sleep and should be woken here.
    pub(super) unwoken: usize,
    /// Where on the tape the busy period began.
    pub(super) busy_floor: u64,
    pub(super) recent: VecDeque<Segment>,
    /// The last T2 here.
    pub(super) last_queued_ns: u64,
    pub(super) order: InOrder,
    /// This stay of the current thread is counted.
    pub(super) counted_thread: bool,
    /// This segment is counted.
    pub(super) counted_segment: bool,
}

impl CpuState {
    pub(super) fn new(cpu: u16) -> Self {
        Self {
            cpu,
            line: None,
            cursor: SegmentCursor::default(),
            segment: None,
            upto_ns: 0,
            tape: Tape::default(),
            received_ns: 0,
            worker: None,
            active: 0,
            waiting: 0,
            preempted: 0,
            held_back_until_ns: 0,
            unwoken: 0,
            busy_floor: 0,
            recent: VecDeque::with_capacity(RECENT + 1),
            last_queued_ns: 0,
            order: InOrder::default(),
            counted_thread: false,
            counted_segment: false,
        }
    }

    /// Reads on in this line, where the last part of the recording was left.
    pub(super) fn goes_on(&mut self, place: usize, line: &CpuLine) {
        self.line = Some(place);
        self.cursor = line.cursor_from(Monotonic::from_nanos_since_boot(self.upto_ns));
        if self.segment.is_some() {
            // it may have been cut short where that part ended
            self.segment = self.cursor.next(line).or(self.segment);
        }
    }

    /// Goes on to the next segment of `line`; whether the current thread is another one.
    pub(super) fn next_segment(&mut self, line: &CpuLine) -> bool {
        let before = self.segment.take();
        self.segment = self.cursor.next(line);
        self.counted_segment = false;
        if let Some(before) = before {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(before);
        }
        let thread = |segment: Option<Segment>| segment.map(|segment| segment.thread);
        let changed = thread(before) != thread(self.segment);
        if changed {
            self.counted_thread = false;
        }
        changed
    }

    /// Who waits for it may not run.
    pub(super) fn holds_back(&self, at_ns: u64) -> bool {
        self.waiting > 0 && at_ns < self.held_back_until_ns
    }
}
