//! Whether the clients wait for their answers before they ask again.
//!
//! Then arrivals depend on departures: a faster server would have got other arrivals, and the
//! same arrivals through an ideal queue say nothing about it.
//!
//! A client that waits has one request on each connection. With N connections and n requests in
//! the server, N − n clients are free to send, so the arrival rate falls in proportion to N − n. An
//! open load sends on whatever is in the server, so its arrivals see the server as time does
//! (Wolff 1982). The test compares the arrival rate in the fullest hundredth of the time with
//! both: with the mean rate, and with what N clients that wait would send then. It says that
//! clients wait where the rate is nearer to the second, the two differ by more than chance, and
//! there are hardly ever more requests inside than connections.
//!
//! Connections that carry few requests (health checks) are left out of their number. Clients that
//! have several requests on a connection, or open a new one for each, look like an open load.

use std::cmp::Reverse;

use taillab_model::{Monotonic, RequestKey};

use crate::crowd::{Crowd, Step};
use crate::id_map::{IdMap, packed};
use crate::matched::Matched;

/// The requests that are looked at, give or take a window: the first ones, which are many more
/// than it takes.
const MOST_REQUESTS: u64 = 500_000;

/// More in the server at once are counted as this many.
const MOST_INSIDE: usize = 4_096;

/// The connections that carry this share of the requests are those of the clients.
const CARRIED: f64 = 0.99;

/// The share of the time that counts as the fullest.
const FULLEST: f64 = 0.01;

/// Where clients that wait would send less by a smaller share than this, the percentiles are about
/// the same either way.
const LEAST_EFFECT: f64 = 0.2;

/// Standard errors of a Poisson number that are no chance.
const BEYOND_CHANCE: f64 = 3.0;

/// At most this share of the requests comes while every connection has one inside.
const HARDLY_ANY: f64 = 0.002;

/// How many requests were in the server, seen by time and by arrivals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside {
    requests: u64,
    /// Requests of each connection.
    connections: IdMap<u64, u64>,
    crowd: Crowd,
    /// Until when time is counted.
    counted_to: Option<Monotonic>,
    /// Nanoseconds with so many inside.
    time_ns: Vec<u64>,
    /// Requests that came when so many were inside.
    arrivals: Vec<u64>,
}

impl Inside {
    /// Takes the requests of the next window.
    pub(crate) fn add(&mut self, matched: &Matched) {
        if self.requests >= MOST_REQUESTS {
            return;
        }
        let mut crowd = std::mem::take(&mut self.crowd);
        crowd.walk(matched, |at, inside, step| {
            let before = self.counted_to.unwrap_or(at);
            *counter(&mut self.time_ns, inside) += at.saturating_since(before).get();
            self.counted_to = Some(at);
            if let Step::Came(place) = step {
                let connection = RequestKey {
                    id: 0,
                    ..matched.keys[place]
                };
                self.requests += 1;
                *self.connections.entry(packed(connection)).or_default() += 1;
                *counter(&mut self.arrivals, inside) += 1;
            }
        });
        self.crowd = crowd;
    }

    /// The number of clients, where they wait for their answers and are more than the workers, so
    /// that they make a queue.
    pub(crate) fn clients_that_wait(&self, workers: u32) -> Option<u64> {
        let connections = self.busy_connections();
        if connections < 2 || connections <= u64::from(workers) {
            return None;
        }
        let all = usize::try_from(connections)
            .ok()
            .filter(|n| *n < MOST_INSIDE)?;
        let from = |counts: &[u64], least| counts.iter().skip(least).sum::<u64>() as f64;
        let (time, requests) = (from(&self.time_ns, 0), self.requests as f64);
        let full = |least: &usize| from(&self.time_ns, *least) >= FULLEST * time;
        let least = (1..self.time_ns.len()).rev().find(full)?;
        let share = from(&self.time_ns, least) / time;
        let expected = requests * share;
        let sent = from(&self.arrivals, least) / expected;
        let would_send = self.free_clients(least, all) / self.free_clients(0, all).max(1e-9);
        let effect = 1.0 - would_send;
        let is_told = effect >= LEAST_EFFECT && effect / 2.0 > BEYOND_CHANCE / expected.sqrt();
        let is_nearer = (sent - would_send).abs() < effect / 2.0;
        let is_bounded = from(&self.arrivals, all) <= HARDLY_ANY * requests;
        (is_told && is_nearer && is_bounded).then_some(connections)
    }

    /// Clients of `all` that could send, on average over the time with `least` inside or more.
    fn free_clients(&self, least: usize, all: usize) -> f64 {
        let times = self.time_ns.iter().enumerate().skip(least);
        let (sum, time) = times.fold((0.0, 0.0), |(sum, time), (inside, &ns)| {
            let free = all.saturating_sub(inside) as f64;
            (sum + free * ns as f64, time + ns as f64)
        });
        if time > 0.0 { sum / time } else { 0.0 }
    }

