//! What a server sends on a connection that answers no request: greetings, news, interim responses.

use taillab_model::{Monotonic, Nanos};

use super::Connection;
use crate::matcher::framing::Framing;
use crate::matcher::options::MatchOptions;
use crate::matcher::parts::{Leaving, Position, Role, Settled};
use crate::matcher::threads::Sent;

/// Whether a connection is set aside, because the server sends there without being asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Aside {
    #[default]
    No,
    /// Until the client asks again.
    UntilAsked,
    ForGood,
}

/// With so many pauses, what leaves is not one response.
pub(in crate::matcher) const MANY_PAUSES: u16 = 8;

/// The pauses in what leaves on a connection while the server reads nothing there: times between two segments
/// that are longer than [`overtaken_after`](MatchOptions), apart from those in which the socket had more to
/// send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pauses {
    count: u16,
    longest: Nanos,
}

impl Pauses {
    /// Notes the time between two segments.
    pub(super) fn add(&mut self, pause: Nanos, options: &MatchOptions) {
        if pause > options.overtaken_after {
            self.count = self.count.saturating_add(1);
            self.longest = self.longest.max(pause);
        }
    }
}

impl Connection {
    /// The same connection after a response that left when the server had read up to there.
    pub(in crate::matcher) fn after(self, stray: Option<u16>) -> Self {
        Self { stray, ..self }
    }

    /// Whether the server speaks first here, as those of SMTP, SSH and MySQL do: nothing has come in that this could
    /// answer. What comes after a pause is something else.
    pub(super) fn is_greeting(
        &mut self,
        position: Position,
        at: Monotonic,
        options: &MatchOptions,
    ) -> bool {
        let soon = |before| at.saturating_since(before) <= options.overtaken_after;
        let nothing_came = self.begins == Some(position) && self.next == position;
        let is_greeting = nothing_came && self.greeted.is_none_or(soon);
        if is_greeting {
            self.greeted.get_or_insert(at);
            // nor did its write lead to a response
            self.writes.end_batch(position);
        }
        is_greeting
    }

    /// The role of a part of a response that came when nothing was open.
    pub(super) fn without_request(
        &mut self,
        id: u16,
        position: Position,
        settled: &mut Vec<Settled>,
    ) -> Role {
        if self.joined == Some(position) {
            // nothing of what was seen to come in has been read
            return self.once(id, Role::FromBefore);
        }
        if self.over == Some(position) {
            self.set_aside(false, settled);
            return Role::Unasked;
        }
        settled.push(Settled::Overlapped);
        Role::Unknown
    }

    /// Whether the batch's response is over at `now`, as far as its pauses tell.
    fn is_over(&self, now: Monotonic, options: &MatchOptions) -> bool {
        let pause = self.pauses.longest.max(options.overtaken_after) * 2;
        let last = self.departures.last().map(|last| last.segment.at);
        last.is_none_or(|last| now.saturating_since(last) > pause)
    }

    /// Whether the batch's response has paused before, and may go on after `now`.
    pub(super) fn goes_on(&self, now: Monotonic, options: &MatchOptions) -> bool {
        self.pauses.count > 0 && !self.is_over(now, options)
    }

    /// Whether the recording, which ends at `now`, may have cut the batch's response off: it goes on, or others
    /// on this connection came in pieces that were further apart than the end is from its last segment.
    pub(super) fn may_go_on(&self, now: Monotonic, options: &MatchOptions) -> bool {
        // shorter gaps are those between the writes of a head and a body
        let in_pieces = self.longest_gap * 4 > options.overtaken_after;
        let last = self.departures.last().map(|last| last.segment.at);
        let near = last.is_some_and(|last| now.saturating_since(last) <= self.longest_gap * 2);
        !options.answered && in_pieces && near || self.goes_on(now, options)
    }

    /// No more is seen of a response that may go on, so it is not known when it ends.
    pub(super) fn is_cut_off(&mut self, settled: &mut Vec<Settled>) {
        if self.pauses.count >= MANY_PAUSES {
            return self.set_aside(false, settled);
        }
        let requests = self.batch().filter_map(|piece| piece.request);
        settled.extend(requests.map(Settled::Part));
        settled.extend(self.parts());
        self.departures.clear();
        self.end_turn();
        let read = self.read;
        self.segments.retain(|piece| piece.end > read);
    }

    /// The server sends again long after the request came in. If the response seemed to be over, it was.
    pub(super) fn sent_late(
        &mut self,
        now: Monotonic,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) -> Role {
        if self.is_over(now, options) {
            self.settle(options, settled);
        }
        self.set_aside(false, settled);
        Role::Unasked
    }

    /// The server sends without being asked, as subscribers, replicas and streams of events have it: what
    /// leaves answers nothing. That ends when the client asks again, unless it comes a second time or
    /// `for_good`.
    pub(in crate::matcher) fn set_aside(&mut self, for_good: bool, settled: &mut Vec<Settled>) {
        if self.aside == Aside::No && !self.was_aside {
            settled.push(Settled::Aside(self.number));
        }
        self.aside = match for_good || self.was_aside {
            true => Aside::ForGood,
            false => Aside::UntilAsked,
        };
        self.forget_begun(settled);
        let requests = self.segments.drain(..).filter_map(|piece| piece.request);
        settled.extend(requests.map(Settled::Part));
        self.departures.clear();
        self.end_turn();
        self.writes.end_batch(Position::MAX);
        if let Some(doubt) = self.doubt.take() {
            doubt.end(settled);
        }
    }

    /// Whether it is set aside.
    pub(in crate::matcher) fn is_aside(&self) -> bool {
        self.aside != Aside::No
    }

    /// The client, of a connection that is set aside, sends again, from `start` on. Returns whether the
    /// connection is followed anew.
    pub(in crate::matcher) fn asks_again(
        &mut self,
        start: u16,
        at: Monotonic,
        framing: Framing,
    ) -> bool {
        if self.aside == Aside::ForGood {
            return false;
        }
        *self = Self {
            seen: self.seen,
            number: self.number,
            was_aside: true,
            ..Self::joined(start, at, framing)
        };
        true
    }

    /// Whether the content says that the server sends unasked from now on.
    pub(in crate::matcher) fn sends_unasked(&self) -> bool {
        self.framer.as_ref().is_some_and(|framer| {
            framer.requests.sends_unasked() || framer.responses.sends_unasked()
        })
    }

    /// Gives a response this role once. It may be sent in many parts; meanwhile the server does not read on.
    pub(super) fn once(&mut self, id: u16, role: Role) -> Role {
        match self.stray.replace(id) == Some(id) {
            true => Role::Rest,
            false => role,
        }
    }

    /// The server, which has read up to `position`, has sent something that answers no request. If it
    /// `asks_for_rest`, the last request that was read goes on in what the client sends next.
    pub(in crate::matcher) fn sent_nothing_asked(
        &mut self,
        position: Position,
        (segment, sent): (Leaving, Sent),
        asks_for_rest: bool,
    ) {
        if position <= self.next {
            self.read = self.read.max(position);
        }
        // the write that led to it is not the response's
        self.led_to(segment, sent);
        if asks_for_rest && self.departures.is_empty() {
            let read = self.read;
            let mut newest = self.segments.iter_mut().rev();
            let last = newest.find(|segment| segment.end <= read && segment.request.is_some());
            if let Some(last) = last {
                last.goes_on = true;
            }
        }
    }
}
