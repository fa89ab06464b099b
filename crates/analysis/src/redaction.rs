//! Blanks content in a recording: of the bytes that client and server exchange, only lengths and
//! keywords are kept, so that framing finds where messages end, and the names of commands that the protocol
//! itself has ([`commands`](crate::commands)). Keys, values, arguments, paths, cookies and bodies are blanked before
//! anything is written.
//!
//! It parses the streams as the matcher does, but in the order in which the events come, which is not
//! yet the order of time.
//!
//! A packet that does not follow the last one of its stream, or one that was not understood (a body that ends
//! with the connection, another protocol), is parsed as the beginning of a message. A part of a body may look
//! like one. So nothing of the packet is kept unless all of it is understood, in one call.
//!
//! Where a packet of the client begins as those of [another protocol](OtherProtocol) do, a mark of that protocol
//! replaces its beginning.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use taillab_model::{EventKind, Nanos, PackedEvent};

use crate::matcher::framing::{BLANK, Direction, Framing, Parser};
use crate::spoken::OtherProtocol;

/// The largest number of streams. Beyond it, all are forgotten, and followed again from their next message.
const MOST_STREAMS: usize = 1 << 16;

/// The most parts of a stream that are waited for.
const MOST_MISSING: usize = 16;

/// Data that begins further back than this is not a retransmission but another connection's.
const LONGEST_REPEAT: u32 = 1 << 24;

/// Blanks content in the events of a recording.
#[derive(Debug)]
pub struct Redaction {
    framing: Framing,
    /// By the number of the connection, and whether it is the server's side.
    streams: HashMap<(u32, bool), Stream>,
    /// The packet that each CPU is recording.
    packets: Vec<Option<Packet>>,
}

/// One direction of a connection.
#[derive(Debug)]
struct Stream {
    parser: Parser,
    /// The place in the stream of the byte that the parser reads next.
    next: u32,
    /// The last parts of it that were passed over, each from a place to a place. They may still come: each CPU
    /// has its own events.
    missing: VecDeque<(u32, u32)>,
}

/// The part of a stream that a packet carries.
#[derive(Clone, Copy, Debug)]
struct StreamPart {
    bytes: u32,
    /// Where it begins, in bytes.
    place: u32,
}

/// How a packet relates to what was read of its stream.
enum Sequel {
    /// So many of its bytes were read before, and the rest follows.
    Next { again: u32 },
    /// It follows, or may begin a message.
    Doubtful,
    /// It fills a part that was passed over.
    Late,
}

/// A packet whose content is coming.
#[derive(Debug)]
struct Packet {
    client: u32,
    at: Nanos,
    reading: Option<Reading>,
}

/// Where the reader of a packet is.
#[derive(Debug)]
struct Reading {
    response: bool,
    /// How many of the bytes to come were sent before.
    again: u32,
    is_first: bool,
    /// How many bytes of the packet have not come; some are not recorded.
    left: u32,
    /// How many of them are recorded.
    recorded_left: u32,
    /// The packet may begin in the middle of a message.
    probation: Option<Probation>,
    /// Reads a packet that comes after later ones.
    own: Option<Parser>,
}

/// A packet of which nothing is kept if it turns out not to begin a message.
#[derive(Clone, Copy, Debug)]
struct Probation {
    /// The place of its content in the events of this call.
    from: usize,
    /// Something before it was not understood or not seen, so it must be understood as a whole.
    is_doubtful: bool,
    /// It begins as a packet of this protocol does.
    other: Option<OtherProtocol>,
}

/// What the blanked content of a packet begins with: no message does, in any protocol.
const NO_MESSAGE: &[u8] = b"?\n";

impl Redaction {
    /// For connections of this framing; `None` where no content is recorded.
    pub fn new(framing: Framing) -> Option<Self> {
        (framing.payload_bytes() > 0).then(|| Self {
            framing,
            streams: HashMap::new(),
            packets: Vec::new(),
        })
    }

