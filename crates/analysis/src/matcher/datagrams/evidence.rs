//! Whether a protocol's datagrams begin with ids, decided by the first thousand responses.

use std::collections::VecDeque;

use taillab_model::{Event, EventKind};

use crate::id_map::IdMap;
use crate::matched::DatagramIds;

/// How many conclusive responses are weighed.
const RESPONSES: u32 = 1_000;

/// At most this many events are held back until the decision.
const EVENTS: usize = 200_000;

/// The share of the conclusive requests and responses that must support ids.
const SHARE: f64 = 0.9;

/// For each response with the id of a request that was seen, at most this many others may answer
/// requests from before the recording.
const BACKLOG: u32 = 20;

/// Ids of a client's open requests that are remembered: as many as fit into a socket's buffer.
const OPEN: usize = 4_096;

/// The first events of a recording, held back until they show how to read them.
///
/// A server with a backlog first answers requests from before the recording. So what it sends to a
/// client counts against ids only after a first response with the id of a request that was seen.
#[derive(Default)]
pub(super) struct IdEvidence {
    pub(super) events: Vec<Event>,
    clients: IdMap<ClientHistory>,
    /// Requests that came while their client's previous one was known.
    followed: u32,
    /// Of those, the ones whose id differs from the previous one's.
    differ: u32,
    responses: Responses,
}

/// Responses to clients with an open request.
#[derive(Default)]
struct Responses {
    /// With the id of an open request.
    hits: u32,
    /// Without one, to a client that has had a hit.
    misses: u32,
    /// Without one; the request may have come before the recording.
    early: u32,
}

#[derive(Default)]
struct ClientHistory {
    last: Option<u16>,
    open: VecDeque<u16>,
    /// The id of the last response: further datagrams with it prove nothing.
    answered: Option<u16>,
    /// A response had the id of an open request.
    hit: bool,
}

impl IdEvidence {
    /// Holds an event back. Returns true once the evidence is sufficient.
    pub(super) fn weigh(&mut self, event: Event) -> bool {
        self.events.push(event);
        match event.kind {
            EventKind::PacketIn { key, .. } => {
                let client = self.clients.entry(key.connection).or_default();
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
                if let Some(client) = self.clients.get_mut(&key.connection) {
                    client.respond(key.id, &mut self.responses);
                }
            }
            _ => {}
        }
        self.responses.hits + self.responses.misses >= RESPONSES || self.events.len() >= EVENTS
    }

    /// The decision. Without any evidence it is ids, which never lead to a wrong match.
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
}

impl ClientHistory {
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
