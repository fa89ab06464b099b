//! The writes to a connection, and what left because of them.
//!
//! Where the probe says which connection a thread writes to, a write waits here for its
//! segments, which may leave later and in any context: Nagle's algorithm holds the end of a
//! response back until the client acknowledges what came before. Where it does not, a write is
//! known by the thread alone, and a segment is taken for that of the thread's last write.

use taillab_model::{Monotonic, Tid};

use super::Connection;
use super::parts::{Leaving, Position, Write};
use crate::matcher::threads::Sent;

/// The writes of a batch.
#[derive(Default)]
pub(super) struct Writes {
    /// They say which connection they are to.
    known: bool,
    /// Those since the last segment that began to leave.
    waiting: Vec<Write>,
    /// Where they do not say: those of a thread that has answered here and not read since,
    /// and that led to no packet of another connection.
    again: u32,
}

impl Writes {
    /// Those behind what left last.
    pub(super) fn further(&self) -> usize {
        self.waiting.len() + self.again as usize
    }

    /// The batch has ended that was read up to there.
    pub(super) fn end_batch(&mut self, read: Position) {
        self.again = 0;
        self.waiting.retain(|write| write.upto > read);
    }
}

impl Connection {
    /// T5: `tid` writes, and has read up to a position with these low bits.
    pub(in crate::matcher) fn was_written(&mut self, at: Monotonic, tid: Tid, id: u16) {
        let upto = self.continued(id);
        self.writes.known = true;
        if upto <= self.next {
            self.writes.waiting.push(Write { at, tid, upto });
        }
    }

    /// What leaves next may have been written by `tid`.
    pub(in crate::matcher) fn is_writer(&self, tid: Tid) -> bool {
        self.writes.waiting.first().is_none_or(|w| w.tid == tid)
    }

    /// A write was called by a thread that has answered here and not read since.
    pub(in crate::matcher) fn wrote_again(&mut self) {
        self.writes.again += u32::from(!self.departures.is_empty());
    }

    /// One of these writes was for another connection.
    pub(in crate::matcher) const fn wrote_elsewhere(&mut self) {
        self.writes.again = self.writes.again.saturating_sub(1);
    }

    /// The write that led to a segment, the first one of several, and how many did.
    pub(super) fn led_to(&mut self, segment: Leaving, sent: Sent) -> (Option<Write>, u32) {
        if !self.writes.known {
            return (self.of_thread(segment, sent), sent.writes);
        }
        let goes_on = self.departures.last().is_some_and(|last| last.segment.more);
        if goes_on {
            // what has been written meanwhile is behind it
            return (None, 0);
        }
        // of the first request, not of what came before
        let begins = self.batch().next().map_or(self.read, |first| first.end);
        let waiting = self.writes.waiting.drain(..);
        let mut own = waiting.filter(|write| write.upto >= begins);
        let first = own.next();
        (first, u32::from(first.is_some()) + own.count() as u32)
    }

    fn of_thread(&self, segment: Leaving, sent: Sent) -> Option<Write> {
        let tid = segment.tid;
        let upto = self.read;
        sent.write.map(|at| Write { at, tid, upto })
    }

    /// The writes that led to a segment of a connection whose messages are told apart.
    pub(in crate::matcher) fn give_writes(
        &mut self,
        writes: &mut Vec<Write>,
        segment: Leaving,
        sent: Sent,
    ) {
        writes.clear();
        match self.writes.known {
            true => writes.append(&mut self.writes.waiting),
            false => writes.extend(self.of_thread(segment, sent)),
        }
    }

    /// They are not told apart any more.
    pub(in crate::matcher) fn take_back_writes(&mut self, writes: &mut Vec<Write>) {
        if self.writes.known {
            self.writes.waiting.append(writes);
        }
    }

    /// No more writes than these led to the batch's segments, as far as is known.
    pub(super) fn are_of_each<T>(&self, writes: &[T]) -> bool {
        let calls: u32 = self
            .departures
            .iter()
            .map(|departure| departure.writes)
            .sum();
        !self.writes.known || calls as usize + self.writes.further() == writes.len()
    }
}
