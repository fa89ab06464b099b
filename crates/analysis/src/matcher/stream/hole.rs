//! What packets of the server that were not seen have answered.

use super::Connection;
use crate::matcher::framer::Framer;
use crate::matcher::packet::NewBytes;
use crate::matcher::parts::Settled;

/// No response of a protocol with content is shorter: Redis' `_`, and the line's end.
const SHORTEST: u32 = 3;

impl Connection {
    /// The server's packets in a hole were not seen, and what follows it is a packet. If a message ends before
    /// the hole, and the packet has nothing but whole messages, then whole responses are in the hole: at least
    /// one. If the packet answers all requests but one, the first one was answered there, unless it answers one of
    /// which the server has read a part. Returns whether that is so.
    pub(in crate::matcher) fn fills_hole(
        &mut self,
        framer: &mut Framer,
        new: NewBytes<'_>,
        settled: &mut Vec<Settled>,
    ) -> bool {
        let quiet = self.batch().any(|piece| piece.message.quiet);
        if !framer.responses.is_at_start() || quiet || self.has_begun_another() {
            return false;
        }
        let is_whole = match framer.responses.next_length() {
            Some(length) => new.hole.is_multiple_of(length.get()),
            None => new.hole >= SHORTEST,
        };
        if !is_whole {
            return false;
        }
        let mut requests = self.batch().map(|piece| piece.message).skip(1);
        let mut next = requests.next();
        let mut at = 0;
        while let (Some(request), true) = (next, at < new.bytes) {
            framer.responses.expect(request);
            let rest = new.recorded.get(at as usize..).unwrap_or_default();
            let Ok((taken, message)) = framer.responses.read_on(rest, u64::from(new.bytes - at))
            else {
                break;
            };
            at += taken as u32;
            if let Some(message) = message {
                if message.tag != request.tag {
                    break;
                }
                next = requests.next();
            }
        }
        let all = next.is_none() && at == new.bytes && framer.responses.is_at_start();
        drop(requests);
        framer.responses.restart();
        if all && let Some((slot, ..)) = self.take_request(settled) {
            settled.extend(slot.map(Settled::Unanswered));
        }
        all
    }
}
