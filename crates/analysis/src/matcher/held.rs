//! Requests whose fate is not decided, by their slot.

use std::collections::VecDeque;

use taillab_model::{Monotonic, RequestKey, Stamps, Tid};

use super::parts::Slot;
use super::threads::{Read, STAMPED_LATE};
use crate::commands::Command;
use crate::id_map::IdMap;
use crate::matched::BlindWindow;

/// What is known of a request's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It waits for its response.
    Open,
    /// It has come in as far as this, and goes on: it counts only if it is answered before more of it is read.
    Begun,
    /// It waits, but its response may have left already: it will not be matched.
    Doubtful,
    /// It was answered; a further packet of the response may still move T6.
    Answered,
    /// It was answered, and all of the response is known.
    Finished,
    /// It was one of several that a response may have answered.
    Ambiguous,
    /// The same, since it was not yet known what its connection owed.
    Early,
    /// It will not be answered any more.
    Unanswered,
    /// It turned out to be the beginning of another request, or one without a response.
    Part,
}

/// One request, in a cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldRequest {
    pub(super) t1: Monotonic,
    pub(super) t2: Option<Monotonic>,
    pub(super) t3: Option<Monotonic>,
    pub(super) t4: Option<Monotonic>,
    pub(super) t5: Option<Monotonic>,
    /// Meaningless until it is answered.
    pub(super) t6: Monotonic,
    pub(super) key: RequestKey,
    /// The thread that served it; 0 if unknown.
    pub(super) worker: Tid,
    /// The thread that was current at T6.
    pub(super) responder: Tid,
    pub(super) fate: Fate,
    /// What it asks for, if its content was read and that has a name.
    pub(super) command: Option<Command>,
    /// Its response was handed down to a device's queue then, and has not left.
    pub(super) waits_in_queue: bool,
}

impl HeldRequest {
    const fn new(at: Monotonic, key: RequestKey) -> Self {
        Self {
            t1: at,
            t2: None,
            t3: None,
            t4: None,
            t5: None,
            t6: at,
            key,
            worker: 0,
            responder: 0,
            fate: Fate::Open,
            command: None,
            waits_in_queue: false,
        }
    }

    /// Corrects a T2 that was stamped late: a datagram that has been read was queued before.
    pub(super) fn was_queued_before(&mut self, read: Option<Read>) {
        if let (Some(t2), Some(Read { at, .. })) = (&mut self.t2, read)
            && *t2 > at
            && *t2 <= at + STAMPED_LATE
        {
            *t2 = at.max(self.t1);
        }
    }

    /// Sets T3, T4 and the thread that served it, when its response begins to leave.
    pub(super) fn begun(&mut self, read: Option<Read>, writer: Option<Tid>, blind: &[BlindWindow]) {
        self.t3 = read.and_then(|read| read.could_serve_from(self.t1, self.t2, blind));
        self.t4 = read.map(|read| read.at);
        self.worker = writer.or(read.map(|read| read.tid)).unwrap_or(0);
    }

    pub(super) fn stamps(&self) -> Stamps {
        Stamps {
            t1: self.t1,
            t2: self.t2,
            t3: self.t3,
            t4: self.t4,
            t5: self.t5,
            t6: self.t6,
        }
    }
}

/// The requests that are held, in order of arrival.
#[derive(Default)]
pub(super) struct HeldRequests {
    /// The slot of the first one in `recent`.
    first: Slot,
    recent: VecDeque<HeldRequest>,
    /// Requests that were set aside, since they were still undecided long after later ones.
    stragglers: IdMap<HeldRequest>,
}

impl HeldRequests {
    /// The slot that the next request will have; `None` after 2³² requests.
    pub(super) fn next(&self) -> Option<Slot> {
        let next = self.first as usize + self.recent.len();
        Slot::try_from(next).ok()
    }

    pub(super) fn open(&mut self, at: Monotonic, key: RequestKey) -> Option<Slot> {
        let slot = self.next()?;
        self.recent.push_back(HeldRequest::new(at, key));
        Some(slot)
    }

    /// The request in this slot; `None` if it has moved to the result.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&HeldRequest> {
        match slot.checked_sub(self.first) {
            Some(place) => self.recent.get(place as usize),
            None => self.stragglers.get(&slot),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut HeldRequest> {
        match slot.checked_sub(self.first) {
            Some(place) => self.recent.get_mut(place as usize),
            None => self.stragglers.get_mut(&slot),
        }
    }

    pub(super) fn decide(&mut self, slot: Slot, fate: Fate) {
        if let Some(held) = self.get_mut(slot) {
            held.fate = fate;
        }
    }

    /// Counts, up to `most`, the requests that came in before `slot`, were queued before `queued`
    /// and after `after`, and still wait for their response.
    pub(super) fn open_before(
        &self,
        slot: Slot,
        queued: Monotonic,
        after: Option<Monotonic>,
        most: usize,
    ) -> usize {
        let place = slot.saturating_sub(self.first) as usize;
        let before = self.recent.range(..place.min(self.recent.len()));
        let is_ahead = |held: &&HeldRequest| {
            let t2 = held.t2;
            held.fate == Fate::Open && t2.is_some_and(|t2| t2 < queued && Some(t2) > after)
        };
        // nearly all of them came in shortly before it
        let near = before.rev().take(4 * (most + 1));
        near.filter(is_ahead).take(most).count()
    }

    /// How many are held, stragglers aside.
    pub(super) fn len(&self) -> usize {
        self.recent.len()
    }

    /// How many were set aside and are not decided.
    pub(super) fn aside(&self) -> usize {
        self.stragglers.len()
    }

    /// The oldest one, stragglers aside.
    pub(super) fn front(&self) -> Option<(Slot, &HeldRequest)> {
        Some((self.first, self.recent.front()?))
    }

    pub(super) fn pop_front(&mut self) -> Option<HeldRequest> {
        let held = self.recent.pop_front()?;
        self.first += 1;
        Some(held)
    }

    /// Sets the oldest one aside, so that those after it can move to the result.
    pub(super) fn set_front_aside(&mut self) {
        let slot = self.first;
        if let Some(held) = self.pop_front() {
            self.stragglers.insert(slot, held);
        }
    }

    /// The requests that were set aside, are `stale`, and still wait for their response.
    pub(super) fn open_stragglers(
        &self,
        stale: impl Fn(&HeldRequest) -> bool,
    ) -> Vec<(Slot, RequestKey)> {
        let waits = |held: &HeldRequest| matches!(held.fate, Fate::Open | Fate::Doubtful);
        let stragglers = self.stragglers.iter();
        let open = stragglers.filter(|(_, held)| waits(held) && stale(held));
        open.map(|(slot, held)| (*slot, held.key)).collect()
    }

    /// Passes the stragglers that are `decided`, and so cannot change any more, to `give`. Returns
    /// the T1 of the oldest one that remains.
    pub(super) fn settle_stragglers(
        &mut self,
        mut decided: impl FnMut(Slot, &HeldRequest) -> bool,
        mut give: impl FnMut(&HeldRequest),
    ) -> Option<Monotonic> {
        let done = self
            .stragglers
            .extract_if(|slot, held| decided(*slot, held));
        done.for_each(|(_, held)| give(&held));
        self.stragglers.values().map(|held| held.t1).min()
    }

    /// Takes all requests that were set aside.
    pub(super) fn stragglers(&mut self) -> impl Iterator<Item = HeldRequest> {
        std::mem::take(&mut self.stragglers).into_values()
    }
}
