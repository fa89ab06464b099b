//! What a server sends on a connection that answers no request.

use super::Connection;
use crate::matcher::parts::{Leaving, Position};
use crate::matcher::threads::Sent;

impl Connection {
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
