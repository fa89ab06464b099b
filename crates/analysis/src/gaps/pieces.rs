//! Divides a gap: each nanosecond is charged to the innermost activity at that time.

use std::collections::{BTreeMap, VecDeque};

use taillab_model::{Event, EventKind, Interrupt, Monotonic, Nanos, Tid};

use super::cause::GapCause;
use super::gap::{Gap, IpiSent};
use crate::spans::earlier;

/// The number of sent interrupts that are kept for each target CPU.
const REMEMBERED: usize = 1 << 14;

/// An interrupt from another CPU arrives within this time, unless the target stood still.
const SOON: Nanos = Nanos::from_millis(10);

/// The interrupts that other CPUs sent to one CPU, in order of time.
#[derive(Debug, Default)]
pub(super) struct Sends(VecDeque<IpiSent>);

impl Sends {
    pub(super) fn push(&mut self, sent: IpiSent) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(sent);
    }

    /// The CPU that sent the last interrupt before this instant.
    fn last_before(&self, at: Monotonic) -> Option<u16> {
        let place = self.0.partition_point(|sent| sent.at <= at);
        let sent = self.0.get(place.checked_sub(1)?)?;
        (at.saturating_since(sent.at) <= SOON).then_some(sent.from)
    }
}

/// The parts of a gap while its events come, in order of their ends.
pub(super) struct Pieces {
    gap: Gap,
    tid: Tid,
    /// The times that are already charged, in order, without overlaps.
    taken: Vec<(Monotonic, Monotonic)>,
    parts: BTreeMap<GapCause, Nanos>,
    /// Who is current instead of the loop's thread, and since when.
    away: Option<(GapCause, Monotonic)>,
    /// The thread handles a page fault, until it reads the clock.
    faulting: bool,
}

impl Pieces {
    pub(super) fn new(gap: Gap, tid: Tid) -> Self {
        Self {
            gap,
            tid,
            taken: Vec::new(),
            parts: BTreeMap::new(),
            away: None,
            faulting: false,
        }
    }

    pub(super) fn take(&mut self, event: &Event, sends: &Sends) {
        let at = event.at;
        match event.kind {
            EventKind::Switched { next, .. } => {
                self.switch(at, next);
            }
            EventKind::Interrupt { interrupt, lasted } => {
                let from = earlier(at, lasted);
                let cause = match interrupt {
                    Interrupt::LocalTimer => GapCause::Tick,
                    Interrupt::Reschedule | Interrupt::CallFunction | Interrupt::IrqWork => {
                        GapCause::Ipi(interrupt, sends.last_before(from))
                    }
                    other => GapCause::Interrupt(other),
                };
                self.give(cause, from, at);
            }
            EventKind::Softirq { vector, lasted } => {
                self.give(GapCause::Softirq(vector), earlier(at, lasted), at);
            }
            // the event only shows when the fault began; while it waits, another thread or the idle one runs
            EventKind::PageFault { tid, .. } if tid == self.tid => {
                self.faulting = true;
                self.close(at);
                self.away = Some((GapCause::PageFault, at));
            }
            _ => {}
        }
    }

    /// The parts, and the rest.
    pub(super) fn finish(mut self) -> (BTreeMap<GapCause, Nanos>, Nanos) {
        self.close(self.gap.to);
        let given: Nanos = self.parts.values().copied().sum();
        let rest = self.gap.length().saturating_sub(given);
        (self.parts, rest)
    }

    /// Somebody else is current from here on, or the loop's own thread again.
    fn switch(&mut self, at: Monotonic, next: Tid) {
        self.close(at);
        let cause = match next {
            // the thread goes on handling the fault, or sleeps in it
            next if self.faulting && (next == self.tid || next == 0) => Some(GapCause::PageFault),
            next if next == self.tid => None,
            // otherwise the loop never sleeps, so it was held back
            0 => Some(GapCause::HeldBack),
            next => Some(GapCause::Thread(next)),
        };
        self.away = cause.map(|cause| (cause, at));
    }

    fn close(&mut self, at: Monotonic) {
        if let Some((cause, since)) = self.away.take() {
            self.give(cause, since, at);
        }
    }

    /// Charges the part of this time that is not charged yet. Nothing that was charged ends after `to`, since
    /// events come in order of their ends.
    fn give(&mut self, cause: GapCause, from: Monotonic, to: Monotonic) {
        let (from, to) = (from.max(self.gap.from), to.min(self.gap.to));
        if from >= to {
            // it happened at the edge of the gap: it takes no time, but it can be the cause of the rest
            self.parts.entry(cause).or_default();
            return;
        }
        let (mut free, mut first) = (to.saturating_since(from), from);
        while let Some((a, b)) = self.taken.pop_if(|(_, b)| *b >= from) {
            free = free.saturating_sub(b.saturating_since(a.max(from)));
            first = first.min(a);
        }
        *self.parts.entry(cause).or_default() += free;
        self.taken.push((first, to));
    }
}
