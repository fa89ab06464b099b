//! A simulated server of streams: clients with or without pipelining, requests in several
//! segments, responses in several segments or writes, retransmissions and reordering. It
//! emits what the probe would, and knows the true stamps.

use std::collections::VecDeque;

use super::last_segment;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::{Event, EventKind, Monotonic, RequestKey, Tid};

/// How the server reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// One request per read, one write per response.
    One,
    /// Everything available in one read, all responses in one write.
    Together,
    /// Everything available in one read, a write for each response.
    Each,
    /// One request per read, one write per response, but more may be read before the response: not a
    /// sequential server.
    Later,
}

/// What a write's event tells, and when its segments leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Its thread; they leave at once.
    OfThread,
    /// Its connection; they leave at once.
    Known,
    /// Its connection; they leave when all of the response is written, in whatever context.
    Held,
}

impl Writes {
    const fn event(self, tid: Tid, key: RequestKey) -> EventKind {
        match self {
            Self::OfThread => EventKind::WriteCalled { tid },
            Self::Known | Self::Held => EventKind::SegmentWritten { tid, key },
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Connections {
    pub(crate) seed: u64,
    pub(crate) connections: usize,
    pub(crate) requests: usize,
    pub(crate) style: Style,
    /// The largest number of requests that a client has under way on a connection.
    pub(crate) in_flight: usize,
    /// The bytes of a request; 0: any number below 4,000.
    pub(crate) bytes: u32,
    /// Whether responses take several writes.
    pub(crate) head_and_body: bool,
    pub(crate) writes: Writes,
    /// Chance that a segment is sent twice, either way.
    pub(crate) resent: f64,
    /// Chance that two segments swap their places.
    pub(crate) swapped: f64,
    /// Whether the server speaks first on a connection.
    pub(crate) greets: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) key: RequestKey,
    pub(crate) t1: Monotonic,
    pub(crate) t2: Monotonic,
    pub(crate) t4: Monotonic,
    pub(crate) t5: Monotonic,
    /// Every segment of its response; T6 is the last one's.
    pub(crate) t6: Vec<Monotonic>,
}

struct Client {
    port: u16,
    /// The end of the last segment, all 32 bits.
    sequence: u32,
    left: usize,
    under_way: usize,
    /// The places in `truth` of requests that are queued and not read, with their bytes.
    unread: VecDeque<(usize, u32)>,
    /// The places in `truth` of requests that are read and not answered.
    unanswered: VecDeque<usize>,
}

pub(crate) struct Traffic {
    pub(crate) events: Vec<Event>,
    pub(crate) truth: Vec<Truth>,
}

struct World {
    rng: Xoshiro256PlusPlus,
    now: u64,
    events: Vec<Event>,
    truth: Vec<Truth>,
    clients: Vec<Client>,
    model: Connections,
}

/// The thread that greets.
const ACCEPTOR: Tid = 999;

const NEVER: Monotonic = Monotonic::from_nanos_since_boot(0);

impl Connections {
    pub(crate) fn run(self) -> Traffic {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let client = |n| Client {
            port: 40_000 + n as u16,
            sequence: rng.random(),
            left: self.requests,
            under_way: 0,
            unread: VecDeque::new(),
            unanswered: VecDeque::new(),
        };
        let clients: Vec<Client> = (0..self.connections).map(client).collect();
        let mut world = World {
            rng,
            now: 1_000,
            events: Vec::new(),
            truth: Vec::new(),
            clients,
            model: self,
        };
        for n in 0..self.connections {
            let open = EventKind::SegmentIn {
                key: world.key(n),
                bytes: 0,
                push: false,
            };
            world.emit(1, open);
            if self.greets {
                world.greet(n);
            }
        }
        while world.clients.iter().any(|c| c.left > 0 || c.under_way > 0) {
            world.arrivals();
            let n = world.rng.random_range(0..self.connections);
            let client = &world.clients[n];
            let (read, write) = (!client.unread.is_empty(), !client.unanswered.is_empty());
            if write && (!read || world.chance(0.5)) {
                world.answer_first(n);
            } else if read {
                world.serve(n);
            }
        }
        Traffic {
            events: world.events,
            truth: world.truth,
        }
    }
}

impl World {
    fn key(&self, n: usize) -> RequestKey {
        let client = &self.clients[n];
        RequestKey::hashed(0, client.port, client.sequence as u16)
    }

    fn chance(&mut self, share: f64) -> bool {
        self.rng.random_bool(share)
    }

    fn emit(&mut self, cpu: u16, kind: EventKind) -> Monotonic {
        self.now += self.rng.random_range(1..2_000_u64);
        let at = Monotonic::from_nanos_since_boot(self.now);
        self.events.push(Event { at, cpu, kind });
        at
    }

    /// The server writes before the client has sent anything, by a thread that serves no requests.
    fn greet(&mut self, n: usize) {
        let (tid, key) = (ACCEPTOR, self.key(n));
        let write = self.model.writes.event(tid, key);
        self.emit(0, write);
        let left = last_segment(tid, key);
        self.emit(0, left);
    }

    fn arrivals(&mut self) {
        while self.chance(0.5) {
            let n = self.rng.random_range(0..self.clients.len());
            self.send(n);
        }
    }

    /// One request of a client, or two with their segments out of order.
    fn send(&mut self, n: usize) {
        let room = |client: &Client, in_flight| client.left.min(in_flight - client.under_way);
        let room = room(&self.clients[n], self.model.in_flight);
        if room == 0 {
            return;
        }
        let swapped = room > 1 && self.chance(self.model.swapped);
        let mut segments = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..1 + usize::from(swapped) {
            let bytes = match self.model.bytes {
                0 => self.rng.random_range(1..4_000),
                bytes => bytes,
            };
            let mut left = bytes;
            while left > 0 {
                let segment = left.min(1_448);
                left -= segment;
                self.clients[n].sequence = self.clients[n].sequence.wrapping_add(segment);
                segments.push((self.key(n), segment, left == 0));
            }
            sent.push((self.key(n), bytes));
            self.clients[n].left -= 1;
            self.clients[n].under_way += 1;
        }
        if swapped {
            let last = segments.len() - 1;
            segments.swap(last, last - 1);
        }
        let mut t1 = Vec::new();
        for &(key, bytes, push) in &segments {
            let segment = EventKind::SegmentIn { key, bytes, push };
            t1.push((key, self.emit(1, segment)));
            if self.chance(self.model.resent) {
                self.emit(1, segment);
            }
        }
        // TCP queues in order: what came early is queued after what was missing
        segments.sort_by_key(|&(key, ..)| sent[sent.len() - 1].0.id.wrapping_sub(key.id));
        for &(key, ..) in segments.iter().rev() {
            let t2 = self.emit(0, EventKind::SegmentQueued { key });
            if let Some(&(_, bytes)) = sent.iter().find(|(end, _)| *end == key) {
                let of = |(k, _): &&(RequestKey, Monotonic)| *k == key;
                self.clients[n].unread.push_back((self.truth.len(), bytes));
                self.truth.push(Truth {
                    key,
                    t1: t1.iter().find(of).expect("it came in").1,
                    t2,
                    t4: NEVER,
                    t5: NEVER,
                    t6: Vec::new(),
                });
            }
        }
    }

    /// The thread of connection `n` reads and answers.
    fn serve(&mut self, n: usize) {
        let tid: Tid = 1_000 + n as Tid % 3;
        let available = self.clients[n].unread.len();
        let count = match self.model.style {
            Style::One | Style::Later => 1,
            Style::Together | Style::Each => available,
        };
        let read: Vec<(usize, u32)> = self.clients[n].unread.drain(..count).collect();
        let bytes: u32 = read.iter().map(|&(_, bytes)| bytes).sum();
        let key = self.truth[read[count - 1].0].key;
        let t4 = self.emit(
            0,
            EventKind::SegmentRead {
                tid,
                key,
                bytes_mod_1024: (bytes % 1024) as u16,
            },
        );
        read.iter()
            .for_each(|&(request, _)| self.truth[request].t4 = t4);
        let requests: Vec<usize> = read.into_iter().map(|(request, _)| request).collect();
        match self.model.style {
            Style::Later => {
                self.clients[n].unanswered.extend(requests);
                return;
            }
            Style::Together => self.answer(n, tid, key, &requests),
            _ => requests
                .iter()
                .for_each(|&request| self.answer(n, tid, key, &[request])),
        }
        self.clients[n].under_way -= count;
    }

    /// The response to the first request that has none.
    fn answer_first(&mut self, n: usize) {
        let client = &mut self.clients[n];
        let Some(request) = client.unanswered.pop_front() else {
            return;
        };
        // how far the server has read by now
        let last = client.unanswered.back().copied().unwrap_or(request);
        let key = self.truth[last].key;
        self.answer(n, 1_000 + n as Tid % 3, key, &[request]);
        self.clients[n].under_way -= 1;
    }

    /// One response to all of `requests`.
    fn answer(&mut self, n: usize, tid: Tid, key: RequestKey, requests: &[usize]) {
        let writes = 1 + usize::from(self.model.head_and_body && self.chance(0.5));
        let mut t5 = None;
        for last in (0..writes).rev().map(|left| left == 0) {
            // pipelined requests come in while others are served
            if self.clients[n].under_way < self.model.in_flight && self.chance(0.3) {
                self.send(n);
            }
            let write = self.emit(0, self.model.writes.event(tid, key));
            t5.get_or_insert(write);
            let held = self.model.writes == Writes::Held;
            if held && !last {
                continue;
            }
            // whichever thread is current when the client's acknowledgement lets the segments go
            let tid = if held {
                self.rng.random_range(0..1_003)
            } else {
                tid
            };
            let segments = self.rng.random_range(1..=3);
            for left in (0..segments).rev() {
                let out = |resent| EventKind::SegmentOut {
                    tid,
                    key,
                    more: left > 0,
                    resent,
                    limit: None,
                };
                let t6 = self.emit(0, out(false));
                requests
                    .iter()
                    .for_each(|&request| self.truth[request].t6.push(t6));
                if self.chance(self.model.resent) {
                    self.emit(0, out(true));
                }
            }
        }
        for &request in requests {
            self.truth[request].t5 = t5.expect("at least one write");
        }
    }
}
