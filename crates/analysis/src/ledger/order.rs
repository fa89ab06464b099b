//! First come, first served: when each request should have left.
//!
//! Whoever serves, the k-th response leaves when it leaves. In the order of arrival it would
//! have been the k-th request's. From then on a request that is still there is late, and
//! whatever it then waits for, it waits for because of the order.

use std::collections::VecDeque;

use super::sweep::OpenId;

/// The requests of one server of the queue, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct InOrder {
    /// Places of those whose turn to leave has not come; `None` where they have left already.
    waiting: VecDeque<(usize, Option<OpenId>)>,
    /// The worker that last answered a request before its turn.
    overtaker: usize,
}

impl InOrder {
    /// A request is queued; places count in order of arrival.
    pub(super) fn came(&mut self, place: usize, open: OpenId) {
        if self.waiting.back().is_none_or(|&(last, _)| last < place) {
            self.waiting.push_back((place, Some(open)));
            return;
        }
        let after = self.waiting.partition_point(|&(other, _)| other < place);
        self.waiting.insert(after, (place, Some(open)));
    }

    /// Worker `w` has answered the request at `place`. The request whose turn it was to
    /// leave, if that is still there, and the worker that overtook it.
    pub(super) fn left(&mut self, place: usize, w: usize) -> Option<(OpenId, usize)> {
        if self
            .waiting
            .front()
            .is_some_and(|&(first, _)| first == place)
        {
            self.waiting.pop_front();
            return None;
        }
        let found = self.waiting.partition_point(|&(other, _)| other < place);
        if let Some(entry) = self.waiting.get_mut(found)
            && entry.0 == place
        {
            entry.1 = None;
            if found > 0 {
                self.overtaker = w;
            }
        }
        let (_, due) = self.waiting.pop_front()?;
        Some((due?, self.overtaker))
    }
}

/// Since when a request is late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    pub(super) since_ns: u64,
    /// Its worker's positions then, on the tape and in the receive softirqs.
    pub(super) tape: u64,
    pub(super) received: u64,
    /// The worker that overtook it.
    pub(super) by: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_overtaker_is_the_one_that_left_before_its_turn() {
        let mut order = InOrder::default();
        for place in 0..3 {
            order.came(place, place as OpenId);
        }
        // the third leaves first: the first is late. Then the first: the second is.
        assert_eq!(order.left(2, 7), Some((0, 7)));
        assert_eq!(order.left(0, 8), Some((1, 7)));
        assert_eq!(order.left(1, 9), None);
    }

    proptest! {
        /// The k-th to leave names the k-th to come, unless that has left.
        #[test]
        fn each_is_late_from_when_its_turn_was(keys in prop::collection::vec(any::<u32>(), 1..40)) {
            let mut leaving: Vec<usize> = (0..keys.len()).collect();
            leaving.sort_by_key(|&place| (keys[place], place));
            let mut order = InOrder::default();
            for place in 0..keys.len() {
                order.came(place, place as OpenId);
            }
            for (turn, &place) in leaving.iter().enumerate() {
                let gone = leaving[..=turn].contains(&turn);
                let due = order.left(place, 1).map(|(open, _)| open as usize);
                prop_assert_eq!(due, (!gone).then_some(turn));
            }
        }
    }
}
