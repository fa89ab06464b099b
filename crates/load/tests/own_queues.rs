//! Independent and pooled clients of a server whose workers have their own connections, over real sockets. The workers
//! wait on timers, so that all of them fit on one CPU.

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
const ATTEMPTS: usize = 3;

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

/// p90 of the time in the server; `None` if the generator or the workers were held up.
fn measured(workers: usize, habits: Habits) -> Option<f64> {
    let run = run(workers, habits);
    let late = |entry: Entry| entry.turn().saturating_since(entry.times.intended);
    let is_on_time = p90(run.record.iter().map(late)) < SERVICE.as_secs_f64() / 2.0;
    let is_served = longest_service(&run, workers) < SERVICE * 10;
    let times = run.record.iter().filter_map(|entry| entry.service_time());
    (is_on_time && is_served).then(|| p90(times))
}

/// The longest that a worker took for a request. Connections are dealt to workers in turn, and a worker that has answered
/// goes on with what is there.
fn longest_service(run: &LoadRun, workers: usize) -> Nanos {
    let mut answers: Vec<Vec<(Monotonic, Monotonic)>> = vec![Vec::new(); workers];
    for entry in run.record.iter() {
        if let (Some(connection), Some(received)) = (entry.connection, entry.times.received) {
            answers[connection % workers].push((received, entry.times.sent));
        }
    }
    let mut longest = Nanos::ZERO;
    for of_worker in &mut answers {
        of_worker.sort_unstable();
        let mut before = None;
        for &(received, sent) in of_worker.iter() {
            let begun = before.map_or(sent, |answered: Monotonic| answered.max(sent));
            longest = longest.max(received.saturating_since(begun));
            before = Some(received);
        }
    }
    longest
}

/// With one worker it does not matter who the clients are. With several, a pool hides that each has a queue of its
/// own: it makes c × M/D/1 look like M/D/c.
#[test]
fn independent_clients_see_the_queue_of_each_worker_and_a_pool_does_not() {
    for workers in [1, 2, 4] {
        let exact = |servers| {
            let queue = Mdc::new(servers, UTILIZATION).unwrap();
            queue.sojourn_upper_quantile_services(0.1)
        };
        let expected = exact(1) / exact(workers as u32);
        let ratio = |_| {
            let independent = measured(workers, Habits::independent(None))?;
            Some(independent / measured(workers, Habits::POOL)?)
        };
        let ratio = (0..ATTEMPTS).find_map(ratio);
        let ratio = ratio.expect("the generator or a worker was held up in every attempt");
        assert!(
            (0.7..1.4).contains(&(ratio / expected)),
            "{workers} workers: {ratio} times as long, not {expected}"
        );
    }
}
