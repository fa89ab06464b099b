//! Whether the clients wait for their answers before they send again.
//!
//! If they do, arrivals depend on departures: a faster server would have seen other arrivals, so
//! sending the same arrivals through an ideal queue says nothing about it.
//!
//! With N clients that wait and n requests in the server, N − n clients are free to send, so the
//! arrival rate falls in proportion to N − n. An open load keeps sending however full the server is, so
//! arrivals see the time average (Wolff 1982). The test takes the arrival rate in the fullest
//! hundredth of the time and compares it with two others: the mean rate, and the rate at which N
//! waiting clients would send then. Clients wait if the rate is nearer to the second, the two differ
//! by more than chance, and there are hardly ever more than N requests in the server.
//!
//! N depends on how clients use their connections, so both ways are tried:
//!
//! - one request, or one batch sent at once, on each connection: N is the number of connections, and a
//!   batch counts as one;
//! - a fixed number of requests over all connections, which keeps the server full: N is the largest
//!   number ever in the server, provided that the average is at least half of it. (An open load whose
//!   server is never more than twice as full as on average has a queue that only grows, and its rate
//!   does not fall.)
//!
//! Connections that carry few requests (health checks) are not counted. A server may close a connection
//! after some requests, so that its client opens another; therefore the number of simultaneous
//! connections counts. Clients that open a new connection for each request, or that have several
//! requests on each connection and hardly load the server, look like an open load.

use std::cmp::Reverse;
use std::ops::Range;

use taillab_model::{Monotonic, Nanos, RequestKey};

use crate::crowd::{Crowd, Step};
use crate::id_map::{IdMap, grow_to, packed};
use crate::matched::Matched;

/// About this many requests, the first ones, are examined; fewer would be enough.
const MOST_REQUESTS: u64 = 500_000;

/// Larger numbers of requests in the server count as this number.
const MOST_INSIDE: usize = 4_096;

/// The connections that carry this share of the requests are those of the clients.
const CARRIED: f64 = 0.99;

/// The fullest part of the time, as a share of all.
const FULLEST: f64 = 0.01;

/// If waiting would reduce the clients' rate by a smaller share than this, the percentiles are about
/// the same either way.
const LEAST_EFFECT: f64 = 0.2;

/// A difference of more standard errors of a Poisson number than this is not chance.
const BEYOND_CHANCE: f64 = 3.0;

/// At most this share of the requests arrives while every connection has one in the server.
const HARDLY_ANY: f64 = 0.002;

/// Gaps with a smaller coefficient of variation come from a sender with a constant rate.
const REGULAR: f64 = 0.3;

/// Requests on one connection with shorter gaps belong to one batch.
const AT_ONCE: Nanos = Nanos::from_micros(20);

/// What the requests show about the clients that sent them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside {
    /// The connections, by their packed keys.
    connections: IdMap<Connection, u64>,
    requests: Tally,
    batches: Tally,
}

/// The requests of one connection.
#[derive(Clone, Copy, Debug)]
struct Connection {
    requests: u64,
    first: Monotonic,
    last: Monotonic,
}

impl Connection {
    /// How long it existed: from its first request to its last, plus half a gap at both ends.
    fn life_ns(&self) -> f64 {
        let gaps = self.requests.saturating_sub(1) as f64;
        let seen = self.last.saturating_since(self.first).get() as f64;
        if gaps > 0.0 {
            seen * (gaps + 1.0) / gaps
        } else {
            0.0
        }
    }
}

/// How many requests were in the server, averaged over time and over arrivals.
#[derive(Clone, Debug, Default)]
struct Tally {
    came: u64,
    crowd: Crowd,
    /// Time up to here is counted.
    counted_to: Option<Monotonic>,
    /// Nanoseconds, by the number of requests in the server.
    time_ns: Vec<u64>,
    /// Arrivals, by the number of requests in the server.
    arrivals: Vec<u64>,
    last: Option<Monotonic>,
    /// Sums of the gaps between arrivals, in nanoseconds, and of their squares.
    gaps: (f64, f64),
}

