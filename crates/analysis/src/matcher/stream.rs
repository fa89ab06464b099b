//! Requests of TCP connections, and which of them a response answers.
//!
//! On a connection the events carry positions in the client's stream: where a segment ends (T1),
//! how far data is queued (T2), how far the server has read when its read returns (T4) and when a
//! segment of a response leaves (T6). A request ends in a segment that its sender pushed. In a long
//! write Linux also pushes segments in between, so a [long](MAY_GO_ON) request may turn out to be
//! only the beginning of the next one, if the server reads on without answering it, or reads both
//! at once. Positions have 16 bits, and each kind only ever moves forward, nearly always by less
//! than 65,536 bytes at a time, so they are extended to 64 bits.
//!
//! Which request a response answers: see `stream/batch.rs`.
//!
//! **Retransmitted responses.** A segment that is sent again moves no T6; the response counts as one that was
//! sent again, if all of it had left. So does one whose acknowledgement was only late.
//!
//! **Retransmitted requests.** A segment inside the known part of the stream is not new, and the
//! first T1 stays. A segment that fills a hole there is new.

mod batch;
mod bounds;
mod early;
mod hole;
mod turns;
mod unasked;
mod writes;

use std::collections::VecDeque;

use taillab_model::{Monotonic, Nanos, Tid};

use super::doubt::Doubt;
use super::framer::Framer;
use super::framing::{Framing, Message};
use super::options::MatchOptions;
use super::parts::{Leaving, Position, Role, Settled, Slot, Write};
use super::threads::{Read, Sent};
use crate::matched::{SendPause, SentAgain};
use early::Taken;
pub(super) use turns::TurnEvidence;
use turns::Turns;
pub(super) use unasked::MANY_PAUSES;
use unasked::{Aside, Pauses};
use writes::Writes;

/// Where positions begin: far enough above zero that earlier positions do not wrap around.
const FIRST_LAP: Position = 1 << 32;

/// The first position at or after `base` with these low bits.
const fn forward(base: Position, id: u16) -> Position {
    base + id.wrapping_sub(base as u16) as Position
}

/// Bytes after which a push need not be the end of a write: Linux pushes in the middle of one
/// whenever half of the peer's largest window has been written since the last push (`forced_push`
/// in net/ipv4/tcp.c), which is five segments on a new connection. A request that fits into one
/// packet is always whole.
const MAY_GO_ON: Position = 2_048;

/// A piece of the client's stream that has come in and is not settled.
struct RequestSegment {
    start: Position,
    end: Position,
    /// Where the packet that it came in ends.
    packet_end: Position,
    /// T1.
    at: Monotonic,
    /// The request that ends here; none in the middle of one, or if no response to it is due.
    request: Option<Slot>,
    /// The request that goes on after it, if the server answers that before it reads any further; see `early.rs`.
    begun: Option<Slot>,
    /// That request may be only the beginning of the next one.
    may_go_on: bool,
    /// The server has asked for the rest of that request, so what comes before the response belongs to it.
    goes_on: bool,
    /// What its content says, if that is followed.
    message: Message,
    queued: bool,
    read: Option<Read>,
}

impl RequestSegment {
    /// Whether the request that ends here turns out to be only the beginning of another one if that is read
    /// with it.
    const fn is_part(&self) -> bool {
        self.may_go_on || self.goes_on
    }
}

#[derive(Clone, Copy)]
struct Departure {
    segment: Leaving,
    /// T5, if a write of the thread came before it.
    write: Option<Monotonic>,
    /// How many writes led to it: of the connection, or of the thread since its read.
    writes: u32,
}