    /// The fewest connections that carry nearly all requests.
    fn busy_connections(&self) -> u64 {
        let mut requests: Vec<u64> = self.connections.values().copied().collect();
        requests.sort_unstable_by_key(|n| Reverse(*n));
        let carried = (CARRIED * self.requests as f64).ceil() as u64;
        let mut sum = 0;
        let enough = requests.iter().position(|n| {
            sum += n;
            sum >= carried
        });
        enough.map_or(0, |place| place as u64 + 1)
    }
}

fn counter(counts: &mut Vec<u64>, inside: usize) -> &mut u64 {
    let inside = inside.min(MOST_INSIDE);
    if counts.len() <= inside {
        counts.resize(inside + 1, 0);
    }
    &mut counts[inside]
}

#[cfg(test)]
mod tests {
    use std::collections::BinaryHeap;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use taillab_model::{Request, Stamps};

    use super::*;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(1_000_000_000 + ns)
    }

    fn exponential(rng: &mut Xoshiro256PlusPlus, mean_ns: f64) -> u64 {
        (-mean_ns * (1.0 - rng.random::<f64>()).ln()) as u64
    }

    /// (t1, t6, port) in any order.
    fn matched(mut requests: Vec<(u64, u64, u16)>) -> Matched {
        requests.sort_unstable();
        let request = |&(t1, t6, _): &(u64, u64, u16)| Request {
            server: Stamps::new(at(t1), [None; 4], at(t6)),
            client: None,
            operation: None,
        };
        let key = |&(_, _, port): &(u64, u64, u16)| RequestKey {
            address: 9,
            port,
            id: 0,
        };
        Matched {
            requests: requests.iter().map(request).collect(),
            keys: requests.iter().map(key).collect(),
            ..Matched::default()
        }
    }

    /// Clients that think for a while after each answer, before one worker.
    fn closed(clients: u16, think_ns: f64, seed: u64) -> Matched {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut next: BinaryHeap<Reverse<(u64, u16)>> = (0..clients)
            .map(|port| Reverse((u64::from(port), port)))
            .collect();
        let (mut free, mut requests) = (0, Vec::new());
        while requests.len() < 20_000 {
            let Reverse((t1, port)) = next.pop().unwrap();
            free = free.max(t1) + exponential(&mut rng, 100_000.0);
            requests.push((t1, free, port));
            next.push(Reverse((
                free + 1_000 + exponential(&mut rng, think_ns),
                port,
            )));
        }
        matched(requests)
    }

    /// Poisson arrivals at one worker over connections; each takes a free one if there is one.
    fn open(connections: u16, utilization: f64, seed: u64) -> Matched {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut t1, mut free, mut requests) = (0, 0, Vec::new());
        let mut free_at: Vec<u64> = vec![0; usize::from(connections)];
        for _ in 0..20_000 {
            t1 += exponential(&mut rng, 100_000.0 / utilization);
            free = free.max(t1) + exponential(&mut rng, 100_000.0);
            let (port, at) = free_at
                .iter_mut()
                .enumerate()
                .min_by_key(|(_, at)| **at)
                .unwrap();
            *at = free;
            requests.push((t1, free, port as u16));
        }
        matched(requests)
    }

    fn found(matched: &Matched, workers: u32) -> Option<u64> {
        let mut inside = Inside::default();
        inside.add(matched);
        inside.clients_that_wait(workers)
    }

    #[test]
    fn clients_that_wait_are_found() {
        for (clients, think_ns) in [(2, 1_000.0), (8, 1_000.0), (8, 300_000.0), (64, 1e6)] {
            for seed in 0..5 {
                let wait = found(&closed(clients, think_ns, seed), 1);
                assert_eq!(wait, Some(u64::from(clients)), "thinking for {think_ns} ns");
            }
        }
    }

    #[test]
    fn an_open_load_is_not_taken_for_one() {
        for (connections, utilization) in [(1, 0.5), (2, 0.7), (8, 0.95), (16, 0.5), (64, 0.9)] {
            for seed in 0..5 {
                let wait = found(&open(connections, utilization, seed), 1);
                assert_eq!(wait, None, "{connections} at {utilization}");
            }
        }
    }

    /// One client makes no queue, nor do two before two workers: the arrivals' ideal holds.
    #[test]
    fn clients_that_never_queue_do_not_matter() {
        assert_eq!(found(&closed(1, 1_000.0, 1), 1), None);
        assert_eq!(found(&closed(2, 1_000.0, 1), 2), None);
        assert_eq!(found(&Matched::default(), 1), None);
    }

    #[test]
    fn a_health_check_on_another_connection_changes_nothing() {
        let mut requests: Vec<(u64, u64, u16)> = Vec::new();
        let clients = closed(8, 1_000.0, 3);
        for place in 0..clients.requests.len() {
            let ns = |at: Monotonic| at.nanos_since_boot() - 1_000_000_000;
            let (t1, t6) = (clients.requests.t1(place), clients.requests.t6(place));
            requests.push((ns(t1), ns(t6), clients.keys[place].port));
            if place % 1_000 == 999 {
                requests.push((ns(t1) + 7, ns(t1) + 90, 99));
            }
        }
        assert_eq!(found(&matched(requests), 1), Some(8));
    }
}