impl Inside {
    /// Takes the requests of the next window.
    pub(crate) fn add(&mut self, matched: &Matched) {
        if self.requests.came >= MOST_REQUESTS {
            return;
        }
        let (mut batches, mut last) = (Vec::new(), IdMap::default());
        for place in 0..matched.requests.len() {
            let (t1, t6) = (matched.requests.t1(place), matched.requests.t6(place));
            let key = packed(RequestKey {
                id: 0,
                ..matched.keys[place]
            });
            let seen = self.connections.entry(key).or_insert(Connection {
                requests: 0,
                first: t1,
                last: t1,
            });
            seen.requests += 1;
            seen.last = t1;
            self.requests.add(t1..t6);
            last.entry(key)
                .and_modify(|(batch, before): &mut (usize, Monotonic)| {
                    if t1.saturating_since(*before) > AT_ONCE {
                        *batch = batches.len();
                        batches.push(t1..t6);
                    }
                    let stay: &mut Range<Monotonic> = &mut batches[*batch];
                    stay.end = t6.max(stay.end);
                    *before = t1;
                })
                .or_insert_with(|| {
                    batches.push(t1..t6);
                    (batches.len() - 1, t1)
                });
        }
        for batch in batches {
            self.batches.add(batch);
        }
    }

    /// How many requests or batches the clients have open at once, if they wait for their answers and
    /// outnumber the workers, so that a queue forms.
    pub(crate) fn clients_that_wait(&self, workers: u32) -> Option<u64> {
        let ways = [
            (&self.batches, Some(self.busy_connections())),
            (&self.requests, self.requests.most_of_a_full_server()),
        ];
        ways.into_iter().find_map(|(tally, clients)| {
            let clients = clients.filter(|clients| *clients > u64::from(workers).max(1))?;
            tally.is_of_clients_that_wait(clients).then_some(clients)
        })
    }

    /// The mean number of simultaneous connections, counting only the fewest connections that carry
    /// nearly all requests.
    fn busy_connections(&self) -> u64 {
        let mut all: Vec<Connection> = self.connections.values().copied().collect();
        all.sort_unstable_by_key(|seen| Reverse((seen.requests, seen.first)));
        let carried = (CARRIED * self.requests.came as f64).ceil() as u64;
        let mut sum = 0;
        let enough = all.iter().position(|seen| {
            sum += seen.requests;
            sum >= carried
        });
        let busy = &all[..enough.map_or(0, |place| place + 1)];
        let begin = busy.iter().map(|seen| seen.first).min();
        let end = busy.iter().map(|seen| seen.last).max();
        let Some((begin, end)) = begin.zip(end) else {
            return 0;
        };
        let whole = end.saturating_since(begin).get().max(1) as f64;
        let lives = busy.iter().map(|seen| (seen.life_ns() / whole).min(1.0));
        lives.sum::<f64>().round() as u64
    }
}

impl Tally {
    /// Adds the next request or batch: from when on and until when it is in the server.
    fn add(&mut self, stay: Range<Monotonic>) {
        let mut crowd = std::mem::take(&mut self.crowd);
        crowd.step(stay, &mut |at, inside, step| {
            let before = self.counted_to.unwrap_or(at);
            *counter(&mut self.time_ns, inside) += at.saturating_since(before).get();
            self.counted_to = Some(at);
            if step == Step::Came {
                self.came += 1;
                let gap = at.saturating_since(self.last.unwrap_or(at)).get() as f64;
                self.last = Some(at);
                self.gaps = (self.gaps.0 + gap, self.gaps.1 + gap * gap);
                *counter(&mut self.arrivals, inside) += 1;
            }
        });
        self.crowd = crowd;
    }

