//! The schedules and the connections that seeds give have the percentiles of exact queues: one for all workers, or one for
//! each of them.

use std::num::NonZeroU32;

use taillab_load::Draw;
use taillab_model::Nanos;
use taillab_model::interval::half_width_of_mean;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::exact::Mdc;
use taillab_queueing::ideal::IdealQueue;

/// How long a worker takes for each request.
const SERVICE: Nanos = Nanos::from_millis(4);
const UTILIZATION: f64 = 0.5;
const CONNECTIONS: usize = 256;

/// The seeds from 1 to this one, all judged together: their loads differ as chance has it.
const SEEDS: u64 = 16;
/// Requests of each load, on average.
const REQUESTS: u64 = 1_250;

/// By how many half widths of its interval of 95 % a share may be off: of so many, one may well be outside of its own.
const MOST_OFF: f64 = 2.0;

/// When each request comes, and on which connection.
type Load = Vec<(Nanos, usize)>;

/// A time, in services, and the exact share of the requests that take longer.
type Point = (f64, f64);

/// p50 and p99 of M/D/c. Where fewer than half wait, p50 is the service, and fewer than half take longer.
fn exact(workers: usize) -> [Point; 2] {
    let queue = Mdc::new(workers as u32, UTILIZATION).unwrap();
    [0.5, 0.01].map(|above| {
        let time = queue.sojourn_upper_quantile_services(above);
        (time, queue.sojourn_ccdf(time))
    })
}

/// The load that a seed gives, whose requests draw their connections.
fn load(workers: usize, seed: u64) -> Load {
    let rate = UTILIZATION * workers as f64 / SERVICE.as_secs_f64();
    let length = Nanos::try_from_secs_f64(REQUESTS as f64 / rate).unwrap();
    let due = ArrivalProcess::Poisson
        .schedule(rate, length, seed)
        .unwrap();
    let draw = Draw::new(seed, CONNECTIONS);
    let requests = due.into_iter().enumerate();
    requests.map(|(k, at)| (at, draw.of(k))).collect()
}

/// The sojourns of a load in one queue, or in one for each worker whose connections are dealt to them in turn.
fn replayed(workers: usize, is_shared: bool, load: &[(Nanos, usize)]) -> Vec<Nanos> {
    let (queues, servers) = if is_shared {
        (1, workers)
    } else {
        (workers, 1)
    };
    let servers = NonZeroU32::new(servers as u32).unwrap();
    let mut queues = vec![IdealQueue::new(SERVICE, servers); queues];
    let sojourns = load.iter().map(|&(at, connection)| {
        let queue = connection % queues.len();
        queues[queue].sojourn(at)
    });
    sojourns.collect()
}

/// The share of a load's requests that take longer than so many services.
fn share_above(services: f64, sojourns: &[Nanos]) -> f64 {
    // its queues begin empty
    let settled = &sojourns[sojourns.len() / 10..];
    let time_ns = services * SERVICE.get() as f64;
    let above = (settled.iter()).filter(|sojourn| sojourn.get() as f64 > time_ns);
    above.count() as f64 / settled.len() as f64
}

/// Whether the share of all loads is as exact as its interval says; `--nocapture` shows it.
fn is_exact(what: &str, loads: &[Vec<Nanos>], (services, exact): Point) -> bool {
    let shares = loads.iter().map(|load| share_above(services, load));
    let (share, half) = half_width_of_mean(&shares.collect::<Vec<f64>>());
    println!(
        "{what}: {share:.4} ± {half:.4} take more than {services:.2} services, exact {exact:.4}"
    );
    (share - exact).abs() <= MOST_OFF * half
}

/// c × M/D/1, and M/D/c: each is what it should be, and is not the other.
#[test]
fn drawn_connections_and_a_poisson_schedule_are_exact_queues() {
    for workers in [1, 2, 4, 8] {
        let loads: Vec<Load> = (1..=SEEDS).map(|seed| load(workers, seed)).collect();
        for (is_shared, servers, others) in [(false, 1, workers), (true, workers, 1)] {
            let replay = |load: &Load| replayed(workers, is_shared, load);
            let sojourns: Vec<Vec<Nanos>> = loads.iter().map(replay).collect();
            let what = format!("{workers} workers, shared: {is_shared}");
            for point in exact(servers) {
                assert!(is_exact(&what, &sojourns, point), "{what}: not {point:?}");
            }
            if workers > 1 {
                let is_other = |point| is_exact(&what, &sojourns, point);
                let as_other = exact(others).map(is_other);
                assert_eq!(
                    as_other, [false; 2],
                    "{what}: as if {others} served a queue"
                );
            }
        }
    }
}