/// One client connection.
#[derive(Default)]
pub(super) struct Connection {
    /// When something was last seen of it.
    pub(super) seen: Option<Monotonic>,
    /// Its number.
    pub(super) number: u32,
    /// No socket of the server was seen to have a part in it, although it would have been: packets that only
    /// pass through here, or that nobody receives.
    pub(super) untouched: bool,
    /// Another process has it, which shares the server's port.
    pub(super) of_others: bool,
    /// Whether the server sends unasked.
    aside: Aside,
    /// It was set aside before the client asked again.
    was_aside: bool,
    /// The pauses in the batch's response.
    pauses: Pauses,
    /// The longest time between two separate segments of any response.
    longest_gap: Nanos,
    /// Where the latest data ends.
    pub(super) next: Position,
    /// Where the latest push was.
    pushed: Position,
    /// Everything before is settled.
    done: Position,
    queued: Position,
    /// How far the server has read. The batch is everything before it that is not settled.
    pub(super) read: Position,
    /// In order of their ends.
    segments: VecDeque<RequestSegment>,
    departures: Vec<Departure>,
    pub(super) writes: Writes,
    /// The segment that left last for the first time.
    last_sent: Option<Leaving>,
    /// That response was sent again since.
    sent_again: Option<SentAgain>,
    /// The thread that read last.
    reader: Option<Tid>,
    /// Everything before `done` was seen or read.
    from_its_beginning: bool,
    /// Where the client's stream begins, if that was seen.
    begins: Option<Position>,
    /// When the server began to speak before the client did.
    greeted: Option<Monotonic>,
    /// Where the client's stream was when the connection was first seen, unless that was its beginning.
    joined: Option<Position>,
    /// How far the server had read when it sent a response that is taken to be over, since nothing more came
    /// for longer than is waited for.
    over: Option<Position>,
    /// How far it had read when it sent the last part of a response that was counted without its request.
    stray: Option<u16>,
    /// Responses may be owed to requests that were not seen.
    pub(super) doubt: Option<Doubt>,
    /// Separates its messages by their content.
    pub(super) framer: Option<Box<Framer>>,
    turns: Turns,
}

impl Connection {
    /// A connection whose stream begins here.
    pub(super) fn opened(start: u16, framing: Framing) -> Self {
        let joined = Self::joined(
            start,
            Monotonic::from_nanos_since_boot(0),
            Framing::OneInTurn,
        );
        Self {
            from_its_beginning: true,
            begins: joined.joined,
            joined: None,
            doubt: None,
            framer: Framer::new(framing, true),
            ..joined
        }
    }

    /// Whether a client that opens a connection here only repeats that it opens this one: what it sent with that (TCP
    /// Fast Open) has not been read.
    pub(super) fn is_opened_again(&self, start: u16) -> bool {
        let unread = self.from_its_beginning && self.read == self.done;
        self.joined.is_none() && unread && self.departures.is_empty() && self.done as u16 == start
    }

    /// A connection whose beginning was not seen; it is first seen here.
    pub(super) fn joined(start: u16, at: Monotonic, framing: Framing) -> Self {
        let start = FIRST_LAP + Position::from(start);
        Self {
            next: start,
            pushed: start,
            done: start,
            queued: start,
            read: start,
            joined: Some(start),
            doubt: Some(Doubt::since(at)),
            framer: Framer::new(framing, false),
            ..Self::default()
        }
    }

    /// Whether a segment of this many `bytes`, which ends at a position with the low bits `id`, is
    /// the next one.
    pub(super) const fn follows(&self, id: u16, bytes: u32) -> bool {
        id.wrapping_sub(bytes as u16) == self.next as u16
    }

    /// Whether a segment that ends at a position with the low bits `id` is an old one rather than
    /// one far ahead.
    pub(super) const fn is_behind(&self, id: u16) -> bool {
        (self.next as u16).wrapping_sub(id) < 1 << 15
    }

    /// Whether everything that came in has been read.
    pub(super) const fn is_read(&self) -> bool {
        self.read >= self.next
    }

    /// Ends a packet: the segments since the last packet are its pieces.
    pub(super) fn end_packet(&mut self) {
        let next = self.next;
        let pieces = self.segments.iter_mut().rev();
        for piece in pieces.take_while(|piece| piece.packet_end == 0) {
            piece.packet_end = next;
        }
    }

