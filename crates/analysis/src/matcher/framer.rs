//! The parsers of both directions of a connection, and how far they have got.

use taillab_model::Monotonic;

use super::count::Count;
use super::framing::{Direction, Framing, Lost, Message, Parser};
use super::parts::{Position, Write};

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
    /// The next response is the first one that is followed, so a hole before it may belong to
    /// another response.
    pub(super) fresh: bool,
    /// The write that sent the response that has begun.
    pub(super) begun: Option<Write>,
    /// The writes that led to the last packet, and the last one that led to any.
    pub(super) writes: Vec<Write>,
    pub(super) last_write: Option<Write>,
    pub(super) last_packet: Option<Monotonic>,
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
            fresh: false,
            begun: None,
            writes: Vec::new(),
            last_write: None,
            last_packet: None,
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

    /// While nothing is followed: counts the responses in a packet of the server, which has read up to `read`.
    pub(super) fn count_responses(&mut self, packet: (u32, &[u8], u32), read: Position) {
        if let Some(count) = &mut self.count {
            count.left(packet, read);
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

    /// Ends of the requests in the next packet of the client, as offsets in it.
    pub(super) fn request_ends(
        &mut self,
        payload: &[u8],
        bytes: u32,
        ends: &mut Vec<(u32, Message)>,
    ) -> Result<(), Lost> {
        /// No packet is longer (BIG TCP joins segments up to 512 KiB); only a damaged recording
        /// claims more.
        const LONGEST: u32 = 1 << 20;
        if bytes > LONGEST {
            return Err(Lost);
        }
        let recorded = &payload[..payload.len().min(bytes as usize)];
        let mut at = 0;
        while at < bytes {
            let rest = recorded.get(at as usize..).unwrap_or_default();
            let (taken, end) = self.requests.read_on(rest, u64::from(bytes - at))?;
            at += taken as u32;
            if let Some(message) = end {
                ends.push((at, message));
            }
        }
        Ok(())
    }
}
