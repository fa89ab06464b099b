//! Requests of TCP connections, and which of them a response answers.
//!
//! On a connection the events carry positions in the client's stream: where a segment
//! ends (T1), how far data is queued (T2), how far the server has read when its read
//! returns (T4) and when a segment of a response leaves (T6). A request is what ends in a
//! segment that its sender pushed; in a long write Linux also pushes segments in between,
//! so a [long](MAY_GO_ON) request may turn out to be the beginning of the next one: when
//! the server reads on without answering it, or reads both at once. Positions have 16 bits, and each kind only ever moves
//! forward, nearly always by less than 65,536 bytes at a time, so they are continued to 64 bits.
//!
//! **Which request.** A server cannot answer what it has not read. So each response
//! belongs to the *batch*: the requests that are read and not yet answered. A batch ends
//! when the server reads of the connection again.
//!
//! - A batch of one request, which is every batch unless the client pipelines *and* the
//!   server reads several requests at once, is answered by all segments that leave until
//!   it ends; T6 is the last one's.
//! - A batch of several is matched only for a server that is known to be
//!   [sequential](super::MatchOptions::sequential), if one read returned exactly these
//!   requests, and if either one write answered all of them (they leave together), or as
//!   many writes as requests did (they leave in order). Everything else is ambiguous.
//! - A batch with a hole, because a segment was not seen to come in, is ambiguous.
//! - A batch that ends unanswered is lost for a sequential server; else its requests stay
//!   possible, which makes the next batch one of several.
//! - After an ambiguous batch of a server that is not known to be sequential, nobody knows
//!   how many responses are still to come: what arrives on the connection is ambiguous
//!   too, until it has been silent for [`overtaken_after`](super::MatchOptions).
//!
//! **Which segments.** A segment that is sent again never moves T6. While the socket had
//! more to send behind the last segment, the response goes on; after that, a further
//! segment belongs to it (a server may write head and body apart) unless it leaves longer
//! than [`stale_after`](super::MatchOptions) after T1: it is then counted as a response
//! without a request.
//!
//! **Retransmitted requests.** What lies inside the stream's known part is not new, and the
//! first T1 stays; what fills a hole there is new.

use std::collections::VecDeque;

use taillab_model::{Monotonic, Tid};

use super::framed::Framer;
use super::framing::{Framing, Message};
use super::threads::{Read, Sent};
use super::{MatchOptions, Slot};

/// A position in a client's stream; its low 16 bits are those of the sequence number.
type Position = u64;

/// Low enough never to be reached from above, high enough never to wrap below zero.
const FIRST_LAP: Position = 1 << 32;

/// The first position at or after `base` with these low bits.
const fn forward(base: Position, id: u16) -> Position {
    base + id.wrapping_sub(base as u16) as Position
}

/// Bytes behind which a push need not be the end of a write: Linux pushes in the middle of
/// one whenever half of the peer's largest window has been written since the last push
/// (`forced_push` in net/ipv4/tcp.c), which is five segments on a new connection. A
/// request that fits into one packet is always whole.
const MAY_GO_ON: Position = 2_048;

/// A piece of the client's stream that has come in and is not settled.
struct Segment {
    start: Position,
    end: Position,
    /// Where the packet ends that it came in.
    packet_end: Position,
    /// T1.
    at: Monotonic,
    /// The request that ends here; none in the middle of one.
    request: Option<Slot>,
    /// That request may be only the beginning of the next one.
    may_go_on: bool,
    /// What its content says, if that is followed.
    message: Message,
    queued: bool,
    read: Option<Read>,
}

/// A segment of a response as the driver takes it.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    pub(super) at: Monotonic,
    pub(super) tid: Tid,
    pub(super) more: bool,
    pub(super) resent: bool,
}

/// What a segment of a response is to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The first one that answers the batch, or a further one behind which nothing was
    /// waiting: what the thread has called led to it.
    Begins,
    /// The rest of what the segments before it began, left by this thread.
    Continues(Tid),
    /// It was sent before.
    Again,
    /// It answers no request that was seen.
    Unknown,
}

