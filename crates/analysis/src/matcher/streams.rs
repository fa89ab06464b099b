//! Streams: passes the events of TCP packets to their [`Connection`]s, and what these decide to
//! the requests.

use taillab_model::{Event, EventKind, Monotonic, RequestKey, Tid};

use super::doubt::Doubt;
use super::held::Fate;
use super::options::MatchOptions;
use super::packet::Packet;
use super::parts::{Leaving, Role, Settled, Slot};
use super::shared::{Shared, leaves};
use super::stream::{Connection, MANY_PAUSES, TurnEvidence};
use super::threads::{Read, Sent};
use crate::bound::Bound;
use crate::id_map::IdMap;
use crate::spans::earlier;

/// The most connections that are remembered. The events do not say when one ends.
const MOST_CONNECTIONS: usize = 1 << 18;

/// The most connections that are remembered of which only responses were seen.
const MOST_UNSEEN: usize = 1 << 16;

/// A connection of which only responses were seen.
struct Unseen {
    /// How far the server had read.
    read: u16,
    /// When it sent last.
    last: Monotonic,
    /// How often it has paused since it had read so far.
    pauses: u16,
}

/// Which connections have been forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Forgotten {
    /// None.
    #[default]
    None,
    /// Those that were idle: nothing is owed on a connection that is not known.
    Idle,
    /// Others too, since there were too many.
    Any,
}

impl Forgotten {
    /// Since when responses may be owed on a connection that is first seen at `at`.
    const fn owed_since(self, at: Monotonic, began: Monotonic) -> Monotonic {
        match self {
            Self::Idle => Monotonic::from_nanos_since_boot(0),
            // nothing of it was seen since the recording began
            Self::None => began,
            Self::Any => at,
        }
    }
}

/// A connection of which data comes in from `start` on. It may owe responses to requests that came in `since`, unless
/// one that told how far the server had read has left.
fn joined(
    shared: &Shared,
    start: u16,
    (since, forgotten): (Monotonic, Forgotten),
    unseen: Option<Unseen>,
) -> Connection {
    let framing = shared.options.framing;
    let answered = unseen.as_ref().map(|unseen| unseen.read);
    let mut connection = Connection::joined(start, since, framing).after(answered);
    connection.untouched = answered.is_none() && shared.shows_sockets();
    // otherwise its beginning may have been missed, or forgotten
    let pause = shared.options.overtaken_after;
    let was_open = unseen.is_none_or(|unseen| shared.has_begun_within(pause, unseen.last));
    if was_open && forgotten == Forgotten::None {
        connection.doubt = Some(Doubt::of_first_turns(since));
    }
    connection
}

/// The state of the matching of streams.
#[derive(Default)]
pub(super) struct Streams {
    /// The connections, by their numbers.
    by_client: IdMap<Connection>,
    most: Bound<MOST_CONNECTIONS>,
    forgotten: Forgotten,
    /// Other connections: those of which only responses were seen.
    unseen: IdMap<Unseen>,
    turns: TurnEvidence,
    /// Empty between two events; kept for its memory.
    settled: Vec<Settled>,
    /// A packet whose content may still come.
    packet: Option<Packet>,
    /// Memory for the content of the next packet.
    payload: Vec<u8>,
}

impl Streams {
    /// Takes an event about a stream.
    pub(super) fn note(&mut self, shared: &mut Shared, event: &Event) {
        let (at, cpu) = (event.at, event.cpu);
        match event.kind {
            EventKind::SegmentIn { key, bytes, push } => {
                self.segment_in(shared, at, key, bytes, push);
            }
            EventKind::SegmentQueued { key } => self.segment_queued(shared, at, key),
            EventKind::SegmentRead {
                tid,
                key,
                bytes_mod_1024,
            } => {
                let (thread, on_core) = shared.reader(cpu, tid, at);
                let read = thread.stream_read(tid, at, on_core, Some(bytes_mod_1024));
                self.segment_read(shared, key, read);
            }
            EventKind::ReadByOther { key, .. } => self.belongs_to_others(shared, key),
            EventKind::SegmentWritten { tid, key } => {
                shared.running(cpu, tid, at);
                shared.thread(tid).stream_written(at);
                if let Some(connection) = self.of_server(key) {
                    connection.seen = Some(at);
                    connection.untouched = false;
                    if !connection.is_aside() {
                        connection.was_written(at, tid, key.id);
                    }
                }
            }
            EventKind::SegmentOut {
                tid,
                key,
                more,
                resent,
                limit,
            } => {
                shared.running(cpu, tid, at);
                let segment = Leaving {
                    at,
                    tid,
                    more,
                    resent,
                    limit,
                };
                self.segment_out(shared, key, segment);
            }
            _ => {}
        }
    }