    /// Removes the oldest request, if it has been read.
    fn take_request(&mut self, settled: &mut Vec<Settled>) -> Option<Taken> {
        let ends = |segment: &RequestSegment| segment.request.is_some();
        let place = self.segments.iter().position(ends)?;
        if self.segments[place].end > self.read {
            return None;
        }
        let mut pieces = self.segments.drain(..=place);
        let segment = pieces.next_back()?;
        settled.extend(pieces.filter_map(|piece| piece.begun.map(Settled::Part)));
        self.done = self.done.max(segment.end);
        Some((segment.request, segment.read, segment.message))
    }

    /// How many requests have not been answered.
    pub(super) fn requests(&self) -> usize {
        let requests = self.segments.iter().filter(|s| s.request.is_some());
        requests.count()
    }

    /// Whether a response to what was read has left completely, as far as can be seen.
    pub(super) fn is_answered(&self) -> bool {
        let last = self.departures.last();
        last.is_some_and(|last| !last.segment.more)
    }

    /// Whether everything that was seen to come in is answered, as far as can be seen.
    pub(super) fn owes_nothing(&self) -> bool {
        self.segments.is_empty() || self.is_answered()
    }

    /// From `at` on it is unknown how many responses are owed.
    pub(super) fn doubted(&mut self, at: Monotonic, settled: &mut Vec<Settled>) {
        let doubt = self.doubt.get_or_insert_with(|| Doubt::since(at));
        doubt.renew(at, settled);
    }

    /// A response to a request from before the recording left.
    fn answered_from_before(&mut self, at: Monotonic, settled: &mut Vec<Settled>) {
        let has_begun = |doubt: &mut Doubt| doubt.answered_from_before(at);
        if !self.doubt.as_mut().is_some_and(has_begun) {
            self.doubted(at, settled);
        }
    }

    /// The connection is closed, or no more of it is seen; `at` is the time if it may still go on.
    pub(super) fn end(
        &mut self,
        at: Option<Monotonic>,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) {
        if self.untouched {
            return self.passes_by(settled);
        }
        self.forget_begun(settled);
        settled.extend(self.sent_again.take().map(Settled::SentAgain));
        if at.is_some_and(|at| self.may_go_on(at, options)) {
            self.is_cut_off(settled);
        }
        self.settle(options, settled);
        if let Some(mut doubt) = self.doubt.take() {
            match at.filter(|&at| !doubt.is_silent(at, options.overtaken_after)) {
                Some(at) => doubt.renew(at, settled),
                None => doubt.end(settled),
            }
        }
    }

    /// No socket of the server received what came in: these are not its requests.
    pub(super) fn passes_by(&mut self, settled: &mut Vec<Settled>) {
        self.give_up_all(settled, Settled::Elsewhere);
    }

    /// Another process received what came in: these are not the server's requests.
    pub(super) fn is_of_others(&mut self, settled: &mut Vec<Settled>) {
        self.give_up_all(settled, Settled::OfOther);
        self.departures.clear();
        self.doubt = None;
        self.sent_again = None;
    }

    fn give_up_all(&mut self, settled: &mut Vec<Settled>, as_what: fn(Slot) -> Settled) {
        self.forget_begun(settled);
        let requests = self.segments.drain(..).filter_map(|piece| piece.request);
        settled.extend(requests.map(as_what));
        self.read = self.next;
        self.done = self.next;
    }

    /// The oldest request that has not been answered: what it says, and where it ends.
    pub(super) fn first_request(&self) -> Option<(Message, Position)> {
        let mut requests = self.segments.iter().filter(|s| s.request.is_some());
        requests
            .next()
            .map(|segment| (segment.message, segment.end))
    }

    /// Whether its messages are separated by their content at present.
    fn is_framed(&self) -> bool {
        self.framer.as_ref().is_some_and(|framer| framer.synced)
    }

