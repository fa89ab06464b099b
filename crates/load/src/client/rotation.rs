//! Chooses the connection for the next request of a pool.

/// No connection.
const NONE: u32 = u32::MAX;

/// All larger depths share one queue.
const DEEPEST: usize = 1024;

/// Idle ones, idle ones in reserve, and one queue for each depth.
const QUEUES: usize = DEEPEST + 2;

/// All connections that are up, by their depth: the number of requests outstanding.
///
/// There is a queue for each depth. The next request goes to the head of the first queue that is
/// not empty: the connection that has been idle for longest or, if none is idle, one with
/// the fewest requests outstanding. Idle connections held in reserve have a queue of their
/// own between the idle and the busy ones. Every operation moves
/// one connection between queues and takes constant time.
#[derive(Debug)]
pub(super) struct Rotation {
    nodes: Vec<Node>,
    /// Connections from this one on are held in reserve.
    reserve_from: usize,
    queues: Vec<Queue>,
    /// All queues before this one are empty.
    least: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    before: u32,
    after: u32,
    /// Requests outstanding; [`NONE`] for a connection that is out.
    depth: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

impl Rotation {
    /// All connections are out; the last `reserve` of them take a request only when no
    /// other one is idle.
    pub(super) fn new(connections: usize, reserve: usize) -> Self {
        let out = Node {
            before: NONE,
            after: NONE,
            depth: NONE,
        };
        let empty = Queue {
            head: NONE,
            tail: NONE,
        };
        Self {
            nodes: vec![out; connections],
            reserve_from: connections.saturating_sub(reserve),
            queues: vec![empty; QUEUES],
            least: QUEUES,
            len: 0,
        }
    }

    /// A connection is up and idle.
    pub(super) fn join(&mut self, connection: usize) {
        debug_assert_eq!(self.nodes[connection].depth, NONE);
        self.append(connection, 0);
        self.len += 1;
    }

    /// A connection takes no more requests.
    pub(super) fn leave(&mut self, connection: usize) {
        if self.nodes[connection].depth != NONE {
            self.remove(connection);
            self.nodes[connection].depth = NONE;
            self.len -= 1;
        }
    }

    /// Connections that are in.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether this connection is in.
    pub(super) fn is_in(&self, connection: usize) -> bool {
        self.depth(connection).is_some()
    }

    /// Requests outstanding on a connection; `None` if it is out.
    #[inline]
    pub(super) fn depth(&self, connection: usize) -> Option<u32> {
        let depth = self.nodes[connection].depth;
        (depth != NONE).then_some(depth)
    }

    /// The connection for the next request; `None` when all are out.
    #[inline]
    pub(super) fn next(&mut self) -> Option<usize> {
        while let Some(queue) = self.queues.get(self.least) {
            if queue.head != NONE {
                return Some(queue.head as usize);
            }
            self.least += 1;
        }
        None
    }

    /// A connection has one more request outstanding.
    #[inline]
    pub(super) fn took(&mut self, connection: usize) {
        let depth = self.nodes[connection].depth;
        if depth != NONE {
            self.remove(connection);
            self.append(connection, depth + 1);
        }
    }

    /// A connection has one request fewer outstanding.
    #[inline]
    pub(super) fn answered(&mut self, connection: usize) {
        let depth = self.nodes[connection].depth;
        if depth != NONE && depth > 0 {
            self.remove(connection);
            self.append(connection, depth - 1);
        }
    }

    #[inline]
    fn append(&mut self, connection: usize, depth: u32) {
        let at = self.queue_of(connection, depth);
        let queue = &mut self.queues[at];
        let before = queue.tail;
        queue.tail = connection as u32;
        if before == NONE {
            queue.head = connection as u32;
        } else {
            self.nodes[before as usize].after = connection as u32;
        }
        self.nodes[connection] = Node {
            before,
            after: NONE,
            depth,
        };
        self.least = self.least.min(at);
    }

