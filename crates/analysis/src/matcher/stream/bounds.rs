//! Bounds on what a connection holds: a request or response may have any number of pieces, and a client
//! that expects no response may send any number of requests.

use taillab_model::Monotonic;

use super::{Connection, Departure, RequestSegment};
use crate::matcher::options::MatchOptions;
use crate::matcher::parts::{Settled, Slot};

/// With more pieces of a client's stream than this, those whose requests are given up are forgotten:
/// a client that sends and expects no response would have ever more.
const MOST_WAITING: usize = 1_024;

/// The most pieces of a client's stream in which no request ends.
const MOST_PIECES: usize = 4_096;

/// The most separate writes of a batch whose segments are told apart.
const MOST_DEPARTURES: usize = 1_024;

impl Connection {
    /// Adds a segment of the response. Those of one write are held as one.
    pub(super) fn add_departure(&mut self, departure: Departure) {
        let full = self.departures.len() >= MOST_DEPARTURES;
        match self.departures.last_mut() {
            Some(last) if full || departure.write.is_none() => {
                last.segment = departure.segment;
                last.writes += departure.writes;
            }
            _ => self.departures.push(departure),
        }
    }

    /// Adds a piece of the client's stream. If there are very many in which no request ends, it is joined
    /// with the one before it. One that cannot be joined is left out, as if it had not been seen.
    pub(super) fn add_piece(&mut self, place: usize, piece: RequestSegment) {
        if piece.request.is_some() || self.segments.len() < MOST_PIECES {
            self.segments.insert(place, piece);
            return;
        }
        let is_last = place == self.segments.len();
        if let Some(last) = self.segments.back_mut().filter(|_| is_last)
            && last.request.is_none()
            && last.read.is_none()
            && last.end == piece.start
        {
            (last.end, last.packet_end) = (piece.end, piece.packet_end);
        }
    }

    /// Whether it has so many pieces that those that were read are not all needed.
    pub(super) fn has_many_pieces(&self) -> bool {
        self.segments.len() > MOST_WAITING
    }

    /// Forgets what was read before the segment in which the oldest request ends: a long request has many
    /// such segments, and where the content is followed, `noreply` has nothing else. One with which that request may
    /// turn out to end stays.
    pub(super) fn forget_read(&mut self, settled: &mut Vec<Settled>) {
        let read = self.read;
        let goes = |segment: &&RequestSegment| {
            let may_end = segment.begun.is_some() && segment.end == read;
            segment.request.is_none() && segment.end <= read && !may_end
        };
        let gone = self.segments.iter().take_while(goes).count();
        for piece in self.segments.drain(..gone) {
            settled.extend(piece.begun.map(Settled::Part));
            self.done = self.done.max(piece.end);
        }
    }

    /// Stops waiting for more of the response to this request: ends the batch if it is in there and
    /// has been answered.
    pub(in crate::matcher) fn expire(
        &mut self,
        slot: Slot,
        now: Monotonic,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) {
        if self.untouched {
            return self.passes_by(settled);
        }
        if let Some(doubt) = self.doubt.as_mut().filter(|doubt| doubt.holds(slot)) {
            doubt.give_up(settled);
        }
        if self.segments.len() > MOST_WAITING {
            return self.give_up_to(slot, now, options, settled);
        }
        let mut batch = self.batch().filter_map(|segment| segment.request);
        if !self.departures.is_empty() && batch.any(|other| other == slot) {
            drop(batch);
            if self.goes_on(now, options) {
                return self.set_aside(false, settled);
            }
            self.over = Some(self.read);
            self.settle(options, settled);
        }
    }
}
