//! Independent clients of a server whose workers have their own connections, and of one whose workers share a queue, over
//! real sockets; and a pool, which hides the difference. The workers wait on timers, so that all of them fit on one CPU.

use std::ops::RangeInclusive;
use std::time::Instant;

use taillab_load::protocol::echo::{EchoDatagrams, EchoStream};
use taillab_load::serve::{Architecture, Responder, ServiceTime, Spec};
use taillab_load::{AnyClient, Codec, EchoWorkload, Endpoint, Habits, KernelStamps, LoadRun};
use taillab_model::{Monotonic, Nanos};
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::exact::Mdc;

use crate::support::{PATIENT, on_schedule};

/// How long each of up to four workers waits for a request: long beside what a busy machine holds the generator up.
const SERVICE: Nanos = Nanos::from_millis(4);
/// More than half, so that half of the requests of an M/D/1 wait for a while. A higher one would need more of them for p99.
const UTILIZATION: f64 = 0.6;
/// Short, so that a load which the machine spoils costs little time.
const LENGTH: Nanos = Nanos::from_millis(4_500);
/// Many for each worker: it takes requests of one connection in turn with those of others, and not as they came.
const CONNECTIONS: usize = 128;

/// Numbers of workers with as many loads as give about 2,700 requests, or more. Seeds count from 1, none is chosen.
const LOADS: [(usize, u64); 4] = [(1, 4), (2, 2), (4, 1), (8, 1)];
/// The numbers for which a pool is compared.
const POOLED: [usize; 2] = [2, 4];

const INDEPENDENT: Habits = Habits::independent(None);

/// Attempts that a machine which holds up the generator or the workers may spoil.
const ATTEMPTS: usize = 8;
/// By how much of it the mean service may be longer than it should be. So a time may be off by as much.
const SLACK: f64 = 0.1;
/// Slow requests come together, which multiplies the variance of their share by half of ((1 + ρ)/(1 − ρ))²
/// (docs/notes/intervals.md).
const CLUSTERING: f64 = CLUSTER * CLUSTER / 2.0;
const CLUSTER: f64 = (1.0 + UTILIZATION) / (1.0 - UTILIZATION);

/// A server, by the queues in which its requests wait.
#[derive(Clone, Copy, Debug)]
struct Server {
    workers: usize,
    /// All workers read one UDP socket. (Over streams, a request would also wait behind others of its own connection.)
    /// Otherwise each one has connections of its own.
    is_shared: bool,
}

impl Server {
    fn queues(self) -> usize {
        if self.is_shared { 1 } else { self.workers }
    }

    /// The workers that serve each queue.
    fn servers(self) -> usize {
        self.workers / self.queues()
    }

    /// How long a worker waits for each request. Where more than four share a queue, hardly any request waits, so that p99
    /// would show a short delay.
    fn service(self) -> Nanos {
        SERVICE * self.workers.div_ceil(4) as u64
    }

    fn start(self) -> Responder {
        let architecture = if self.is_shared {
            Architecture::UdpShared
        } else {
            Architecture::EpollPerWorker
        };
        let service = format!("deterministic:{}us", self.service().get() / 1_000);
        let spec = Spec {
            workers: self.workers,
            service: ServiceTime::Wait(service.parse().unwrap()),
            ..Spec::new(architecture)
        };
        Responder::start(&spec).unwrap()
    }

    /// A load with the arrivals of this seed.
    fn run(self, habits: Habits, seed: u64) -> LoadRun {
        let server = self.start();
        let mut client = client(&server.endpoint()).with(habits);
        let rate = UTILIZATION * self.workers as f64 / self.service().as_secs_f64();
        let schedule = ArrivalProcess::Poisson
            .schedule(rate, LENGTH, seed)
            .unwrap();
        on_schedule(&mut client, schedule, PATIENT)
    }
}

fn client(server: &Endpoint) -> AnyClient {
    let sizes = EchoWorkload::default();
    let codec = match server {
        Endpoint::Udp(_) => Codec::Datagrams(Box::new(EchoDatagrams::new(sizes).unwrap())),
        _ => Codec::Streams(Box::new(EchoStream::new(sizes).unwrap())),
    };
    AnyClient::connect(server, CONNECTIONS, codec, KernelStamps::NONE).unwrap()
}

/// The time that this share of them exceeds.
fn exceeded_by(share: f64, times: &[Nanos]) -> Nanos {
    let mut times = times.to_vec();
    let rank = times.len() - 1 - (share * times.len() as f64) as usize;
    *times.select_nth_unstable(rank).1
}

/// In seconds.
fn mean(times: &[Nanos]) -> f64 {
    times.iter().copied().sum::<Nanos>().as_secs_f64() / times.len() as f64
}

/// Loads that the machine did not spoil.
struct Measured {
    server: Server,
    /// The times in the server.
    times: Vec<Nanos>,
    /// For how long a worker had each request: the service, and what its wake-ups took.
    services: Vec<Nanos>,
}

impl Measured {
    /// The time, in services as they were, that this share of the requests exceeds.
    fn exceeded_by(&self, share: f64) -> f64 {
        exceeded_by(share, &self.times).as_secs_f64() / mean(&self.services)
    }

    /// The exact queue of so many servers that take as long.
    fn queue(&self, servers: usize) -> Mdc {
        let slower = mean(&self.services) / self.server.service().as_secs_f64();
        let utilization = UTILIZATION * slower;
        Mdc::new(servers as u32, utilization).unwrap()
    }

