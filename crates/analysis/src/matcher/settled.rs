//! Requests that are taken while events still come, as far as nothing will change them.

use taillab_model::Monotonic;

use super::held::{Fate, Held};
use super::threads::Thread;
use super::{IdMap, Matcher, Slot};
use crate::matched::Matched;

impl Matcher {
    /// How many requests have come in and have not been taken with [`Matcher::take_settled`].
    pub fn held(&self) -> usize {
        self.found.requests.len() + self.held.len()
    }

    /// How many matched ones of them came in before `upto`, about.
    pub fn found_before(&self, upto: Monotonic) -> usize {
        self.found.requests.first_from(upto)
    }

    /// When the oldest request came in about which something is not decided: of those before
    /// it nothing will change any more. Requests without a response are given up after
    /// [`stale_after`](super::MatchOptions).
    pub fn settled(&mut self) -> Option<Monotonic> {
        let last = self.last?;
        let stale_after = self.options.stale_after;
        let stale = |request: &Held| last.saturating_since(request.t1) > stale_after;
        self.give_out();
        self.forget();
        while self.held.front().is_some_and(|(_, front)| stale(front)) {
            self.held.set_front_aside();
            self.give_out();
        }
        for (slot, key) in self.held.open_stragglers(stale) {
            self.open.close(self.open_key(key), slot);
            self.expire_in_stream(slot, key);
        }
        let (threads, found) = (&self.threads, &mut self.found);
        let oldest = self.held.settle_stragglers(
            |slot, request| stale(request) || is_decided(threads, slot, request),
            |request| found.add(request),
        );
        let front = self.held.front().map(|(_, request)| request.t1);
        Some(oldest.into_iter().chain(front).min().unwrap_or(last))
    }

    /// The requests that came in before `upto`, which is not after [`Matcher::settled`], in
    /// order of T1, and what was found else since the last call. Blind windows are those
    /// that had not ended before the last call's `upto`.
    pub fn take_settled(&mut self, upto: Monotonic) -> Matched {
        self.found.restore_order();
        let later = self.found.split_off(upto);
        let mut settled = std::mem::replace(&mut self.found, later);
        settled.blind.clone_from(&self.blind);
        self.blind.retain(|window| window.to >= upto);
        settled.last = self.last;
        settled.datagram_ids = self.used_ids();
        settled
    }
}

/// Nothing that may still come changes the request.
pub(super) fn is_decided(threads: &IdMap<Thread>, slot: Slot, request: &Held) -> bool {
    match request.fate {
        Fate::Finished | Fate::Ambiguous | Fate::Unanswered | Fate::Part => true,
        Fate::Answered => {
            let thread = threads.get(&request.responder);
            let still = thread.and_then(|thread| thread.answered);
            still.is_none_or(|(_, answered)| answered != slot)
        }
        Fate::Open | Fate::Doubtful => false,
    }
}
