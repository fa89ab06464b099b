//! One worker while the sweep goes over it.

use std::collections::VecDeque;

use taillab_model::{Monotonic, Tid};

use super::balance::OwnQueue;
use super::cpu::CpuState;
use super::label::Label;
use super::order::InOrder;
use super::sweep::OpenId;
use crate::timeline::{SpanCursor, WorkerLine, WorkerSpan, WorkerState};

/// A piece of a worker's tape.
#[derive(Clone, Copy, Debug)]
pub(super) enum TapePiece {
    /// Its own: one label.
    Own(Label),
    /// That of a CPU (its index), from this position on.
    Cpu(usize, u64),
}

pub(super) struct WorkerTrack {
    pub(super) tid: Tid,
    /// The place of its line in the timeline, and the place in that line.
    pub(super) line: Option<usize>,
    pub(super) spans: SpanCursor,
    pub(super) state: WorkerState,
    /// When `state` ends; never before the sweep's time while there are requests.
    pub(super) until_ns: u64,
    /// Counts the times it got requests, to tell stale turns of the sweep.
    pub(super) turn: u32,
    /// The CPU that it is on or waits for, and the CPU's counters when it came there.
    pub(super) attached: Option<usize>,
    pub(super) attach_tape: u64,
    pub(super) attach_received: u64,
    /// The CPU that it was on last.
    pub(super) home: Option<usize>,
    /// The label while it is not attached.
    pub(super) own: Label,
    /// The label of its services that take too long, once there was a request.
    pub(super) slow_service: Option<Label>,
    pub(super) own_upto_ns: u64,
    /// Its position, without what the CPU it is attached to has added.
    pub(super) base: u64,
    pub(super) base_received: u64,
    /// Its tape by position, while it has requests.
    pub(super) pieces: VecDeque<(u64, TapePiece)>,
    pub(super) outstanding: usize,
    /// It counts as active there.
    pub(super) active_on: Option<usize>,
    /// It counts as unwoken there.
    pub(super) unwoken_on: Option<usize>,
    /// It counts as waiting there, preempted or not.
    pub(super) waiting_on: Option<(usize, bool)>,
    /// Its position when it got the first of its requests.
    pub(super) busy_from: u64,
    /// What it can inherit from then: a CPU and a stretch of its tape.
    pub(super) busy_cpu: Option<(usize, u64, u64)>,
    pub(super) serving: Option<OpenId>,
    pub(super) pending: VecDeque<OpenId>,
    /// Time that it may still take for what it serves or has served.
    pub(super) budget_ns: u64,
    /// What it may take beyond that of what the stack leaves over.
    pub(super) spare_ns: u64,
    /// Time of page faults in this service that is not charged yet.
    pub(super) fault_ns: u64,
    pub(super) faults: Vec<u64>,
    /// The last fault that was left behind with a part of the recording.
    faults_before: Option<u64>,
    pub(super) next_fault: usize,
    pub(super) previous_t6_ns: u64,
    /// When its own ideal queue is done.
    pub(super) ideal_free_ns: u64,
    pub(super) own_queue: OwnQueue,
    pub(super) order: InOrder,
    pub(super) served_ns: u64,
    pub(super) requests: u64,
}

impl WorkerTrack {
    pub(super) fn new(tid: Tid, unknown: Label) -> Self {
        Self {
            tid,
            line: None,
            spans: SpanCursor::default(),
            state: WorkerState::Unknown,
            until_ns: 0,
            turn: 0,
            attached: None,
            attach_tape: 0,
            attach_received: 0,
            home: None,
            own: unknown,
            slow_service: None,
            own_upto_ns: 0,
            base: 0,
            base_received: 0,
            pieces: VecDeque::new(),
            outstanding: 0,
            active_on: None,
            unwoken_on: None,
            waiting_on: None,
            busy_from: 0,
            busy_cpu: None,
            serving: None,
            pending: VecDeque::new(),
            budget_ns: 0,
            spare_ns: 0,
            fault_ns: 0,
            faults: Vec::new(),
            faults_before: None,
            next_fault: 0,
            previous_t6_ns: 0,
            ideal_free_ns: 0,
            own_queue: OwnQueue::default(),
            order: InOrder::default(),
            served_ns: 0,
            requests: 0,
        }
    }