    #[inline]
    fn remove(&mut self, connection: usize) {
        let Node {
            before,
            after,
            depth,
        } = self.nodes[connection];
        let at = self.queue_of(connection, depth);
        let queue = &mut self.queues[at];
        if before == NONE {
            queue.head = after;
        } else {
            self.nodes[before as usize].after = after;
        }
        if after == NONE {
            queue.tail = before;
        } else {
            self.nodes[after as usize].before = before;
        }
    }

    #[inline]
    fn queue_of(&self, connection: usize, depth: u32) -> usize {
        match depth {
            0 => usize::from(connection >= self.reserve_from),
            _ => 1 + (depth as usize).min(DEEPEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn idle_connections_take_turns_and_then_the_least_busy() {
        let mut rotation = Rotation::new(3, 0);
        assert_eq!(rotation.next(), None);
        (0..3).for_each(|c| rotation.join(c));
        let mut take = || {
            let c = rotation.next().unwrap();
            rotation.took(c);
            c
        };
        assert_eq!([take(), take(), take()], [0, 1, 2]);
        // none is idle: one each
        assert_eq!([take(), take(), take()], [0, 1, 2]);
        rotation.answered(1);
        assert_eq!(rotation.next(), Some(1));
        rotation.answered(1);
        rotation.took(1);
        rotation.leave(1);
        assert_eq!(rotation.next(), Some(0));
        rotation.leave(0);
        rotation.leave(2);
        assert_eq!(rotation.next(), None);
    }

    #[test]
    fn depths_beyond_the_deepest_queue_are_kept() {
        let mut rotation = Rotation::new(2, 0);
        (0..2).for_each(|c| rotation.join(c));
        for _ in 0..4 * DEEPEST {
            let c = rotation.next().unwrap();
            rotation.took(c);
        }
        assert_eq!(rotation.nodes[0].depth as usize, 2 * DEEPEST);
        for _ in 0..2 * DEEPEST {
            rotation.answered(1);
        }
        assert_eq!(rotation.next(), Some(1));
        assert_eq!(rotation.nodes[1].depth, 0);
    }

    #[test]
    fn the_reserve_waits_until_no_other_is_idle() {
        let mut rotation = Rotation::new(3, 1);
        (0..3).for_each(|c| rotation.join(c));
        let mut take = || {
            let c = rotation.next().unwrap();
            rotation.took(c);
            c
        };
        assert_eq!([take(), take(), take(), take()], [0, 1, 2, 0]);
        rotation.answered(2);
        rotation.answered(1);
        assert_eq!(rotation.next(), Some(1));
        rotation.took(1);
        assert_eq!(rotation.next(), Some(2));
    }

    proptest! {
        /// Against a plain model: a list of connections in order of their last move.
        #[test]
        fn it_is_the_first_of_the_least_deep(
            reserve in 0_usize..6,
            steps in proptest::collection::vec((0_u8..4, 0_usize..5), 0..300),
        ) {
            let mut rotation = Rotation::new(5, reserve);
            let mut plain: VecDeque<(usize, u32)> = VecDeque::new();
            for (step, c) in steps {
                let at = plain.iter().position(|&(other, _)| other == c);
                match (step, at) {
                    (0, None) => {
                        rotation.join(c);
                        plain.push_back((c, 0));
                    }
                    (1, Some(at)) => {
                        rotation.leave(c);
                        plain.remove(at);
                    }
                    (2, Some(at)) => {
                        rotation.took(c);
                        let (_, depth) = plain.remove(at).unwrap();
                        plain.push_back((c, depth + 1));
                    }
                    (3, Some(at)) if plain[at].1 > 0 => {
                        rotation.answered(c);
                        let (_, depth) = plain.remove(at).unwrap();
                        plain.push_back((c, depth - 1));
                    }
                    _ => {}
                }
                // an idle connection in reserve comes after all others that are idle
                let rank = |&(c, depth): &(usize, u32)| {
                    (depth, depth == 0 && c >= 5_usize.saturating_sub(reserve))
                };
                let least = plain.iter().map(rank).min();
                let expected = plain.iter().find(|&of| Some(rank(of)) == least);
                prop_assert_eq!(rotation.next(), expected.map(|&(c, _)| c));
            }
        }
    }
}
