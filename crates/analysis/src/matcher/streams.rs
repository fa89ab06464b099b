//! The matcher's part for streams: between its events and their [`Connection`]s.

use taillab_model::{Monotonic, RequestKey, Tid};

use super::held::Fate;
use super::stream::Connection;
use super::stream::parts::{Leaving, Role, Settled};
use super::threads::{Read, Sent};
use super::{IdMap, Matcher, Slot};

/// The connections, by the client's address and port.
#[derive(Default)]
pub(super) struct Streams {
    pub(super) by_client: IdMap<Connection>,
    /// Empty between two events; kept for its memory.
    pub(super) settled: Vec<Settled>,
}

impl Matcher {
    pub(super) fn segment_in(&mut self, at: Monotonic, key: RequestKey, bytes: u32, push: bool) {
        let client = key.client();
        if bytes == 0 {
            // a new connection from the same port
            let before = self
                .streams
                .by_client
                .insert(client, Connection::opened(key.id, self.options.framing));
            if let Some(mut before) = before {
                before.end(None, &self.options, &mut self.streams.settled);
                self.note_settled();
            }
            return;
        }
        let start = key.id.wrapping_sub(bytes as u16);
        let connections = self.streams.by_client.entry(client);
        let connection =
            connections.or_insert_with(|| Connection::joined(start, at, self.options.framing));
        let request = push.then(|| self.held.next()).flatten();
        if connection.arrived(at, key.id, bytes, request, None) && request.is_some() {
            self.open_request(at, key);
        }
    }

    pub(super) fn segment_queued(&mut self, at: Monotonic, key: RequestKey) {
        if let Some(connection) = self.streams.by_client.get_mut(&key.client()) {
            let held = &mut self.held;
            connection.queued(key.id, |slot| {
                if let Some(request) = held.get_mut(slot) {
                    request.t2 = Some(at);
                }
            });
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

    pub(super) fn segment_written(&mut self, at: Monotonic, tid: Tid, key: RequestKey) {
        self.thread(tid).stream_written();
        if let Some(connection) = self.streams.by_client.get_mut(&key.client()) {
            connection.was_written(at, tid, key.id);
        }
    }

    pub(super) fn segment_out(&mut self, key: RequestKey, segment: Leaving) {
        let Leaving { at, tid, .. } = segment;
        let thread = self.threads.entry(tid).or_default();
        let Some(connection) = self.streams.by_client.get_mut(&key.client()) else {
            thread.packet_out(at);
            self.found.without_request.push(at);
            return;
        };
        let mut wrote_elsewhere = None;
        // a write may leave in the context of another thread, which has not sent it
        let is_own = connection.is_writer(tid);
        let role = connection.leaving(key.id, segment, &self.options, &mut self.streams.settled);
        let sent = match role {
            Role::Again => None,
            Role::Unknown => {
                thread.packet_out_if(is_own, at);
                self.found.without_request.push(at);
                None
            }
            Role::Begins => {
                let sent = thread.packet_out_if(is_own, at);
                let before = thread.answered_client.replace(key.client());
                wrote_elsewhere = before.filter(|&before| before != key.client());
                Some(sent)
            }
            Role::Continues(before) => {
                if before == tid {
                    thread.still_sending(at);
                }
                Some(Sent::default())
            }
        };
        if let Some(sent) = sent {
            let (held, blind) = (&mut self.held, &self.blind);
            connection.departed(segment, sent, |slot, read, writer| {
                if let Some(request) = held.get_mut(slot) {
                    request.begun(read, writer, blind);
                }
            });
        }
        if let Some(before) =
            wrote_elsewhere.and_then(|client| self.streams.by_client.get_mut(&client))
        {
            before.wrote_elsewhere();
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
            connection.end(self.last, &self.options, &mut self.streams.settled);
        }
        self.note_settled();
    }

    pub(super) fn note_settled(&mut self) {
        for settled in self.streams.settled.drain(..) {
            match settled {
                Settled::Answered(slot, t5, t6) => match self.held.get_mut(slot) {
                    Some(request) => {
                        // the write of another response, if this one's was not seen
                        let begun = request.t4.unwrap_or(request.t1);
                        request.t5 = t5.filter(|&t5| t5 >= begun);
                        request.t6 = t6;
                        request.fate = Fate::Finished;
                    }
                    // given out as unanswered: it took too long
                    None => self.found.without_request.push(t6),
                },
                Settled::Ambiguous(slot, at) => {
                    self.held.decide(slot, Fate::Ambiguous);
                    self.found.ambiguous.push(at);
                }
                Settled::Part(slot) => self.held.decide(slot, Fate::Part),
                Settled::Unanswered(slot) => self.held.decide(slot, Fate::Unanswered),
                Settled::Unfinished(at) => self.found.without_request.push(at),
            }
        }
    }

    /// No more of the response to this request is waited for.
    pub(super) fn expire_in_stream(&mut self, slot: Slot, key: RequestKey) {
        if let Some(connection) = self.streams.by_client.get_mut(&key.client()) {
            connection.expire(slot, &self.options, &mut self.streams.settled);
            self.note_settled();
        }
    }
}
