//! A connection that carries bytes: pipelined requests, packets that end anywhere, a
//! server that reads and writes in any portions. It emits what the probe would, content
//! included, and knows the true stamps.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::{Event, EventKind, Monotonic, RequestKey, Tid};

/// A request and its response, as bytes.
pub(crate) type Exchange = (Vec<u8>, Vec<u8>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) seed: u64,
    /// The largest number of requests under way.
    pub(crate) in_flight: usize,
    /// How many bytes of each packet are recorded.
    pub(crate) recorded: usize,
    /// Packets end with a message.
    pub(crate) whole: bool,
    /// The beginning of the connection is seen.
    pub(crate) opened: bool,
    pub(crate) port: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Truth {
    pub(crate) t1: Monotonic,
    pub(crate) t6: Monotonic,
    pub(crate) t4: Monotonic,
    pub(crate) id: u16,
}

const SERVER: Tid = 9;

struct Side {
    sequence: u32,
    /// Bytes that are written and not sent yet.
    buffer: VecDeque<u8>,
    /// Where messages that are not sent yet end, in all that was written; how much was written, and sent.
    ends: VecDeque<u64>,
    written: u64,
    sent: u64,
}

impl Side {
    fn write(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
        self.written += bytes.len() as u64;
        self.ends.push_back(self.written);
    }
}

impl Connection {
    pub(crate) fn run(self, exchanges: &[Exchange]) -> (Vec<Event>, Vec<Truth>) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut side = || Side {
            sequence: rng.random(),
            buffer: VecDeque::new(),
            ends: VecDeque::new(),
            written: 0,
            sent: 0,
        };
        let (mut client, mut server) = (side(), side());
        // the server's sequence numbers count from the beginning of its stream
        server.sequence = 0;
        let mut events = Vec::new();
        let mut now = 1_000_u64;
        let mut tick = |rng: &mut Xoshiro256PlusPlus| {
            now += rng.random_range(1..2_000_u64);
            Monotonic::from_nanos_since_boot(now)
        };
        let key = |sequence: u32| RequestKey::hashed(0, self.port, sequence as u16);
        let (mut begun, mut written, mut read, mut read_to) = (0, 0, 0, client.sequence);
        let mut truth: Vec<Truth> = Vec::new();
        let mut answered = 0;
        if self.opened {
            let kind = EventKind::SegmentIn {
                key: key(client.sequence),
                bytes: 0,
                push: false,
            };
            events.push(Event {
                at: tick(&mut rng),
                cpu: 1,
                kind,
            });
        }
        let mut read_times: Vec<Monotonic> = Vec::new();
        let mut request_ends: Vec<u64> = Vec::new();
        while answered < exchanges.len() {
            match rng.random_range(0..5) {
                // the client writes a request, and sends some of what is written
                0 if begun < exchanges.len() && begun - answered < self.in_flight => {
                    client.write(&exchanges[begun].0);
                    request_ends.push(client.written);
                    begun += 1;
                }
                1 if !client.buffer.is_empty() => {
                    let bytes = self.packet(&mut client, &mut rng);
                    let at = tick(&mut rng);
                    let sequence = client.sequence;
                    client.sequence = client.sequence.wrapping_add(bytes.len() as u32);
                    let kind = EventKind::SegmentIn {
                        key: key(client.sequence),
                        bytes: bytes.len() as u32,
                        push: true,
                    };
                    events.push(Event { at, cpu: 1, kind });
                    self.content(&mut events, at, (&bytes, sequence, false));
                    while truth.len() < request_ends.len()
                        && request_ends[truth.len()] <= client.sent
                    {
                        let behind = client.sent - request_ends[truth.len()];
                        let id = client.sequence.wrapping_sub(behind as u32) as u16;
                        truth.push(Truth {
                            t1: at,
                            t6: at,
                            t4: at,
                            id,
                        });
                    }
                    let kind = EventKind::SegmentQueued {
                        key: key(client.sequence),
                    };
                    events.push(Event {
                        at: tick(&mut rng),
                        cpu: 0,
                        kind,
                    });
                }
                // the server reads some of what has come
                2 if read < client.sent => {
                    let most = client.sent - read;
                    let bytes = if rng.random_bool(0.7) {
                        most
                    } else {
                        rng.random_range(1..=most)
                    };
                    read += bytes;
                    read_to = read_to.wrapping_add(bytes as u32);
                    let at = tick(&mut rng);
                    let kind = EventKind::SegmentRead {
                        tid: SERVER,
                        key: key(read_to),
                        bytes_mod_1024: (bytes % 1_024) as u16,
                    };
                    events.push(Event { at, cpu: 0, kind });
                    while read_times.len() < request_ends.len()
                        && request_ends[read_times.len()] <= read
                    {
                        truth[read_times.len()].t4 = at;
                        read_times.push(at);
                    }
                }
                // it answers some of what it has read
                3 if written < read_times.len() => {
                    events.push(Event {
                        at: tick(&mut rng),
                        cpu: 0,
                        kind: EventKind::WriteCalled { tid: SERVER },
                    });
                    for _ in 0..rng.random_range(1..=read_times.len() - written) {
                        server.write(&exchanges[written].1);
                        written += 1;
                    }
                }
                4 if !server.buffer.is_empty() => {
                    let bytes = self.packet(&mut server, &mut rng);
                    let at = tick(&mut rng);
                    let kind = EventKind::SegmentOut {
                        tid: SERVER,
                        key: key(read_to),
                        more: !server.buffer.is_empty(),
                        resent: false,
                        limit: None,
                    };
                    events.push(Event { at, cpu: 0, kind });
                    self.content(&mut events, at, (&bytes, server.sequence, true));
                    server.sequence = server.sequence.wrapping_add(bytes.len() as u32);
                    while server.ends.front().is_some_and(|&end| end <= server.sent) {
                        server.ends.pop_front();
                        truth[answered].t6 = at;
                        answered += 1;
                    }
                }
                _ => {}
            }
        }
        (events, truth)
    }

    /// The bytes of a packet.
    fn packet(&self, side: &mut Side, rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        let most = side.buffer.len();
        let mut bytes = if rng.random_bool(0.5) {
            most
        } else {
            rng.random_range(1..=most)
        };
        if self.whole {
            // up to the end of a message
            let sent = side.sent;
            let end = side.ends.iter().find(|&&end| end >= sent + bytes as u64);
            bytes = end.map_or(most, |end| (end - sent) as usize);
        }
        side.sent += bytes as u64;
        side.buffer.drain(..bytes).collect()
    }

    fn content(&self, events: &mut Vec<Event>, at: Monotonic, packet: (&[u8], u32, bool)) {
        let (bytes, sequence, response) = packet;
        let cpu = u16::from(!response);
        let extent = u64::from(sequence) << 32 | bytes.len() as u64;
        let mut push = |bytes, len| {
            let kind = EventKind::Payload {
                bytes,
                len,
                response,
            };
            events.push(Event { at, cpu, kind });
        };
        push(extent.to_le_bytes(), 0);
        for piece in bytes[..bytes.len().min(self.recorded)].chunks(8) {
            let mut eight = [0; 8];
            eight[..piece.len()].copy_from_slice(piece);
            push(eight, piece.len() as u8);
        }
    }
}
