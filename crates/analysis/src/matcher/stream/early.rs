//! Responses that leave before the server has read all of their request.
//!
//! A server may answer as soon as it has seen enough: after the head of a request that it refuses (413, 401, a
//! redirect), or after the line that announces too large a value. Where the content is followed, the n-th response
//! answers the n-th request, so it answers the one of which the server has read a part. **T1 is the arrival of the last
//! byte that the server had read when the response left**: what it had not read had no part in the response. So T1
//! never lies after T4 or T6, and it is that of the last byte wherever the server reads to the end.
//!
//! Any packet may turn out to be the last one that is read, so each in which a request goes on has a slot of its own,
//! which counts only in that case. What comes of the request later is its rest: the server reads it and throws it
//! away, or closes the connection. Lengths alone do not show this: with them, such a response shows that they are wrong.

use super::{Connection, RequestSegment};
use crate::matcher::framer::Framer;
use crate::matcher::framing::Message;
use crate::matcher::parts::{Position, Settled, Slot};
use crate::matcher::threads::Read;

/// A request that is answered: its slot, the read that got to its end or as far as it was read, and its content.
pub(in crate::matcher) type Taken = (Option<Slot>, Option<Read>, Message);

impl RequestSegment {
    /// It belongs to a request that has been answered. Returns the slot that it had.
    fn answered(&mut self) -> Option<Slot> {
        // nothing more is due to it
        self.message.silent = true;
        self.request.take().or_else(|| self.begun.take())
    }
}

impl Connection {
    /// The packet that came in last is the last one of a request, with this slot, if the server reads no further before
    /// it answers.
    pub(in crate::matcher) fn may_end_here(&mut self, slot: Slot, settled: &mut Vec<Settled>) {
        match self.segments.back_mut() {
            Some(last) if last.request.is_none() && last.begun.is_none() => last.begun = Some(slot),
            _ => settled.push(Settled::Part(slot)),
        }
    }

    /// No request ends where one only goes on, as far as can be told from now on.
    pub(in crate::matcher) fn forget_begun(&mut self, settled: &mut Vec<Settled>) {
        let begun = self
            .segments
            .iter_mut()
            .filter_map(|piece| piece.begun.take());
        settled.extend(begun.map(Settled::Part));
    }

    /// The piece up to which the server has read the oldest request that is not answered, if it has read some of it
    /// and not all; and the piece with which that request ends, if it has come.
    fn begun(&self) -> Option<(usize, Option<usize>)> {
        let end = self
            .segments
            .iter()
            .position(|piece| piece.request.is_some());
        let of_first = end.map_or(self.segments.len(), |end| end + 1);
        let mut pieces = self.segments.range(..of_first);
        let place = pieces.position(|piece| piece.start < self.read && self.read <= piece.end)?;
        let piece = &self.segments[place];
        let is_read = piece.request.is_some() && piece.end <= self.read;
        let has_slot = piece.begun.is_some() || piece.request.is_some();
        (has_slot && !is_read).then_some((place, end))
    }

    /// Whether the server has read a part of a request that comes after all those that it has read.
    pub(super) fn has_begun_another(&self) -> bool {
        let last = self.batch().next_back().map_or(self.done, |last| last.end);
        let mut later = self.segments.iter().filter(|piece| piece.start >= last);
        later.any(|piece| {
            piece.start < self.read && (piece.begun.is_some() || piece.request.is_some())
        })
    }

    /// What the next response answers, as far as can be seen: what it says, and how far the server has read at least
    /// when it writes.
    pub(in crate::matcher) fn next_in_turn(&self, framer: &Framer) -> Option<(Message, Position)> {
        let begun = self.begun().filter(|_| framer.is_by_content());
        let Some((place, end)) = begun else {
            return self.first_request();
        };
        let message = match end {
            Some(end) => self.segments[end].message,
            None => framer.requests.begun()?,
        };
        Some((message, self.segments[place].start + 1))
    }

    /// Removes the oldest request, of which the server has read a part.
    fn take_begun(&mut self, framer: &mut Framer, settled: &mut Vec<Settled>) -> Option<Taken> {
        let (place, end) = self.begun().filter(|_| framer.is_by_content())?;
        let (message, _) = self.next_in_turn(framer)?;
        let slot = self.segments[place].answered()?;
        let of_first = end.map_or(self.segments.len(), |end| end + 1);
        let others = self.segments.range_mut(..of_first);
        settled.extend(others.filter_map(|piece| piece.answered().map(Settled::Part)));
        framer.rest_comes |= end.is_none();
        let read = framer
            .last_read
            .filter(|(upto, _)| *upto == self.read)
            .map(|(_, read)| read);
        self.forget_read(settled);
        Some((Some(slot), read, message))
    }

    /// Removes the oldest request, if the server has read any of it.
    pub(in crate::matcher) fn take_next(
        &mut self,
        framer: &mut Framer,
        settled: &mut Vec<Settled>,
    ) -> Option<Taken> {
        let whole = self.take_request(settled);
        whole.or_else(|| self.take_begun(framer, settled))
    }

    /// The server answers the oldest request, of which it has read a part, and the end of the response is not known: what
    /// it has read is taken for the whole request.
    pub(in crate::matcher) fn ends_where_read(
        &mut self,
        framer: &mut Framer,
        settled: &mut Vec<Settled>,
    ) {
        let Some(piece) = self.begun().map(|(place, _)| &self.segments[place]) else {
            return;
        };
        let (at, packet_end, queued) = (piece.at, piece.packet_end, piece.queued);
        let Some((slot, read, message)) = self.take_begun(framer, settled) else {
            return;
        };
        if let Some(rest) = self.segments.front_mut() {
            rest.start = rest.start.max(self.read);
        }
        self.segments.push_front(RequestSegment {
            start: self.done,
            end: self.read,
            packet_end,
            at,
            request: slot,
            begun: None,
            may_go_on: false,
            goes_on: false,
            message,
            queued,
            read,
        });
    }
}
