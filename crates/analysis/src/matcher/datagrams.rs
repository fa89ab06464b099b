//! Datagrams of protocols that nobody told us: does a response name its request?
//!
//! The probe takes the first two bytes of each datagram for an id, and in many protocols
//! (memcached's frame, DNS) they are one. Whether they are shows in the datagrams:
//! [`Evidence`] weighs the first thousand responses that can tell.
//!
//! **By order.** Where they are none, a response can belong to any open request of the same
//! client (address and port):
//!
//! - If one is open, it is that one, with the same exceptions as for ids (see `open.rs`).
//! - If several are, it is certain only for a server with one thread that reads datagrams:
//!   a socket gives them out in the order in which they were queued (T2), so it is known
//!   which one the thread has in hand. A thread that has one request of the client in hand
//!   answers that one, if all that came before it were read was seen to be queued. Whatever contradicts this (a response without a request in hand, a
//!   read when nothing is queued, a second thread that reads) takes the certainty away,
//!   until the thread waits for input with nothing queued. All else is ambiguous.
//! - A further datagram of a thread that has not read since its last response to this
//!   client goes on with that response if no request of the client is open; if one is,
//!   it could be either's, and is ambiguous.

use std::collections::VecDeque;

use taillab_model::{Asleep, Event, EventKind, Monotonic, Nanos, Tid};

use super::{IdMap, Slot};
use crate::matched::DatagramIds;

/// Responses that are weighed.
const RESPONSES: u32 = 1_000;

/// Events that are held back for it, at most.
const EVENTS: usize = 200_000;

/// Of the requests and responses that can say anything, how many must speak for ids.
const SHARE: f64 = 0.9;

/// For each response with the id of a request that was seen, at most so many more may answer
/// requests from before the recording.
const BACKLOG: u32 = 20;

/// Ids of a client's open requests that are remembered: as many as wait in a socket's buffer.
const OPEN: usize = 4_096;

/// A thread that falls asleep longer than this after the last datagram was queued has seen
/// that datagram: it is woken by what comes while it looks, and does not sleep then.
const LOOKED: Nanos = Nanos::from_micros(50);

/// The system calls of x86-64 that wait for input: read, poll, select, recvfrom, recvmsg,
/// `epoll_wait`, pselect6, ppoll, `epoll_pwait`, recvmmsg, `epoll_pwait2`.
const WAITS: [u16; 11] = [0, 7, 23, 45, 47, 232, 270, 271, 281, 299, 441];

/// Reads after which a thread is taken for the only one that reads.
const ALONE: u32 = 128;

/// The events of the beginning, held back until it shows how to read them.
///
/// A server that is behind answers requests from before the recording first: what it sends
/// to a client counts against ids only after the first response that has one.
#[derive(Default)]
pub(super) struct Evidence {
    events: Vec<Event>,
    clients: IdMap<Client>,
    /// Requests that came while their client's previous one was known, and of these those
    /// with another id than that.
    followed: u32,
    differ: u32,
    responses: Responses,
}

/// Responses to clients with an open request.
#[derive(Default)]
struct Responses {
    /// They have the id of an open request.
    hits: u32,
    /// They have not, and their client has had one that has.
    misses: u32,
    /// They have not, and their requests may have come before the recording.
    early: u32,
}

#[derive(Default)]
struct Client {
    last: Option<u16>,
    open: VecDeque<u16>,
    /// The id of the last response: more datagrams with it say nothing.
    answered: Option<u16>,
    /// A response had the id of an open request.
    hit: bool,
}

impl Evidence {
    /// Holds an event back; true if it has seen enough.
    pub(super) fn weigh(&mut self, event: Event) -> bool {
        self.events.push(event);
        match event.kind {
            EventKind::PacketIn { key, .. } => {
                let client = self.clients.entry(key.client()).or_default();
                if let Some(last) = client.last.replace(key.id) {
                    self.followed += 1;
                    self.differ += u32::from(last != key.id);
                }
                if client.open.len() == OPEN {
                    client.open.pop_front();
                }
                client.open.push_back(key.id);
                client.answered = None;
            }
            EventKind::PacketOut { key, .. } => {
                if let Some(client) = self.clients.get_mut(&key.client()) {
                    client.respond(key.id, &mut self.responses);
                }
            }
            _ => {}
        }
        self.responses.hits + self.responses.misses >= RESPONSES || self.events.len() >= EVENTS
    }