    /// T1: a segment of this many `bytes` ends at a position with the low bits `id`, and `request`
    /// ends in it. If the content is followed, the segment is a piece of a packet, and `message` is
    /// what it says. Returns false if the segment is not new.
    pub(super) fn arrived(
        &mut self,
        at: Monotonic,
        id: u16,
        bytes: u32,
        request: Option<Slot>,
        message: Option<Message>,
    ) -> bool {
        let length = Position::from(bytes);
        let follows = self.follows(id, bytes);
        let back = Position::from((self.next as u16).wrapping_sub(id));
        let (start, end, place);
        if !follows && back <= self.next - self.done {
            end = self.next - back;
            start = end.saturating_sub(length);
            place = self.segments.partition_point(|other| other.end < end);
            let overlaps = |other: &RequestSegment| other.start < end && other.end > start;
            let neighbours = self.segments.iter().skip(place.saturating_sub(1)).take(2);
            if start < self.done.max(self.read) || neighbours.into_iter().any(overlaps) {
                return false;
            }
        } else {
            end = if follows {
                self.next + length
            } else {
                forward(self.next, id)
            };
            // what was retransmitted together with new data is not new
            start = end.saturating_sub(length).max(self.next);
            place = self.segments.len();
            self.next = end;
        }
        let waits = |other: &RequestSegment| {
            let whole = other.request.is_some() && !other.is_part();
            let unread = other.end > self.read || self.departures.is_empty();
            // the rest of a request may follow until the response leaves
            let waits = unread && !self.turns.in_parts;
            whole && (waits || !self.departures.is_empty() && !self.is_answered())
        };
        if request.is_some() && self.doubt.is_some() && self.segments.iter().any(waits) {
            self.not_in_turn();
        }
        // a write that waits for memory pushes what it has, however little
        let long_before = self.segments.back().is_some_and(|last| last.may_go_on);
        let whole = message.is_some();
        let may_go_on =
            !whole && (long_before || end - self.pushed.clamp(self.done, end) >= MAY_GO_ON);
        if request.is_some() {
            self.pushed = self.pushed.max(end);
        }
        let segment = RequestSegment {
            start,
            end,
            packet_end: if whole { 0 } else { end },
            at,
            request,
            begun: None,
            may_go_on,
            goes_on: false,
            message: message.unwrap_or_default(),
            queued: false,
            read: None,
        };
        self.add_piece(place, segment);
        true
    }

    /// T2: calls `queued` with the requests that are now queued to their end, which are those of
    /// one packet.
    ///
    /// If the socket was in use, its backlog may have joined several segments: the first ones then
    /// have no T2, as if it had been lost.
    pub(super) fn queued(&mut self, id: u16, mut queued: impl FnMut(Slot)) {
        let position = forward(self.queued.max(self.done), id);
        if position > self.next {
            return; // data that was not seen to come in, or the end of the stream
        }
        self.queued = position;
        let before = |segment: &RequestSegment| segment.packet_end < position;
        let first = self.segments.partition_point(before);
        for segment in self.segments.range_mut(first..) {
            if segment.packet_end != position {
                break;
            }
            // it may be queued once more, if something out of order came after it
            if !std::mem::replace(&mut segment.queued, true)
                && let Some(slot) = segment.request.or(segment.begun)
            {
                queued(slot);
            }
        }
    }

    /// T4: the server has read up to here. Returns false if that is not the end of a request, or
    /// may not be one.
    pub(super) fn was_read(
        &mut self,
        id: u16,
        read: Read,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) -> bool {
        if self.is_from_before(id) {
            self.not_in_turn();
            return true;
        }
        let position = self.begin_batch(id, options, settled);
        self.note_read(position, read.tid);
        let same = self.reader.replace(read.tid) == Some(read.tid);
        if let Some(framer) = &mut self.framer {
            framer.last_read = Some((position, read));
        }
        if position > self.next {
            self.lost_sight(position, read.at, settled);
            return true;
        }
        // otherwise what was read before is open, and its response was not seen
        let answered = self.done == self.read;
        if same
            && read.waited
            && answered
            && let Some(doubt) = self.doubt.take()
        {
            doubt.end(settled);
        }
        self.read = position;
        let upto = self
            .segments
            .partition_point(|segment| segment.end <= position);
        // from the end: there may be thousands that were read before
        let newest = self.segments.range_mut(..upto).rev();
        for segment in newest.take_while(|segment| segment.read.is_none()) {
            segment.read = Some(read);
        }
        let last = self.segments.range(..upto).next_back();
        let is_silent = last.is_some_and(|last| last.message.silent);
        let ends = is_silent || self.batch().next_back().is_some_and(|last| !last.may_go_on);
        if self.is_framed() || self.has_many_pieces() {
            self.forget_read(settled);
        }
        ends
    }

