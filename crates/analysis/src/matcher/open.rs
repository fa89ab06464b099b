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

    /// Taints the requests after the `earlier` ones and before the `later` ones, and passes each
    /// that was certain to `doubtful`.
    fn taint(
        &mut self,
        earlier: impl Fn(Slot) -> bool,
        later: impl Fn(Slot) -> bool,
        mut doubtful: impl FnMut(Slot),
    ) {
        let from = self.certain.partition_point(|&slot| earlier(slot));
        let upto = self.certain.partition_point(|&slot| !later(slot));
        let tainted: Vec<Slot> = self.certain.drain(from..upto.max(from)).collect();
        for slot in tainted {
            doubtful(slot);
            if let Some(place) = self.find(slot) {
                self.candidates[place].tainted = true;
            }
        }
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

    /// The first two requests after the `earlier` ones and before the `later` ones. The earlier ones
    /// are not looked at one by one: there may be thousands.
    fn first_two(
        &self,
        earlier: impl Fn(Slot) -> bool,
        later: impl Fn(Slot) -> bool,
    ) -> [Option<Candidate>; 2] {
        match self {
            Self::One(one) => [
                Some(*one).filter(|one| !earlier(one.slot) && !later(one.slot)),
                None,
            ],
            Self::Several(several) => {
                let all = &several.candidates;
                let from = all.partition_point(|candidate| earlier(candidate.slot));
                let others = all.range(from..).copied();
                let mut others = others.take_while(|other| !later(other.slot));
                [others.next(), others.next()]
            }
        }
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

    fn taint(
        &mut self,
        earlier: impl Fn(Slot) -> bool,
        later: impl Fn(Slot) -> bool,
        mut doubtful: impl FnMut(Slot),
    ) {
        match self {
            Self::One(one) if !earlier(one.slot) && !later(one.slot) => {
                one.tainted = true;
                doubtful(one.slot);
            }
            Self::One(_) => {}
            Self::Several(several) => several.taint(earlier, later, doubtful),
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
            waiting.taint(|_| false, |_| false, doubtful);
        }
    }

    /// Which request a response with `key` answers; that request is then closed. If it may have
    /// answered several, those that were not doubtful before are passed to `doubtful`. If the
    /// request `in_hand` is known, and is open and certain, it is the one that is answered.
    /// Those that are `overtaken` came before all others, and those that are too `late` after them.
    pub(super) fn answer(
        &mut self,
        key: u64,
        in_hand: Option<Slot>,
        overtaken: impl Fn(Slot) -> bool,
        late: impl Fn(Slot) -> bool,
        stale: impl Fn(Slot) -> bool,
        doubtful: impl FnMut(Slot),
    ) -> Answer {
        let Entry::Occupied(mut entry) = self.by_key.entry(key) else {
            return Answer::None;
        };
        let waiting = entry.get_mut();
        let slot = match in_hand.filter(|&slot| waiting.is_certain(slot)) {
            Some(slot) => slot,
            None => match waiting.first_two(&overtaken, &late) {
                [None, _] => return Answer::None,
                [Some(only), None] if stale(only.slot) => return Answer::None,
                [Some(only), None] if !only.tainted => only.slot,
                _ => {
                    waiting.taint(overtaken, late, doubtful);
                    return Answer::Ambiguous;
                }
            },
        };
        if !waiting.close(slot) {
            entry.remove();
        }
        Answer::One(slot)
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_was_overtaken_is_not_looked_at_again_for_each_response() {
        let looked_at = Cell::new(0);
        let mut open = OpenRequests::default();
        (0..10_000).for_each(|slot| open.insert(1, slot));
        let mut answer = |from: Slot, upto: Slot| {
            let mut doubtful = Vec::new();
            let overtaken = |slot: Slot| {
                looked_at.set(looked_at.get() + 1);
                slot < from
            };
            let late = |slot: Slot| slot >= upto;
            let doubt = |slot: Slot| doubtful.push(slot);
            let answer = open.answer(1, None, overtaken, late, |_| false, doubt);
            (answer, doubtful)
        };
        assert_eq!(answer(8_000, 8_000), (Answer::None, vec![]));
        assert_eq!(answer(8_000, 8_001), (Answer::One(8_000), vec![]));
        assert_eq!(
            answer(8_000, 8_003),
            (Answer::Ambiguous, vec![8_001, 8_002])
        );
        // one of these two may have been answered already
        assert_eq!(answer(8_002, 8_003), (Answer::Ambiguous, vec![]));
        assert_eq!(answer(9_999, 10_000), (Answer::One(9_999), vec![]));
        assert!(looked_at.get() < 200, "{}", looked_at.get());
    }
}
