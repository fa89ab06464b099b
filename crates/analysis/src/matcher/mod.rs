//! Kernel events to requests with their stamps T1..T6.
//!
//! [`match_events`] reads a stream of events in order of time and holds no more than
//! the requests that are open, besides its result. How each stamp is found:
//!
//! - **T1** `PacketIn` opens a request.
//! - **T2** `Enqueued` belongs to the latest `PacketIn` with that packet id: buffers are
//!   recycled at once, so an id names a packet only until its next use. It is stamped right
//!   behind the queueing: a reader that is awake on another CPU can read a datagram before,
//!   and its T2 is then T4.
//! - **T6** `PacketOut` names its request by key; see `open.rs` for keys that are used again.
//!   A further datagram with the key of the response that the thread has just sent, before
//!   it reads again or sleeps, is the rest of that response: T6 is the last one's.
//! - **T4, T5** are the last `ReadReturned` and `WriteCalled` of the thread before its T6,
//!   adjacent in the thread's own sequence: each T6 uses them up. Of a thread that reads
//!   several datagrams before it answers, the first T6 has the first read's T4, and so on;
//!   one write may then lead to all of them.
//! - **T3** is the moment from which the reading thread could serve the request:
//!   max(T2, the thread's last switch onto a core before T4, its previous T6 or T4). Until
//!   its previous T6 the thread was busy with an earlier request, and waiting for that is
//!   queueing, so it belongs to T2–T3. A thread that reads several requests before it
//!   answers (Redis reads all connections that are ready, then writes; a reader hands
//!   requests to workers) was at the one before until it had read it, its previous T4. A thread that is preempted in its own read gets
//!   T3 after the preemption: that wait is for the core too. See `threads.rs` for when
//!   T3 cannot be known; it is then left out and never guessed.
//!
//! Datagrams of a protocol without ids are matched by their order: see `datagrams.rs`.
//!
//! Streams (TCP) say more: T2 and T4 name the connection and the position in it, and so
//! do T5, where the kernel lets the probe see it, and T6; see `stream.rs`. T3, and else T5,
//! come from the thread as above.
//!
//! **Reading in one thread, writing in another.** T4 is the reader's, found by the
//! connection, T5 and T6 are the writer's; T3 is when the reader could read. The worker
//! ([`Matched::workers`]) is the thread that wrote, or the reader where no write was seen.
//! Datagrams do not say whose they are when they are read: T4 is then missing.
//!
//! Streams whose messages are told apart by their content (HTTP, memcached, Redis, fixed
//! lengths): see `framed.rs`.
//!
//! A missing middle stamp never drops a request: T1 and T6 suffice. A response that more
//! than one request could have caused is counted as ambiguous and matched to none.

mod datagrams;
mod doubt;
mod framed;
mod framer;
pub mod framing;
mod held;
mod id_map;
mod open;
mod options;
mod order;
mod settled;
mod stream;
mod streams;
mod threads;

use taillab_model::{Event, EventKind, Monotonic, PacketId, RequestKey, Tid};

use crate::matched::{BlindWindow, DatagramIds, Matched, Unmatched};
use datagrams::{Evidence, InHand};
use framed::Packet;
pub use framing::{Framing, ParseFramingError};
use held::{Fate, Held, HeldRequests};
pub(crate) use id_map::{IdMap, LastFound, packed};
use open::{Answer, OpenRequests};
pub use options::MatchOptions;
pub use order::{InOrder, Timed};
use settled::is_decided;
use stream::parts::Leaving;
use streams::Streams;
use threads::{Cores, Sent, Since, Thread};

/// Joins kernel events to requests.
///
/// `events` come in order of time, merged over the CPUs, or out of it by no more than
/// [`MatchOptions::disorder`]. Memory grows with the open requests and with the result,
/// not with the events.
pub fn match_events(events: impl IntoIterator<Item = Event>, options: &MatchOptions) -> Matched {
    let mut events = InOrder::new(events.into_iter(), options.disorder);
    let mut matcher = Matcher::new(*options);
    for event in events.by_ref() {
        matcher.observe(&event);
    }
    let late_events = events.late();
    let mut matched = matcher.finish();
    matched.late_events = late_events;
    matched
}

