//! How many requests are outstanding when a server answers most.
//!
//! Too few leave it idle while requests and answers are on their way, and whenever something holds the client
//! up. Too many slow it down: its caches, threads and buffers are not made for them. So a rising sequence of
//! closed loops is tried, without the probe, until the server is busy and the throughput no longer rises.

use taillab_load::{ClosedLoop, Saturation};
use taillab_model::{Nanos, Transport};

use super::capacity::Capacity;
use crate::definition::Experiment;

/// A throughput that is higher by no more than this share may be so by chance.
const NO_GAIN: f64 = 0.02;

/// The search is over after this many steps in a row without a gain, if the server was busy.
const STEPS_WITHOUT_GAIN: u32 = 2;

/// The server was busy if its workers used this share of their CPUs. The kernel counts in ticks of 10 ms, of which a
/// step has about twelve; the first may have been idle before.
const BUSY: f64 = 0.9;

/// A client that had its CPU for a smaller share of the time was held up, for which a longer queue makes up.
const HAD_CPU: f64 = 0.95;

/// The most requests that are tried, unless many workers need more.
const MOST: usize = 1024;

/// Work for this long bridges nearly all stalls of the client and of its CPU. More would only make the server's
/// queue longer.
const BRIDGED: Nanos = Nanos::from_millis(30);

/// If a larger share of the requests is lost, a buffer has no room for so many.
const LOST: f64 = 1e-3;

/// The search for the number of outstanding requests with the highest throughput.
#[derive(Clone, Debug, PartialEq)]
pub struct PeakSearch {
    trying: usize,
    last: usize,
    best: usize,
    best_per_s: f64,
    /// The throughput at the last gain.
    gained_per_s: f64,
    without_gain: u32,
    is_over: bool,
    /// The share of the server's CPUs that its workers can use.
    usable: f64,
}

/// What one number of outstanding requests reached, in several loops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step {
    /// Answers per second of the fastest loop: whatever disturbs a loop makes it slower.
    per_s: f64,
    answered: u64,
    lost: u64,
    loops: u32,
    /// The sum over the loops of the share of the server's CPUs that was busy.
    server_busy: f64,
    /// The sum of the share of the time in which the client had its CPU.
    client_had_cpu: f64,
}

impl Step {
    /// Adds a loop, in which this share of the server's CPUs was busy.
    pub fn add(&mut self, found: &Saturation, server_busy: f64) {
        self.loops += 1;
        self.server_busy += server_busy;
        self.client_had_cpu += found.cpu_share;
        self.per_s = self.per_s.max(found.rate_per_s());
        self.answered += found.responses;
        self.lost += found.errors.timeouts;
    }

    fn is_whole(&self) -> bool {
        self.lost as f64 <= LOST * self.answered as f64
    }

    /// Whether more requests could keep the server busier; not where that is unknown.
    fn is_idle(&self, usable: f64) -> bool {
        let loops = f64::from(self.loops);
        self.server_busy < BUSY * usable * loops || self.client_had_cpu < HAD_CPU * loops
    }
}

impl PeakSearch {
    /// Begins with half as many requests as usually keep these workers busy; the server has `cpus` CPUs. Over TCP it ends when each
    /// connection has one: a server that finds several requests on a connection may read and answer them
    /// together, which takes less time than a request alone.
    pub fn of(experiment: &Experiment, capacity: &Capacity, cpus: usize) -> Self {
        let workers = capacity.workers.get() as usize;
        let (usual, waiting, usable) = match capacity.waits {
            None => {
                let usual = ClosedLoop::outstanding_for(workers);
                (usual, 0, capacity.usable_share(cpus))
            }
            // each of them needs a request, and none a CPU
            Some(_) => (ClosedLoop::OUTSTANDING, workers, 0.0),
        };
        let first = (usual / 2).max(waiting);
        let held = match experiment.server.transport {
            Transport::Tcp => experiment.client.all_connections() as usize,
            Transport::Udp => usize::MAX,
        };
        Self {
            trying: first,
            last: held.min(MOST).max(usual).max(first),
            best: usual.max(first),
            best_per_s: 0.0,
            gained_per_s: 0.0,
            without_gain: 0,
            is_over: false,
            usable,
        }
    }

    /// The next number to try; `None` when the search is over.
    pub fn to_try(&self) -> Option<usize> {
        (!self.is_over).then_some(self.trying)
    }

    /// Takes what the number that [`Self::to_try`] gave has reached.
    pub fn found(&mut self, step: &Step) {
        let tried = self.trying;
        if step.is_whole() && step.per_s > self.best_per_s {
            (self.best, self.best_per_s) = (tried, step.per_s);
        }
        if self.best_per_s > self.gained_per_s * (1.0 + NO_GAIN) {
            self.gained_per_s = self.best_per_s;
            self.without_gain = 0;
        } else {
            self.without_gain += 1;
        }
        self.trying = tried.saturating_mul(2).min(self.last);
        let is_enough = self.trying as f64 > self.best_per_s * BRIDGED.as_secs_f64();
        self.is_over = !step.is_whole()
            || is_enough
            || self.trying == tried
            || self.without_gain >= STEPS_WITHOUT_GAIN && !step.is_idle(self.usable);
    }

    /// The number with the highest throughput so far; the usual one where nothing was answered.
    pub const fn best(&self) -> usize {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Override, ServerKind};

