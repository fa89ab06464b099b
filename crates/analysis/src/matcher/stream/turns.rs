//! Requests that their client sends in several segments, without looking into them.
//!
//! Many HTTP clients send the head and the body of a request apart, and each of the two looks like a request.
//! Two things tell them from pipelined requests:
//!
//! - **The server reads on.** It reads the head, and then reads again without having written anything.
//! - **They differ in their sizes.** Where both were read at once, the head is nearly always the larger one, or
//!   nearly always the smaller one. Requests that are pipelined come in any order of their sizes, or have the
//!   same size.
//!
//! With [`TURNS_TO_SHOW`] such turns, and hardly any in which more had come in than was read when the
//! response left, the clients of this server send in parts. From then on a request begins with the first byte
//! after a response and ends with the last byte that was read before the next one: **T1 is the arrival of
//! its last byte**, and what came before is a part of it. A client that always sends the same few requests at
//! once and waits for all of their responses looks the same: what it waits for is one request, too. Until
//! then, and on a connection whose client has just been seen not to wait, requests that were read together are
//! ambiguous.

use taillab_model::Tid;

use super::{Connection, RequestSegment};
use crate::matcher::options::MatchOptions;
use crate::matcher::parts::{Position, Settled};

/// So many turns in parts are not a coincidence.
const TURNS_TO_SHOW: u64 = 32;

/// Of so many turns, one may be an exception: a body that is larger than the head, or a response that leaves before
/// all of its request was read.
const TURNS_FOR_EACH_EXCEPTION: u64 = 16;

/// Where fewer turns than one in so many come in parts, these may as well be those whose responses were not seen.
const TURNS_FOR_EACH_IN_PARTS: u64 = 64;

/// After this many turns without it, what a connection has shown once is forgotten.
const TURNS_TO_FORGET: u8 = 16;

/// What the turns of a server's connections show of its clients.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::matcher) struct TurnEvidence {
    /// Turns that were answered.
    pub(in crate::matcher) turns: u64,
    /// Turns in which the server read on before it wrote anything, and the client waited for the response.
    pub(in crate::matcher) in_parts: u64,
    /// Turns whose segments were read at once, and the first of which was the larger one.
    pub(in crate::matcher) larger_first: u64,
    /// The same with a smaller first one.
    pub(in crate::matcher) smaller_first: u64,
    /// Turns in which the client did not wait.
    pub(in crate::matcher) overlapping: u64,
}

impl TurnEvidence {
    /// Whether the clients send requests in parts and wait for the responses. Of a server that is known to be
    /// sequential, requests that were read at once can be told apart, so their sizes are no evidence.
    pub(in crate::matcher) const fn shows_parts(&self, sequential: bool) -> bool {
        let (more, fewer) = match self.larger_first >= self.smaller_first {
            true => (self.larger_first, self.smaller_first),
            false => (self.smaller_first, self.larger_first),
        };
        let have_order =
            !sequential && more >= TURNS_TO_SHOW && fewer * TURNS_FOR_EACH_EXCEPTION <= more;
        let shown = self.in_parts + more;
        (self.in_parts >= TURNS_TO_SHOW || have_order)
            && self.overlapping * TURNS_FOR_EACH_EXCEPTION <= shown
            && shown * TURNS_FOR_EACH_IN_PARTS >= self.turns
    }
}

/// Whether the server read on before it answered what it had read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReadOn {
    #[default]
    No,
    /// It had written nothing, and the thread that read is the same.
    Silently,
    /// It had written something, whose packet was not seen.
    Answered,
    /// Now one and now the other, or another thread read.
    Unclear,
}

/// What the turns of one connection have shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    /// What came before the last segment of a turn is a part of its request, as far as this server's
    /// connections show.
    pub(super) in_parts: bool,
    read_on: ReadOn,
    /// More had come in than was read when a segment of the response left.
    overlapped: bool,
    /// How many more turns it takes to forget that the client did not wait.
    overlaps: u8,
    /// The same for a server that read on before it had answered.
    unordered: u8,
}

impl Connection {
    /// Notes whether the `server`'s connections show that requests come in parts.
    pub(in crate::matcher) fn learn(&mut self, server: &TurnEvidence, options: &MatchOptions) {
        let shown = server.shows_parts(options.sequential);
        self.turns.in_parts = shown && self.turns.overlaps == 0 && !self.is_framed();
    }

    /// Whether the server answers in order all that it has read before it reads more: its protocol has no
    /// other order, and nothing on this connection has contradicted that lately.
    pub(super) const fn is_sequential(&self, options: &MatchOptions) -> bool {
        options.sequential && (self.turns.unordered == 0 || self.turns.in_parts)
    }

    /// The server reads up to `position` by the thread `tid`.
    pub(super) fn note_read(&mut self, position: Position, tid: Tid) {
        // of a long request it is known that more may come
        let is_whole = self.batch().next_back().is_some_and(|last| !last.is_part());
        if !is_whole || !self.departures.is_empty() || position == self.read {
            return;
        }
        let now = match self.writes.further() {
            0 if self.reader == Some(tid) => ReadOn::Silently,
            0 => ReadOn::Unclear,
            _ => ReadOn::Answered,
        };
        let before = self.turns.read_on;
        self.turns.read_on = match before == ReadOn::No || before == now {
            true => now,
            false => ReadOn::Unclear,
        };
    }

    /// A segment of the batch's response leaves: says what that shows of the turn.
    pub(super) fn note_response(&mut self, settled: &mut Vec<Settled>) {
        let overlaps = self.read < self.next;
        let is_first = self.departures.is_empty();
        let sizes = if is_first { self.sizes() } else { None };
        let turns = &mut self.turns;
        if overlaps && !std::mem::replace(&mut turns.overlapped, true) {
            turns.overlaps = TURNS_TO_FORGET;
            settled.push(Settled::Overlapped);
        }
        if !is_first {
            return;
        }
        settled.push(Settled::Turn);
        if !turns.overlapped {
            match (turns.read_on, sizes) {
                (ReadOn::Silently, _) => settled.push(Settled::InParts),
                (ReadOn::No, Some((first, last))) if first != last => {
                    settled.push(Settled::ReadAtOnce {
                        larger_first: first > last,
                    });
                }
                _ => {}
            }
        }
        turns.unordered = match turns.read_on {
            ReadOn::No | ReadOn::Answered => turns.unordered.saturating_sub(1),
            ReadOn::Silently | ReadOn::Unclear => TURNS_TO_FORGET,
        };
    }

    /// Bytes of the first and of the last of several segments that were read and each look like a request.
    fn sizes(&self) -> Option<(Position, Position)> {
        let mut ends = self.read_segments().filter(|s| s.request.is_some());
        if self.read_segments().any(RequestSegment::is_part) {
            return None;
        }
        let first = ends.next()?.end;
        let last = ends.next_back()?.end;
        let before = ends.next_back().map_or(first, |before| before.end);
        Some((first - self.done.min(first), last - before))
    }

    /// A turn has ended.
    pub(super) fn end_turn(&mut self) {
        let turns = &mut self.turns;
        turns.read_on = ReadOn::No;
        if !std::mem::take(&mut turns.overlapped) {
            turns.overlaps = turns.overlaps.saturating_sub(1);
        }
    }
}
