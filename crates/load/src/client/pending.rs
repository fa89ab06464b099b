//! The requests of each connection that wait for their answers, in order.

use crate::protocol::Planned;

/// No slot.
const NONE: u32 = u32::MAX;

/// Slots reserved; untouched ones take no memory.
const ROOM: usize = 1 << 18;

/// The queues of all connections share one vector, so that ten thousand empty ones
/// cost little and a request allocates nothing.
#[derive(Debug)]
pub(super) struct Pending {
    slots: Vec<Slot>,
    free: u32,
    queues: Vec<Queue>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    what: Planned,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Its number, unique among the client's requests.
    pub(super) number: u64,
    pub(super) what: Planned,
}

impl Pending {
    pub(super) fn new(connections: usize) -> Self {
        let empty = Queue {
            head: NONE,
            tail: NONE,
        };
        Self {
            slots: Vec::with_capacity(ROOM),
            free: NONE,
            queues: vec![empty; connections],
            len: 0,
        }
    }

    /// Requests that wait on any connection.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn push(&mut self, connection: usize, request: Request) {
        let slot = Slot {
            number: request.number,
            what: request.what,
            next: NONE,
        };
        let at = if self.free == NONE {
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        } else {
            let at = self.free;
            self.free = self.slots[at as usize].next;
            self.slots[at as usize] = slot;
            at
        };
        let queue = &mut self.queues[connection];
        if queue.tail == NONE {
            queue.head = at;
        } else {
            self.slots[queue.tail as usize].next = at;
        }
        queue.tail = at;
        self.len += 1;
    }

    /// The request whose answer comes next on a connection.
    #[inline]
    pub(super) fn first(&self, connection: usize) -> Option<Request> {
        let slot = self.slots.get(self.queues[connection].head as usize)?;
        Some(Request {
            number: slot.number,
            what: slot.what,
        })
    }

    #[inline]
    pub(super) fn pop(&mut self, connection: usize) -> Option<Request> {
        let first = self.first(connection)?;
        let queue = &mut self.queues[connection];
        let at = queue.head;
        let slot = &mut self.slots[at as usize];
        queue.head = slot.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        slot.next = self.free;
        self.free = at;
        self.len -= 1;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use taillab_model::Operation;

    use super::*;

    proptest! {
        #[test]
        fn each_connection_has_its_own_order(
            steps in proptest::collection::vec((any::<bool>(), 0_usize..4), 0..300),
        ) {
            let mut pending = Pending::new(4);
            let mut plain = vec![VecDeque::new(); 4];
            let mut most = 0;
            for (number, (push, connection)) in steps.into_iter().enumerate() {
                let request = Request {
                    number: number as u64,
                    what: Planned::new(Operation::Get, number as u32),
                };
                if push {
                    pending.push(connection, request);
                    plain[connection].push_back(request);
                } else {
                    prop_assert_eq!(pending.pop(connection), plain[connection].pop_front());
                }
                let len: usize = plain.iter().map(VecDeque::len).sum();
                prop_assert_eq!(pending.len(), len);
                for (connection, plain) in plain.iter().enumerate() {
                    prop_assert_eq!(pending.first(connection), plain.front().copied());
                }
                // slots are used again
                most = most.max(len);
                prop_assert_eq!(pending.slots.len(), most);
            }
        }
    }
}