    /// T1: a segment comes in, or a connection begins.
    fn segment_in(
        &mut self,
        shared: &mut Shared,
        at: Monotonic,
        key: RequestKey,
        bytes: u32,
        push: bool,
    ) {
        let client = key.connection;
        let framing = shared.options.framing;
        self.stay_within_bounds(shared);
        if bytes == 0 {
            let known = self.by_client.get(&client);
            if known.is_some_and(|connection| connection.is_opened_again(key.id)) {
                return;
            }
            // a new connection from the same port
            let mut opened = Connection::opened(key.id, framing);
            (opened.seen, opened.number) = (Some(at), client);
            opened.untouched = shared.shows_sockets();
            self.unseen.remove(&client);
            if let Some(mut before) = self.by_client.insert(client, opened) {
                before.learn(&self.turns, &shared.options);
                before.end(None, &shared.options, &mut self.settled);
                self.pass_on(shared);
            }
            return;
        }
        let start = key.id.wrapping_sub(bytes as u16);
        let since = self.owed_since(client, at, shared.first());
        let forgotten = self.forgotten;
        let connections = self.by_client.entry(client);
        let connection = connections.or_insert_with(|| {
            joined(
                shared,
                start,
                (since, forgotten),
                self.unseen.remove(&client),
            )
        });
        (connection.seen, connection.number) = (Some(at), client);
        if connection.of_others {
            shared.found.other_processes += u64::from(push);
            return;
        }
        if connection.is_aside() && !connection.asks_again(start, at, framing) {
            return;
        }
        connection.learn(&self.turns, &shared.options);
        let request = push.then(|| shared.held.next()).flatten();
        if connection.arrived(at, key.id, bytes, request, None) && request.is_some() {
            shared.open_request(at, key);
        }
    }

    /// A number is that of another connection from now on, except that events of other CPUs may come before that is
    /// said.
    pub(super) fn announced(&mut self, shared: &mut Shared, connection: u32, at: Monotonic) {
        let since = earlier(at, shared.options.disorder);
        let unseen = self.unseen.get(&connection);
        if unseen.is_some_and(|unseen| unseen.last < since) {
            self.unseen.remove(&connection);
        }
        let known = self.by_client.get(&connection);
        if known.is_none_or(|known| known.seen >= Some(since)) {
            return;
        }
        if let Some(mut before) = self.by_client.remove(&connection) {
            before.learn(&self.turns, &shared.options);
            before.end(None, &shared.options, &mut self.settled);
            self.pass_on(shared);
        }
    }

    /// A process that is not the server's, but shares its port, has read from a connection.
    fn belongs_to_others(&mut self, shared: &mut Shared, key: RequestKey) {
        let Some(connection) = self.by_client.get_mut(&key.connection) else {
            return;
        };
        if !std::mem::replace(&mut connection.of_others, true) {
            connection.is_of_others(&mut self.settled);
            self.pass_on(shared);
        }
    }

    /// The connection that a key names, unless it is that of another process.
    fn of_server(&mut self, key: RequestKey) -> Option<&mut Connection> {
        let connection = self.by_client.get_mut(&key.connection)?;
        (!connection.of_others).then_some(connection)
    }

    /// T2: data is queued up to a position.
    fn segment_queued(&mut self, shared: &mut Shared, at: Monotonic, key: RequestKey) {
        shared.saw_queued();
        if let Some(connection) = self.of_server(key) {
            connection.untouched = false;
            connection.queued(key.id, |slot| {
                if let Some(request) = shared.held.get_mut(slot) {
                    request.t2 = Some(at);
                }
            });
        }
    }

    /// T4: the server has read up to a position.
    fn segment_read(&mut self, shared: &mut Shared, key: RequestKey, read: Read) {
        let client = key.connection;
        if (self.by_client.get(&client)).is_some_and(|connection| connection.of_others) {
            // another process has handed it over
            self.by_client.remove(&client);
        }
        if let Some(connection) = self.by_client.get_mut(&key.connection) {
            connection.seen = Some(read.at);
            connection.untouched = false;
            if connection.is_aside() {
                return;
            }
            connection.learn(&self.turns, &shared.options);
            if !connection.was_read(key.id, read, &shared.options, &mut self.settled) {
                shared.thread(read.tid).goes_on_reading(read);
            }
            self.pass_on(shared);
        }
    }

