//! The queue of coming events, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The slot of a request that is in the server; slots are reused.
pub(super) type RequestId = u32;

/// Events of the same time are handled in the order of these kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestEvent {
    /// A worker's state ends: its index, and the number of its busy period.
    StateEnds(u32, u32),
    Answered(RequestId),
    Queued(RequestId),
    Begun(RequestId),
}

/// An event and its time as one number, which sorts by time and then by event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimedEvent(u128);

/// The bit at which the kind of an event begins in the lower half of a [`TimedEvent`].
const KIND: u32 = 62;

impl TimedEvent {
    #[inline]
    fn new(at_ns: u64, event: RequestEvent) -> Self {
        let of = |kind: u64, id: RequestId| kind << KIND | u64::from(id);
        let event = match event {
            RequestEvent::StateEnds(w, number) => u64::from(w) << 32 | u64::from(number),
            RequestEvent::Answered(id) => of(1, id),
            RequestEvent::Queued(id) => of(2, id),
            RequestEvent::Begun(id) => of(3, id),
        };
        Self(u128::from(at_ns) << 64 | u128::from(event))
    }

    const fn at_ns(self) -> u64 {
        (self.0 >> 64) as u64
    }

    const fn event(self) -> RequestEvent {
        let event = self.0 as u64;
        let id = event as RequestId;
        match event >> KIND {
            0 => RequestEvent::StateEnds((event >> 32) as u32, id),
            1 => RequestEvent::Answered(id),
            2 => RequestEvent::Queued(id),
            _ => RequestEvent::Begun(id),
        }
    }
}

/// The largest number of events that are kept sorted.
const SOON: usize = 32;

/// The pending events. Most new events are due soon, so the few events that are due first are kept in a
/// sorted list. All later events are in a heap.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    /// Sorted; the next event is the last here.
    soon: Vec<TimedEvent>,
    later: BinaryHeap<Reverse<TimedEvent>>,
}

impl EventQueue {
    #[inline]
    pub(super) fn push(&mut self, at_ns: u64, event: RequestEvent) {
        self.push_due(TimedEvent::new(at_ns, event));
    }

    fn push_due(&mut self, due: TimedEvent) {
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

    /// Takes the next event and its time, if it comes before `until_ns`.
    #[inline]
    pub(super) fn pop_before(&mut self, until_ns: u64) -> Option<(u64, RequestEvent)> {
        if self.soon.is_empty() {
            let Reverse(first) = self.later.pop()?;
            self.soon.push(first);
        }
        let due = self.soon.pop_if(|due| due.at_ns() < until_ns)?;
        Some((due.at_ns(), due.event()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Events come in order of time and then of kind, whenever they are pushed.
        #[test]
        fn events_come_in_order(
            steps in prop::collection::vec((0_u64..300, 0_u32..4, any::<bool>()), 1..400),
        ) {
            let mut events = EventQueue::default();
            let mut plain: Vec<(u64, RequestEvent)> = Vec::new();
            for (at_ns, id, goes) in steps {
                let event = [
                    RequestEvent::StateEnds(id, 7),
                    RequestEvent::Answered(id),
                    RequestEvent::Queued(id),
                    RequestEvent::Begun(id),
                ];
                let event = event[id as usize];
                events.push(at_ns, event);
                plain.push((at_ns, event));
                plain.sort_unstable();
                if goes {
                    let next = plain.first().copied().filter(|(at, _)| *at < 200);
                    prop_assert_eq!(events.pop_before(200), next);
                    plain.drain(..usize::from(next.is_some()));
                }
            }
        }
    }
}
