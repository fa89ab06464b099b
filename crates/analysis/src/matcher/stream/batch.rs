//! Which requests of a connection a response answers.
//!
//! A server cannot answer what it has not read. So each response belongs to the *batch*: the
//! requests that are read and not yet answered. A batch ends when the server reads from the
//! connection again.
//!
//! - A batch of one request, which is every batch unless the client pipelines *and* the
//!   server reads several requests at once, is answered by all segments that leave until
//!   it ends; T6 is the last one's.
//! - A batch of several is matched only for a server that is known to be
//!   [sequential](super::MatchOptions::sequential), if one read returned exactly these
//!   requests, and if either one write answered all of them (they leave together), or as
//!   many writes as requests did (they leave in order). Everything else is ambiguous.
//! - A batch with a hole, because a segment was not seen to come in, is ambiguous.
//! - If the server reads on without having answered, the requests may still be answered, so they are part
//!   of the next batch, which then has several; or they were only parts of the next request, if this
//!   server's clients send in parts, see `turns.rs`. A server that reads on is not sequential.
//! - After an ambiguous batch of a server that is not known to be sequential, and on a connection
//!   whose beginning was not seen, it is unknown how many responses are still to come: what arrives
//!   on the connection is in doubt until that is clear; see `doubt.rs`. Where no content is followed, what a server
//!   says before anything has come in leaves no doubt; see `unasked.rs`.
//!
//! **Which segments.** A segment that is sent again never moves T6. While the socket had more to
//! send after the last segment, the response goes on; after that, a further segment belongs to it
//! (a server may write head and body apart) unless it leaves longer than
//! [`stale_after`](super::MatchOptions) after T1. The connection is then set aside; see `unasked.rs`.
//!
//! **From before the recording.** A response that leaves before the server has read anything of what was
//! seen answers a request from before. Nothing of it was lost: it counts apart, once, however many
//! segments it has.

use taillab_model::Monotonic;

use super::unasked::Pauses;
use super::{Connection, RequestSegment};
use crate::matcher::doubt::{Doubt, Turn};
use crate::matcher::options::MatchOptions;
use crate::matcher::parts::{Leaving, Settled, Slot};

impl Connection {
    /// What has been read and is not settled.
    pub(super) fn read_segments(&self) -> impl DoubleEndedIterator<Item = &RequestSegment> {
        let read = self
            .segments
            .partition_point(|segment| segment.end <= self.read);
        self.segments.range(..read)
    }

    /// The requests of the batch: those in what has been read and is not settled.
    pub(super) fn batch(&self) -> impl DoubleEndedIterator<Item = &RequestSegment> {
        let ends = |segment: &&RequestSegment| segment.request.is_some();
        let last = self.read_segments().rfind(ends).map(|last| last.end);
        let whole = move |segment: &&RequestSegment| {
            let is_part = self.turns.in_parts || segment.is_part();
            !is_part || Some(segment.end) == last
        };
        self.read_segments().filter(ends).filter(whole)
    }

    /// What was only the beginning of another request of the batch.
    pub(super) fn parts(&self) -> impl Iterator<Item = Settled> {
        let mut from_last = self.read_segments().rev().filter(|s| s.request.is_some());
        from_last.next();
        let in_parts = self.turns.in_parts;
        let parts = from_last.filter(move |s| in_parts || s.is_part());
        parts.filter_map(|segment| {
            let slot = segment.request?;
            Some(match segment.is_part() {
                true => Settled::Part(slot),
                false => Settled::Joined(slot),
            })
        })
    }

    /// Ends the batch: decides what answered its requests, and forgets them.
    pub(in crate::matcher) fn settle(
        &mut self,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) {
        match self.departures.last().map(|departure| departure.segment) {
            Some(last) => self.settle_answered(last, options, settled),
            None => {
                let requests = self.batch().filter_map(|segment| segment.request);
                settled.extend(requests.map(Settled::Unanswered));
            }
        }
        settled.extend(self.parts());
        self.end_turn();
        self.departures.clear();
        self.pauses = Pauses::default();
        let read = self.read;
        self.writes.end_batch(read);
        let ended = self.segments.partition_point(|segment| segment.end <= read);
        self.segments.drain(..ended);
        self.done = self.done.max(read);
        if let Some(front) = self.segments.front_mut() {
            // of pieces that were joined, a part may have been read
            front.start = front.start.max(self.done);
        }
    }

    /// Forgets the requests up to `slot`, which came in too long ago to be answered. If a response
    /// comes nevertheless, it may be to one of them.
    pub(super) fn give_up_to(
        &mut self,
        slot: Slot,
        now: Monotonic,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) {
        let oldest = self.segments.iter().find_map(|segment| segment.request);
        if oldest.is_none_or(|oldest| oldest > slot) {
            return;
        }
        self.forget_begun(settled);
        if !self.departures.is_empty() {
            self.settle(options, settled);
        }
        let is_older =
            |segment: &&RequestSegment| segment.request.is_none_or(|request| request <= slot);
        let older = self.segments.iter().take_while(is_older);
        let requests = older.filter(|segment| segment.request.is_some());
        let Some(end) = requests.map(|segment| segment.end).last() else {
            return;
        };
        let gone = self.segments.partition_point(|segment| segment.end <= end);
        let gone = self.segments.drain(..gone);
        settled.extend(gone.filter_map(|segment| segment.request.map(Settled::Unanswered)));
        self.writes.end_batch(end);
        if end > self.read {
            // it may still be read
            self.read = end;
            self.from_its_beginning = false;
        }
        self.done = self.done.max(end);
        self.loses_track(now, settled);
    }