    /// Between which times, in services, that is which this share of so few requests exceeds in the exact queue.
    fn exact(&self, share: f64) -> RangeInclusive<f64> {
        let error = (CLUSTERING * share * (1.0 - share) / self.times.len() as f64).sqrt();
        let queue = self.queue(self.server.servers());
        let time = |share: f64| queue.sojourn_upper_quantile_services(share);
        let least = time(share + 3.0 * error);
        // so few clusters are not distributed normally: three errors below 1 % is less than nothing
        let most = time((share - 3.0 * error).max(share / 10.0));
        least * (1.0 - SLACK)..=most * (1.0 + SLACK)
    }
}

/// `loads` loads, each repeated until the machine does not spoil it.
fn measured(server: Server, habits: Habits, loads: u64) -> Measured {
    let mut all = Measured {
        server,
        times: Vec::new(),
        services: Vec::new(),
    };
    for seed in 1..=loads {
        let load = (0..ATTEMPTS).find_map(|_| attempt(server, habits, seed));
        let load = load.expect("the generator or a worker was held up in every attempt");
        all.times.extend(load.times);
        all.services.extend(load.services);
    }
    all
}

/// `None` if the generator or the workers were held up.
fn attempt(server: Server, habits: Habits, seed: u64) -> Option<Measured> {
    let began = Instant::now();
    let run = server.run(habits, seed);
    let services = services(server, &run);
    if let Some(why) = spoiled(server, &run, &services) {
        let took = began.elapsed().as_secs_f64();
        eprintln!("a load is spoiled after {took:.1} s: {server:?}, {why}");
        return None;
    }
    let times = run.record.iter().filter_map(|entry| entry.service_time());
    Some(Measured {
        server,
        times: times.collect(),
        services,
    })
}

/// What the machine did to a load, if it was so much that it would be taken for the queue's work.
fn spoiled(server: Server, run: &LoadRun, services: &[Nanos]) -> Option<String> {
    let entries = run.record.iter();
    let late = entries.map(|entry| entry.turn().saturating_since(entry.times.intended));
    let late: Vec<Nanos> = late.collect();
    let late_p90 = exceeded_by(0.1, &late);
    let longest = services.iter().copied().max().unwrap_or_default();
    let service = mean(services);
    let (asked, long) = (server.service(), long(server));
    let held_up = late.iter().filter(|late| **late >= long).count()
        + (services.iter().filter(|took| **took >= asked + long)).count();
    let is_spoiled = late_p90 * 2 >= asked
        || longest >= asked * 10
        || service >= (1.0 + SLACK) * asked.as_secs_f64()
        // half of the 1 % that p99 leaves
        || held_up * 200 >= late.len();
    is_spoiled.then(|| {
        format!(
            "late {late_p90}, services of {service} s, up to {longest}, {held_up} requests held up by {long} or more"
        )
    })
}

/// A delay that p99 would show: half of what a request there waits, and at least a quarter of a service.
fn long(server: Server) -> Nanos {
    let queue = Mdc::new(server.servers() as u32, UTILIZATION).unwrap();
    let services = (queue.wait_upper_quantile_services(0.01) / 2.0).max(0.25);
    Nanos::try_from_secs_f64(services * server.service().as_secs_f64()).unwrap()
}

/// How long a worker took for each request. Connections are dealt to workers in turn.
fn services(server: Server, run: &LoadRun) -> Vec<Nanos> {
    let mut answers: Vec<Vec<(Monotonic, Monotonic)>> = vec![Vec::new(); server.queues()];
    for entry in run.record.iter() {
        if let (Some(connection), Some(received)) = (entry.connection, entry.times.received) {
            answers[connection % server.queues()].push((received, entry.times.sent));
        }
    }
    let mut services = Vec::new();
    for of_queue in &mut answers {
        of_queue.sort_unstable();
        for (k, &(received, sent)) in of_queue.iter().enumerate() {
            // a worker that has answered goes on with what is there; the answers between are those of the others
            let free = k.checked_sub(server.servers()).map(|k| of_queue[k].0);
            let begun = free.map_or(sent, |answered| answered.max(sent));
            services.push(received.saturating_since(begun));
        }
    }
    services
}

/// M/D/c, or M/D/1 at each worker.
#[track_caller]
fn assert_exact(found: &Measured) {
    for share in [0.5, 0.01] {
        let time = found.exceeded_by(share);
        let exact = found.exact(share);
        assert!(
            exact.contains(&time),
            "{:?}: a share of {share} takes longer than {time} services, not {exact:?}",
            found.server
        );
    }
}

/// A pool makes c × M/D/1 look like M/D/c.
#[track_caller]
fn assert_hidden(workers: usize, independent: &Measured, pool: &Measured) {
    let [independent, pool] = [(independent, 1), (pool, workers)].map(|(found, servers)| {
        let exact = (found.queue(servers)).sojourn_upper_quantile_services(0.1);
        found.exceeded_by(0.1) / exact
    });
    let ratio = independent / pool;
    assert!(
        (0.7..1.4).contains(&ratio),
        "{workers} workers: p90 of independent clients is {independent} times what is exact, of a pool {pool}"
    );
}

/// Whether workers share a queue or have queues of their own, independent clients see it: M/D/c, or c × M/D/1. A pool
/// hides it. With one worker, all are the same.
#[test]
fn independent_clients_see_the_queue_of_each_worker_and_a_pool_does_not() {
    for (workers, loads) in LOADS {
        let own = Server {
            workers,
            is_shared: false,
        };
        let independent = measured(own, INDEPENDENT, loads);
        assert_exact(&independent);
        if workers > 1 {
            let shared = Server {
                is_shared: true,
                ..own
            };
            assert_exact(&measured(shared, INDEPENDENT, loads));
        }
        if POOLED.contains(&workers) {
            let pool = measured(own, Habits::POOL, loads);
            assert_hidden(workers, &independent, &pool);
        }
    }
}
