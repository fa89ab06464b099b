//! The matcher's part for streams: between its events and their [`Connection`]s.

use taillab_model::{Monotonic, RequestKey, Tid};

use super::stream::{Connection, Leaving, Role, Settled};
use super::threads::{Read, Sent};
use super::{IdMap, Matcher, Slot};

/// The connections, by the client's address and port, and what is not certain about their requests.
#[derive(Default)]
pub(super) struct Streams {
    by_client: IdMap<Connection>,
    /// A response that was ambiguous may have been this request's.
    doubtful: IdMap<()>,
    /// Not requests, as it turned out.
    parts: IdMap<()>,
    /// Empty between two events; kept for its memory.
    settled: Vec<Settled>,
}

impl Streams {
    pub(super) fn is_ambiguous(&self, slot: Slot) -> bool {
        self.doubtful.contains_key(&slot)
    }

    /// It turned out to be the beginning of a request.
    pub(super) fn is_part(&self, slot: Slot) -> bool {
        self.parts.contains_key(&slot)
    }
}

impl Matcher {
    pub(super) fn segment_in(&mut self, at: Monotonic, key: RequestKey, bytes: u32, push: bool) {
        let client = key.client();
        if bytes == 0 {
            // a new connection from the same port
            let before = self
                .streams
                .by_client
                .insert(client, Connection::opened(key.id));
            if let Some(mut before) = before {
                before.settle(&self.options, &mut self.streams.settled);
                self.note_settled();
            }
            return;
        }
        let start = key.id.wrapping_sub(bytes as u16);
        let connections = self.streams.by_client.entry(client);
        let connection = connections.or_insert_with(|| Connection::joined(start));
        let request = push
            .then(|| Slot::try_from(self.requests.len()).ok())
            .flatten();
        if connection.arrived(at, key.id, bytes, request) && request.is_some() {
            self.open_request(at, key);
        }
    }

    pub(super) fn segment_queued(&mut self, at: Monotonic, key: RequestKey) {
        let connection = self.streams.by_client.get_mut(&key.client());
        if let Some(slot) = connection.and_then(|connection| connection.queued(key.id)) {
            self.requests[slot as usize].server.middle[0] = Some(at);
        }
    }

    pub(super) fn segment_read(&mut self, tid: Tid, key: RequestKey, read: Read) {
        if let Some(connection) = self.streams.by_client.get_mut(&key.client()) {
            let settled = &mut self.streams.settled;
            if !connection.was_read(key.id, read, &self.options, settled) {
                self.thread(tid).goes_on_reading(read);
            }
            self.note_settled();
        }
    }

    pub(super) fn segment_out(&mut self, key: RequestKey, segment: Leaving) {
        let Leaving { at, tid, .. } = segment;
        let thread = self.threads.entry(tid).or_default();
        let Some(connection) = self.streams.by_client.get_mut(&key.client()) else {
            thread.packet_out(at);
            self.without_request.push(at);
            return;
        };
        let role = connection.leaving(key.id, segment, &self.options, &mut self.streams.settled);
        let sent = match role {
            Role::Again => None,
            Role::Unknown => {
                thread.packet_out(at);
                self.without_request.push(at);
                None
            }
            Role::Begins => {
                thread.answered_client = Some(key.client());
                Some(thread.packet_out(at))
            }
            Role::Continues(before) => {
                if before == tid {
                    thread.still_sending(at);
                }
                Some(Sent::default())
            }
        };
        if let Some(sent) = sent {
            let (requests, blind) = (&mut self.requests, &self.blind);
            connection.departed(segment, sent, |slot, read| {
                let stamps = &mut requests[slot as usize].server;
                let [t2, t3, t4, _] = &mut stamps.middle;
                *t3 = read.and_then(|read| read.could_serve_from(stamps.t1, *t2, blind));
                *t4 = read.map(|read| read.at);
            });
        }
        self.note_settled();
    }

    /// A thread has called a write after it had answered on this connection.
    pub(super) fn wrote_again(&mut self, client: u32) {
        if let Some(connection) = self.streams.by_client.get_mut(&client) {
            connection.wrote_again();
        }
    }

    /// Settles what is open on every connection.
    pub(super) fn end_of_streams(&mut self) {
        for connection in self.streams.by_client.values_mut() {
            connection.settle(&self.options, &mut self.streams.settled);
        }
        self.note_settled();
    }

    fn note_settled(&mut self) {
        for settled in self.streams.settled.drain(..) {
            match settled {
                Settled::Answered(slot, t5, t6) => {
                    let stamps = &mut self.requests[slot as usize].server;
                    // the write of another response, if this one's was not seen
                    let begun = stamps.middle[2].unwrap_or(stamps.t1);
                    stamps.middle[3] = t5.filter(|&t5| t5 >= begun);
                    stamps.t6 = t6;
                    self.answered[slot as usize] = true;
                }
                Settled::Ambiguous(slot, at) => {
                    self.streams.doubtful.insert(slot, ());
                    self.ambiguous.push(at);
                }
                Settled::Part(slot) => {
                    self.streams.parts.insert(slot, ());
                }
                Settled::Unfinished(at) => self.without_request.push(at),
            }
        }
    }
}