#[derive(Clone, Copy)]
struct Departure {
    segment: Leaving,
    /// T5, where a write of the thread came before it.
    write: Option<Monotonic>,
    /// Writes of the thread since its read.
    writes: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Settled {
    /// It was answered: T5 if known, and T6.
    Answered(Slot, Option<Monotonic>, Monotonic),
    /// One of several, at the time of the last response that may be its own.
    Ambiguous(Slot, Monotonic),
    /// It was only the beginning of a request.
    Part(Slot),
    /// It was read or lost from sight, and no response to it was seen.
    Unanswered(Slot),
    /// The end of a response was not seen; its request counts as unanswered.
    Unfinished(Monotonic),
}

/// One client connection, known by the client's port.
pub(super) struct Connection {
    /// Where the latest data ends.
    pub(super) next: Position,
    /// Where the latest push was.
    pushed: Position,
    /// Everything before is settled.
    done: Position,
    queued: Position,
    /// What the server has read; the batch is all that is not settled before it.
    pub(super) read: Position,
    /// In order of their ends.
    segments: VecDeque<Segment>,
    departures: Vec<Departure>,
    /// The thread has called more writes since the first of them.
    wrote_again: bool,
    /// Nothing lies before `done` that was neither seen nor read.
    from_its_beginning: bool,
    /// When the last response left whose request could not be told.
    pub(super) doubt: Option<Monotonic>,
    /// Tells its messages apart by their content.
    pub(super) framer: Option<Box<Framer>>,
}

impl Connection {
    /// A connection whose stream begins here.
    pub(super) fn opened(start: u16, framing: Framing) -> Self {
        Self {
            from_its_beginning: true,
            framer: Framer::new(framing, true),
            ..Self::joined(start, Framing::OneInTurn)
        }
    }

    /// A connection of which this is the first that was seen.
    pub(super) fn joined(start: u16, framing: Framing) -> Self {
        let start = FIRST_LAP + Position::from(start);
        Self {
            next: start,
            pushed: start,
            done: start,
            queued: start,
            read: start,
            segments: VecDeque::new(),
            departures: Vec::new(),
            wrote_again: false,
            from_its_beginning: false,
            doubt: None,
            framer: Framer::new(framing, false),
        }
    }

    /// A segment with these last bytes is the next one.
    pub(super) const fn follows(&self, id: u16, bytes: u32) -> bool {
        id.wrapping_sub(bytes as u16) == self.next as u16
    }

    /// A segment with these last bytes is rather an old one than one far ahead.
    pub(super) const fn is_behind(&self, id: u16) -> bool {
        (self.next as u16).wrapping_sub(id) < 1 << 15
    }

    /// All that came in has been read.
    pub(super) const fn is_read(&self) -> bool {
        self.read >= self.next
    }

    /// The segments since the last packet are the pieces of one.
    pub(super) fn end_packet(&mut self) {
        let next = self.next;
        let pieces = self.segments.iter_mut().rev();
        for piece in pieces.take_while(|piece| piece.packet_end == 0) {
            piece.packet_end = next;
        }
    }

    /// Takes the oldest request out that has been read: its slot, read and content.
    pub(super) fn take_request(&mut self) -> Option<(Option<Slot>, Option<Read>, Message)> {
        let ends = |segment: &Segment| segment.request.is_some();
        let place = self.segments.iter().position(ends)?;
        if self.segments[place].end > self.read {
            return None;
        }
        let segment = self.segments.drain(..=place).next_back()?;
        self.done = self.done.max(segment.end);
        Some((segment.request, segment.read, segment.message))
    }

    /// How many requests have not been answered.
    pub(super) fn requests(&self) -> usize {
        let requests = self.segments.iter().filter(|s| s.request.is_some());
        requests.count()
    }

    /// A response has left, as far as can be seen.
    pub(super) fn is_answered(&self) -> bool {
        let last = self.departures.last();
        last.is_some_and(|last| !last.segment.more) && self.doubt.is_none()
    }

    /// The oldest request that has not been answered.
    pub(super) fn first_request(&self) -> Option<Message> {
        let mut requests = self.segments.iter().filter(|s| s.request.is_some());
        requests.next().map(|segment| segment.message)
    }

    /// Its messages are told apart by their content.
    fn is_framed(&self) -> bool {
        self.framer.as_ref().is_some_and(|framer| framer.synced)
    }