    /// Notes whether a segment is sent again, and whether it had to wait.
    pub(super) fn sends(&mut self, segment: Leaving, settled: &mut Vec<Settled>) {
        if !segment.resent {
            settled.extend(self.sent_again.take().map(Settled::SentAgain));
            settled.extend(self.pause_before(&segment).map(Settled::Paused));
            self.last_sent = Some(segment);
            return;
        }
        // what is sent again in the middle of a response delays its end
        let Some(whole) = self.last_sent.filter(|last| !last.more) else {
            return;
        };
        let again = self.sent_again.get_or_insert(SentAgain {
            left: whole.at,
            last: segment.at,
            segments: 0,
        });
        again.last = segment.at;
        again.segments += 1;
    }

    /// The time before this segment, if TCP could not send then.
    fn pause_before(&self, segment: &Leaving) -> Option<SendPause> {
        let pause = SendPause {
            connection: self.number,
            from: self.last_sent?.at,
            to: segment.at,
            limit: segment.limit?,
        };
        let lasted = pause.to.saturating_since(pause.from);
        (lasted >= SendPause::SHORTEST).then_some(pause)
    }

    /// T6: the role of this segment. After [`Role::Begins`] and [`Role::Continues`], the caller
    /// calls [`Connection::departed`].
    pub(super) fn leaving(
        &mut self,
        id: u16,
        segment: Leaving,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) -> Role {
        if self.is_from_before(id) && !segment.resent {
            self.answered_from_before(segment.at, settled);
            return self.once(id, Role::FromBefore);
        }
        let position = self.continued(id);
        if position > self.next {
            self.begin_batch(id, options, settled);
            self.lost_sight(position, segment.at, settled);
            return Role::Unknown;
        }
        if position != self.read {
            // a read was not seen
            self.begin_batch(id, options, settled);
            self.read = position;
        }
        let Some(first) = self.batch().next() else {
            if segment.resent {
                return Role::Again;
            }
            if self.is_greeting(position, segment.at, options) {
                return Role::Unasked;
            }
            match self.joined == Some(position) {
                true => self.answered_from_before(segment.at, settled),
                false => self.doubted(segment.at, settled),
            }
            return self.without_request(id, position, settled);
        };
        let began = first.at;
        if !segment.resent {
            self.note_response(settled);
        }
        match self.departures.last().map(|last| last.segment) {
            _ if segment.resent => Role::Again,
            Some(last) if last.more => Role::Continues(last.tid),
            Some(_) if segment.at.saturating_since(began) > options.stale_after => {
                self.sent_late(segment.at, options, settled)
            }
            Some(last) => {
                let pause = segment.at.saturating_since(last.at);
                self.pauses.add(pause, options);
                self.longest_gap = self.longest_gap.max(pause);
                Role::Begins
            }
            None => Role::Begins,
        }
    }

    /// T6: notes a segment of the response, with what led to it. For the first one of a
    /// batch, calls `begun` with each of its requests, the read that returned it, and who wrote.
    pub(super) fn departed(
        &mut self,
        segment: Leaving,
        sent: Sent,
        mut begun: impl FnMut(Slot, Option<Read>, Option<Tid>),
    ) {
        let (write, writes) = self.led_to(segment, sent);
        if self.departures.is_empty() {
            let writer = write.map(|write| write.tid);
            for segment in self.batch() {
                if let Some(slot) = segment.request {
                    begun(slot, segment.read.or(sent.read), writer);
                }
            }
        }
        if self.read < self.next {
            self.not_in_turn();
        }
        self.add_departure(Departure {
            segment,
            write: write.map(|write| write.at),
            writes,
        });
    }

