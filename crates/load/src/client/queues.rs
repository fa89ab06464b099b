//! What the choice of connections does to the queues of a server whose workers have their own: a simulation with the
//! generator's own choice. Beside it, what one queue for all workers makes of the same load.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_queueing::exact::{Mdc, Mmc};

use super::habits::Draw;
use super::rotation::Rotation;

const REQUESTS: usize = 800_000;

/// A nanosecond clock: times of service are this many of it on average.
const SERVICE: f64 = 1_000_000.0;

/// A server whose workers have their own connections, dealt to them in turn, or serve all from one queue.
struct Server {
    workers: usize,
    connections: usize,
    is_shared: bool,
    /// Share of the time in which all workers together work.
    load: f64,
    /// The length of each service, from a number that is exponential with mean 1.
    service: fn(f64) -> f64,
}

impl Server {
    /// p99 of the time in the server, in service times.
    fn p99(&self, choose: impl FnMut(usize, &mut Rotation) -> usize) -> f64 {
        self.quantiles(choose)[1]
    }

    /// p50 and p99 of the time in the server, in service times.
    fn quantiles(&self, mut choose: impl FnMut(usize, &mut Rotation) -> usize) -> [f64; 2] {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut exponential = || -> f64 { Exp1.sample(&mut rng) };
        let mut rotation = Rotation::new(self.connections, 0);
        (0..self.connections).for_each(|connection| rotation.join(connection));
        let mean_gap = SERVICE / (self.load * self.workers as f64);
        let mut leaves: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut free_at = vec![0_u64; self.workers];
        let mut at = 0.0;
        let sojourns = (0..REQUESTS).map(|k| {
            at += exponential() * mean_gap;
            let came = at as u64;
            while let Some(&Reverse((left, connection))) = leaves.peek()
                && left <= came
            {
                leaves.pop();
                rotation.answered(connection);
            }
            let connection = choose(k, &mut rotation);
            rotation.took(connection);
            let worker = match self.is_shared {
                true => free_at.iter_mut().min().expect("there is a worker"),
                false => &mut free_at[connection % self.workers],
            };
            *worker = came.max(*worker) + ((self.service)(exponential()) * SERVICE) as u64;
            leaves.push(Reverse((*worker, connection)));
            *worker - came
        });
        let mut sojourns: Vec<u64> = sojourns.collect();
        [50, 99].map(|percentile| {
            let rank = REQUESTS / 100 * percentile;
            *sojourns.select_nth_unstable(rank).1 as f64 / SERVICE
        })
    }
}

/// Four workers at 75 %, of which each request takes the same time.
const FOUR: Server = Server {
    workers: 4,
    connections: 256,
    is_shared: false,
    load: 0.75,
    service: |_| 1.0,
};

fn near(found: f64, exact: f64) {
    assert!((found / exact - 1.0).abs() < 0.05, "{found} is not {exact}");
}

/// M/D/4: the exact p99 of one queue with four workers is 2.85 service times.
#[test]
fn a_pool_hides_that_workers_have_queues_of_their_own() {
    near(FOUR.p99(|_, rotation| rotation.next().unwrap()), 2.85);
}

/// Four times M/D/1: the exact p99 of each is 9.01 service times.
#[test]
fn independent_clients_load_each_worker_as_a_queue_of_its_own() {
    let draw = Draw::new(1, FOUR.connections);
    near(FOUR.p99(|k, _| draw.of(k)), 9.01);
}

/// However many workers there are, each is an M/D/1; one queue for all of them would be an M/D/c.
#[test]
fn the_more_workers_the_more_their_own_queues_cost() {
    let mut before = 0.0;
    for workers in [1, 2, 4, 8] {
        let server = Server { workers, ..FOUR };
        let draw = Draw::new(1, server.connections);
        let found = server.quantiles(|k, _| draw.of(k));
        let exact = |servers| {
            let queue = Mdc::new(servers, server.load).unwrap();
            [0.5, 0.01].map(|above| queue.sojourn_upper_quantile_services(above))
        };
        let (own, shared) = (exact(1), exact(workers as u32));
        near(found[0], own[0]);
        near(found[1], own[1]);
        let cost = own[1] / shared[1];
        assert!(
            cost > before,
            "{workers} workers: {cost}, not above {before}"
        );
        before = cost;
    }
}

/// The server of `preset:multicore`, of four workers at 70 % with exponential services: the exact p99 of each of four
/// M/M/1 is 15.35 services. A pool of 64 connections shows 10.6, and one of the preset's 256 connections 13.7: the fewer
/// there are, the more of them wait at the slow worker, which therefore gets fewer requests.
#[test]
fn the_smaller_a_pool_the_more_it_hides_of_exponential_services() {
    let multicore = Server {
        load: 0.7,
        service: |exponential| exponential,
        ..FOUR
    };
    let exact = Mmc::new(1, multicore.load).unwrap();
    near(exact.sojourn_upper_quantile_services(0.01), 15.35);
    let draw = Draw::new(1, multicore.connections);
    near(multicore.p99(|k, _| draw.of(k)), 15.35);
    for (connections, expected) in [(64, 10.6), (256, 13.7)] {
        let of_pool = Server {
            connections,
            ..multicore
        };
        let found = of_pool.p99(|_, rotation| rotation.next().unwrap());
        near(found, expected);
    }
}

/// Services of 5 ms, exponential, at 200/s on two workers, of which one has two of three connections. Two
/// M/M/1 with two thirds and one third of the rate: of all, 2/3·e^(−x/3) + 1/3·e^(−2x/3) take longer than x
/// services, which is 1 % at 12.6 of them, 63 ms. A shared queue is an M/M/2, with 5.67 services, 28 ms.
#[test]
fn two_connections_of_three_on_one_worker_are_its_queue() {
    let uneven = Server {
        workers: 2,
        connections: 3,
        is_shared: false,
        load: 0.5,
        service: |exponential| exponential,
    };
    let draw = Draw::new(1, uneven.connections);
    near(uneven.p99(|k, _| draw.of(k)), 12.6);
    let shared = Server {
        is_shared: true,
        ..uneven
    };
    let exact = Mmc::new(2, shared.load).unwrap();
    near(exact.sojourn_upper_quantile_services(0.01), 5.67);
    near(shared.p99(|k, _| draw.of(k)), 5.67);
}
