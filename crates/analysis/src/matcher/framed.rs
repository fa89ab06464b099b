//! Connections whose requests and responses are separated by their content.
//!
//! While both directions are followed from the beginning of a message, each request ends where its
//! parser says, and the n-th response answers the n-th request: T1 is the packet with the request's
//! last byte, T6 the one with the last byte of its response. An interim response (100 Continue) is part
//! of the exchange, and not the response. How the server reads and writes does not matter then, unless it
//! answers a request of which it has read only a part: see `stream/early.rs`.
//! Requests to which no response is due (memcached's `noreply`, and quiet commands that were not
//! answered) are only counted: nobody waits for them.
//!
//! If packets of the server were not seen, only that exchange is lost where the requests that were read
//! show what these packets answered. Otherwise, and when a parser is lost (packets of the client were
//! not seen, the protocol is another one, or a length is in a part of a packet that was not recorded),
//! the connection is judged by its turns, as without framing, and whatever is then not certain is
//! ambiguous; see `stream.rs`. It is followed again from the first packet after an idle moment:
//! everything that had come in was read, and nothing moved for
//! [`overtaken_after`](super::MatchOptions), or counting the messages shows that nothing is owed (see
//! `count.rs`). If one request was under way when the parser was lost and the client was never seen to
//! pipeline, or if client and server have shown that they take turns, the connection is followed again from
//! the next request after the response, provided that it is certain what that response answers. It is not
//! followed before a packet of the server has been seen: until then, a lost packet of the server would not be
//! noticed.

use taillab_model::{Monotonic, Tid};

use super::doubt::Doubt;
use super::framer::{Framer, PacketEnds};
use super::framing::{Lost, Message};
use super::held::Fate;
use super::options::MatchOptions;
use super::packet::{Extent, NewBytes, PacketPart};
use super::parts::{Leaving, Position, Settled, Slot, Write};
use super::stream::Connection;
use super::threads::{Read, Sent};
use crate::commands::Command;
use crate::spoken::OtherProtocol;

/// The most bytes that can be lost at the beginning of a server's stream. A greater place is a
/// sequence number, as in older recordings.
const LONGEST_HOLE: u32 = 1 << 20;

/// Called when the response to a request begins to leave, with the read that returned the request
/// and the thread that wrote the response.
type Begun<'a> = &'a mut dyn FnMut(Slot, Option<Read>, Option<Tid>);

impl Connection {
    /// Handles T1 of a packet with content; `open` opens a request that ends at an offset in the
    /// packet, or may turn out to. Returns false if the packet has to be judged by turns.
    pub(super) fn packet_arrived(
        &mut self,
        packet: (Monotonic, u16, u32, bool),
        (payload, extent): (&[u8], Option<Extent>),
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
        mut open: impl FnMut(u32, Option<Command>, Fate) -> Option<Slot>,
    ) -> bool {
        let (at, id, bytes, push) = packet;
        let Some(mut framer) = self.framer.take() else {
            return false;
        };
        if !std::mem::replace(&mut framer.began, true) {
            settled.push(Settled::Began(OtherProtocol::of(payload)));
        }
        let (follows, behind) = match framer.part_of_requests(extent) {
            Some(part) => (
                part == PacketPart::NEXT && self.follows(id, bytes),
                part == PacketPart::Again,
            ),
            None => (self.follows(id, bytes), self.is_behind(id)),
        };
        if framer.synced && !follows && behind {
            self.framer = Some(framer);
            return true; // sent again
        }
        if !behind {
            framer.arrived(extent);
        }
        let silent = |last: Monotonic| at.saturating_since(last) > options.overtaken_after;
        let idle = framer.last_packet.is_some_and(silent);
        let turn = framer.turns && self.is_answered() && self.doubt.is_none();
        let known = framer.next_out.is_some();
        let waits = self.doubt.as_ref().is_some_and(Doubt::has_turns);
        let idle = idle && self.owes_nothing() || framer.owes_nothing() && !waits;
        let begins = follows && self.is_read() && !framer.rest_comes;
        if !framer.synced && known && begins && (idle || turn) {
            self.framer = Some(framer);
            self.settle(options, settled);
            // if it is not clear what was answered, the client need not have waited for that
            let certain = idle || self.doubt.is_none();
            if let Some(doubt) = self.doubt.take_if(|_| idle) {
                doubt.end(settled);
            }
            let Some(again) = self.framer.take() else {
                return false;
            };
            framer = again;
            if certain {
                framer.restart();
            }
        }
        framer.last_packet = Some(at);
        let was_synced = framer.synced;
        let PacketEnds {
            rest,
            requests: ends,
        } = framer.read_requests(follows, payload, bytes);
        framer.ahead |= was_synced && self.requests() > 0;
        let synced = framer.synced;
        if !follows && !behind {
            framer.recount();
        } else if !was_synced && !synced {
            framer.count_requests(self.next, &ends);
        }
        let goes_on = framer.goes_on();
        self.framer = Some(framer);
        if was_synced && !synced {
            // of a client that does not wait, or if content was lost, the packet may be several requests
            let waits = self.framer.as_ref().is_some_and(|framer| !framer.pipelines);
            let kept = bytes.min(options.framing.payload_bytes().into());
            let is_one = waits && payload.len() as u64 >= u64::from(kept);
            let turns = follows && rest == 0 && ends.is_empty() && self.requests() == 0;
            self.out_of_step(is_one && turns, at, settled);
        }
        if !synced && ends.is_empty() && rest == 0 {
            return false;
        }
        let start = id.wrapping_sub(bytes as u16);
        let mut before = rest;
        if rest > 0 {
            let place = start.wrapping_add(rest as u16);
            let nothing_due = Message {
                silent: true,
                ..Message::default()
            };
            self.arrived(at, place, rest, None, Some(nothing_due));
        }
        for (end, message) in ends {
            let slot = if message.silent {
                // without a response to come, there is nothing to match
                settled.push(Settled::Silent(None));
                None
            } else {
                open(end, message.command, Fate::Open)
            };
            let place = start.wrapping_add(end as u16);
            self.arrived(at, place, end - before, slot, Some(message));
            before = end;
        }
        if before < bytes {
            // lost in the middle: the rest is taken for one request, as without framing
            let slot = if push && !synced {
                open(bytes, None, Fate::Open)
            } else {
                None
            };
            self.arrived(at, id, bytes - before, slot, Some(Message::default()));
            let command = goes_on.filter(|_| synced).map(|message| message.command);
            if let Some(slot) = command.and_then(|command| open(bytes, command, Fate::Begun)) {
                self.may_end_here(slot, settled);
            }
        }
        self.end_packet();
        true
    }

