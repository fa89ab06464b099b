//! The parsers of both directions of a connection, and how far they have got.

use taillab_model::Monotonic;

use super::count::Count;
use super::framing::{BLANK, Direction, Framing, Message, Parser};
use super::packet::{Extent, NewBytes, PacketPart};
use super::parts::{Position, Write};
use super::threads::Read;

/// Both directions of a connection.
pub(super) struct Framer {
    framing: Framing,
    pub(super) requests: Parser,
    pub(super) responses: Parser,
    /// The messages while nothing is followed, as long as those of the client are understood.
    count: Option<Box<Count>>,
    /// Both directions are followed.
    pub(super) synced: bool,
    /// The directions are not followed, but client and server take turns: the next turn begins a
    /// message.
    pub(super) turns: bool,
    /// The client was seen to send a request without waiting for the response to the one before.
    pub(super) pipelines: bool,
    /// The same, unless a packet of the server that was not seen has answered it.
    pub(super) ahead: bool,
    /// The place of the server's next byte in its stream; `None` while nothing of that stream has
    /// been seen.
    pub(super) next_out: Option<u32>,
    /// The sequence number of the client's next byte; `None` where that is not known. A request's own stamp has only its
    /// lower half, which is that of the next byte again after a hole of 64 KiB.
    next_in: Option<u32>,
    /// The next response is the first one that is followed, so a hole before it may belong to
    /// another response.
    pub(super) fresh: bool,
    /// The write that sent the response that has begun.
    pub(super) begun: Option<Write>,
    /// The writes that led to the last packet, and the last one that led to any.
    pub(super) writes: Vec<Write>,
    pub(super) last_write: Option<Write>,
    pub(super) last_packet: Option<Monotonic>,
    /// Content of the client was seen.
    pub(super) began: bool,
    /// The last read, and how far it got.
    pub(super) last_read: Option<(Position, Read)>,
    /// The rest of a request that has been answered is still to come.
    pub(super) rest_comes: bool,
}

/// What ends in a packet of the client.
pub(super) struct PacketEnds {
    /// Up to there, it is the rest of a request that has been answered.
    pub(super) rest: u32,
    /// The ends of requests, as offsets in it.
    pub(super) requests: Vec<(u32, Message)>,
}

impl Framer {
    pub(super) fn new(framing: Framing, synced: bool) -> Option<Box<Self>> {
        Some(Box::new(Self {
            framing,
            count: Count::new(framing).filter(|_| !synced),
            requests: Parser::new(framing, Direction::Requests)?,
            responses: Parser::new(framing, Direction::Responses)?,
            synced,
            turns: false,
            pipelines: false,
            ahead: false,
            next_out: synced.then_some(0),
            next_in: None,
            fresh: false,
            begun: None,
            writes: Vec::new(),
            last_write: None,
            last_packet: None,
            began: false,
            last_read: None,
            rest_comes: false,
        }))
    }

    pub(super) fn restart(&mut self) {
        self.requests.restart();
        self.responses.restart();
        self.synced = true;
        self.turns = false;
        self.ahead = false;
        self.count = None;
        self.fresh = true;
        self.begun = None;
        self.last_write = None;
        self.rest_comes = false;
    }

    /// What a packet of the client adds to its stream; `None` where its place, or that of the next byte, is not known.
    pub(super) fn part_of_requests(&self, extent: Option<Extent>) -> Option<PacketPart> {
        Some(extent?.after(self.next_in?))
    }

    /// Goes on to the end of a packet of the client; it is not known where that is without an extent.
    pub(super) fn arrived(&mut self, extent: Option<Extent>) {
        self.next_in = extent.map(Extent::end);
    }

    /// Packets were missed, or not understood.
    pub(super) fn lose(&mut self, turns: bool) {
        self.synced = false;
        self.turns = turns;
        self.count = Count::new(self.framing);
    }

    /// Packets of the client were missed: the next one is taken for the beginning of a message.
    pub(super) fn recount(&mut self) {
        self.requests.restart();
        self.rest_comes = false;
        self.count = Count::new(self.framing);
    }