/// A request's number, in order of T1.
type Slot = u32;

/// Requests after which those that are decided are given out.
const GIVE_OUT_EVERY: u32 = 4_096;

/// Requests that are held, beyond which the oldest is set aside where order may wait.
const SET_ASIDE_BEYOND: usize = 65_536;

/// The matcher itself, one event at a time, for a caller that has its own loop.
///
/// A caller that wants the requests while events still come makes it with
/// [`Matcher::streaming`] and calls [`Matcher::drain_finished`] now and then; it then
/// holds no more than what came in within [`MatchOptions::stale_after`].
pub struct Matcher {
    options: MatchOptions,
    /// Requests are given out while events come, in order of T1.
    streaming: bool,
    held: HeldRequests,
    open: OpenRequests,
    /// How datagrams are told apart; `None` until it is known.
    ids: Option<DatagramIds>,
    /// The events until then, from the first datagram on.
    evidence: Option<Box<Evidence>>,
    /// There have been datagrams.
    datagrams: bool,
    in_hand: InHand,
    /// By order: when the last response that could not be told left, by client.
    doubts: IdMap<Monotonic, u64>,
    streams: Streams,
    /// A packet of a stream whose content may still come.
    packet: Option<Packet>,
    payload_memory: Vec<u8>,
    /// Packets that wait for their T2.
    packets: IdMap<Slot>,
    threads: IdMap<Thread>,
    cores: Cores,
    blind: Vec<BlindWindow>,
    /// Of `blind`, how many have been given out.
    blind_given: usize,
    /// What is decided and not given out.
    found: Matched,
    since_given_out: u32,
    first: Option<Monotonic>,
    last: Option<Monotonic>,
}

impl Matcher {
    /// A matcher that has seen nothing.
    pub fn new(options: MatchOptions) -> Self {
        Self {
            options,
            streaming: false,
            held: HeldRequests::default(),
            open: OpenRequests::default(),
            ids: options.datagram_ids,
            evidence: None,
            datagrams: false,
            in_hand: InHand::default(),
            doubts: IdMap::default(),
            streams: Streams::default(),
            packet: None,
            payload_memory: Vec::new(),
            packets: IdMap::default(),
            threads: IdMap::default(),
            cores: Cores::default(),
            blind: Vec::new(),
            blind_given: 0,
            found: Matched::default(),
            since_given_out: 0,
            first: None,
            last: None,
        }
    }

    /// One whose requests are taken with [`Matcher::drain_finished`] while events come.
    pub fn streaming(options: MatchOptions) -> Self {
        Self {
            streaming: true,
            ..Self::new(options)
        }
    }

    /// Takes the next event, in order of time.
    pub fn observe(&mut self, event: &Event) {
        if self.ids.is_none() {
            if matches!(event.kind, EventKind::PacketIn { .. }) {
                self.evidence.get_or_insert_default();
            }
            if let Some(evidence) = &mut self.evidence {
                if evidence.weigh(*event) {
                    self.decide_ids();
                }
                return;
            }
        }
        self.note(event);
    }

    /// Reads the events that were held back, now that it is known how.
    fn decide_ids(&mut self) {
        if let Some(evidence) = self.evidence.take() {
            self.ids = Some(evidence.verdict());
            for event in evidence.into_events() {
                self.note(&event);
            }
        }
    }

