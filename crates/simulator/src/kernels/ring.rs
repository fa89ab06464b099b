//! A queue whose front can be removed conditionally without a branch.
//!
//! It cannot be predicted whether a request leaves before the next one arrives, and a mispredicted branch
//! costs more than all the arithmetic around it.

pub(super) struct Ring<T> {
    /// The length is a power of two, and larger than the number of elements.
    slots: Vec<T>,
    head: usize,
    tail: usize,
    /// The value after the newest element.
    end: T,
}

impl<T: Copy> Ring<T> {
    /// An empty queue; `end` is its front while it is empty.
    pub(super) fn new(end: T) -> Self {
        Self {
            slots: vec![end; 16],
            head: 0,
            tail: 0,
            end,
        }
    }

    #[inline(always)]
    fn slot(&self, position: usize) -> usize {
        position & (self.slots.len() - 1)
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// The oldest element, or `end`.
    #[inline(always)]
    pub(super) fn front(&self) -> T {
        self.slots[self.slot(self.head)]
    }

    /// Removes the oldest element if `really`, which must be false for an empty queue.
    #[inline(always)]
    pub(super) fn pop_if(&mut self, really: bool) {
        self.head = self.head.wrapping_add(usize::from(really));
    }

    #[inline(always)]
    pub(super) fn push(&mut self, element: T) {
        let slot = self.slot(self.tail);
        self.slots[slot] = element;
        self.tail = self.tail.wrapping_add(1);
        if self.len() + 1 >= self.slots.len() {
            self.grow();
        }
        let slot = self.slot(self.tail);
        self.slots[slot] = self.end;
    }

    #[cold]
    fn grow(&mut self) {
        let elements: Vec<T> = (0..self.len())
            .map(|i| self.slots[self.slot(self.head.wrapping_add(i))])
            .collect();
        (self.head, self.tail) = (0, elements.len());
        let size = 2 * self.slots.len();
        self.slots.clear();
        self.slots.extend(elements);
        self.slots.resize(size, self.end);
    }

    /// Calls `change` for all elements, the oldest first.
    pub(super) fn for_each(&mut self, mut change: impl FnMut(&mut T)) {
        for i in 0..self.len() {
            let slot = self.slot(self.head.wrapping_add(i));
            change(&mut self.slots[slot]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn it_is_a_queue(steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0_u32..100), 0..300)) {
            let mut ring = Ring::new(u32::MAX);
            let mut queue = VecDeque::new();
            for (push, pop, x) in steps {
                if push {
                    ring.push(x);
                    queue.push_back(x);
                }
                let pop = pop && !queue.is_empty();
                ring.pop_if(pop);
                if pop {
                    queue.pop_front();
                }
                prop_assert_eq!(ring.len(), queue.len());
                prop_assert_eq!(ring.front(), queue.front().copied().unwrap_or(u32::MAX));
            }
            ring.for_each(|x| *x += 1);
            for x in queue {
                prop_assert_eq!(ring.front(), x + 1);
                ring.pop_if(true);
            }
        }
    }
}