    /// T1: a segment with these last bytes; false if it is not new. `request` ends in it.
    /// Where the content is followed, it is a piece of a packet, and `message` what it says.
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
            let overlaps = |other: &Segment| other.start < end && other.end > start;
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
        // a write that waits for memory pushes what it has, however little
        let long_before = self.segments.back().is_some_and(|last| last.may_go_on);
        let whole = message.is_some();
        let may_go_on =
            !whole && (long_before || end - self.pushed.clamp(self.done, end) >= MAY_GO_ON);
        if request.is_some() {
            self.pushed = self.pushed.max(end);
        }
        let segment = Segment {
            start,
            end,
            packet_end: if whole { 0 } else { end },
            at,
            request,
            may_go_on,
            message: message.unwrap_or_default(),
            queued: false,
            read: None,
        };
        self.segments.insert(place, segment);
        true
    }

    /// T2: the requests that are now queued to their end: those of one packet.
    ///
    /// Where the socket was in use, its backlog may have taken several segments as one:
    /// the first ones then have no T2, as if it had been lost.
    pub(super) fn queued(&mut self, id: u16, mut queued: impl FnMut(Slot)) {
        let position = forward(self.queued.max(self.done), id);
        if position > self.next {
            return; // data that was not seen to come in, or the end of the stream
        }
        self.queued = position;
        let before = |segment: &Segment| segment.packet_end < position;
        let first = self.segments.partition_point(before);
        for segment in self.segments.range_mut(first..) {
            if segment.packet_end != position {
                break;
            }
            // once more: something out of order came behind it
            if !std::mem::replace(&mut segment.queued, true)
                && let Some(slot) = segment.request
            {
                queued(slot);
            }
        }
    }

    /// T4: the server has read up to here. False if that is the end of no request, or
    /// may be none.
    pub(super) fn was_read(
        &mut self,
        id: u16,
        read: Read,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) -> bool {
        let position = self.begin_batch(id, options, settled);
        if position > self.next {
            self.lost_sight(position, read.at, settled);
            return true;
        }
        self.read = position;
        let until = self.segments.iter_mut();
        for segment in until.take_while(|segment| segment.end <= position) {
            segment.read.get_or_insert(read);
        }
        self.batch().next_back().is_some_and(|last| !last.may_go_on)
    }

