//! A connection on which client and server say what a test tells them, with the events that the probe
//! would record, content included.

use super::last_segment;
use taillab_analysis::{Framing, MatchOptions, Matched, match_events};
use taillab_model::{Event, EventKind, Monotonic, Nanos, RequestKey, Tid};

/// The server's only thread.
pub(crate) const SERVER: Tid = 9;

/// What is matched of these events, of a server about whose order nothing is known.
pub(crate) fn matched(events: &[Event], framing: Framing) -> Matched {
    let options = MatchOptions {
        framing,
        hashed_clients: true,
        ..MatchOptions::for_streams(Nanos::from_secs(1), false)
    };
    match_events(events.iter().copied(), &options)
}

/// T1 and T6 of the requests.
pub(crate) fn ends(matched: &Matched) -> Vec<(Monotonic, Monotonic)> {
    let stamps = matched.requests.iter().map(|request| request.server);
    stamps.map(|stamps| (stamps.t1, stamps.t6)).collect()
}

/// Both sides of a connection.
pub(crate) struct Talk {
    pub(crate) events: Vec<Event>,
    now: u64,
    port: u16,
    /// How much the client has sent, counted as its sequence numbers are.
    sent: u32,
    /// How far the server has read.
    read: u32,
    /// How many bytes the server has sent.
    place: u32,
}

impl Talk {
    /// A connection whose beginning is seen.
    pub(crate) fn opened(port: u16) -> Self {
        let mut talk = Self::joined(port);
        talk.begins();
        talk
    }

    fn begins(&mut self) {
        self.place = 0;
        let begins = EventKind::SegmentIn {
            key: self.key(self.sent),
            bytes: 0,
            push: false,
        };
        self.emit(1, begins);
    }

    /// A connection that has existed for a while.
    pub(crate) const fn joined(port: u16) -> Self {
        Self {
            events: Vec::new(),
            now: 1_000_000,
            port,
            sent: 70_000,
            read: 70_000,
            place: 5_000,
        }
    }

    /// The same client, at the same time, with a new connection.
    pub(crate) fn reconnected(self, port: u16) -> Self {
        let mut again = Self {
            now: self.now,
            ..Self::joined(port)
        };
        again.events = self.events;
        again.begins();
        again
    }

    /// Nothing happens for this long.
    pub(crate) const fn wait(&mut self, ns: u64) {
        self.now += ns;
    }

    const fn key(&self, sequence: u32) -> RequestKey {
        RequestKey::hashed(0, self.port, sequence as u16)
    }

    fn emit(&mut self, cpu: u16, kind: EventKind) -> Monotonic {
        self.now += 1_000;
        let at = Monotonic::from_nanos_since_boot(self.now);
        self.events.push(Event { at, cpu, kind });
        at
    }

    fn content(&mut self, (at, cpu): (Monotonic, u16), bytes: &[u8], place: u32) {
        let response = cpu == 0;
        let extent = u64::from(place) << 32 | bytes.len() as u64;
        let pieces = bytes.chunks(8).map(|piece| {
            let mut eight = [0; 8];
            eight[..piece.len()].copy_from_slice(piece);
            (eight, piece.len() as u8)
        });
        for (bytes, len) in std::iter::once((extent.to_le_bytes(), 0)).chain(pieces) {
            let kind = EventKind::Payload {
                bytes,
                len,
                response,
            };
            self.events.push(Event { at, cpu, kind });
        }
    }

    /// The client sends one packet, which the server does not read yet. Returns when it came in.
    pub(crate) fn sends(&mut self, bytes: &[u8]) -> Monotonic {
        let place = self.sent;
        self.sent = self.sent.wrapping_add(bytes.len() as u32);
        let key = self.key(self.sent);
        let came = EventKind::SegmentIn {
            key,
            bytes: bytes.len() as u32,
            push: true,
        };
        let at = self.emit(1, came);
        self.content((at, 1), bytes, place);
        self.emit(0, EventKind::SegmentQueued { key });
        at
    }

    /// The client sends so many bytes, and the server reads them; nothing of that is seen.
    pub(crate) const fn misses(&mut self, bytes: u32) {
        self.sent = self.sent.wrapping_add(bytes);
        self.read = self.read.wrapping_add(bytes);
    }

    /// The server reads all that has come. Returns when.
    pub(crate) fn reads(&mut self) -> Monotonic {
        self.reads_bytes(self.sent.wrapping_sub(self.read))
    }

    /// The server reads so many bytes. Returns when.
    pub(crate) fn reads_bytes(&mut self, bytes: u32) -> Monotonic {
        self.read = self.read.wrapping_add(bytes);
        let read = EventKind::SegmentRead {
            tid: SERVER,
            key: self.key(self.read),
            bytes_mod_1024: (bytes % 1_024) as u16,
        };
        self.emit(0, read)
    }

    /// The client sends one packet, and the server reads it.
    pub(crate) fn asks(&mut self, bytes: &[u8]) -> Monotonic {
        let at = self.sends(bytes);
        self.reads();
        at
    }

    /// The server writes, and it leaves as one packet. Returns when.
    pub(crate) fn answers(&mut self, bytes: &[u8]) -> Monotonic {
        let (tid, key) = (SERVER, self.key(self.read));
        self.emit(0, EventKind::SegmentWritten { tid, key });
        let left = last_segment(tid, key);
        let at = self.emit(0, left);
        self.content((at, 0), bytes, self.place);
        self.place = self.place.wrapping_add(bytes.len() as u32);
        at
    }

    /// What the server wrote last leaves once more. Returns when.
    pub(crate) fn answers_again(&mut self, bytes: &[u8]) -> Monotonic {
        let left = EventKind::SegmentOut {
            tid: 0,
            key: self.key(self.read),
            more: false,
            resent: true,
            limit: None,
        };
        let at = self.emit(0, left);
        self.content((at, 0), bytes, self.place.wrapping_sub(bytes.len() as u32));
        at
    }

    /// As [`Self::answers`], but the response is handed down to a device's queue. Returns when, and as which number
    /// [`Self::leaves`] is told of it.
    pub(crate) fn hands_down(&mut self, bytes: &[u8]) -> (Monotonic, u32) {
        let key = self.key(0);
        let place = self.events.len();
        let at = self.answers(bytes);
        let left = (self.events.iter().rposition(|event| event.at == at)).unwrap_or(place);
        let first = (self.events[..=left].iter()).rposition(|event| event.at != at);
        let number = self.now as u32 & (u32::MAX >> 1);
        let kind = EventKind::DeviceQueue {
            key,
            number,
            left: false,
        };
        let queued = Event { at, cpu: 0, kind };
        self.events
            .insert(first.map_or(0, |first| first + 1), queued);
        (at, number)
    }

    /// Something else happens.
    pub(crate) fn tells(&mut self, kind: EventKind) {
        self.emit(0, kind);
    }

    /// The driver takes what was handed down. Returns when.
    pub(crate) fn leaves(&mut self, number: u32) -> Monotonic {
        let kind = EventKind::DeviceQueue {
            key: self.key(0),
            number,
            left: true,
        };
        self.emit(0, kind)
    }
}