    /// While nothing is followed: counts the requests in a packet of the client that begins at a position.
    pub(super) fn count_requests(&mut self, begin: Position, ends: &[(u32, Message)]) {
        let is_lost = self.requests.is_lost();
        self.count.take_if(|count| {
            let mut counts = ends
                .iter()
                .map(|(end, message)| count.came(*message, begin + Position::from(*end)));
            is_lost || counts.any(|counts| !counts)
        });
    }

    /// While nothing is followed: counts the responses in what the server, which has read up to `read`, sends.
    pub(super) fn count_responses(&mut self, new: NewBytes<'_>, read: Position) {
        if let Some(count) = &mut self.count {
            count.left(new, read);
        }
    }

    /// While nothing is followed: whether all requests have been answered, as far as counting tells.
    pub(super) fn owes_nothing(&self) -> bool {
        let counted = self
            .count
            .as_ref()
            .is_some_and(|count| count.owes_nothing());
        counted && self.requests.is_at_start()
    }

    /// While nothing is followed: whether a packet of the server, of this many `bytes`, has nothing but what
    /// answers no request.
    pub(super) fn is_interim(&mut self, packet: &[u8], bytes: u32) -> bool {
        self.responses.restart();
        let mut rest: &[u8] = match packet.len() as u64 == u64::from(bytes) {
            true => packet,
            false => &[],
        };
        let mut nothing = !rest.is_empty();
        while nothing && !rest.is_empty() {
            match self.responses.feed(rest) {
                Ok((taken, None)) => rest = &rest[taken..],
                _ => nothing = false,
            }
        }
        nothing && self.responses.is_at_start()
    }

    /// Whether more than lengths is known of the messages.
    pub(super) const fn is_by_content(&self) -> bool {
        !matches!(self.framing, Framing::FixedLength { .. })
    }

    /// Whether nothing was kept of a packet that begins a message. Of a part of an inline command of Redis,
    /// nothing is either, but that is short.
    pub(super) fn is_blanked(&self, recorded: &[u8]) -> bool {
        const LONG: usize = 16;
        self.is_by_content() && recorded.len() >= LONG && recorded.iter().all(|byte| *byte == BLANK)
    }

    /// Reads the next packet of the client, if it `follows` the one before.
    pub(super) fn read_requests(
        &mut self,
        follows: bool,
        payload: &[u8],
        bytes: u32,
    ) -> PacketEnds {
        let mut ends = Vec::new();
        let (followed, understood) = match follows {
            true => self.request_ends(payload, bytes, &mut ends),
            // there is a hole
            false => (false, false),
        };
        self.synced &= followed;
        let mut rest = 0;
        if self.rest_comes && follows {
            let is_all = ends.is_empty();
            rest = if is_all { bytes } else { ends.remove(0).0 };
            self.rest_comes = is_all && followed;
        }
        let begins_another = ends.last().is_some_and(|(end, _)| *end < bytes);
        self.pipelines |= understood && (ends.len() > 1 || begins_another);
        self.pipelines |= ends.iter().any(|(_, message)| message.silent);
        PacketEnds {
            rest,
            requests: ends,
        }
    }

    /// What is known of a request that has begun and goes on, if it is still to be answered.
    pub(super) fn goes_on(&self) -> Option<Message> {
        let begun = self.requests.begun().filter(|_| !self.rest_comes);
        begun.filter(|message| !message.silent)
    }

    /// Ends of the requests in the next packet of the client, as offsets in it. Returns whether they are
    /// followed, and whether all that was recorded is understood.
    fn request_ends(
        &mut self,
        payload: &[u8],
        bytes: u32,
        ends: &mut Vec<(u32, Message)>,
    ) -> (bool, bool) {
        /// No packet is longer (BIG TCP joins segments up to 512 KiB); only a damaged recording
        /// claims more.
        const LONGEST: u32 = 1 << 20;
        let recorded = &payload[..payload.len().min(bytes as usize)];
        if bytes > LONGEST || self.requests.is_at_start() && self.is_blanked(recorded) {
            self.requests.lose();
            return (false, false);
        }
        let mut at = 0;
        while at < bytes {
            let rest = recorded.get(at as usize..).unwrap_or_default();
            let Ok((taken, end)) = self.requests.read_on(rest, u64::from(bytes - at)) else {
                return (false, rest.is_empty());
            };
            at += taken as u32;
            if let Some(message) = end {
                ends.push((at, message));
            }
        }
        (true, true)
    }
}
