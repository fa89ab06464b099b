//! Datagrams: a response is found by its id, or by the order of a client's requests.
//!
//! The probe takes the first two bytes of each datagram as an id, which is right for many protocols
//! (memcached's frame, DNS). If the options do not say whether it is, the first thousand conclusive
//! responses decide ([`IdEvidence`]).
//!
//! **By order.** Without ids, a response can belong to any open request of the same
//! client (address and port):
//!
//! - If one is open, it is that one, with the same exceptions as for ids (see `open.rs`).
//! - If several are open, the request is certain only if a single thread of the server reads
//!   datagrams: a socket returns them in the order in which they were queued (T2), so it is known
//!   which one the thread has in hand. A thread that has one request of the client in hand answers
//!   that one, provided that everything read before it was seen to be queued. Anything that
//!   contradicts this (a response without a request in hand, a read when nothing is queued, a
//!   second thread that reads) ends the certainty until the thread waits for input with nothing
//!   queued. Everything else is ambiguous.
//! - A further datagram of a thread that has not read since its last response to this
//!   client continues that response if no request of the client is open; if one is,
//!   it could belong to either, and is ambiguous.

mod evidence;
mod sole_reader;

use std::collections::VecDeque;

use taillab_model::{Asleep, Event, EventKind, Monotonic, PacketId, RequestKey, Tid};

use super::held::{Fate, HeldRequest, HeldRequests};
use super::open::{Answer, OpenRequests};
use super::options::MatchOptions;
use super::parts::Slot;
use super::shared::{Shared, unasked_worker};
use super::threads::{Sent, Thread};
use crate::id_map::{IdMap, packed};
use crate::matched::{BlindWindow, DatagramIds};
use evidence::IdEvidence;
use sole_reader::SoleReader;

/// The state of the matching of datagrams.
#[derive(Default)]
pub(super) struct Datagrams {
    /// How responses are found; `None` until it is known.
    ids: Option<DatagramIds>,
    /// The events until then, from the first datagram on.
    evidence: Option<Box<IdEvidence>>,
    open: OpenRequests,
    sole_reader: SoleReader,
    /// By order: when the last ambiguous response left, by client.
    doubts: IdMap<Monotonic, u64>,
    /// Packets that wait for their T2.
    packets: IdMap<Slot>,
    /// By order: requests without a T2 so far, by client and in their order. Nearly always none.
    unqueued: IdMap<VecDeque<Slot>, u64>,
}

/// A response that leaves, and what its thread did before.
struct Response {
    at: Monotonic,
    tid: Tid,
    key: RequestKey,
    sent: Sent,
    /// The latest T1 among the requests that the thread has answered.
    answered_up_to: Option<Monotonic>,
    /// The request that the thread has just answered, if this may be the rest of that response.
    before: Option<Slot>,
}

impl Response {
    /// Whether it cannot answer a request that came in at `t1`: that is too long ago, or is later
    /// than the response because the events are out of order.
    fn too_late_for(&self, t1: Monotonic, options: &MatchOptions) -> bool {
        self.at < t1 || self.at.saturating_since(t1) > options.stale_after
    }

    /// Whether its thread has answered a request that came in much later than `t1`.
    fn has_overtaken(&self, t1: Monotonic, options: &MatchOptions) -> bool {
        let later = self
            .answered_up_to
            .and_then(|up_to| up_to.checked_since(t1));
        later.is_some_and(|later| later >= options.overtaken_after)
    }

    /// The request whose response it continues, if it is the rest of one.
    fn continues<'a>(
        &self,
        held: &'a mut HeldRequests,
        options: &MatchOptions,
    ) -> Option<&'a mut HeldRequest> {
        let request = held.get_mut(self.before?)?;
        (!self.too_late_for(request.t1, options)).then_some(request)
    }

    /// Notes that it answers this request, for which T2 to T5 were not meant to be recorded.
    fn answers_unasked(
        &self,
        slot: Slot,
        worker: Tid,
        thread: &mut Thread,
        held: &mut HeldRequests,
    ) {
        if let Some(request) = held.get_mut(slot) {
            request.t6 = self.at;
            request.worker = worker;
            self.has_answered(slot, request, thread);
        }
    }

    fn has_answered(&self, slot: Slot, request: &mut HeldRequest, thread: &mut Thread) {
        request.responder = self.tid;
        request.fate = Fate::Answered;
        thread.answered_up_to = thread.answered_up_to.max(Some(request.t1));
        thread.answered = Some((self.key, slot));
    }

    /// Notes that it answers this request.
    fn answers(
        &self,
        slot: Slot,
        (thread, others): (&mut Thread, &[Monotonic]),
        held: &mut HeldRequests,
        blind: &[BlindWindow],
    ) {
        let Some(request) = held.get(slot) else {
            return;
        };
        let queued = request.t2.unwrap_or(request.t1);
        let ahead = |after, most| held.open_before(slot, queued, after, most);
        let Sent { read, write, .. } = thread.answered_datagram(queued, self.sent, others, ahead);
        if let Some(request) = held.get_mut(slot) {
            request.t6 = self.at;
            request.was_queued_before(read);
            request.begun(read, write.map(|_| self.tid), blind);
            request.t5 = write;
            self.has_answered(slot, request, thread);
        }
    }
}

