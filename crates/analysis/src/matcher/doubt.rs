//! A connection that may owe responses to requests that nobody saw.
//!
//! A recording begins while requests are under way, and events get lost. How many responses
//! a server still owes then does not follow from TCP's sequence numbers: a segment of a response says how far
//! the server has read, not what it answers. Three things show that it owes none:
//!
//! - **Silence** of [`overtaken_after`](super::MatchOptions) before a request. What left last
//!   before it then was the response to what came in last.
//! - **A thread that waits** in a blocking read of the connection, after it has written, and
//!   then reads there again: such a thread answers what it reads before it reads on.
//! - **Turns.** A client that waits for each response before its next request is owed one
//!   at most: the one to its latest request. A turn is a request that comes in while none
//!   that was seen waits, is read alone, and is answered before the next one comes. Of a
//!   client that pipelines, two requests or two responses soon follow each other; after
//!   [`TURNS`] turns in a row these, and all that follow, are certain. A contradiction before
//!   that makes them ambiguous, and so does content that was seen to be pipelined before: what
//!   such a client sends in one packet looks like one request.

use taillab_model::{Monotonic, Nanos};

use super::parts::{Settled, Slot};

/// This many in a row are no coincidence.
const TURNS: usize = 16;

/// A request, and what left before the next one.
pub(super) struct Turn {
    pub(super) slot: Slot,
    /// T5 of the first of it, if known.
    pub(super) t5: Option<Monotonic>,
    /// T6 of the last of it.
    pub(super) t6: Monotonic,
    /// All of it was written at once.
    pub(super) at_once: bool,
}

pub(super) struct Doubt {
    /// When the last response left.
    since: Monotonic,
    /// Those since the doubt or the last contradiction.
    turns: Vec<Turn>,
    /// Two requests or two responses have followed each other since the last turn.
    broken: bool,
}

impl Doubt {
    pub(super) const fn since(at: Monotonic) -> Self {
        Self {
            since: at,
            turns: Vec::new(),
            broken: false,
        }
    }

    /// Client and server do not take turns.
    pub(super) const fn contradicted(&mut self) {
        self.broken = true;
    }

    /// A response left of which it is unknown what it answers; so is everything before it.
    pub(super) fn renew(&mut self, at: Monotonic, settled: &mut Vec<Settled>) {
        self.give_up(settled);
        self.since = at;
        self.broken = false;
    }

    /// What is in doubt stays so.
    pub(super) fn give_up(&mut self, settled: &mut Vec<Settled>) {
        let turns = self.turns.drain(..);
        settled.extend(turns.map(|turn| Settled::Ambiguous(turn.slot, turn.t6)));
    }

    /// Notes a turn; true if that ends the doubt.
    pub(super) fn turn(&mut self, turn: Turn, settled: &mut Vec<Settled>) -> bool {
        if self.broken {
            self.renew(turn.t6, settled);
            settled.push(Settled::Ambiguous(turn.slot, turn.t6));
            return false;
        }
        self.since = turn.t6;
        self.turns.push(turn);
        let over = self.turns.len() >= TURNS;
        if over {
            let turns = self.turns.drain(..);
            settled.extend(turns.map(|turn| Settled::Answered(turn.slot, turn.t5, turn.t6)));
        }
        over
    }

    /// Nothing has left within `silence` before `at`: nothing is owed any more.
    pub(super) fn is_silent(&self, at: Monotonic, silence: Nanos) -> bool {
        at.saturating_since(self.since) > silence
    }

    /// What a silence has ended.
    pub(super) fn end(mut self, settled: &mut Vec<Settled>) {
        if let Some(last) = self.turns.pop() {
            let t5 = last.t5.filter(|_| last.at_once);
            settled.push(Settled::Answered(last.slot, t5, last.t6));
        }
        self.give_up(settled);
    }

    /// One of its turns is that of `slot`.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.turns.iter().any(|turn| turn.slot == slot)
    }
}
