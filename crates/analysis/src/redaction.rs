//! Blanks content in a recording: of the bytes that client and server exchange, only lengths and
//! keywords are kept, so that framing finds where messages end. Keys, values, paths, cookies and bodies
//! are blanked before anything is written.
//!
//! It parses the streams as the matcher does, but in the order in which the events come, which is not
//! yet the order of time. A packet that does not follow the last one of its stream is parsed as the
//! beginning of a message. If it is not one, nothing of it is kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use taillab_model::{EventKind, Nanos, PackedEvent};

use crate::matcher::framing::{BLANK, Direction, Framing, Parser};

/// The largest number of streams. Beyond it, all are forgotten, and followed again from their next message.
const MOST_STREAMS: usize = 1 << 16;

/// Data that begins further back than this is not a retransmission but another connection's.
const LONGEST_REPEAT: u32 = 1 << 24;

/// Blanks content in the events of a recording.
#[derive(Debug)]
pub struct Redaction {
    framing: Framing,
    /// By the client's address and port, and whether it is the server's side.
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
}

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
        for event in events {
            let at = event.since_base();
            match event.kind() {
                EventKind::SegmentIn { key, bytes: 0, .. } => {
                    // a new connection from the same port; the server's side may have been drained before
                    self.streams.remove(&(key.client(), false));
                }
                EventKind::SegmentIn { key, .. } | EventKind::SegmentOut { key, .. } => {
                    self.packets[cpu] = Some(Packet {
                        client: key.client(),
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
                    self.begin((cpu, at), response, word as u32, (word >> 32) as u32);
                }
                EventKind::Payload {
                    mut bytes,
                    len,
                    response,
                } => {
                    let (content, beyond) = bytes.split_at_mut(usize::from(len).min(8));
                    self.read((cpu, at), content);
                    beyond.fill(0);
                    let kind = EventKind::Payload {
                        bytes,
                        len,
                        response,
                    };
                    *event = PackedEvent::new(at, kind);
                }
                _ => {}
            }
        }
    }

    /// Begins a packet of this many bytes at this place of its stream.
    fn begin(&mut self, (cpu, at): (usize, Nanos), response: bool, bytes: u32, place: u32) {
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
        let stream = match self.streams.entry((packet.client, response)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => match Parser::new(self.framing, direction) {
                Some(parser) => new.insert(Stream {
                    parser,
                    next: place,
                }),
                None => return,
            },
        };
        packet.reading = Some(Reading {
            response,
            again: stream.go_to(place, response).min(bytes),
            is_first: true,
        });
    }

    /// Reads the next bytes of a packet, and blanks what is not needed.
    fn read(&mut self, (cpu, at): (usize, Nanos), content: &mut [u8]) {
        let packet = self.packets[cpu].as_mut().filter(|packet| packet.at == at);
        let known = packet.and_then(|packet| {
            let reading = packet.reading.as_mut()?;
            let key = (packet.client, reading.response);
            Some((self.streams.get_mut(&key)?, reading))
        });
        let Some((stream, reading)) = known else {
            return content.fill(BLANK);
        };
        let again = content.len().min(reading.again as usize);
        let (again, new) = content.split_at_mut(again);
        again.fill(BLANK);
        reading.again -= again.len() as u32;
        let is_first = std::mem::take(&mut reading.is_first);
        if is_first && reading.response && stream.parser.lacks_body(new) {
            stream.parser.restart();
        }
        stream.parser.redact(new);
        stream.next = stream.next.wrapping_add(new.len() as u32);
    }
}

impl Stream {
    /// Goes to the place where a packet begins; returns how many of its bytes were read before.
    fn go_to(&mut self, place: u32, response: bool) -> u32 {
        let ahead = place.wrapping_sub(self.next);
        let behind = self.next.wrapping_sub(place);
        // the server's places count from the beginning of its stream
        let begins = response && place == 0;
        if !begins && (1..=LONGEST_REPEAT).contains(&behind) {
            return behind;
        }
        // skips what was not recorded or not seen, mostly parts of bodies
        if begins || self.parser.is_lost() || self.parser.skip_over(ahead.into()).is_err() {
            self.parser.restart();
        }
        self.next = place;
        0
    }
}