    fn search(kind: ServerKind, flags: &[(&'static str, toml::Value)], cpus: &str) -> PeakSearch {
        let flags: Vec<Override> = flags.to_vec();
        let experiment = Experiment::resolve(Some(kind), None, flags).unwrap();
        let capacity = Capacity::of(&experiment, &cpus.parse().unwrap());
        PeakSearch::of(&experiment, &capacity, 1)
    }

    fn step(per_s: f64) -> Step {
        Step {
            per_s,
            answered: 10_000,
            lost: 0,
            loops: 2,
            server_busy: 2.0,
            client_had_cpu: 2.0,
        }
    }

    /// The numbers tried with memcached, and the best, where each number reaches so many answers per second.
    fn tried(per_s: impl Fn(usize) -> f64) -> (Vec<usize>, usize) {
        let mut search = search(ServerKind::Memcached, &[], "0");
        let mut tried = Vec::new();
        while let Some(outstanding) = search.to_try() {
            tried.push(outstanding);
            search.found(&step(per_s(outstanding)));
        }
        (tried, search.best())
    }

    #[test]
    fn more_is_tried_until_two_steps_gain_nothing() {
        // a thread for each connection
        let falls = |n: usize| 58_500.0 - 20.0 * (n as f64 - 32.0).abs();
        assert_eq!(tried(falls), (vec![16, 32, 64], 32));
        let rises_to_128 = |n: usize| 20e3 + 300.0 * n.min(128) as f64;
        let all = vec![16, 32, 64, 128, 256, 512];
        assert_eq!(tried(rises_to_128), (all, 128));
        // the client is held up: only many requests keep the server busy
        let rises = |n: usize| 30e3 + 30.0 * n as f64;
        let all = vec![16, 32, 64, 128, 256, 512, 1024];
        assert_eq!(tried(rises), (all, 1024));
    }

    #[test]
    fn the_search_goes_on_while_the_server_is_idle() {
        let last = |kind, flags: &[(&'static str, toml::Value)], server_busy, client_had_cpu| {
            let mut search = search(kind, flags, "0");
            let mut last = 0;
            while let Some(outstanding) = search.to_try() {
                last = outstanding;
                search.found(&Step {
                    server_busy,
                    client_had_cpu,
                    ..step(50e3)
                });
            }
            (last, search.best())
        };
        let memcached = |server, client| last(ServerKind::Memcached, &[], server, client);
        assert_eq!(memcached(2.0, 2.0), (64, 16));
        assert_eq!(memcached(1.6, 2.0), (1024, 16));
        assert_eq!(memcached(2.0, 1.6), (1024, 16));
        assert_eq!(memcached(f64::NAN, 2.0), (64, 16));
        let waits = [
            ("server.architecture", "epoll-shared".into()),
            ("server.service", "wait:deterministic:1ms".into()),
        ];
        assert_eq!(last(ServerKind::NullRpc, &waits, 0.1, 2.0), (64, 16));
    }

    #[test]
    fn one_slow_step_ends_nothing() {
        let disturbed = |n: usize| match n {
            32 => 10e3,
            n => 40e3 + 100.0 * n.min(64) as f64,
        };
        assert_eq!(tried(disturbed).1, 64);
    }

    #[test]
    fn what_may_be_chance_is_no_gain() {
        let by_chance = |n: usize| 60e3 + f64::from(n as u32 % 3) * 500.0;
        assert_eq!(tried(by_chance), (vec![16, 32, 64], 32));
        // small gains add up
        let slowly = |n: usize| 60e3 * 1.015_f64.powi(n.ilog2() as i32);
        assert_eq!(tried(slowly).1, 1024);
    }

    #[test]
    fn a_slow_server_gets_no_long_queue() {
        // 16 requests are 16 ms of work
        assert_eq!(tried(|_| 1_000.0), (vec![16], 16));
        assert_eq!(tried(|_| 0.0), (vec![16], ClosedLoop::OUTSTANDING));
    }

    #[test]
    fn a_number_that_loses_requests_is_too_many() {
        let mut search = search(ServerKind::Memcached, &[], "0");
        search.found(&step(30e3));
        let lossy = Step {
            lost: 11,
            ..step(60e3)
        };
        search.found(&lossy);
        assert_eq!((search.to_try(), search.best()), (None, 16));
    }

    #[test]
    fn no_connection_has_two_requests() {
        let connections = |connections: i64, reserve: i64| {
            let flags = [
                ("client.connections", toml::Value::Integer(connections)),
                ("client.reserve", toml::Value::Integer(reserve)),
            ];
            search(ServerKind::Nginx, &flags, "0").last
        };
        assert_eq!(connections(100, 50), 150);
        assert_eq!(connections(256, 3840), MOST);
        // unless there are so few that the server would be idle
        assert_eq!(connections(4, 0), ClosedLoop::OUTSTANDING);
    }

    #[test]
    fn many_workers_begin_with_more() {
        let first = |workers: i64, cpus: &str, more: &[(&'static str, toml::Value)]| {
            let workers = ("server.workers", toml::Value::Integer(workers));
            let flags = [&[workers][..], more].concat();
            search(ServerKind::NullRpc, &flags, cpus).to_try().unwrap()
        };
        let epoll = [("server.architecture", "epoll-shared".into())];
        assert_eq!(first(1, "0-15", &epoll), 16);
        assert_eq!(first(16, "0-15", &epoll), 64);
        assert_eq!(first(16, "0", &epoll), 16);
        let waits = ("server.service", "wait:deterministic:1ms".into());
        assert_eq!(first(100, "0", &[epoll[0].clone(), waits]), 100);
    }
}
