//! The writes to a connection that wait for the segments they lead to.
//!
//! Where the probe says which connection a thread writes to, a write waits here for its segments,
//! which may leave later and in any context: Nagle's algorithm holds the end of a response back
//! until the client acknowledges what came before. Where it does not, only the thread of a write is
//! known, and a segment is assumed to come from the thread's last write.

use taillab_model::Tid;

use crate::matcher::parts::{Position, Write};

/// The most writes that wait. More would not fit into the socket's buffer.
const MOST_WAITING: usize = 4_096;

/// The writes of a batch.
#[derive(Default)]
pub(in crate::matcher) struct Writes {
    /// The events of writes name the connection.
    are_known: bool,
    /// The writes since the last segment that began to leave.
    waiting: Vec<Write>,
    /// If the events do not name the connection: how many writes were called by a thread that has
    /// answered here and not read since, and did not lead to a packet of another connection.
    again: u32,
}

impl Writes {
    /// The events of writes name the connection.
    pub(super) const fn are_known(&self) -> bool {
        self.are_known
    }

    /// From now on, the events of writes name the connection.
    pub(super) const fn become_known(&mut self) {
        self.are_known = true;
    }

    /// A write waits for its segments.
    pub(super) fn wait(&mut self, write: Write) {
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push(write);
        }
    }

    /// Whether `tid` may have written what leaves next.
    pub(in crate::matcher) fn is_next_by(&self, tid: Tid) -> bool {
        self.waiting.first().is_none_or(|w| w.tid == tid)
    }

    /// A thread that has answered here and not read since has called another write.
    pub(super) const fn add_unknown(&mut self) {
        self.again += 1;
    }

    /// One of the writes that [`Self::add_unknown`] counted was for another connection.
    pub(in crate::matcher) const fn was_elsewhere(&mut self) {
        self.again = self.again.saturating_sub(1);
    }

    /// How many writes there are after the one that left last.
    pub(super) fn further(&self) -> usize {
        self.waiting.len() + self.again as usize
    }

    /// The batch that was read up to `read` has ended.
    pub(super) fn end_batch(&mut self, read: Position) {
        self.again = 0;
        self.waiting.retain(|write| write.upto > read);
    }

    /// Takes all writes that wait. Returns the first that was called when `begins` had been read,
    /// and how many such writes there are.
    pub(super) fn take_from(&mut self, begins: Position) -> (Option<Write>, u32) {
        let waiting = self.waiting.drain(..);
        let mut own = waiting.filter(|write| write.upto >= begins);
        let first = own.next();
        (first, u32::from(first.is_some()) + own.count() as u32)
    }

    /// Moves the writes that wait to `writes`; if the events do not name the connection, that is
    /// `of_thread`.
    pub(in crate::matcher) fn give_to(
        &mut self,
        writes: &mut Vec<Write>,
        of_thread: Option<Write>,
    ) {
        writes.clear();
        match self.are_known {
            true => writes.append(&mut self.waiting),
            false => writes.extend(of_thread),
        }
    }

    /// Lets these writes wait again, since the connection's content is no longer followed.
    pub(in crate::matcher) fn take_back(&mut self, writes: &mut Vec<Write>) {
        if self.are_known {
            self.waiting.append(writes);
        }
    }
}