    /// T6: what this segment is; after [`Role::Begins`], [`Connection::departed`] follows.
    pub(super) fn leaving(
        &mut self,
        id: u16,
        segment: Leaving,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) -> Role {
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
            return if segment.resent {
                Role::Again
            } else {
                Role::Unknown
            };
        };
        match self.departures.last() {
            Some(_) if segment.resent => Role::Again,
            Some(last) if last.segment.more => Role::Continues(last.segment.tid),
            Some(_) if segment.at.saturating_since(first.at) > options.stale_after => Role::Unknown,
            _ => Role::Begins,
        }
    }

    /// T6: notes a segment of the response, with what led to it. For the first one of a
    /// batch, calls `begun` with each of its requests and the read that returned it.
    pub(super) fn departed(
        &mut self,
        segment: Leaving,
        sent: Sent,
        mut begun: impl FnMut(Slot, Option<Read>),
    ) {
        if self.departures.is_empty() {
            for segment in self.batch() {
                if let Some(slot) = segment.request {
                    begun(slot, segment.read.or(sent.read));
                }
            }
        }
        self.departures.push(Departure {
            segment,
            write: sent.write,
            writes: sent.writes,
        });
    }

    /// A write was called by a thread that has answered here and not read since.
    pub(super) fn wrote_again(&mut self) {
        self.wrote_again = !self.departures.is_empty();
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

    /// Where the server has read to, after ending the batch if that ends it.
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
        let goes_on = || self.batch().next_back().is_some_and(|last| last.may_go_on);
        if !self.departures.is_empty() || options.sequential && !goes_on() {
            self.settle(options, settled);
        }
        position
    }

    /// The server has read data that was not seen to come in: nothing before it can be told.
    fn lost_sight(&mut self, position: Position, at: Monotonic, settled: &mut Vec<Settled>) {
        if let Some(framer) = &mut self.framer {
            framer.synced = false;
            framer.turns = false;
            // pipelined: what was not seen may still be answered
            self.doubt = Some(at);
        }
        let requests = self
            .segments
            .drain(..)
            .filter_map(|segment| segment.request);
        settled.extend(requests.map(Settled::Unanswered));
        self.departures.clear();
        self.next = position;
        self.read = position;
        self.done = position;
    }

    /// Ends the batch if this request is in it and was answered, for no more of its
    /// response is waited for.
    pub(super) fn expire(
        &mut self,
        slot: Slot,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) {
        let mut batch = self.batch().filter_map(|segment| segment.request);
        if !self.departures.is_empty() && batch.any(|other| other == slot) {
            drop(batch);
            self.settle(options, settled);
        }
    }

    /// What has been read and is not settled.
    fn read_segments(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        let read = self
            .segments
            .partition_point(|segment| segment.end <= self.read);
        self.segments.range(..read)
    }

    /// The requests among it.
    fn batch(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        let ends = |segment: &&Segment| segment.request.is_some();
        let last = self.read_segments().rfind(ends).map(|last| last.end);
        let whole = move |segment: &&Segment| !segment.may_go_on || Some(segment.end) == last;
        self.read_segments().filter(ends).filter(whole)
    }

    /// Requests of the batch that were only the beginning of another one.
    fn parts(&self) -> impl Iterator<Item = Slot> {
        let mut from_last = self.read_segments().rev().filter(|s| s.request.is_some());
        from_last.next();
        from_last.filter(|s| s.may_go_on).filter_map(|s| s.request)
    }

    /// Ends the batch: decides what answered its requests, and forgets them.
    pub(super) fn settle(&mut self, options: &MatchOptions, settled: &mut Vec<Settled>) {
        if let Some(last) = self.departures.last().map(|departure| departure.segment) {
            let silent_since = |doubt: Monotonic| {
                let mut batch = self.batch();
                batch.all(|request| request.at.saturating_since(doubt) > options.overtaken_after)
            };
            let certain = options.sequential || self.doubt.is_none_or(silent_since);
            let answers = certain.then(|| self.answers(options)).flatten();
            self.doubt = answers.is_none().then_some(last.at);
            self.from_its_beginning = true;
            let requests = self.batch().filter_map(|segment| segment.request);
            match answers {
                None => settled.extend(requests.map(|slot| Settled::Ambiguous(slot, last.at))),
                Some(_) if last.more => {
                    settled.push(Settled::Unfinished(last.at));
                    settled.extend(requests.map(Settled::Unanswered));
                }
                Some(answers) => {
                    // one for all of them, or one for each
                    let answers = answers.iter().cycle();
                    let each = requests.zip(answers);
                    settled.extend(each.map(|(slot, &(t5, t6))| Settled::Answered(slot, t5, t6)));
                }
            }
        } else {
            let requests = self.batch().filter_map(|segment| segment.request);
            settled.extend(requests.map(Settled::Unanswered));
        }
        settled.extend(self.parts().map(Settled::Part));
        self.departures.clear();
        self.wrote_again = false;
        let read = self.read;
        let ended = self.segments.partition_point(|segment| segment.end <= read);
        self.segments.drain(..ended);
        self.done = self.done.max(read);
    }

    /// T5 and T6 of each request of the batch, in their order; one for all if they left
    /// together; `None` if that cannot be told.
    fn answers(&self, options: &MatchOptions) -> Option<Vec<(Option<Monotonic>, Monotonic)>> {
        let (first, last) = (self.departures.first()?, self.departures.last()?);
        if !self.is_whole() || !self.from_its_beginning && !self.was_read_at_once() {
            return None;
        }
        let requests = self.batch().count();
        if requests <= 1 {
            return Some(vec![(first.write, last.segment.at)]);
        }
        if !options.sequential || !self.was_read_at_once() {
            return None;
        }
        let mut writes: Vec<(Option<Monotonic>, Monotonic)> = Vec::new();
        for departure in &self.departures {
            match writes.last_mut() {
                Some(last) if departure.write.is_none() => last.1 = departure.segment.at,
                _ => writes.push((departure.write, departure.segment.at)),
            }
        }
        let all_in_one = writes.len() == 1 && first.writes == 1 && !self.wrote_again;
        (all_in_one || writes.len() == requests).then_some(writes)
    }

    /// All that was read was seen to come in.
    fn is_whole(&self) -> bool {
        let mut end = self.done;
        for segment in &self.segments {
            if end >= self.read || segment.start != end {
                break;
            }
            end = segment.end;
        }
        end >= self.read
    }

    /// One read returned exactly what the batch consists of.
    fn was_read_at_once(&self) -> bool {
        let mut batch = self.read_segments();
        let Some((first, read)) = batch.next().and_then(|first| Some((first, first.read?))) else {
            return false;
        };
        let together = |other: &Segment| other.read.is_some_and(|other| other.at == read.at);
        let bytes = self.read - first.start;
        batch.all(together) && read.bytes_mod_1024 == Some((bytes % 1024) as u16)
    }
}