    /// Ends a batch after a response has begun to leave; `last` is its last segment.
    fn settle_answered(
        &mut self,
        last: Leaving,
        options: &MatchOptions,
        settled: &mut Vec<Settled>,
    ) {
        let answers = self.answers(options);
        self.from_its_beginning = true;
        self.doubt_over(options, settled);
        let mut requests = self.batch().filter_map(|segment| segment.request);
        match (answers, self.doubt.is_some()) {
            (Some(_), _) if last.more => {
                settled.push(Settled::Unfinished(last.at));
                settled.extend(requests.map(Settled::Unanswered));
                self.not_in_turn();
            }
            (Some(answers), false) => {
                // one for all of them, or one for each
                let each = requests.zip(answers.iter().cycle());
                settled.extend(each.map(|(slot, &(t5, t6))| Settled::Answered(slot, t5, t6)));
            }
            (Some(answers), true) => {
                let turn = requests.next().zip(answers.first().copied());
                drop(requests);
                self.turn(turn, settled);
            }
            (None, _) => {
                settled.extend(requests.map(|slot| Settled::Ambiguous(slot, last.at)));
                self.doubted(last.at, settled);
            }
        }
    }

    /// Ends the doubt if the server is sequential, or was silent for long enough before this batch.
    fn doubt_over(&mut self, options: &MatchOptions, settled: &mut Vec<Settled>) {
        let first = self.batch().map(|segment| segment.at).min();
        let sequential = self.is_sequential(options);
        let over = |doubt: &mut Doubt| {
            let silent = |first| doubt.is_silent(first, options.overtaken_after);
            sequential || first.is_some_and(silent)
        };
        if let Some(doubt) = self.doubt.take_if(over) {
            doubt.end(settled);
        }
    }

    /// Notes one request and its response, which may be a turn.
    fn turn(
        &mut self,
        request: Option<(Slot, (Option<Monotonic>, Monotonic))>,
        settled: &mut Vec<Settled>,
    ) {
        let writes = self.departures.iter().filter(|other| other.write.is_some());
        let at_once = writes.count() <= 1;
        let Some((doubt, (slot, (t5, t6)))) = self.doubt.as_mut().zip(request) else {
            return;
        };
        if self.framer.as_ref().is_some_and(|framer| framer.pipelines) {
            doubt.contradicted();
        }
        if doubt.turn(
            Turn {
                slot,
                t5,
                t6,
                at_once,
            },
            settled,
        ) {
            self.doubt = None;
            if let Some(framer) = &mut self.framer {
                framer.turns = true;
            }
        }
    }

    /// T5 and T6 of each request of the batch, in their order; one for all if they left
    /// together; `None` if that is unknown.
    fn answers(&self, options: &MatchOptions) -> Option<Vec<(Option<Monotonic>, Monotonic)>> {
        let (first, last) = (self.departures.first()?, self.departures.last()?);
        if !self.is_whole() || !self.from_its_beginning && !self.was_read_at_once() {
            return None;
        }
        let requests = self.batch().count();
        if requests <= 1 {
            return Some(vec![(first.write, last.segment.at)]);
        }
        if !self.is_sequential(options) || !self.was_read_at_once() {
            return None;
        }
        let mut writes: Vec<(Option<Monotonic>, Monotonic)> = Vec::new();
        for departure in &self.departures {
            match writes.last_mut() {
                Some(last) if departure.write.is_none() => last.1 = departure.segment.at,
                _ => writes.push((departure.write, departure.segment.at)),
            }
        }
        let all_in_one = writes.len() == 1 && first.writes == 1 && self.writes.further() == 0;
        (all_in_one || writes.len() == requests && self.are_all_writes(writes.len()))
            .then_some(writes)
    }

    /// Whether, as far as is known, no more than this many writes led to the batch's segments.
    fn are_all_writes(&self, writes: usize) -> bool {
        let calls = self.departures.iter().map(|departure| departure.writes);
        !self.writes.are_known() || calls.sum::<u32>() as usize + self.writes.further() == writes
    }

    /// Whether everything that was read was seen to come in.
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

    /// Whether one read returned exactly what the batch consists of.
    fn was_read_at_once(&self) -> bool {
        let mut batch = self.read_segments();
        let Some((first, read)) = batch.next().and_then(|first| Some((first, first.read?))) else {
            return false;
        };
        let together = |other: &RequestSegment| other.read.is_some_and(|other| other.at == read.at);
        let bytes = self.read - first.start;
        batch.all(together) && read.bytes_mod_1024 == Some((bytes % 1024) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matcher::framing::Framing;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(1_000_000 * ms)
    }

    #[test]
    fn a_client_that_is_never_answered_does_not_fill_the_memory() {
        let options = MatchOptions::default();
        let mut settled = Vec::new();
        let mut connection = Connection::opened(0, Framing::OneInTurn);
        for slot in 0..3_000_u16 {
            let end = 10 * (slot + 1);
            connection.arrived(at(slot.into()), end, 10, Some(slot.into()), None);
        }
        let mut left_after = |slot: Slot| {
            connection.expire(slot, at(5_000), &options, &mut settled);
            connection.requests()
        };
        assert_eq!([0, 999, 10].map(&mut left_after), [2_999, 2_000, 2_000]);
        assert_eq!(left_after(2_499), 500);
        // so few are kept: a response may still be told from others
        assert_eq!(left_after(2_999), 500);
        assert!(connection.doubt.is_some());
        let unanswered = settled.iter();
        let unanswered = unanswered.filter(|settled| matches!(settled, Settled::Unanswered(_)));
        assert_eq!(unanswered.count(), 2_500);
    }
}
