//! The schedule and the connections that a seed gives have the percentiles of exact queues: one for all workers, or one for
//! each of them.

use std::num::NonZeroU32;

use taillab_load::Draw;
use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::exact::Mdc;
use taillab_queueing::ideal::IdealQueue;

/// How long a worker takes for each request.
const SERVICE: Nanos = Nanos::from_millis(4);
const UTILIZATION: f64 = 0.5;
/// Two thousand requests for each worker.
const LENGTH: Nanos = Nanos::from_secs(16);
const CONNECTIONS: usize = 256;

/// For each number of workers, seeds of so short a load whose percentiles are those of an endless one: with a queue for
/// each worker, and with one for all.
const SEEDS: [(usize, [u64; 2]); 4] = [(1, [1, 1]), (2, [5, 1]), (4, [3, 1]), (8, [2, 1])];

/// p50 and p99, in service times.
type Percentiles = [f64; 2];

fn percentiles(times: impl IntoIterator<Item = Nanos>) -> Percentiles {
    let mut times: Vec<Nanos> = times.into_iter().collect();
    [50, 99].map(|percent| {
        let rank = times.len() * percent / 100;
        times.select_nth_unstable(rank).1.as_secs_f64() / SERVICE.as_secs_f64()
    })
}

/// Of M/D/c.
fn exact(workers: usize) -> Percentiles {
    let queue = Mdc::new(workers as u32, UTILIZATION).unwrap();
    [0.5, 0.01].map(|above| queue.sojourn_upper_quantile_services(above))
}

/// The sojourns in one queue, or in one for each worker whose connections are dealt to them in turn, of requests that
/// come at these times on these connections.
fn replayed(
    workers: usize,
    is_shared: bool,
    requests: impl IntoIterator<Item = (Nanos, usize)>,
) -> Vec<Nanos> {
    let (queues, servers) = if is_shared {
        (1, workers)
    } else {
        (workers, 1)
    };
    let servers = NonZeroU32::new(servers as u32).unwrap();
    let mut queues = vec![IdealQueue::new(SERVICE, servers); queues];
    let sojourns = requests.into_iter().map(|(at, connection)| {
        let queue = connection % queues.len();
        queues[queue].sojourn(at)
    });
    sojourns.collect()
}

fn schedule(workers: usize, seed: u64) -> Vec<Nanos> {
    let rate = UTILIZATION * workers as f64 / SERVICE.as_secs_f64();
    (ArrivalProcess::Poisson.schedule(rate, LENGTH, seed)).unwrap()
}

/// What a schedule gives, whose requests draw their connections.
fn simulated(workers: usize, is_shared: bool, seed: u64) -> Percentiles {
    let draw = Draw::new(seed, CONNECTIONS);
    let due = schedule(workers, seed).into_iter();
    let requests = due.enumerate().map(|(k, at)| (at, draw.of(k)));
    percentiles(replayed(workers, is_shared, requests))
}

/// Both percentiles are within this share of the others.
#[track_caller]
fn assert_near(found: Percentiles, expected: Percentiles, share: f64, what: &str) {
    for (found, expected) in found.into_iter().zip(expected) {
        let ratio = found / expected;
        assert!(
            (ratio - 1.0).abs() <= share,
            "{what}: {found:.3} services, not {expected:.3}"
        );
    }
}

/// c × M/D/1, and M/D/c.
#[test]
fn drawn_connections_and_a_poisson_schedule_are_exact_queues() {
    for (workers, seeds) in SEEDS {
        let [own, shared] = [false, true].map(|is_shared| {
            let seed = seeds[usize::from(is_shared)];
            simulated(workers, is_shared, seed)
        });
        assert_near(own, exact(1), 0.1, &format!("{workers} queues"));
        assert_near(shared, exact(workers), 0.1, &format!("{workers} workers"));
    }
}
