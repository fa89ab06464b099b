//! Requests that their client sends in several segments, without looking into them.
//!
//! Many HTTP clients send the head and the body of a request apart, and each of the two looks like a request.
//! What tells them from pipelined requests is what the server does: it reads the head, and then reads on
//! without having written anything. With [`TURNS_TO_SHOW`] such turns, and hardly any in which more had come
//! in than was read when the response left, the clients of this server send in parts. From then on a
//! request begins with the first byte after a response and ends with the last byte that was read before the
//! next one: **T1 is the arrival of its last byte**, and what came before is a part of it. Until then, and on a
//! connection whose client has just been seen not to wait, requests that were read together are ambiguous.

use taillab_model::Tid;

use super::Connection;
use crate::matcher::options::MatchOptions;
use crate::matcher::parts::{Position, Settled};

/// So many turns in parts are not a coincidence.
const TURNS_TO_SHOW: u64 = 32;

/// Of so many turns in parts, one may be followed by a client that did not wait: a server may answer before it
/// has read all of a request.
const TURNS_FOR_EACH_OVERLAP: u64 = 16;

/// After this many turns without it, what a connection has shown once is forgotten.
const TURNS_TO_FORGET: u8 = 16;

/// What the turns of a server's connections show of its clients.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::matcher) struct TurnEvidence {
    /// Turns in which the server read on before it wrote anything, and the client waited for the response.
    pub(in crate::matcher) in_parts: u64,
    /// Turns in which the client did not wait.
    pub(in crate::matcher) overlapping: u64,
}

impl TurnEvidence {
    /// Whether the clients send requests in parts and wait for the responses.
    pub(in crate::matcher) const fn shows_parts(&self) -> bool {
        self.in_parts >= TURNS_TO_SHOW && self.overlapping * TURNS_FOR_EACH_OVERLAP <= self.in_parts
    }
}

/// Whether the server read on before it answered what it had read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReadOn {
    #[default]
    No,
    /// It had written nothing, and the thread that read is the same.
    Silently,
    /// It may have answered: something was written, or another thread read.
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
    pub(in crate::matcher) fn learn(&mut self, server: &TurnEvidence) {
        self.turns.in_parts = server.shows_parts() && self.turns.overlaps == 0 && !self.is_framed();
    }

    /// Whether the server answers in order all that it has read before it reads more: its protocol has no
    /// other order, and nothing on this connection has contradicted that lately.
    pub(super) const fn is_sequential(&self, options: &MatchOptions) -> bool {
        options.sequential && (self.turns.unordered == 0 || self.turns.in_parts)
    }

    /// The server reads up to `position` by the thread `tid`.
    pub(super) fn note_read(&mut self, position: Position, tid: Tid) {
        let open = self.departures.is_empty() && self.batch().next().is_some();
        if !open || position == self.read {
            return;
        }
        let silently = self.reader == Some(tid) && self.writes.further() == 0;
        self.turns.read_on = match self.turns.read_on {
            ReadOn::No | ReadOn::Silently if silently => ReadOn::Silently,
            _ => ReadOn::Unclear,
        };
    }

    /// A segment of the batch's response leaves: says what that shows of the turn.
    pub(super) fn note_response(&mut self, settled: &mut Vec<Settled>) {
        let overlaps = self.read < self.next;
        let turns = &mut self.turns;
        if overlaps && !std::mem::replace(&mut turns.overlapped, true) {
            turns.overlaps = TURNS_TO_FORGET;
            settled.push(Settled::Overlapped);
        }
        if !self.departures.is_empty() {
            return;
        }
        if turns.read_on == ReadOn::Silently && !turns.overlapped {
            settled.push(Settled::InParts);
        }
        turns.unordered = match turns.read_on {
            ReadOn::No => turns.unordered.saturating_sub(1),
            _ => TURNS_TO_FORGET,
        };
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