    /// What it says; with nothing to go by, ids, which are never guessed either.
    pub(super) fn verdict(&self) -> DatagramIds {
        let enough = |part: u32, of: u32| f64::from(part) >= SHARE * f64::from(of);
        let Responses {
            hits,
            misses,
            early,
        } = self.responses;
        let ids = enough(self.differ, self.followed)
            && enough(hits, hits + misses)
            && early <= BACKLOG.saturating_mul(hits);
        if ids {
            DatagramIds::Ids
        } else {
            DatagramIds::Order
        }
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }
}

impl Client {
    fn respond(&mut self, id: u16, responses: &mut Responses) {
        if let Some(place) = self.open.iter().position(|&open| open == id) {
            self.open.remove(place);
            self.hit = true;
            responses.hits += 1;
        } else if self.open.is_empty() || self.answered == Some(id) {
            return;
        } else if self.hit {
            responses.misses += 1;
        } else {
            responses.early += 1;
        }
        self.answered = Some(id);
    }
}

/// What the only thread that reads datagrams has in hand.
#[derive(Default)]
pub(super) struct InHand {
    reader: Option<Tid>,
    reads: u32,
    /// More than one thread reads.
    several: bool,
    /// Nothing has contradicted the order since the reader last slept.
    certain: bool,
    /// Queued and not read, in order of T2.
    queued: VecDeque<Slot>,
    /// The last T2.
    last_queued: Option<Monotonic>,
    /// Read and not answered, with their T4.
    read: Vec<(Slot, Monotonic)>,
}

impl InHand {
    /// T2.
    pub(super) fn enqueued(&mut self, at: Monotonic, slot: Slot) {
        self.last_queued = Some(at);
        if !self.several {
            self.queued.push_back(slot);
        }
    }

    /// T4.
    pub(super) fn read_returned(&mut self, tid: Tid, at: Monotonic) {
        if *self.reader.get_or_insert(tid) != tid {
            *self = Self {
                reader: Some(tid),
                several: true,
                ..Self::default()
            };
        }
        if self.several {
            return;
        }
        self.reads = self.reads.saturating_add(1);
        match self.queued.pop_front() {
            Some(slot) => self.read.push((slot, at)),
            None => self.certain = false,
        }
    }

    /// A thread went to sleep: a reader that waits for input has read all there was.
    pub(super) fn slept(&mut self, tid: Tid, asleep: Option<Asleep>, at: Monotonic) {
        let waits = asleep.and_then(|asleep| asleep.call);
        let waits = waits.is_some_and(|call| WAITS.contains(&call));
        let looked = self.last_queued.is_none_or(|last| last + LOOKED < at);
        let alone = self.reader == Some(tid) && self.reads >= ALONE;
        if !self.certain && waits && looked && alone {
            self.queued.clear();
            self.read.clear();
            self.certain = true;
        }
    }

    /// A response left that the order does not explain.
    pub(super) fn contradicted(&mut self) {
        self.certain = false;
    }

    /// Which request `tid` answers, of those for which `is_clients`; `None` if that is not
    /// certain. `unseen` says of a T4 whether the client has an open request that came
    /// before it and was not seen to be queued.
    pub(super) fn answered(
        &mut self,
        tid: Tid,
        is_clients: impl Fn(Slot) -> bool,
        unseen: impl Fn(Monotonic) -> bool,
    ) -> Option<Slot> {
        if self.several || self.reader != Some(tid) {
            return None;
        }
        let mut of_client = (0..self.read.len()).filter(|&place| is_clients(self.read[place].0));
        match (of_client.next(), of_client.next()) {
            (Some(place), None) if !unseen(self.read[place].1) => {
                let (slot, _) = self.read.remove(place);
                self.certain.then_some(slot)
            }
            _ => {
                self.certain = false;
                None
            }
        }
    }
}