    /// Whether this is how that many waiting clients would send.
    fn is_of_clients_that_wait(&self, clients: u64) -> bool {
        let Some(all) = usize::try_from(clients).ok().filter(|n| *n < MOST_INSIDE) else {
            return false;
        };
        let (time, requests) = (from(&self.time_ns, 0), self.came as f64);
        let full = |least: &usize| from(&self.time_ns, *least) >= FULLEST * time;
        let Some(least) = (1..self.time_ns.len()).rev().find(full) else {
            return false;
        };
        let share = from(&self.time_ns, least) / time;
        let expected = requests * share;
        let sent = from(&self.arrivals, least) / expected;
        let would_send = self.free_clients(least, all) / self.free_clients(0, all).max(1e-9);
        let effect = 1.0 - would_send;
        let is_told = effect >= LEAST_EFFECT && effect / 2.0 > BEYOND_CHANCE / expected.sqrt();
        let is_nearer = (sent - would_send).abs() < effect / 2.0;
        let is_bounded = from(&self.arrivals, all) <= HARDLY_ANY * requests;
        // arrivals at a constant rate find the server emptier than on average; waiting clients send like
        // that only if they keep it full
        let is_by_clock = self.is_regular() && self.free_clients(0, all) > all as f64 / 2.0;
        is_told && is_nearer && is_bounded && !is_by_clock
    }

    /// Whether arrivals have a constant rate: the spread of their gaps is a small part of the mean.
    fn is_regular(&self) -> bool {
        let n = (self.came.max(2) - 1) as f64;
        let (mean, square) = (self.gaps.0 / n, self.gaps.1 / n);
        (square - mean * mean).max(0.0).sqrt() < REGULAR * mean
    }

    /// How many of `all` clients are free to send, on average while `least` or more are in the server.
    fn free_clients(&self, least: usize, all: usize) -> f64 {
        let times = self.time_ns.iter().enumerate().skip(least);
        let (sum, time) = times.fold((0.0, 0.0), |(sum, time), (inside, &ns)| {
            let free = all.saturating_sub(inside) as f64;
            (sum + free * ns as f64, time + ns as f64)
        });
        if time > 0.0 { sum / time } else { 0.0 }
    }

    /// The largest number in the server, if the average is at least half of it.
    fn most_of_a_full_server(&self) -> Option<u64> {
        let most = self.time_ns.iter().rposition(|ns| *ns > 0)?;
        let mean = most as f64 - self.free_clients(0, most);
        (2.0 * mean >= most as f64).then_some(most as u64)
    }
}

/// The sum of the counts from place `least` on.
fn from(counts: &[u64], least: usize) -> f64 {
    counts.iter().skip(least).sum::<u64>() as f64
}

