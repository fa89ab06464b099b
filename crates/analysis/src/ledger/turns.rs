//! What happens next: turns in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::sweep::OpenId;

/// The later a kind stands here, the later it is handled among those of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// A worker's state ends: its index and its turn's number.
    Worker(u32, u32),
    Answered(OpenId),
    Queued(OpenId),
    Begun(OpenId),
}

/// A turn at its time, as one number that orders like the pair of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due(u128);

/// Where the kind of a turn begins in its half of a [`Due`].
const KIND: u32 = 62;

impl Due {
    #[inline]
    fn new(at_ns: u64, turn: Turn) -> Self {
        let of = |kind: u64, id: OpenId| kind << KIND | u64::from(id);
        let turn = match turn {
            Turn::Worker(w, number) => u64::from(w) << 32 | u64::from(number),
            Turn::Answered(id) => of(1, id),
            Turn::Queued(id) => of(2, id),
            Turn::Begun(id) => of(3, id),
        };
        Self(u128::from(at_ns) << 64 | u128::from(turn))
    }

    const fn at_ns(self) -> u64 {
        (self.0 >> 64) as u64
    }

    const fn turn(self) -> Turn {
        let turn = self.0 as u64;
        let id = turn as OpenId;
        match turn >> KIND {
            0 => Turn::Worker((turn >> 32) as u32, id),
            1 => Turn::Answered(id),
            2 => Turn::Queued(id),
            _ => Turn::Begun(id),
        }
    }
}

/// Turns that are sorted at most.
const SOON: usize = 32;

/// The turns to come. A new one mostly comes soon, and few do: those are sorted, so that the next
/// one is at hand. What comes later than all of them waits in a heap.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The next one is the last here.
    soon: Vec<Due>,
    later: BinaryHeap<Reverse<Due>>,
}

impl Turns {
    /// A turn comes.
    #[inline]
    pub(super) fn push(&mut self, at_ns: u64, turn: Turn) {
        self.push_due(Due::new(at_ns, turn));
    }

    fn push_due(&mut self, due: Due) {
        if self.later.peek().is_some_and(|Reverse(first)| *first < due) {
            self.later.push(Reverse(due));
            return;
        }
        let earlier = self.soon.iter().rev().take_while(|other| **other < due);
        let place = self.soon.len() - earlier.count();
        self.soon.insert(place, due);
        if self.soon.len() > SOON {
            self.later.push(Reverse(self.soon.remove(0)));
        }
    }

    /// The next turn and its time, if it comes before `until_ns`; it is gone then.
    #[inline]
    pub(super) fn pop_before(&mut self, until_ns: u64) -> Option<(u64, Turn)> {
        if self.soon.is_empty() {
            let Reverse(first) = self.later.pop()?;
            self.soon.push(first);
        }
        let due = self.soon.pop_if(|due| due.at_ns() < until_ns)?;
        Some((due.at_ns(), due.turn()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whenever they come, they go in order of time, then of their kinds.
        #[test]
        fn turns_go_in_order(
            steps in prop::collection::vec((0_u64..300, 0_u32..4, any::<bool>()), 1..400),
        ) {
            let mut turns = Turns::default();
            let mut plain: Vec<(u64, Turn)> = Vec::new();
            for (at_ns, id, goes) in steps {
                let turn = [Turn::Worker(id, 7), Turn::Answered(id), Turn::Queued(id), Turn::Begun(id)];
                let turn = turn[id as usize];
                turns.push(at_ns, turn);
                plain.push((at_ns, turn));
                plain.sort_unstable();
                if goes {
                    let next = plain.first().copied().filter(|(at, _)| *at < 200);
                    prop_assert_eq!(turns.pop_before(200), next);
                    plain.drain(..usize::from(next.is_some()));
                }
            }
        }
    }
}