    fn note(&mut self, event: &Event) {
        self.found.events += 1;
        self.first.get_or_insert(event.at);
        self.last = self.last.max(Some(event.at));
        if self.options.framing != Framing::OneInTurn && self.collect(event) {
            return;
        }
        let (at, cpu) = (event.at, event.cpu);
        match event.kind {
            EventKind::PacketIn { packet, key } => self.packet_in(at, packet, key),
            EventKind::Enqueued { packet } => self.enqueued(at, packet),
            EventKind::ReadReturned { tid, .. } => {
                let on_core = self.running(cpu, tid, at);
                self.reader(tid, on_core).read_returned(tid, at, on_core);
                if self.by_order() {
                    self.in_hand.read_returned(tid, at);
                }
            }
            EventKind::WriteCalled { tid } => {
                self.running(cpu, tid, at);
                let thread = self.thread(tid);
                thread.write_called(at);
                if let Some(client) = thread.answered_client {
                    self.wrote_again(client);
                }
            }
            EventKind::PacketOut { tid, key } => {
                self.running(cpu, tid, at);
                self.packet_out(at, tid, key);
            }
            EventKind::SegmentIn { key, bytes, push } => self.segment_in(at, key, bytes, push),
            EventKind::SegmentQueued { key } => self.segment_queued(at, key),
            EventKind::SegmentRead {
                tid,
                key,
                bytes_mod_1024,
            } => {
                let on_core = self.running(cpu, tid, at);
                let thread = self.reader(tid, on_core);
                let read = thread.stream_read(tid, at, on_core, Some(bytes_mod_1024));
                self.segment_read(tid, key, read);
            }
            EventKind::SegmentWritten { tid, key } => {
                self.running(cpu, tid, at);
                self.segment_written(at, tid, key);
            }
            EventKind::SegmentOut {
                tid,
                key,
                more,
                resent,
            } => {
                self.running(cpu, tid, at);
                let segment = Leaving {
                    at,
                    tid,
                    more,
                    resent,
                };
                self.segment_out(key, segment);
            }
            EventKind::Switched {
                prev,
                next,
                preempted,
                asleep,
            } => {
                self.blind.extend(self.cores.switched(cpu, prev, next, at));
                if !preempted && let Some(thread) = self.threads.get_mut(&prev) {
                    thread.slept(at, asleep);
                    self.in_hand.slept(prev, asleep, at);
                }
            }
            EventKind::Unreadable { lasted } => {
                let from = at.nanos_since_boot().saturating_sub(lasted.get());
                self.blind.push(BlindWindow {
                    cpu,
                    from: Monotonic::from_nanos_since_boot(from),
                    to: at,
                });
            }
            // they say why a request was slow, not which one it is
            EventKind::Woken { .. }
            | EventKind::Migrated { .. }
            | EventKind::Interrupt { .. }
            | EventKind::Softirq { .. }
            | EventKind::IdleLeft { .. }
            | EventKind::PageFault { .. }
            | EventKind::MajorFault { .. }
            | EventKind::StorageWaited { .. }
            | EventKind::LockTaken { .. }
            | EventKind::Frequency { .. }
            | EventKind::Retransmitted { .. }
            | EventKind::Stolen { .. }
            | EventKind::Stalled { .. }
            | EventKind::Throttled { .. }
            | EventKind::Payload { .. } => {}
        }
    }

    /// What is decided since the last call, in order of T1 over all calls.
    ///
    /// A request is given out once nothing that may still come can change it: its response
    /// is complete, or it is older than [`MatchOptions::stale_after`]. That is the one
    /// difference to [`match_events`], which waits for the response to the end of the
    /// events. Counts are those since the last call, too.
    pub fn drain_finished(&mut self) -> Matched {
        self.give_out();
        self.forget();
        self.found.blind = self.blind[self.blind_given..].to_vec();
        let oldest = self.held.front().map(|(_, request)| request.t1);
        let needed = |window: &BlindWindow| oldest.is_some_and(|t1| window.to >= t1);
        self.blind.retain(needed);
        self.blind_given = self.blind.len();
        self.found.last = self.last;
        self.found.datagram_ids = self.used_ids();
        std::mem::take(&mut self.found)
    }

    /// The rest, when there are no more events.
    pub fn finish(mut self) -> Matched {
        self.decide_ids();
        self.flush_packet();
        self.end_of_streams();
        self.found.datagram_ids = self.used_ids();
        while let Some(request) = self.held.pop_front() {
            self.found.add(&request);
        }
        for request in self.held.stragglers() {
            self.found.add(&request);
        }
        self.found.blind = self.blind.split_off(self.blind_given);
        self.found.last = self.last;
        self.found.restore_order();
        self.found
    }