    /// Blanks the content in events of one CPU, in the order in which they were recorded. Those of
    /// a packet may come in several calls.
    pub fn redact(&mut self, cpu: u16, events: &mut [PackedEvent]) {
        let cpu = usize::from(cpu);
        if self.packets.len() <= cpu {
            self.packets.resize_with(cpu + 1, || None);
        }
        if let Some(probation) = self
            .reading(cpu)
            .and_then(|reading| reading.probation.as_mut())
        {
            (probation.from, probation.other) = (0, None);
        }
        for place in 0..events.len() {
            let (so_far, rest) = events.split_at_mut(place);
            let at = rest[0].since_base();
            match rest[0].kind() {
                EventKind::Announced { connection, .. } => {
                    // the number is another connection's now
                    self.streams.remove(&(connection, false));
                }
                EventKind::SegmentIn { key, bytes: 0, .. } => {
                    // a new connection from the same port; the server's side may have been drained before
                    self.streams.remove(&(key.connection, false));
                }
                EventKind::SegmentIn { key, .. } | EventKind::SegmentOut { key, .. } => {
                    self.end_packet(cpu, so_far);
                    self.packets[cpu] = Some(Packet {
                        client: key.connection,
                        at,
                        reading: None,
                    });
                }
                EventKind::Payload {
                    bytes,
                    len: 0,
                    response,
                } => {
                    let word = u64::from_le_bytes(bytes);
                    let part = StreamPart {
                        bytes: word as u32,
                        place: (word >> 32) as u32,
                    };
                    self.begin((cpu, at), response, part, place + 1);
                }
                EventKind::Payload {
                    mut bytes,
                    len,
                    response,
                } => {
                    let (content, beyond) = bytes.split_at_mut(usize::from(len).min(8));
                    let failed = self.read((cpu, at), content);
                    beyond.fill(0);
                    let kind = EventKind::Payload {
                        bytes,
                        len,
                        response,
                    };
                    rest[0] = PackedEvent::new(at, kind);
                    if let Some(Probation { from, other, .. }) = failed {
                        blank(&mut events[from..=place], other);
                    }
                }
                _ => {}
            }
        }
        let more_comes = |reading: &mut Reading| {
            let doubtful = reading
                .probation
                .is_some_and(|probation| probation.is_doubtful);
            reading.recorded_left > 0 && !doubtful
        };
        if !self.reading(cpu).is_some_and(more_comes) {
            self.end_packet(cpu, events);
        }
    }

    /// Where the reader of this CPU's packet is.
    fn reading(&mut self, cpu: usize) -> Option<&mut Reading> {
        self.packets[cpu].as_mut()?.reading.as_mut()
    }

    /// No more of this CPU's packet comes in this call; these are the events so far.
    fn end_packet(&mut self, cpu: usize, events: &mut [PackedEvent]) {
        let Some(packet) = &mut self.packets[cpu] else {
            return;
        };
        let Some(reading) = &mut packet.reading else {
            return;
        };
        let probation = reading
            .probation
            .take()
            .filter(|probation| probation.is_doubtful);
        let stream = self.streams.get_mut(&(packet.client, reading.response));
        let parser = match &mut reading.own {
            Some(own) => Some(own),
            None => stream.map(|stream| &mut stream.parser),
        };
        if let (Some(probation), Some(parser)) = (probation, parser)
            && !parser.has_understood(reading.left.into())
        {
            parser.lose();
            blank(&mut events[probation.from..], probation.other);
        }
    }

    /// Begins a packet that carries this part of its stream. Its content begins with the event
    /// `from`.
    fn begin(
        &mut self,
        (cpu, at): (usize, Nanos),
        response: bool,
        StreamPart { bytes, place }: StreamPart,
        from: usize,
    ) {
        let packet = self.packets[cpu].as_mut().filter(|packet| packet.at == at);
        let direction = match response {
            true => Direction::Responses,
            false => Direction::Requests,
        };
        let Some(packet) = packet else {
            return;
        };
        if self.streams.len() >= MOST_STREAMS {
            self.streams.clear();
        }
        let (stream, is_new) = match self.streams.entry((packet.client, response)) {
            Entry::Occupied(known) => (known.into_mut(), false),
            Entry::Vacant(new) => match Parser::new(self.framing, direction) {
                Some(parser) => {
                    let stream = Stream {
                        parser,
                        next: place,
                        missing: VecDeque::new(),
                    };
                    (new.insert(stream), true)
                }
                None => return,
            },
        };
        let (again, is_doubtful, is_late) = match stream.go_to(place, bytes, response) {
            Sequel::Next { again } => (again, false, false),
            Sequel::Doubtful => (0, true, false),
            Sequel::Late => (0, true, true),
        };
        let own = is_late.then(|| Parser::new(self.framing, direction));
        packet.reading = Some(Reading {
            response,
            again,
            is_first: true,
            left: bytes,
            recorded_left: bytes.min(self.framing.payload_bytes().into()),
            probation: (is_new || is_doubtful).then_some(Probation {
                from,
                is_doubtful,
                other: None,
            }),
            own: own.flatten(),
        });
    }