    /// T5: `tid` writes, and has read up to a position with these low bits.
    pub(super) fn was_written(&mut self, at: Monotonic, tid: Tid, id: u16) {
        let upto = self.continued(id);
        self.writes.become_known();
        if upto <= self.next {
            self.writes.wait(Write { at, tid, upto });
        }
    }

    /// A write was called by a thread that has answered here and not read since.
    pub(super) fn wrote_again(&mut self) {
        if !self.departures.is_empty() {
            self.writes.add_unknown();
        }
    }

    /// The write that led to a segment (the first, if there were several), and how many there were.
    fn led_to(&mut self, segment: Leaving, sent: Sent) -> (Option<Write>, u32) {
        if !self.writes.are_known() {
            return (self.write_of_thread(segment, sent), sent.writes);
        }
        if self.departures.last().is_some_and(|last| last.segment.more) {
            // what has been written meanwhile leaves after it
            return (None, 0);
        }
        // only writes that were called after the first request had been read
        let begins = self.batch().next().map_or(self.read, |first| first.end);
        self.writes.take_from(begins)
    }

    /// The thread's last write, which is assumed to have led to this segment.
    pub(super) fn write_of_thread(&self, segment: Leaving, sent: Sent) -> Option<Write> {
        let (tid, upto) = (segment.tid, self.read);
        sent.write.map(|at| Write { at, tid, upto })
    }

    /// The client pipelines, or something was not seen.
    fn not_in_turn(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.contradicted();
        }
    }

    /// Whether the server is still reading what came in before the first segment that was seen.
    fn is_from_before(&self, id: u16) -> bool {
        let behind = (self.done as u16).wrapping_sub(id);
        let unread = !self.from_its_beginning && self.read == self.done;
        unread && (1..1 << 15).contains(&behind) && forward(self.done, id) > self.next
    }

    /// How far the server has read: the next position with these low bits. One call can
    /// return more than 65,536 bytes; a later position is meant if a segment ends there.
    pub(super) fn continued(&self, id: u16) -> Position {
        let first = forward(self.read.max(self.done), id);
        let laps = (first..=self.next).step_by(1 << 16);
        let is_end = |position: &Position| {
            let ends = self
                .segments
                .binary_search_by_key(position, |segment| segment.end);
            *position == self.read || ends.is_ok()
        };
        laps.into_iter().find(is_end).unwrap_or(first)
    }

    /// Ends the batch if this read ends it. Returns how far the server has read.
    fn begin_batch(
        &mut self,
        id: u16,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) -> Position {
        let position = self.continued(id);
        if self.is_framed() {
            return position;
        }
        if !self.departures.is_empty() {
            self.settle(options, settled);
        }
        position
    }

    /// Neither the content is followed any more, nor is it known how many responses are owed.
    fn loses_track(&mut self, at: Monotonic, settled: &mut Vec<Settled>) {
        self.forget_begun(settled);
        if let Some(framer) = &mut self.framer {
            framer.lose(false);
            framer.recount();
        }
        self.doubted(at, settled);
    }

    /// The server has read data that was not seen to come in: nothing before it can be matched.
    fn lost_sight(&mut self, position: Position, at: Monotonic, settled: &mut Vec<Settled>) {
        // what was not seen may still be answered
        self.loses_track(at, settled);
        if let Some(framer) = &mut self.framer {
            framer.arrived(None);
        }
        let requests = self
            .segments
            .drain(..)
            .filter_map(|segment| segment.request);
        settled.extend(requests.map(Settled::Unanswered));
        self.departures.clear();
        self.end_turn();
        self.writes.end_batch(position);
        self.next = position;
        self.read = position;
        self.done = position;
    }
}
