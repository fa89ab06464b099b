//! Requests that wait for their response, by key, and which of them a response answers.
//!
//! A key is a client's port and a 16-bit id, so it is used again while an older
//! request with the same key may still be open: because it is still being served, or
//! because its response was lost to the probe. A response is matched only when exactly
//! one open request can have caused it:
//!
//! - One that the *responding thread* has overtaken cannot: it has answered a request that
//!   arrived [`overtaken_after`](super::MatchOptions) later, and a thread answers in the order
//!   of arrival. Another thread may still have it in hand, so it stays open.
//! - Of what is left, one: matched, unless it is older than
//!   [`stale_after`](super::MatchOptions); then the response more likely belongs to a later
//!   request with the same key that was not seen to come in. None: the response's request
//!   was not seen. More: ambiguous, and because it is unknown which of them was answered,
//!   none of these requests is ever matched.
//!
//! A client that gives up on a request and uses its key again while the server still
//! has it makes an ambiguous pair, as it should be.

use std::collections::hash_map::Entry;

use super::parts::Slot;
use crate::id_map::IdMap;

/// What a response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// No request that was seen.
    None,
    /// This one.
    One(Slot),
    /// One of several.
    Ambiguous,
}

#[derive(Clone, Copy)]
struct Candidate {
    slot: Slot,
    /// A response that was ambiguous may have been its own.
    tainted: bool,
}

impl Candidate {
    const fn new(slot: Slot) -> Self {
        Self {
            slot,
            tainted: false,
        }
    }
}

/// Nearly always one request; the rest is empty and not allocated then.
struct Waiting {
    first: Candidate,
    rest: Vec<Candidate>,
}

/// The open requests by key.
#[derive(Default)]
pub(super) struct OpenRequests {
    by_key: IdMap<Waiting, u64>,
}

impl Waiting {
    const fn new(slot: Slot) -> Self {
        Self {
            first: Candidate::new(slot),
            rest: Vec::new(),
        }
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Candidate> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }

    /// Takes a request out; false when nothing is left.
    fn close(&mut self, slot: Slot) -> bool {
        if self.first.slot != slot {
            self.rest.retain(|candidate| candidate.slot != slot);
            return true;
        }
        if self.rest.is_empty() {
            return false;
        }
        self.first = self.rest.remove(0);
        true
    }

    fn answer(
        &mut self,
        in_hand: Option<Slot>,
        overtaken: impl Fn(Slot) -> bool,
        stale: impl Fn(Slot) -> bool,
    ) -> Answer {
        if let Some(slot) = in_hand
            && self.iter_mut().any(|c| c.slot == slot && !c.tainted)
        {
            return Answer::One(slot);
        }
        let mut possible = self.iter_mut().filter(|c| !overtaken(c.slot));
        match (possible.next(), possible.next()) {
            (None, _) => Answer::None,
            (Some(only), None) if stale(only.slot) => Answer::None,
            (Some(only), None) if !only.tainted => Answer::One(only.slot),
            (Some(one), other) => {
                for candidate in [Some(one), other].into_iter().flatten().chain(possible) {
                    candidate.tainted = true;
                }
                Answer::Ambiguous
            }
        }
    }
}

impl OpenRequests {
    /// Opens a request, to be found by `key` (see [`packed`](crate::id_map::packed)).
    pub(super) fn insert(&mut self, key: u64, slot: Slot) {
        match self.by_key.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Waiting::new(slot));
            }
            Entry::Occupied(mut entry) => entry.get_mut().rest.push(Candidate::new(slot)),
        }
    }

    /// A request with this key is open.
    pub(super) fn is_open(&self, key: u64) -> bool {
        self.by_key.contains_key(&key)
    }

    /// `is_such` holds for one of the requests with this key.
    pub(super) fn any(&self, key: u64, is_such: impl Fn(Slot) -> bool) -> bool {
        self.by_key.get(&key).is_some_and(|waiting| {
            is_such(waiting.first.slot) || waiting.rest.iter().any(|c| is_such(c.slot))
        })
    }

    /// Forgets the requests with this key that are not certain.
    pub(super) fn forget_tainted(&mut self, key: u64) {
        let Entry::Occupied(mut entry) = self.by_key.entry(key) else {
            return;
        };
        let waiting = entry.get_mut();
        waiting.rest.retain(|candidate| !candidate.tainted);
        if waiting.first.tainted && !waiting.close(waiting.first.slot) {
            entry.remove();
        }
    }

    /// None of the requests with this key is certain any more.
    pub(super) fn taint(&mut self, key: u64, mut doubtful: impl FnMut(Slot)) {
        if let Some(waiting) = self.by_key.get_mut(&key) {
            for candidate in waiting.iter_mut() {
                candidate.tainted = true;
                doubtful(candidate.slot);
            }
        }
    }

    /// Which request a response with `key` answers; that one is then closed. Those that it
    /// may have answered, if there are several, are given to `doubtful`. A request known to
    /// be `in_hand` is the one, if it is open.
    pub(super) fn answer(
        &mut self,
        key: u64,
        in_hand: Option<Slot>,
        overtaken: impl Fn(Slot) -> bool,
        stale: impl Fn(Slot) -> bool,
        doubtful: impl FnMut(Slot),
    ) -> Answer {
        let Entry::Occupied(mut entry) = self.by_key.entry(key) else {
            return Answer::None;
        };
        let waiting = entry.get_mut();
        let answer = waiting.answer(in_hand, overtaken, stale);
        match answer {
            Answer::None => {}
            Answer::One(slot) => {
                if !waiting.close(slot) {
                    entry.remove();
                }
            }
            Answer::Ambiguous => {
                let tainted = waiting.iter_mut().filter(|candidate| candidate.tainted);
                tainted.map(|candidate| candidate.slot).for_each(doubtful);
            }
        }
        answer
    }

    /// Forgets a request.
    pub(super) fn close(&mut self, key: u64, slot: Slot) {
        if let Entry::Occupied(mut entry) = self.by_key.entry(key)
            && !entry.get_mut().close(slot)
        {
            entry.remove();
        }
    }
}