fn counter(counts: &mut Vec<u64>, inside: usize) -> &mut u64 {
    grow_to(counts, inside.min(MOST_INSIDE))
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
        let request =
            |&(t1, t6, _): &(u64, u64, u16)| Request::from(Stamps::new(at(t1), [None; 4], at(t6)));
        let key = |&(_, _, port): &(u64, u64, u16)| RequestKey::hashed(9, port, 0);
        Matched {
            requests: requests.iter().map(request).collect(),
            keys: requests.iter().map(key).collect(),
            ..Matched::default()
        }
    }

    /// Clients that think for a while after each answer; one worker.
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

    /// Clients that each send `batch` requests at once, wait for all answers, and think for a while.
    fn in_batches(clients: u16, batch: u64, think_ns: f64, seed: u64) -> Matched {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut next: BinaryHeap<Reverse<(u64, u16)>> = (0..clients)
            .map(|port| Reverse((u64::from(port), port)))
            .collect();
        let (mut free, mut requests) = (0, Vec::new());
        while requests.len() < 200_000 {
            let Reverse((t1, port)) = next.pop().unwrap();
            for i in 0..batch {
                let came = t1 + 300 * i;
                free = free.max(came) + exponential(&mut rng, 10_000.0);
                requests.push((came, free, port));
            }
            next.push(Reverse((
                free + 1_000 + exponential(&mut rng, think_ns),
                port,
            )));
        }
        matched(requests)
    }

    /// Clients with up to `window` open requests, over `connections`, any of which takes the next request.
    fn windowed(connections: u16, window: usize, away_ns: f64, seed: u64) -> Matched {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut next: BinaryHeap<Reverse<u64>> = (0..window as u64).map(Reverse).collect();
        let (mut free, mut requests) = (0, Vec::new());
        while requests.len() < 20_000 {
            let Reverse(t1) = next.pop().unwrap();
            free = free.max(t1) + exponential(&mut rng, 100_000.0);
            requests.push((t1, free, rng.random_range(0..connections)));
            next.push(Reverse(free + 1_000 + exponential(&mut rng, away_ns)));
        }
        matched(requests)
    }

    /// Requests at a rate, regular or not, for one worker, over random connections: one may carry several.
    fn shared_connections(connections: u16, utilization: f64, regular: bool, seed: u64) -> Matched {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut t1, mut free, mut requests) = (0, 0, Vec::new());
        for _ in 0..20_000 {
            let mean = 100_000.0 / utilization;
            t1 += match regular {
                true => mean as u64,
                false => exponential(&mut rng, mean),
            };
            free = free.max(t1) + exponential(&mut rng, 100_000.0);
            requests.push((t1, free, rng.random_range(0..connections)));
        }
        matched(requests)
    }

    /// Poisson arrivals for one worker; each request takes a free connection if there is one.
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
    fn clients_that_wait_with_several_requests_on_a_connection_are_found() {
        for seed in 0..5 {
            // as redis-benchmark -P 16
            for (clients, think_ns) in [(8, 1_000.0), (50, 1_000.0), (8, 1_000_000.0)] {
                let wait = found(&in_batches(clients, 16, think_ns, seed), 1);
                assert_eq!(wait, Some(u64::from(clients)), "thinking for {think_ns} ns");
            }
            // as a closed loop that has 32 requests open over 1 or 8 connections
            for connections in [1, 8] {
                let wait = found(&windowed(connections, 32, 1_000.0, seed), 1);
                assert!(wait.is_some_and(|n| n >= 32), "{wait:?} over {connections}");
            }
        }
    }

    #[test]
    fn an_open_load_over_shared_connections_is_not_taken_for_one() {
        for (connections, utilization) in
            [(1, 0.3), (1, 0.9), (2, 0.7), (8, 0.5), (8, 0.95), (8, 1.3)]
        {
            for seed in 0..5 {
                for regular in [false, true] {
                    let load = shared_connections(connections, utilization, regular, seed);
                    let wait = found(&load, 1);
                    assert_eq!(
                        wait, None,
                        "{connections} at {utilization}, regular {regular}"
                    );
                }
            }
        }
    }

    /// As nginx does, which ends a connection after so many requests; here after 100.
    #[test]
    fn clients_whose_connections_the_server_ends_are_found() {
        for seed in 0..5 {
            let clients = closed(8, 1_000.0, seed);
            let mut carried = [0_u16; 8];
            let ns = |at: Monotonic| at.nanos_since_boot() - 1_000_000_000;
            let requests = (0..clients.requests.len()).map(|place| {
                let client = usize::from(clients.keys[place].connection as u16);
                let port = client as u16 + 8 * (carried[client] / 100);
                carried[client] += 1;
                let request = &clients.requests;
                (ns(request.t1(place)), ns(request.t6(place)), port)
            });
            assert_eq!(found(&matched(requests.collect()), 1), Some(8));
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

    /// One client makes no queue, nor do two clients of two workers: the comparison holds.
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
            requests.push((ns(t1), ns(t6), clients.keys[place].connection as u16));
            if place % 1_000 == 999 {
                requests.push((ns(t1) + 7, ns(t1) + 90, 99));
            }
        }
        assert_eq!(found(&matched(requests), 1), Some(8));
    }
}
