//! A connection that may owe responses to requests that were not seen.
//!
//! A recording begins while requests are under way, and events get lost. How many responses
//! a server still owes then does not follow from TCP's sequence numbers: a segment of a response says how far
//! the server has read, not what it answers. Three things show that it owes none:
//!
//! - **Silence** of [`overtaken_after`](super::MatchOptions) before a request. The last response
//!   before the silence was then the response to the last request.
//! - **A thread that waits** in a blocking read of the connection, after it has written, and
//!   then reads there again: such a thread answers what it reads before it reads on.
//! - **Turns.** A client that waits for each response before its next request is owed at most one:
//!   the response to its latest request. A turn is a request that comes in while none that was seen
//!   waits, is read alone, and is answered before the next one comes. If a client pipelines, two
//!   requests or two responses soon follow each other. After [`TURNS`] turns in a row, these turns
//!   and all that follow are certain. A contradiction before that makes them ambiguous. So does
//!   content that was seen to be pipelined before: what such a client sends in one packet looks
//!   like one request.
//!
//! Where nothing but turns was seen of a connection that was open before the recording, those before the doubt ends are
//! *early*: they are left out, as what came before the recording is. There are at most fourteen of a connection, and it is
//! the pauses of its client that decide how many, not how long a response took.

use taillab_model::{Monotonic, Nanos};

use super::parts::{Settled, Slot};

/// This many turns in a row are not a coincidence.
const TURNS: usize = 16;

/// A request, and the response that left before the next request.
pub(super) struct Turn {
    pub(super) slot: Slot,
    /// T5 of the response's first segment, if known.
    pub(super) t5: Option<Monotonic>,
    /// T6 of the response's last segment.
    pub(super) t6: Monotonic,
    /// The whole response was written at once.
    pub(super) at_once: bool,
}

pub(super) struct Doubt {
    /// When the last response left.
    since: Monotonic,
    /// The turns since the doubt began or was last contradicted.
    turns: Vec<Turn>,
    /// Two requests or two responses have followed each other since the last turn.
    broken: bool,
    /// The turns are all that was seen of a connection that was open before the recording.
    are_first: bool,
}

impl Doubt {
    pub(super) const fn since(at: Monotonic) -> Self {
        Self {
            since: at,
            turns: Vec::new(),
            broken: false,
            are_first: false,
        }
    }

    /// That of a connection that was open before the recording.
    pub(super) fn of_first_turns(at: Monotonic) -> Self {
        Self {
            are_first: true,
            ..Self::since(at)
        }
    }

    /// Notes that client and server do not take turns.
    pub(super) const fn contradicted(&mut self) {
        self.broken = true;
    }

    /// A response left, and it is unknown what it answers. The turns before it become ambiguous.
    pub(super) fn renew(&mut self, at: Monotonic, settled: &mut Vec<Settled>) {
        self.give_up(settled);
        self.since = at;
        self.broken = false;
        self.are_first = false;
    }

    /// A response to a request from before the recording left. Returns false if there were turns already.
    pub(super) fn answered_from_before(&mut self, at: Monotonic) -> bool {
        let has_begun = self.are_first && self.turns.is_empty();
        if has_begun {
            self.since = at;
            self.broken = false;
        }
        has_begun
    }

    /// Gives up the turns that are in doubt: they are ambiguous.
    pub(super) fn give_up(&mut self, settled: &mut Vec<Settled>) {
        self.are_first &= self.turns.is_empty();
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

    /// Whether there are turns that may soon be certain.
    pub(super) const fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Whether nothing has left within `silence` before `at`, so that nothing is owed any more.
    pub(super) fn is_silent(&self, at: Monotonic, silence: Nanos) -> bool {
        at.saturating_since(self.since) > silence
    }

    /// Ends the doubt, since the server owes nothing: the last turn is certain, those before it are
    /// ambiguous or, if they are all that was seen of the connection, early.
    pub(super) fn end(mut self, settled: &mut Vec<Settled>) {
        if let Some(last) = self.turns.pop() {
            let t5 = last.t5.filter(|_| last.at_once);
            settled.push(Settled::Answered(last.slot, t5, last.t6));
        }
        match self.are_first && !self.broken {
            true => {
                let early = |turn: Turn| Settled::Early(turn.slot, turn.t6);
                settled.extend(self.turns.drain(..).map(early));
            }
            false => self.give_up(settled),
        }
    }

    /// Whether one of its turns is that of the request `slot`.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.turns.iter().any(|turn| turn.slot == slot)
    }
}