    /// Reads the next bytes of a packet, and blanks what is not needed. Returns the probation of the packet if it
    /// has failed.
    fn read(&mut self, (cpu, at): (usize, Nanos), content: &mut [u8]) -> Option<Probation> {
        let packet = self.packets[cpu].as_mut().filter(|packet| packet.at == at);
        let known = packet.and_then(|packet| {
            let reading = packet.reading.as_mut()?;
            let key = (packet.client, reading.response);
            Some((self.streams.get_mut(&key)?, reading))
        });
        let Some((stream, reading)) = known else {
            content.fill(BLANK);
            return None;
        };
        let length = content.len() as u32;
        reading.left = reading.left.saturating_sub(length);
        reading.recorded_left = reading.recorded_left.saturating_sub(length);
        let again = content.len().min(reading.again as usize);
        let (again, new) = content.split_at_mut(again);
        again.fill(BLANK);
        reading.again -= again.len() as u32;
        let is_first = std::mem::take(&mut reading.is_first);
        if let Some(own) = &mut reading.own {
            own.redact(new);
            return reading.probation.take_if(|_| own.is_lost());
        }
        if is_first && reading.response && stream.parser.lacks_body(new) {
            stream.parser.restart();
        }
        let begins = is_first && again.is_empty() && stream.parser.is_at_start();
        let other = OtherProtocol::of(new).filter(|_| begins && !reading.response);
        stream.parser.redact(new);
        if let Some(other) = other {
            let marked = new.iter_mut().zip(other.mark());
            marked.for_each(|(byte, mark)| *byte = *mark);
        }
        if let Some(probation) = &mut reading.probation {
            probation.other = probation.other.or(other);
        }
        stream.next = stream.next.wrapping_add(new.len() as u32);
        match stream.parser.is_lost() {
            true => reading.probation.take(),
            false => None,
        }
    }
}

impl Stream {
    /// Goes to the place where a packet of this many bytes begins.
    fn go_to(&mut self, place: u32, bytes: u32, response: bool) -> Sequel {
        let ahead = place.wrapping_sub(self.next);
        let behind = self.next.wrapping_sub(place);
        // the server's places count from the beginning of its stream
        let begins = response && place == 0;
        if !begins && (1..=LONGEST_REPEAT).contains(&behind) {
            let lies_in = |&(from, to): &(u32, u32)| {
                let before = place.wrapping_sub(from);
                before < to.wrapping_sub(from) && to.wrapping_sub(place) >= bytes
            };
            return match self.missing.iter().any(lies_in) {
                true => Sequel::Late,
                false => Sequel::Next {
                    again: behind.min(bytes),
                },
            };
        }
        // skips what was not recorded or not seen, mostly parts of bodies
        let is_lost = self.parser.is_lost() || self.parser.skip_over(ahead.into()).is_err();
        if begins || is_lost {
            self.parser.restart();
        }
        if begins {
            self.missing.clear();
        } else if is_lost && ahead > 0 {
            self.missing.push_back((self.next, place));
            if self.missing.len() > MOST_MISSING {
                self.missing.pop_front();
            }
        }
        self.next = place;
        match is_lost && !begins {
            true => Sequel::Doubtful,
            false => Sequel::Next { again: 0 },
        }
    }
}

/// Blanks the content of these events, so that no message is found in it, except that it is of an `other` protocol.
fn blank(events: &mut [PackedEvent], other: Option<OtherProtocol>) {
    let begins = other.map_or(&[][..], OtherProtocol::mark);
    let text = begins.iter().chain(NO_MESSAGE);
    let mut text = text.chain(std::iter::repeat(&BLANK));
    for event in events {
        if let EventKind::Payload {
            mut bytes,
            len: len @ 1..,
            response,
        } = event.kind()
        {
            let content = bytes.iter_mut().take(len.into());
            content
                .zip(&mut text)
                .for_each(|(byte, blank)| *byte = *blank);
            let kind = EventKind::Payload {
                bytes,
                len,
                response,
            };
            *event = PackedEvent::new(event.since_base(), kind);
        }
    }
}
