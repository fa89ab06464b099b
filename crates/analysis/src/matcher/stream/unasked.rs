//! What a server sends on a connection that answers no request.

use super::Connection;
use crate::matcher::parts::{Leaving, Position, Role};
use crate::matcher::threads::Sent;

impl Connection {
    /// The same connection after a response that left when the server had read up to there.
    pub(in crate::matcher) fn after(self, stray: Option<u16>) -> Self {
        Self { stray, ..self }
    }

    /// The role of a part of a response that came when nothing was open.
    pub(super) fn without_request(&mut self, id: u16, position: Position) -> Role {
        if self.joined == Some(position) {
            // nothing of what was seen to come in has been read
            return self.once(id, Role::FromBefore);
        }
        if self.overlong == Some(position) {
            return self.once(id, Role::Unknown);
        }
        Role::Unknown
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