    /// Gives out the oldest requests as far as they are decided.
    fn give_out(&mut self) {
        self.since_given_out = 0;
        while let Some((slot, request)) = self.held.front() {
            let key = request.key;
            if !is_decided(&self.threads, slot, request) {
                let age = self.last.map(|last| last.saturating_since(request.t1));
                if self.streaming && age > Some(self.options.stale_after) {
                    self.open.close(self.open_key(key), slot);
                    self.expire_in_stream(slot, key);
                } else if !self.streaming && self.held.len() > SET_ASIDE_BEYOND {
                    self.held.set_front_aside();
                    continue;
                } else {
                    break;
                }
            }
            if let Some(request) = self.held.pop_front() {
                self.found.add(&request);
            }
        }
    }

    /// Forgets packets that were never queued, where their requests have been given out.
    fn forget(&mut self) {
        if self.packets.len() > 1_024 + 4 * self.held.len() {
            let held = &self.held;
            self.packets.retain(|_, &mut slot| held.get(slot).is_some());
        }
    }

    fn thread(&mut self, tid: Tid) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    /// A thread whose read has returned.
    fn reader(&mut self, tid: Tid, on_core: Option<Since>) -> &mut Thread {
        let begun = self.first.map(|first| first + self.options.overtaken_after);
        self.threads.entry(tid).or_insert_with(|| {
            Thread::unseen(match on_core {
                Some(Since::Exactly(at)) if Some(at) > begun => Some(at),
                _ => None,
            })
        })
    }

    /// Notes that `tid` is the thread on `cpu`, and says since when.
    fn running(&mut self, cpu: u16, tid: Tid, at: Monotonic) -> Option<Since> {
        let (since, blind) = self.cores.called(cpu, tid, at);
        self.blind.extend(blind);
        since
    }

    fn open_request(&mut self, at: Monotonic, key: RequestKey) -> Option<Slot> {
        self.opened();
        self.held.open(at, key)
    }

    /// Gives out now and then, so that not all requests are held.
    fn opened(&mut self) {
        self.since_given_out += 1;
        if self.since_given_out >= GIVE_OUT_EVERY && !self.streaming {
            self.give_out();
        }
    }

    fn packet_in(&mut self, at: Monotonic, packet: PacketId, key: RequestKey) {
        let Some(slot) = self.open_request(at, key) else {
            return;
        };
        self.datagrams = true;
        self.packets.insert(packet.0, slot);
        let open_key = self.open_key(key);
        if let Some(&doubt) = self.doubts.get(&open_key)
            && at.saturating_since(doubt) > self.options.overtaken_after
        {
            // silence: what was asked before has been answered
            self.doubts.remove(&open_key);
            self.open.forget_tainted(open_key);
        }
        self.open.insert(open_key, slot);
    }

    fn by_order(&self) -> bool {
        self.ids == Some(DatagramIds::Order)
    }

    /// What a response must have in common with its request.
    fn open_key(&self, key: RequestKey) -> u64 {
        let id = if self.by_order() { 0 } else { key.id };
        packed(RequestKey { id, ..key })
    }

    /// How datagrams were told apart, if there were any.
    fn used_ids(&self) -> Option<DatagramIds> {
        self.ids.filter(|_| self.datagrams)
    }

    fn enqueued(&mut self, at: Monotonic, packet: PacketId) {
        if let Some(slot) = self.packets.remove(&packet.0) {
            self.set_t2(slot, at);
            if self.by_order() {
                self.in_hand.enqueued(at, slot);
            }
        }
    }

    fn set_t2(&mut self, slot: Slot, at: Monotonic) {
        if let Some(request) = self.held.get_mut(slot)
            && request.fate != Fate::Answered
        {
            request.t2 = Some(at);
        }
    }