/// When threads other than `tid` read the datagrams that they have not answered; empty where that is not
/// needed.
fn reads_of_others(threads: &IdMap<Thread>, tid: Tid) -> Vec<Monotonic> {
    if !threads.get(&tid).is_some_and(Thread::has_read_several) {
        return Vec::new();
    }
    let others = threads.iter().filter(|(other, _)| **other != tid);
    others
        .flat_map(|(_, thread)| thread.unanswered_reads())
        .collect()
}

impl Datagrams {
    /// No datagrams yet; `ids` is `None` if the evidence has to decide.
    pub(super) fn new(ids: Option<DatagramIds>) -> Self {
        Self {
            ids,
            ..Self::default()
        }
    }

    /// Holds an event back while it is not known how to match datagrams; returns whether it did.
    /// Once that is known, `ready` gets all events that were held back.
    #[inline]
    pub(super) fn hold_back(&mut self, event: &Event, ready: &mut Option<Vec<Event>>) -> bool {
        if self.ids.is_some() {
            return false;
        }
        if matches!(event.kind, EventKind::PacketIn { .. }) {
            self.evidence.get_or_insert_default();
        }
        let Some(evidence) = &mut self.evidence else {
            return false;
        };
        if evidence.weigh(*event) {
            *ready = Some(self.decide_ids());
        }
        true
    }

    /// Whether events are held back.
    pub(super) const fn holds_back(&self) -> bool {
        self.evidence.is_some()
    }

    /// Decides how responses are found. Returns the events that were held back.
    pub(super) fn decide_ids(&mut self) -> Vec<Event> {
        let Some(evidence) = self.evidence.take() else {
            return Vec::new();
        };
        self.ids = Some(evidence.verdict());
        evidence.events
    }

    fn by_order(&self) -> bool {
        self.ids == Some(DatagramIds::Order)
    }

    /// The key that a response shares with its request; by order, it is without the id.
    fn open_key(&self, key: RequestKey) -> u64 {
        let id = if self.by_order() { 0 } else { key.id };
        packed(RequestKey { id, ..key })
    }

    /// T1: a datagram comes in.
    pub(super) fn packet_in(
        &mut self,
        shared: &mut Shared,
        at: Monotonic,
        packet: PacketId,
        key: RequestKey,
    ) {
        let Some(slot) = shared.open_request(at, key) else {
            return;
        };
        self.packets.insert(packet.0, slot);
        let open_key = self.open_key(key);
        if let Some(&doubt) = self.doubts.get(&open_key)
            && at.saturating_since(doubt) > shared.options.overtaken_after
        {
            // after such a silence, all earlier requests have been answered
            self.doubts.remove(&open_key);
            self.open.forget_tainted(open_key);
        }
        self.open.insert(open_key, slot);
        if self.by_order() {
            self.unqueued.entry(open_key).or_default().push_back(slot);
        }
    }

    /// T2 of a packet.
    pub(super) fn enqueued(&mut self, shared: &mut Shared, at: Monotonic, packet: PacketId) {
        if let Some(slot) = self.packets.remove(&packet.0) {
            self.was_queued(shared, at, slot);
        }
    }

    /// A slice begins or ends: reads outside slices were not seen.
    pub(super) fn begin_anew(&mut self) {
        self.packets.clear();
        if self.by_order() {
            self.sole_reader.contradicted();
        }
    }

    fn was_queued(&mut self, shared: &mut Shared, at: Monotonic, slot: Slot) {
        let mut open_key = None;
        if let Some(request) = shared.held.get_mut(slot)
            && request.fate != Fate::Answered
        {
            request.t2 = Some(at);
            open_key = Some(self.open_key(request.key));
        }
        if self.by_order() {
            self.sole_reader.enqueued(at, slot);
            if let Some(open_key) = open_key {
                self.forget_unqueued(open_key, slot);
            }
        }
    }

    fn forget_unqueued(&mut self, open_key: u64, slot: Slot) {
        if let Some(unqueued) = self.unqueued.get_mut(&open_key)
            && let Ok(place) = unqueued.binary_search(&slot)
        {
            unqueued.remove(place);
        }
    }

    /// T4: a thread has read a datagram.
    pub(super) fn read_returned(&mut self, tid: Tid, at: Monotonic) {
        if self.by_order() {
            self.sole_reader.read_returned(tid, at);
        }
    }

    /// A thread went to sleep.
    pub(super) fn slept(&mut self, tid: Tid, asleep: Option<Asleep>, at: Monotonic) {
        self.sole_reader.slept(tid, asleep, at);
    }

