//! When responses left that may have waited in a device's queue.
//!
//! Where packets may wait there, the event of a response comes when it is handed down: then it is known which
//! request it answers and who wrote it. The event that the driver took it only gives T6. In a request, the time of
//! handing down stands for T6 until then.

use std::collections::VecDeque;

use taillab_model::{Monotonic, RequestKey};

use super::parts::Slot;
use crate::id_map::IdMap;

/// As many packets of a client are remembered in any case: a response may be known to be over long after it has left.
const REMEMBERED: usize = 16;

/// The most clients that are remembered.
const MOST_CLIENTS: usize = 1 << 18;

/// A packet that was handed down.
struct QueuedPacket {
    number: u32,
    handed_down: Monotonic,
    left: Option<Monotonic>,
    /// The requests whose T6 is when it leaves, as far as that is known.
    answers: Vec<Slot>,
}

/// What is known of the departure of a response that was handed down at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departed {
    /// It did not pass a queue.
    AtOnce,
    /// It left then.
    At(Monotonic),
    /// It waits in the queue, or was dropped there.
    NotYet,
}

/// The packets of each client that were handed down, in their order.
#[derive(Default)]
pub(super) struct Departures {
    by_client: IdMap<VecDeque<QueuedPacket>>,
}

impl Departures {
    /// A packet is handed down. What was handed down before `idle` may be forgotten.
    pub(super) fn handed_down(
        &mut self,
        key: RequestKey,
        number: u32,
        at: Monotonic,
        idle: Monotonic,
    ) {
        if self.by_client.len() >= MOST_CLIENTS && !self.by_client.contains_key(&key.connection) {
            self.by_client
                .retain(|_, packets| packets.back().is_some_and(|last| last.handed_down >= idle));
        }
        let departures = self.by_client.entry(key.connection).or_default();
        while departures.len() >= REMEMBERED
            && departures.front().is_some_and(|one| one.handed_down < idle)
        {
            departures.pop_front();
        }
        departures.push_back(QueuedPacket {
            number,
            handed_down: at,
            left: None,
            answers: Vec::new(),
        });
    }

    /// The driver took a packet: calls `leaves` for each request that it is known to answer, with the time at which
    /// it was handed down.
    ///
    /// One that is not seen to leave is dropped, or left while the probe was blind: nothing says when.
    pub(super) fn left(
        &mut self,
        key: RequestKey,
        number: u32,
        at: Monotonic,
        mut leaves: impl FnMut(Slot, Monotonic),
    ) {
        let departures = self.by_client.get_mut(&key.connection);
        let Some(one) = departures
            .and_then(|departures| departures.iter_mut().rfind(|one| one.number == number))
        else {
            return;
        };
        one.left = Some(at);
        for slot in one.answers.drain(..) {
            leaves(slot, one.handed_down);
        }
    }

    /// What became of the packet of this client that was handed down at `at` and answers the request in `slot`.
    pub(super) fn of(&mut self, key: RequestKey, at: Monotonic, slot: Slot) -> Departed {
        let Some(departures) = self.by_client.get_mut(&key.connection) else {
            return Departed::AtOnce;
        };
        let place = departures.partition_point(|one| one.handed_down < at);
        match departures.get_mut(place) {
            Some(one) if one.handed_down == at => match one.left {
                Some(left) => Departed::At(left),
                None => {
                    one.answers.push(slot);
                    Departed::NotYet
                }
            },
            _ => Departed::AtOnce,
        }
    }

    /// Whether nothing was handed down.
    pub(super) fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RequestKey = RequestKey::hashed(1, 2, 3);

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns)
    }

    /// Three packets, handed down at 10, 20 and 30; the second one answers request 5.
    fn three() -> Departures {
        let mut departures = Departures::default();
        for (number, ns) in [(7, 10), (8, 20), (9, 30)] {
            departures.handed_down(KEY, number, at(ns), at(0));
        }
        assert_eq!(departures.of(KEY, at(20), 5), Departed::NotYet);
        departures
    }

    fn all(departures: &mut Departures) -> [Departed; 3] {
        [10, 20, 30].map(|ns| departures.of(KEY, at(ns), 6))
    }

    #[test]
    fn each_packet_leaves_for_itself() {
        let mut departures = three();
        let mut answered = Vec::new();
        let leaves = |slot, handed_down| answered.push((slot, handed_down));
        departures.left(KEY, 8, at(40), leaves);
        assert_eq!(answered, [(5, at(20))]);
        let wanted = [Departed::NotYet, Departed::At(at(40)), Departed::NotYet];
        assert_eq!(all(&mut departures), wanted);
        assert_eq!(departures.of(KEY, at(11), 6), Departed::AtOnce);
    }

    #[test]
    fn of_a_client_that_goes_on_only_what_is_late_is_remembered() {
        let mut departures = Departures::default();
        for n in 0..100 {
            departures.handed_down(KEY, n, at(u64::from(n)), at(50));
        }
        let forgotten = (0..100).take_while(|n| departures.of(KEY, at(*n), 0) == Departed::AtOnce);
        assert_eq!(forgotten.count(), 50);
    }
}