    fn packet_out(&mut self, at: Monotonic, tid: Tid, key: RequestKey) {
        let by_order = self.by_order();
        let open_key = self.open_key(key);
        let thread = self.threads.entry(tid).or_default();
        let sent = thread.packet_out(at);
        let read = sent.read;
        let (answered_up_to, answered) = (thread.answered_up_to, thread.answered);
        let same = |other: RequestKey| match by_order {
            true => other.client() == key.client(),
            false => other == key,
        };
        let goes_on = by_order && answered.is_some_and(|(other, _)| same(other));
        let (held, options) = (&self.held, &self.options);
        let t1 = |slot: Slot| held.get(slot).map(|request| request.t1);
        let too_old = |t1: Monotonic| {
            // before T1 only in a stream that is out of order: no response of this request
            at < t1 || at.saturating_since(t1) > options.stale_after
        };
        let overtaken = |t1: Monotonic| {
            if by_order && read.is_some_and(|read| read.at < t1) {
                return true; // it was not there to be read
            }
            let later = answered_up_to.and_then(|answered| answered.checked_since(t1));
            later.is_some_and(|later| later >= options.overtaken_after)
        };
        let is_clients = |slot| held.get(slot).is_some_and(|other| same(other.key));
        let open = &self.open;
        let unseen = |t4: Monotonic| {
            let unseen = |request: &Held| request.t1 < t4 && request.t2.is_none();
            open.any(open_key, |slot| held.get(slot).is_some_and(unseen))
        };
        if by_order && let Some(doubt) = self.doubts.get_mut(&open_key) {
            *doubt = at;
        }
        let in_hand = (by_order && !goes_on)
            .then(|| self.in_hand.answered(tid, is_clients, unseen))
            .flatten();
        let mut doubtful = Vec::new();
        let answer = if goes_on && self.open.is_open(open_key) {
            self.in_hand.contradicted();
            self.open.taint(open_key, |slot| doubtful.push(slot));
            Answer::Ambiguous
        } else {
            self.open.answer(
                open_key,
                in_hand,
                |slot| t1(slot).is_some_and(overtaken),
                |slot| t1(slot).is_none_or(too_old),
                |slot| doubtful.push(slot),
            )
        };
        match answer {
            Answer::None => {
                let before = answered.filter(|&(other, _)| same(other));
                let before = before.filter(|&(_, slot)| t1(slot).is_some_and(|t1| !too_old(t1)));
                match before.and_then(|(_, slot)| self.held.get_mut(slot)) {
                    Some(request) => request.t6 = at,
                    None => self.found.without_request.push(at),
                }
            }
            Answer::Ambiguous => {
                self.found.ambiguous.push(at);
                if by_order {
                    self.doubts.insert(open_key, at);
                }
                for slot in doubtful {
                    self.held.decide(slot, Fate::Doubtful);
                }
            }
            Answer::One(slot) => {
                let queued = (self.held.get(slot)).map(|held| held.t2.unwrap_or(held.t1));
                let Some(queued) = queued else { return };
                let ahead = |after, most| self.held.open_before(slot, queued, after, most);
                let Sent { read, write, .. } = thread.answered_datagram(queued, sent, ahead);
                if let Some(request) = self.held.get_mut(slot) {
                    request.t6 = at;
                    request.was_queued_before(read);
                    request.begun(read, write.map(|_| tid), &self.blind);
                    request.t5 = write;
                    request.responder = tid;
                    request.fate = Fate::Answered;
                    thread.answered_up_to = thread.answered_up_to.max(Some(request.t1));
                    thread.answered = Some((key, slot));
                }
            }
        }
    }
}

impl Matched {
    /// Adds a request whose fate is decided, or who is not waited for.
    fn add(&mut self, request: &Held) {
        match request.fate {
            Fate::Answered | Fate::Finished => {
                self.requests.push_stamps(request.stamps());
                self.keys.push(request.key);
                self.workers.push(request.worker);
            }
            Fate::Open | Fate::Doubtful | Fate::Ambiguous | Fate::Unanswered => {
                self.unmatched.push(Unmatched {
                    key: request.key,
                    t1: request.t1,
                    t2: request.t2,
                    ambiguous: matches!(request.fate, Fate::Doubtful | Fate::Ambiguous),
                });
            }
            Fate::Part => {}
        }
    }
}
