//! What is left of the warm-up in the server when the measurement begins.

use taillab_model::Monotonic;

use crate::matched::{Arrival, Matched};

/// Counts the requests that came before the measurement and are in the server when it begins.
///
/// A warm-up may come faster than one request each t: a server that answers many at once needs less for each of them. In a
/// queue with t for each, they would wait far into the measurement. What the server has answered by then, an ideal server
/// has answered, too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftOver {
    requests: u64,
    is_over: bool,
}

impl LeftOver {
    /// The next request in order of T1. Returns how many are left over when the first one of the measurement comes.
    pub(crate) fn at_the_beginning(
        &mut self,
        matched: &Matched,
        arrival: &Arrival,
        measure_from: Monotonic,
    ) -> Option<u64> {
        if self.is_over {
            return None;
        }
        self.is_over = arrival.t1 >= measure_from;
        if self.is_over {
            return Some(self.requests);
        }
        let stays = match arrival.matched {
            Some(place) => matched.requests.t6(place) >= measure_from,
            // it may stay, as one does that came before it
            None => self.requests > 0,
        };
        self.requests += u64::from(stays);
        None
    }
}
