//! Requests that wait for their response, by key, and which of them a response answers.
//!
//! A key is a client's port and a 16-bit id, so it may be reused while an older request with the
//! same key is still open: because that is still being served, or because the probe missed its
//! response. A response is matched only when exactly one open request can have caused it:
//!
//! - A request that the *responding thread* has overtaken cannot: the thread has answered a request
//!   that arrived [`overtaken_after`](super::MatchOptions) later, and a thread answers in the order
//!   of arrival. Another thread may still be working on it, so it stays open.
//! - If one request is left, it is matched, unless it is older than
//!   [`stale_after`](super::MatchOptions); then the response more likely belongs to a later request
//!   with the same key whose arrival was not seen. If none is left, the response's request was not
//!   seen. If several are left, the response is ambiguous. Because it is unknown which of them was
//!   answered, none of these requests is ever matched.
//!
//! A client that gives up on a request and reuses its key while the server still has it makes an
//! ambiguous pair. That is intended.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use super::parts::Slot;
use crate::id_map::IdMap;

/// What a response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// No request that was seen.
    None,
    /// Exactly this request.
    One(Slot),
    /// One of several requests; it is unknown which one.
    Ambiguous,
}

#[derive(Clone, Copy)]
struct Candidate {
    slot: Slot,
    /// An ambiguous response may have been the response to this request.
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

/// Several requests with one key. A client without ids may have thousands.
#[derive(Default)]
struct Several {
    /// In order of arrival, which is the order of their slots.
    candidates: VecDeque<Candidate>,
    /// The slots of the candidates that are not tainted.
    certain: VecDeque<Slot>,
}

impl Several {
    fn push(&mut self, candidate: Candidate) {
        self.candidates.push_back(candidate);
        if !candidate.tainted {
            self.certain.push_back(candidate.slot);
        }
    }

    fn find(&self, slot: Slot) -> Option<usize> {
        // usually it is the first
        if self
            .candidates
            .front()
            .is_some_and(|first| first.slot == slot)
        {
            return Some(0);
        }
        let found = |candidate: &Candidate| candidate.slot.cmp(&slot);
        self.candidates.binary_search_by(found).ok()
    }

    fn close(&mut self, slot: Slot) {
        if let Some(place) = self.find(slot) {
            self.candidates.remove(place);
        }
        if self.certain.front() == Some(&slot) {
            self.certain.pop_front();
        } else if let Ok(place) = self.certain.binary_search(&slot) {
            self.certain.remove(place);
        }
    }

    /// Taints the requests for which `is_such` is true, and passes each that was certain to
    /// `doubtful`.
    fn taint(&mut self, is_such: impl Fn(Slot) -> bool, mut doubtful: impl FnMut(Slot)) {
        let mut certain = std::mem::take(&mut self.certain);
        certain.retain(|&slot| {
            if !is_such(slot) {
                return true;
            }
            doubtful(slot);
            if let Some(place) = self.find(slot) {
                self.candidates[place].tainted = true;
            }
            false
        });
        self.certain = certain;
    }
}

/// The open requests with one key: nearly always one.
enum Waiting {
    One(Candidate),
    Several(Box<Several>),
}

/// The open requests by key.
#[derive(Default)]
pub(super) struct OpenRequests {
    by_key: IdMap<Waiting, u64>,
}

impl Waiting {
    fn push(&mut self, slot: Slot) {
        if let Self::One(first) = *self {
            let mut several = Several::default();
            several.push(first);
            *self = Self::Several(Box::new(several));
        }
        if let Self::Several(several) = self {
            several.push(Candidate::new(slot));
        }
    }

    fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let (one, several) = match self {
            Self::One(one) => (Some(*one), None),
            Self::Several(several) => (None, Some(several.candidates.iter().copied())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Removes a request; returns false when nothing is left.
    fn close(&mut self, slot: Slot) -> bool {
        match self {
            Self::One(one) => one.slot != slot,
            Self::Several(several) => {
                several.close(slot);
                !several.candidates.is_empty()
            }
        }
    }

    fn is_certain(&self, slot: Slot) -> bool {
        match self {
            Self::One(one) => one.slot == slot && !one.tainted,
            Self::Several(several) => {
                let certain = &several.certain;
                certain.front() == Some(&slot) || certain.binary_search(&slot).is_ok()
            }
        }
    }

    fn taint(&mut self, is_such: impl Fn(Slot) -> bool, mut doubtful: impl FnMut(Slot)) {
        match self {
            Self::One(one) if is_such(one.slot) => {
                one.tainted = true;
                doubtful(one.slot);
            }
            Self::One(_) => {}
            Self::Several(several) => several.taint(is_such, doubtful),
        }
    }

    fn answer(
        &mut self,
        in_hand: Option<Slot>,
        overtaken: impl Fn(Slot) -> bool,
        stale: impl Fn(Slot) -> bool,
        doubtful: impl FnMut(Slot),
    ) -> Answer {
        if let Some(slot) = in_hand.filter(|&slot| self.is_certain(slot)) {
            return Answer::One(slot);
        }
        let mut possible = self.candidates().filter(|c| !overtaken(c.slot));
        let two = (possible.next(), possible.next());
        drop(possible);
        match two {
            (None, _) => Answer::None,
            (Some(only), None) if stale(only.slot) => Answer::None,
            (Some(only), None) if !only.tainted => Answer::One(only.slot),
            _ => {
                self.taint(|slot| !overtaken(slot), doubtful);
                Answer::Ambiguous
            }
        }
    }
}

impl OpenRequests {
    /// Opens a request under `key` (see [`packed`](crate::id_map::packed)). It must have come in
    /// after all requests that are open.
    pub(super) fn insert(&mut self, key: u64, slot: Slot) {
        match self.by_key.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Waiting::One(Candidate::new(slot)));
            }
            Entry::Occupied(mut entry) => entry.get_mut().push(slot),
        }
    }

    /// Whether a request with this key is open.
    pub(super) fn is_open(&self, key: u64) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Whether this request is open.
    pub(super) fn has(&self, key: u64, slot: Slot) -> bool {
        self.by_key.get(&key).is_some_and(|waiting| match waiting {
            Waiting::One(one) => one.slot == slot,
            Waiting::Several(several) => several.find(slot).is_some(),
        })
    }

    /// Forgets the requests with this key that are not certain.
    pub(super) fn forget_tainted(&mut self, key: u64) {
        let Entry::Occupied(mut entry) = self.by_key.entry(key) else {
            return;
        };
        let left = match entry.get_mut() {
            Waiting::One(one) => !one.tainted,
            Waiting::Several(several) => {
                several.candidates.retain(|candidate| !candidate.tainted);
                !several.candidates.is_empty()
            }
        };
        if !left {
            entry.remove();
        }
    }

    /// Makes all requests with this key uncertain, and passes those that were certain to
    /// `doubtful`.
    pub(super) fn taint(&mut self, key: u64, doubtful: impl FnMut(Slot)) {
        if let Some(waiting) = self.by_key.get_mut(&key) {
            waiting.taint(|_| true, doubtful);
        }
    }

    /// Which request a response with `key` answers; that request is then closed. If it may have
    /// answered several, those that were not doubtful before are passed to `doubtful`. If the
    /// request `in_hand` is known, and is open and certain, it is the one that is answered.
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
        let answer = waiting.answer(in_hand, overtaken, stale, doubtful);
        if let Answer::One(slot) = answer
            && !waiting.close(slot)
        {
            entry.remove();
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