    /// Handles T6 of a packet with content. Returns false if the packet has to be judged by turns.
    pub(super) fn packet_departed(
        &mut self,
        id: u16,
        segment: Leaving,
        (payload, extent): (&[u8], Option<Extent>),
        sent: impl FnOnce() -> Sent,
        (settled, begun): (&mut Vec<Settled>, Begun<'_>),
    ) -> bool {
        let position = self.continued(id);
        let Some(mut framer) = self.framer.take() else {
            return false;
        };
        framer.last_packet = Some(segment.at);
        let part = extent.map(|extent| (extent, framer.advance(extent)));
        if !framer.synced
            && let Some((extent, PacketPart::New { leave_out, hole })) = part
        {
            let new = NewBytes::of(payload, extent, leave_out, hole);
            framer.count_responses(new, position);
            if leave_out == 0 && framer.is_interim(payload, extent.bytes) {
                let asks_for_rest = framer.responses.asks_for_rest(payload);
                self.framer = Some(framer);
                self.sent_nothing_asked(position, (segment, sent()), asks_for_rest);
                return true;
            }
        }
        let taken = match part {
            _ if !framer.synced => false,
            // its length is not known, or the server has read what was not seen
            None => false,
            Some(_) if position > self.next => false,
            Some((_, PacketPart::Again)) => true,
            Some((extent, PacketPart::New { leave_out, hole })) => {
                self.read = self.read.max(position);
                let sent = sent();
                let of_thread = self.write_of_thread(segment, sent);
                self.writes.give_to(&mut framer.writes, of_thread);
                let mut new = NewBytes::of(payload, extent, leave_out, hole);
                let elsewhere = std::mem::take(&mut framer.fresh) && hole > 0;
                let goes_on = hole == 0 || !framer.responses.is_at_start();
                if hole > 0 && !elsewhere && self.fills_hole(&mut framer, new, settled) {
                    new.hole = 0;
                }
                let followed = match elsewhere {
                    true => Err(Lost),
                    false => self.follow(&mut framer, segment, new, settled, begun),
                };
                if followed.is_err() {
                    // then all of it is the response to the only request
                    let goes_on = goes_on && !elsewhere;
                    if goes_on && self.requests() <= 1 {
                        self.ends_where_read(&mut framer, settled);
                    }
                    let turns = goes_on && !framer.pipelines && self.requests() == 1;
                    if self.requests() == 0 {
                        framer.recount();
                    }
                    self.writes.take_back(&mut framer.writes);
                    self.framer = Some(framer);
                    self.out_of_step(turns, segment.at, settled);
                    self.departed(segment, sent, begun);
                    return true;
                }
                framer.last_write = framer.writes.last().copied().or(framer.last_write);
                true
            }
        };
        let lost = !taken && framer.synced;
        self.framer = Some(framer);
        if lost {
            self.out_of_step(false, segment.at, settled);
        }
        taken
    }

    /// The content is not followed any more. Unless client and server take `turns`, it is not known how many
    /// responses are owed.
    fn out_of_step(&mut self, turns: bool, at: Monotonic, settled: &mut Vec<Settled>) {
        self.forget_begun(settled);
        if let Some(framer) = &mut self.framer {
            framer.lose(turns);
        }
        if !turns {
            self.doubted(at, settled);
        }
    }

    /// Reads the next bytes of the server.
    fn follow(
        &mut self,
        framer: &mut Framer,
        segment: Leaving,
        new: NewBytes<'_>,
        settled: &mut Vec<Settled>,
        begun: Begun<'_>,
    ) -> Result<(), Lost> {
        let (hole, bytes) = (new.hole as usize, new.bytes as usize);
        let recorded = &new.recorded[..new.recorded.len().min(bytes)];
        let mut at = 0;
        while at < hole + bytes {
            let seen = at >= hole;
            if framer.responses.is_at_start() {
                framer.begun = None;
                if let Some((request, read)) = self.next_in_turn(framer) {
                    framer.responses.expect(request);
                    framer.begun = framer.write_of(read, at == 0).filter(|_| seen);
                }
            }
            let until = if seen { hole + bytes } else { hole };
            let rest = if seen {
                recorded.get(at - hole..)
            } else {
                None
            };
            let unread = (until - at) as u64;
            if framer.responses.is_at_start() && rest.is_some_and(|rest| framer.is_blanked(rest)) {
                return Err(Lost);
            }
            let (taken, end) = (framer.responses).read_on(rest.unwrap_or_default(), unread)?;
            at += taken as usize;
            if let Some(message) = end {
                // its last byte was seen to leave
                let t6 = (at > hole).then_some(segment.at);
                self.answered(framer, message, t6, settled, begun)?;
            }
        }
        Ok(())
    }

    /// A response has ended: the oldest request that expects one is answered.
    fn answered(
        &mut self,
        framer: &mut Framer,
        response: Message,
        t6: Option<Monotonic>,
        settled: &mut Vec<Settled>,
        begun: Begun<'_>,
    ) -> Result<(), Lost> {
        let write = framer.begun.take();
        while let Some((slot, read, request)) = self.take_next(framer, settled) {
            let mismatch = request.tag != response.tag;
            if mismatch && request.quiet {
                // nobody waited for a response
                settled.push(Settled::Silent(slot));
                continue;
            }
            let Some(t6) = t6 else {
                settled.extend(slot.map(Settled::Unanswered));
                return Ok(());
            };
            if mismatch {
                settled.extend(slot.map(|slot| Settled::Ambiguous(slot, t6)));
                return Err(Lost);
            }
            match slot {
                Some(slot) => {
                    begun(slot, read, write.map(|write| write.tid));
                    settled.push(Settled::Answered(slot, write.map(|write| write.at), t6));
                }
                None => settled.push(Settled::Unfinished(t6)),
            }
            return Ok(());
        }
        settled.extend(t6.map(Settled::Unfinished));
        Err(Lost)
    }
}

impl Framer {
    /// The write that sent a response whose request had been `read` up to there: the only write
    /// since then or, if the packet begins with the response, the first one.
    fn write_of(&self, read: Position, is_first: bool) -> Option<Write> {
        let mut own = self.writes.iter().filter(|w| w.upto >= read);
        match (own.next(), own.next()) {
            (Some(_), Some(_)) if !is_first => None,
            (first, _) => first.copied().or(self.last_write),
        }
    }

    /// Goes on to a packet of the server. Returns what it adds.
    fn advance(&mut self, extent: Extent) -> PacketPart {
        if self.next_out == Some(0) && extent.place >= LONGEST_HOLE {
            self.next_out = Some(extent.place);
        }
        let part = self
            .next_out
            .map_or(PacketPart::NEXT, |next| extent.after(next));
        if let PacketPart::New { hole, .. } = part {
            self.next_out = Some(extent.end());
            // in a hole, the client may have been answered
            self.pipelines |= std::mem::take(&mut self.ahead) && hole == 0;
        }
        part
    }
}