    /// T6: a segment of a response leaves.
    fn segment_out(&mut self, shared: &mut Shared, key: RequestKey, segment: Leaving) {
        let Leaving { at, tid, .. } = segment;
        let thread = shared.threads.entry(tid).or_default();
        let Some(connection) = self.by_client.get_mut(&key.connection) else {
            thread.packet_out(at);
            return self.left_unseen(shared, key, at);
        };
        connection.seen = Some(at);
        connection.untouched = false;
        if connection.of_others || connection.is_aside() {
            thread.packet_out(at);
            return;
        }
        connection.sends(segment, &mut self.settled);
        let mut wrote_elsewhere = None;
        // a write may leave in the context of another thread, which has not sent it
        let is_own = connection.writes.is_next_by(tid);
        connection.learn(&self.turns, &shared.options);
        let role = connection.leaving(key.id, segment, &shared.options, &mut self.settled);
        let sent = match role {
            Role::Again => None,
            Role::Unknown | Role::FromBefore | Role::Rest | Role::Unasked => {
                thread.packet_out_if(is_own, at);
                match role {
                    Role::Unknown => shared.found.without_request.push(at),
                    Role::FromBefore => shared.found.from_before += 1,
                    _ => {}
                }
                None
            }
            Role::Begins => {
                let sent = thread.packet_out_if(is_own, at);
                let before = thread.answered_client.replace(key.connection);
                wrote_elsewhere = before.filter(|&before| before != key.connection);
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
            let (sees_calls, unasked_worker) = (shared.sees_calls(), shared.unasked_worker(tid));
            let (held, blind) = (&mut shared.held, &shared.blind);
            connection.departed(segment, sent, |slot, read, writer| {
                if let Some(request) = held.get_mut(slot) {
                    match sees_calls {
                        true => request.begun(read, writer, blind),
                        false => request.worker = unasked_worker,
                    }
                }
            });
        }
        if let Some(before) = wrote_elsewhere.and_then(|client| self.by_client.get_mut(&client)) {
            before.writes.was_elsewhere();
        }
        self.pass_on(shared);
    }

    /// A segment leaves on a connection of which nothing else was seen. The first response there is to a
    /// request from before the recording, and so are others while it begins; later ones are to requests that
    /// were missed.
    fn left_unseen(&mut self, shared: &mut Shared, key: RequestKey, at: Monotonic) {
        if self.unseen.len() >= MOST_UNSEEN {
            self.unseen.clear();
        }
        let pause = shared.options.overtaken_after;
        let begins = shared.has_begun_within(pause, at);
        let (read, last, pauses) = (key.id, at, 0);
        let now = Unseen { read, last, pauses };
        match self.unseen.get_mut(&key.connection) {
            Some(before) if before.read == read => {
                let paused = at.saturating_since(before.last) > pause;
                before.last = at;
                before.pauses = before.pauses.saturating_add(paused.into());
                if paused && before.pauses == MANY_PAUSES {
                    let port = shared.announced.port_of(key.connection);
                    shared.found.unasked.push(port);
                }
                return;
            }
            Some(_) if !begins => shared.found.without_request.push(at),
            _ => shared.found.from_before += 1,
        }
        self.unseen.insert(key.connection, now);
    }

    /// A thread has called a write after it had answered on this connection.
    pub(super) fn wrote_again(&mut self, client: u32) {
        if let Some(connection) = self.by_client.get_mut(&client) {
            connection.wrote_again();
        }
    }

    /// Collects the events that make up a packet and its content. Returns true if the event needs
    /// no other handling.
    pub(super) fn collect(&mut self, shared: &mut Shared, event: &Event) -> bool {
        if let EventKind::Payload { bytes, len, .. } = event.kind {
            if let Some(packet) = &mut self.packet {
                packet.add(event, bytes, len);
            }
            return true;
        }
        self.flush_packet(shared);
        self.packet = Packet::begin(event, &mut self.payload);
        self.packet.is_some()
    }

    /// Reads the packet that was held back for its content.
    fn flush_packet(&mut self, shared: &mut Shared) {
        let Some(mut packet) = self.packet.take() else {
            return;
        };
        let taken = match packet.kind {
            EventKind::SegmentIn { key, bytes, push } => {
                self.framed_in(shared, key, (bytes, push), &packet)
            }
            EventKind::SegmentOut {
                tid,
                key,
                more,
                resent,
                limit,
            } => {
                shared.running(packet.cpu, tid, packet.at);
                let segment = Leaving {
                    at: packet.at,
                    tid,
                    more,
                    resent,
                    limit,
                };
                self.framed_out(shared, key, segment, &packet)
            }
            _ => true,
        };
        if !taken {
            let Packet { cpu, at, kind, .. } = packet;
            self.note(shared, &Event { at, cpu, kind });
        }
        packet.payload.clear();
        self.payload = packet.payload;
    }

    /// T1 of requests that are separated by their content. Returns false if they are not.
    fn framed_in(
        &mut self,
        shared: &mut Shared,
        key: RequestKey,
        (bytes, push): (u32, bool),
        packet: &Packet,
    ) -> bool {
        let at = packet.at;
        let start = key.id.wrapping_sub(bytes as u16);
        let framing = shared.options.framing;
        let client = key.connection;
        self.stay_within_bounds(shared);
        let since = self.owed_since(client, at, shared.first());
        let forgotten = self.forgotten;
        let connections = self.by_client.entry(client);
        let connection = connections.or_insert_with(|| {
            joined(
                shared,
                start,
                (since, forgotten),
                self.unseen.remove(&client),
            )
        });
        (connection.seen, connection.number) = (Some(at), client);
        if connection.of_others {
            shared.found.other_processes += u64::from(push);
            return true;
        }
        if connection.is_aside() && !connection.asks_again(start, at, framing) {
            return true;
        }
        let held = &mut shared.held;
        let open = |end: u32, command, fate| {
            let id = start.wrapping_add(end as u16);
            let slot = held.open(at, RequestKey { id, ..key })?;
            if let Some(request) = held.get_mut(slot) {
                (request.command, request.fate) = (command, fate);
            }
            Some(slot)
        };
        let arrived = (at, key.id, bytes, push);
        let content = (packet.payload.as_slice(), packet.extent);
        let settled = &mut self.settled;
        let taken = connection.packet_arrived(arrived, content, &shared.options, settled, open);
        let aside = connection.sends_unasked();
        if aside {
            connection.set_aside(true, &mut self.settled);
        }
        self.pass_on(shared);
        shared.opened();
        taken || aside
    }

    /// T6 of responses that are separated by their content. Returns false if they are not.
    fn framed_out(
        &mut self,
        shared: &mut Shared,
        key: RequestKey,
        segment: Leaving,
        packet: &Packet,
    ) -> bool {
        let Some(connection) = self.by_client.get_mut(&key.connection) else {
            return false;
        };
        connection.seen = Some(segment.at);
        connection.untouched = false;
        if connection.of_others || connection.is_aside() {
            shared.thread(segment.tid).packet_out(segment.at);
            return true;
        }
        let sees_calls = shared.sees_calls();
        let unasked_worker = shared.unasked_worker(segment.tid);
        let thread = shared.threads.entry(segment.tid).or_default();
        let is_own = connection.writes.is_next_by(segment.tid);
        let sent = || thread.packet_out_if(is_own, segment.at);
        let (held, blind) = (&mut shared.held, &shared.blind);
        let mut begun = |slot: Slot, read: Option<Read>, writer: Option<Tid>| {
            if let Some(request) = held.get_mut(slot) {
                match sees_calls {
                    true => request.begun(read, writer, blind),
                    false => request.worker = unasked_worker,
                }
            }
        };
        let content = (packet.payload.as_slice(), packet.extent);
        let outcome = (&mut self.settled, &mut begun as _);
        let taken = connection.packet_departed(key.id, segment, content, sent, outcome);
        let aside = connection.sends_unasked();
        if taken || aside {
            connection.sends(segment, &mut self.settled);
        }
        if aside {
            connection.set_aside(true, &mut self.settled);
        }
        self.pass_on(shared);
        taken || aside
    }

    /// Stops waiting for more of the response to this request.
    pub(super) fn expire(&mut self, shared: &mut Shared, slot: Slot, key: RequestKey) {
        if let Some(connection) = self.by_client.get_mut(&key.connection)
            && let Some(now) = shared.last
        {
            connection.learn(&self.turns, &shared.options);
            connection.expire(slot, now, &shared.options, &mut self.settled);
            self.pass_on(shared);
        }
    }

    /// Forgets connections that are closed or idle, once there are many.
    fn stay_within_bounds(&mut self, shared: &mut Shared) {
        if !self.most.is_exceeded(self.by_client.len()) {
            return;
        }
        let idle = shared.idle();
        let seen = self
            .by_client
            .values()
            .map(|other| other.seen.unwrap_or(idle));
        let upto = self.most.forget_upto(seen, idle);
        let goes = |seen: Option<Monotonic>| seen.is_none_or(|seen| seen <= upto);
        let mut in_use = 0;
        // the recording goes on, and so may the responses
        let options = MatchOptions {
            answered: false,
            ..shared.options
        };
        for (_, mut connection) in self.by_client.extract_if(|_, other| goes(other.seen)) {
            in_use += u64::from(connection.seen.is_some_and(|seen| seen > idle));
            connection.learn(&self.turns, &shared.options);
            connection.end(shared.last, &options, &mut self.settled);
        }
        self.forgotten = match (in_use, self.forgotten) {
            (0, Forgotten::None | Forgotten::Idle) => Forgotten::Idle,
            _ => Forgotten::Any,
        };
        shared.found.forgotten += in_use;
        self.pass_on(shared);
    }

    /// How many connections are remembered.
    pub(super) fn len(&self) -> usize {
        self.by_client.len()
    }

    /// Since when a connection that is first seen now may owe responses.
    fn owed_since(&self, client: u32, at: Monotonic, began: Option<Monotonic>) -> Monotonic {
        match self.unseen.contains_key(&client) {
            true => at,
            false => self.forgotten.owed_since(at, began.unwrap_or(at)),
        }
    }

    /// Settles what is open on every connection, when there are no more events.
    pub(super) fn finish(&mut self, shared: &mut Shared) {
        self.flush_packet(shared);
        for connection in self.by_client.values_mut() {
            connection.learn(&self.turns, &shared.options);
            connection.end(shared.last, &shared.options, &mut self.settled);
        }
        self.pass_on(shared);
    }

    /// Passes on to the requests what the connections have settled.
    fn pass_on(&mut self, shared: &mut Shared) {
        let Shared {
            held,
            found,
            departures,
            announced,
            ..
        } = shared;
        for settled in self.settled.drain(..) {
            match settled {
                Settled::Answered(slot, t5, t6) => match held.get_mut(slot) {
                    Some(request) if t6 >= request.t1 => {
                        // an earlier write was for another response: this one's was not seen
                        let begun = request.t4.unwrap_or(request.t1);
                        request.t5 = t5.filter(|&t5| t5 >= begun);
                        request.t6 = t6;
                        request.fate = Fate::Finished;
                        leaves(held, departures, slot);
                    }
                    // events in disorder: it left before the request came
                    Some(_) => {
                        held.decide(slot, Fate::Ambiguous);
                        found.ambiguous.push(t6);
                    }
                    // it was given up as stale, and is in the result as unanswered
                    None => found.without_request.push(t6),
                },
                Settled::Ambiguous(slot, at) => {
                    held.decide(slot, Fate::Ambiguous);
                    found.ambiguous.push(at);
                }
                Settled::Early(slot, at) => {
                    held.decide(slot, Fate::Early);
                    found.ambiguous.push(at);
                    found.early.push(at);
                }
                Settled::Part(slot) => held.decide(slot, Fate::Part),
                Settled::Joined(slot) => {
                    found.parts += 1;
                    held.decide(slot, Fate::Part);
                }
                Settled::Elsewhere(slot) => {
                    found.elsewhere += 1;
                    held.decide(slot, Fate::Part);
                }
                Settled::OfOther(slot) => {
                    found.other_processes += 1;
                    held.decide(slot, Fate::Part);
                }
                Settled::SentAgain(again) => found.sent_again.push(again),
                Settled::Paused(pause) => found.send_pauses.push(pause),
                Settled::Silent(slot) => {
                    found.silent += 1;
                    if let Some(slot) = slot {
                        held.decide(slot, Fate::Part);
                    }
                }
                Settled::Unanswered(slot) => held.decide(slot, Fate::Unanswered),
                Settled::Unfinished(at) => found.without_request.push(at),
                Settled::Began(other) => found.beginnings.add(other),
                Settled::Aside(number) => found.unasked.push(announced.port_of(number)),
                Settled::Turn => self.turns.turns += 1,
                Settled::InParts => self.turns.in_parts += 1,
                Settled::ReadAtOnce { larger_first: true } => self.turns.larger_first += 1,
                Settled::ReadAtOnce {
                    larger_first: false,
                } => self.turns.smaller_first += 1,
                Settled::Overlapped => self.turns.overlapping += 1,
            }
        }
    }
}