    /// Reads on in this line, where the last part of the recording was left at `from_ns`.
    pub(super) fn goes_on(&mut self, place: usize, line: &WorkerLine, from_ns: u64) {
        self.line = Some(place);
        if let Some(last) = self.next_fault.checked_sub(1) {
            self.faults_before = Some(self.faults[last]);
        }
        let faults = line.faults().map(|(at, _)| at.nanos_since_boot());
        let new = faults.filter(|at| Some(*at) > self.faults_before);
        self.faults = new.collect();
        self.next_fault = 0;
        let from_ns = from_ns.min(self.until_ns.saturating_sub(1));
        self.spans = line.cursor_from(Monotonic::from_nanos_since_boot(from_ns));
        if from_ns > 0
            && let Some(span) = self.spans.next(line)
        {
            // it may have been cut short where that part ended
            self.enter(&span);
        }
    }

    /// It is in this span now.
    pub(super) fn enter(&mut self, span: &WorkerSpan) {
        self.state = span.state;
        self.until_ns = match self.spans.following() {
            Some(_) => span.to.nanos_since_boot(),
            None => u64::MAX,
        };
    }

    /// Its positions on its tape, and in the receive softirqs.
    pub(super) fn position(&self, cpus: &[CpuState]) -> (u64, u64) {
        match self.attached {
            Some(k) => (
                self.base + (cpus[k].tape.end() - self.attach_tape),
                self.base_received + (cpus[k].received_ns - self.attach_received),
            ),
            None => (self.base, self.base_received),
        }
    }

    pub(super) fn attach(&mut self, k: usize, cpus: &[CpuState]) {
        self.detach(cpus);
        self.attached = Some(k);
        self.home = Some(k);
        self.attach_tape = cpus[k].tape.end();
        self.attach_received = cpus[k].received_ns;
        self.piece(TapePiece::Cpu(k, self.attach_tape));
    }

    pub(super) fn detach(&mut self, cpus: &[CpuState]) {
        (self.base, self.base_received) = self.position(cpus);
        self.attached = None;
    }

    /// From its present position on its tape is this.
    pub(super) fn piece(&mut self, piece: TapePiece) {
        match self.pieces.back_mut() {
            Some(last) if last.0 == self.base => last.1 = piece,
            _ => self.pieces.push_back((self.base, piece)),
        }
    }

    /// It was held up for so long by its own `label`.
    pub(super) fn held_up(&mut self, label: Label, ns: u64) {
        let same = matches!(self.pieces.back(), Some((_, TapePiece::Own(l))) if *l == label);
        if !same {
            self.piece(TapePiece::Own(label));
        }
        self.base += ns;
    }

    /// Nobody will ask for what lies before its present position.
    pub(super) fn forget(&mut self, cpus: &[CpuState]) {
        self.pieces.clear();
        if let Some(k) = self.attached {
            (self.base, self.base_received) = self.position(cpus);
            self.attach_tape = cpus[k].tape.end();
            self.attach_received = cpus[k].received_ns;
            self.piece(TapePiece::Cpu(k, self.attach_tape));
        }
    }

    /// Gives the labelled delays between two of its positions to `visit`, and whether it was
    /// off its CPU, for a reason of its own; how much it was.
    pub(super) fn visit(
        &self,
        cpus: &[CpuState],
        from: u64,
        to: u64,
        visit: &mut impl FnMut(Label, u64, bool),
    ) -> u64 {
        let mut given = 0;
        let first = self.pieces.partition_point(|piece| piece.0 <= from);
        for place in first.saturating_sub(1)..self.pieces.len() {
            let (begin, piece) = self.pieces[place];
            if begin >= to {
                break;
            }
            let end = self.pieces.get(place + 1).map_or(u64::MAX, |next| next.0);
            let (lo, hi) = (begin.max(from), end.min(to));
            if lo >= hi {
                continue;
            }
            given += match piece {
                TapePiece::Own(label) => {
                    visit(label, hi - lo, true);
                    hi - lo
                }
                TapePiece::Cpu(k, at) => {
                    let (lo, hi) = (at + (lo - begin), at + (hi - begin));
                    (cpus[k].tape).visit(lo, hi, |label, ns| visit(label, ns, false))
                }
            };
        }
        given
    }
}