    /// T6: a datagram leaves.
    pub(super) fn packet_out(
        &mut self,
        shared: &mut Shared,
        at: Monotonic,
        tid: Tid,
        key: RequestKey,
    ) {
        let sees_calls = shared.sees_calls();
        let begins = shared.has_begun_within(shared.options.stale_after, at);
        let Shared {
            options,
            held,
            threads,
            found,
            blind,
            others: strangers,
            ..
        } = shared;
        let others = reads_of_others(threads, tid);
        let thread = threads.entry(tid).or_default();
        let sent = thread.packet_out(at);
        let before = thread.answered.filter(|&(other, _)| self.same(other, key));
        let response = Response {
            at,
            tid,
            key,
            sent,
            answered_up_to: thread.answered_up_to,
            before: before.map(|(_, slot)| slot),
        };
        let mut doubtful = Vec::new();
        let mut answered = None;
        match self.answer(&response, held, options, &mut doubtful) {
            Answer::None => match response.continues(held, options) {
                Some(request) => {
                    request.t6 = at;
                    answered = response.before;
                }
                // threads answer in the order of arrival
                None if response.answered_up_to.is_none() && begins => found.from_before += 1,
                None => found.without_request.push(at),
            },
            Answer::Ambiguous => {
                found.ambiguous.push(at);
                if self.by_order() {
                    self.doubts.insert(self.open_key(key), at);
                }
                for slot in doubtful {
                    held.decide(slot, Fate::Doubtful);
                }
            }
            Answer::One(slot) if strangers.contains_key(&tid) => {
                found.other_processes += 1;
                held.decide(slot, Fate::Part);
            }
            Answer::One(slot) => {
                answered = Some(slot);
                match sees_calls {
                    true => response.answers(slot, (thread, &others), held, blind),
                    false => {
                        let worker = unasked_worker(options.stamps, tid, || thread.serves);
                        response.answers_unasked(slot, worker, thread, held);
                    }
                }
            }
        }
        if let Some(slot) = answered {
            shared.leaves(slot);
        }
    }

    /// Whether responses with these keys may answer the same request.
    fn same(&self, one: RequestKey, other: RequestKey) -> bool {
        match self.by_order() {
            true => one.connection == other.connection,
            false => one == other,
        }
    }

    /// Which request a response answers. If it may answer several, those go into `doubtful`.
    fn answer(
        &mut self,
        response: &Response,
        held: &HeldRequests,
        options: &MatchOptions,
        doubtful: &mut Vec<Slot>,
    ) -> Answer {
        let open_key = self.open_key(response.key);
        let by_order = self.by_order();
        let mut in_hand = None;
        if by_order {
            if let Some(doubt) = self.doubts.get_mut(&open_key) {
                *doubt = response.at;
            }
            if response.before.is_none() {
                in_hand = self.in_hand(response, held);
            } else if self.open.is_open(open_key) {
                self.sole_reader.contradicted();
                self.open.taint(open_key, |slot| doubtful.push(slot));
                return Answer::Ambiguous;
            }
        }
        let t1 = |slot: Slot| held.get(slot).map(|request| request.t1);
        // by order: a request that came in after the read cannot be what was read
        let read = response.sent.read.filter(|_| by_order);
        self.open.answer(
            open_key,
            in_hand,
            |slot| t1(slot).is_none_or(|t1| response.has_overtaken(t1, options)),
            |slot| t1(slot).is_some_and(|t1| read.is_some_and(|read| read.at < t1)),
            |slot| t1(slot).is_none_or(|t1| response.too_late_for(t1, options)),
            |slot| doubtful.push(slot),
        )
    }

    /// By order: the request of this client that the thread has in hand, if that is certain.
    fn in_hand(&mut self, response: &Response, held: &HeldRequests) -> Option<Slot> {
        let open_key = self.open_key(response.key);
        let is_clients = |slot| {
            let request = held.get(slot);
            request.is_some_and(|request| request.key.connection == response.key.connection)
        };
        let open = &self.open;
        if let Some(unqueued) = self.unqueued.get_mut(&open_key) {
            unqueued.retain(|&slot| open.has(open_key, slot));
        }
        let unqueued = self.unqueued.get(&open_key).into_iter().flatten();
        let unseen = |t4: Monotonic| {
            let came_before = |slot: &Slot| held.get(*slot).is_some_and(|held| held.t1 < t4);
            unqueued.clone().any(came_before)
        };
        self.sole_reader.answered(response.tid, is_clients, unseen)
    }

    /// Stops waiting for a response to this request.
    pub(super) fn give_up(&mut self, slot: Slot, key: RequestKey) {
        let open_key = self.open_key(key);
        self.open.close(open_key, slot);
        self.forget_unqueued(open_key, slot);
    }

    /// Forgets packets that were never queued, and reads that were never answered, whose requests
    /// are no longer in `held`, and what is known of clients that have been idle since that time.
    pub(super) fn forget(&mut self, held: &HeldRequests, idle: Monotonic) {
        self.sole_reader.forget(|slot| held.get(slot).is_none());
        let many = 1_024 + 4 * held.len();
        if self.packets.len() > many {
            self.packets.retain(|_, &mut slot| held.get(slot).is_some());
        }
        if self.unqueued.len() > many {
            self.unqueued.retain(|_, slots| !slots.is_empty());
        }
        if self.doubts.len() > many {
            self.doubts.retain(|_, &mut last| last > idle);
        }
    }
}
