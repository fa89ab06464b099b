//! Which workers take their requests from one queue.

use taillab_model::Tid;

use crate::id_map::IdMap;
use crate::matched::Matched;

/// Two workers share a queue if one takes over a client of the other in more than 1 in this many of the requests
/// of the one with fewer.
const ONE_IN: u64 = 1_000;

/// The least number of requests with which clients went over from one to the other.
const LEAST: u64 = 5;

/// Which workers of a server take their requests from one queue: a socket, an epoll instance, or a list from which
/// the threads of a pool take. Their clients are served now by one of them and now by another. Where each worker
/// has connections or a socket of its own, it has a queue of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedQueues {
    /// The number of the queue of each worker that shares one, by thread.
    queues: Vec<(Tid, u32)>,
}

impl SharedQueues {
    /// The queues as the requests of a recording show them, or those of its first window.
    pub fn of(matched: &Matched) -> Self {
        let mut last: IdMap<Tid> = IdMap::default();
        // of each worker: its requests whose client is known
        let mut again: IdMap<u64> = IdMap::default();
        let mut changes: IdMap<u64, u64> = IdMap::default();
        for (key, &worker) in matched.keys.iter().zip(&matched.workers) {
            if worker == 0 {
                continue;
            }
            let Some(before) = last.insert(key.connection, worker) else {
                continue;
            };
            *again.entry(worker).or_default() += 1;
            if before != worker {
                let (low, high) = (before.min(worker), before.max(worker));
                *changes.entry(pair(low, high)).or_default() += 1;
            }
        }
        let requests = |worker: Tid| again.get(&worker).copied().unwrap_or(0);
        let mut pairs: Vec<(Tid, Tid)> = changes
            .into_iter()
            .map(|(pair, changes)| ((pair >> 32) as Tid, pair as Tid, changes))
            .filter(|&(low, high, changes)| {
                let fewer = requests(low).min(requests(high));
                changes >= LEAST && changes * ONE_IN > fewer
            })
            .map(|(low, high, _)| (low, high))
            .collect();
        pairs.sort_unstable();
        Self::joined(&pairs)
    }

    /// Workers that are in a pair with each other, or with the same ones, have one queue.
    fn joined(pairs: &[(Tid, Tid)]) -> Self {
        let mut workers: Vec<Tid> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
        workers.sort_unstable();
        workers.dedup();
        let mut queues: Vec<(Tid, u32)> = workers.into_iter().zip(0..).collect();
        let place = |queues: &[(Tid, u32)], tid| {
            let found = queues.binary_search_by_key(&tid, |queue| queue.0);
            found.map_or(0, |place| queues[place].1)
        };
        for &(a, b) in pairs {
            let (a, b) = (place(&queues, a), place(&queues, b));
            if a != b {
                let joined = queues.iter_mut().filter(|queue| queue.1 == a.max(b));
                joined.for_each(|queue| queue.1 = a.min(b));
            }
        }
        Self { queues }
    }

    /// The number of the queue that this worker shares with others, if it does.
    pub(super) fn queue_of(&self, worker: Tid) -> Option<u32> {
        let found = self.queues.binary_search_by_key(&worker, |queue| queue.0);
        found.ok().map(|place| self.queues[place].1)
    }

    /// All workers that share a queue with others.
    pub(super) fn workers(&self) -> Vec<Tid> {
        self.queues.iter().map(|queue| queue.0).collect()
    }

    /// How many workers share a queue.
    pub(super) fn workers_of(&self, queue: u32) -> usize {
        let of = |other: &&(Tid, u32)| other.1 == queue;
        self.queues.iter().filter(of).count()
    }
}

const fn pair(low: Tid, high: Tid) -> u64 {
    (low as u64) << 32 | high as u64
}

#[cfg(test)]
mod tests {
    use taillab_model::RequestKey;

    use super::*;

    /// The queues of workers 1 to 9, where each of these clients is served by these workers in turn.
    fn queues(clients: &[&[Tid]], rounds: usize) -> Vec<Option<u32>> {
        let mut matched = Matched::default();
        for round in 0..rounds {
            for (client, workers) in clients.iter().enumerate() {
                matched
                    .keys
                    .push(RequestKey::hashed(0, client as u16, round as u16));
                matched.workers.push(workers[round % workers.len()]);
            }
        }
        let found = SharedQueues::of(&matched);
        (1..=4).map(|worker| found.queue_of(worker)).collect()
    }

    #[test]
    fn workers_whose_clients_change_share_a_queue() {
        let own = queues(&[&[1], &[2], &[3], &[4]], 100);
        assert_eq!(own, [None; 4]);
        let one = queues(&[&[1, 2, 3, 4]], 100);
        assert_eq!(one, [Some(0); 4]);
        // two sockets with two workers each
        let two = queues(&[&[1, 3], &[2, 4]], 100);
        assert_eq!(two, [Some(0), Some(1), Some(0), Some(1)]);
        // a request whose worker is unknown changes nothing
        assert_eq!(queues(&[&[1, 0, 1], &[2]], 100), [None; 4]);
    }

    #[test]
    fn a_client_that_moves_for_once_makes_no_shared_queue() {
        let moved: Vec<Tid> = (0..100).map(|round| 1 + round / 50).collect();
        let found = queues(&[&moved, &[1], &[2]], 100);
        assert_eq!(found, [None; 4]);
    }

    #[test]
    fn a_queue_counts_its_workers() {
        let shared = SharedQueues::joined(&[(1, 2), (2, 3), (7, 9)]);
        let queue = shared.queue_of(3).unwrap();
        assert_eq!((shared.workers_of(queue), shared.queue_of(4)), (3, None));
        let other = shared.queue_of(7).unwrap();
        assert_eq!(shared.workers_of(other), 2);
    }
}
