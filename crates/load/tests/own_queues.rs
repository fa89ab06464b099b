//! Independent and pooled clients of a server whose workers have their own connections, over real sockets. The workers
//! wait on timers, so that all of them fit on one CPU.

use std::time::Instant;

use taillab_load::serve::{Architecture, Responder, ServiceTime, Spec};
use taillab_load::{Entry, Habits, LoadRun};
use taillab_model::{Monotonic, Nanos};
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::exact::Mdc;

use crate::support::streams::client;
use crate::support::{PATIENT, on_schedule};

/// How long a worker waits for each request: long beside what a busy machine holds the generator up.
const SERVICE: Nanos = Nanos::from_millis(4);
const UTILIZATION: f64 = 0.7;
const LENGTH: Nanos = Nanos::from_secs(6);
const CONNECTIONS: usize = 64;

/// Attempts that a machine which holds up the generator or the workers may spoil.
const ATTEMPTS: usize = 8;

/// The same arrivals at `workers` workers.
fn run(workers: usize, habits: Habits) -> LoadRun {
    let spec = Spec {
        workers,
        service: ServiceTime::Wait(
            format!("deterministic:{}us", SERVICE.get() / 1_000)
                .parse()
                .unwrap(),
        ),
        ..Spec::new(Architecture::EpollPerWorker)
    };
    let server = Responder::start(&spec).unwrap();
    let mut client = client(&server.endpoint(), CONNECTIONS).with(habits);
    let rate = UTILIZATION * workers as f64 / SERVICE.as_secs_f64();
    let schedule = ArrivalProcess::Poisson.schedule(rate, LENGTH, 7).unwrap();
    on_schedule(&mut client, schedule, PATIENT)
}

fn p90(times: impl Iterator<Item = Nanos>) -> f64 {
    let mut times: Vec<Nanos> = times.collect();
    let rank = times.len() / 10 * 9;
    times.select_nth_unstable(rank).1.as_secs_f64()
}

/// A load that the machine did not spoil.
struct Measured {
    /// p90 of the time in the server, in seconds.
    p90: f64,
    /// For how long a worker had each request on average, in seconds: the service, and what its wake-ups took.
    service: f64,
}

impl Measured {
    /// p90 of the time in the exact queue of so many servers that take as long, in seconds.
    fn exact(&self, servers: u32) -> f64 {
        let utilization = UTILIZATION * self.service / SERVICE.as_secs_f64();
        let queue = Mdc::new(servers, utilization).unwrap();
        self.service * queue.sojourn_upper_quantile_services(0.1)
    }
}

/// `None` if the generator or the workers were held up.
fn measured(workers: usize, habits: Habits) -> Option<Measured> {
    let began = Instant::now();
    let run = run(workers, habits);
    let late = |entry: Entry| entry.turn().saturating_since(entry.times.intended);
    let late = p90(run.record.iter().map(late));
    let services = services(&run, workers);
    let longest = services.iter().copied().max().unwrap_or_default();
    let service = services.iter().copied().sum::<Nanos>().as_secs_f64() / services.len() as f64;
    let wanted = SERVICE.as_secs_f64();
    if late >= wanted / 2.0 || longest >= SERVICE * 10 || service >= 1.1 * wanted {
        let took = began.elapsed().as_secs_f64();
        eprintln!(
            "a load is spoiled after {took:.1} s: late {late} s, services of {service} s, up to {longest}"
        );
        return None;
    }
    let times = run.record.iter().filter_map(|entry| entry.service_time());
    Some(Measured {
        p90: p90(times),
        service,
    })
}

/// How long a worker took for each request. Connections are dealt to workers in turn, and a worker that has answered goes
/// on with what is there.
fn services(run: &LoadRun, workers: usize) -> Vec<Nanos> {
    let mut answers: Vec<Vec<(Monotonic, Monotonic)>> = vec![Vec::new(); workers];
    for entry in run.record.iter() {
        if let (Some(connection), Some(received)) = (entry.connection, entry.times.received) {
            answers[connection % workers].push((received, entry.times.sent));
        }
    }
    let mut services = Vec::new();
    for of_worker in &mut answers {
        of_worker.sort_unstable();
        let mut before = None;
        for &(received, sent) in of_worker.iter() {
            let begun = before.map_or(sent, |answered: Monotonic| answered.max(sent));
            services.push(received.saturating_since(begun));
            before = Some(received);
        }
    }
    services
}

/// With one worker it does not matter who the clients are. With several, a pool hides that each has a queue of its
/// own: it makes c × M/D/1 look like M/D/c.
#[test]
fn independent_clients_see_the_queue_of_each_worker_and_a_pool_does_not() {
    for workers in [1, 2, 4] {
        let attempt = |_| {
            let independent = measured(workers, Habits::independent(None))?;
            Some((independent, measured(workers, Habits::POOL)?))
        };
        let found = (0..ATTEMPTS).find_map(attempt);
        let (independent, pool) =
            found.expect("the generator or a worker was held up in every attempt");
        let expected = independent.exact(1) / pool.exact(workers as u32);
        let ratio = independent.p90 / pool.p90;
        assert!(
            (0.7..1.4).contains(&(ratio / expected)),
            "{workers} workers: {ratio} times as long, not {expected}"
        );
    }
}
