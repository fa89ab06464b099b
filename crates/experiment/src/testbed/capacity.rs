//! The ideal queue of a server: how many workers it has, and how long each request occupies one.

use std::num::NonZeroU32;

use taillab_host::CpuSet;
use taillab_load::serve::ServiceTime;
use taillab_model::Nanos;

use crate::definition::Experiment;

/// The workers of the ideal queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// c: how many requests the server can serve at once.
    pub workers: NonZeroU32,
    /// The mean wait, if the workers only wait on a timer and so need no CPU each. Then t is this mean,
    /// whatever the peak is.
    pub waits: Option<Nanos>,
}

impl Capacity {
    /// A worker needs a CPU to serve, so at most as many count as there are CPUs, unless they only wait.
    pub fn of(experiment: &Experiment, server_cpus: &CpuSet) -> Self {
        let workers = experiment.workers();
        let waits = match &experiment.server.service {
            Some(ServiceTime::Wait(law)) => Some(Nanos::new(law.mean_ns().round() as u64)),
            _ => None,
        };
        let served = match waits {
            Some(_) => workers,
            None => workers.min(u32::try_from(server_cpus.len()).unwrap_or(u32::MAX)),
        };
        Self {
            workers: NonZeroU32::new(served).unwrap_or(NonZeroU32::MIN),
            waits,
        }
    }

    /// t: c ÷ the peak in requests per second, or the mean wait; `None` if the result is not positive.
    pub fn service_time(&self, peak_per_s: f64) -> Option<Nanos> {
        self.waits
            .or_else(|| Nanos::try_from_secs_f64(f64::from(self.workers.get()) / peak_per_s))
            .filter(|t| *t > Nanos::ZERO)
    }

    /// The rate, in requests per second, that uses this share of the workers.
    pub fn rate_per_s(&self, utilization: f64, service_time: Nanos) -> f64 {
        utilization * f64::from(self.workers.get()) / service_time.as_secs_f64()
    }

    /// The share of `cpus` CPUs that the workers can use.
    pub fn usable_share(&self, cpus: usize) -> f64 {
        match self.waits {
            Some(_) => 1.0,
            None => f64::from(self.workers.get()) / cpus.max(1) as f64,
        }
    }

    /// The share of the workers that a rate uses.
    pub fn utilization(&self, rate_per_s: f64, service_time: Nanos) -> f64 {
        rate_per_s * service_time.as_secs_f64() / f64::from(self.workers.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Override, ServerKind};

    fn capacity(kind: ServerKind, flags: &[(&'static str, toml::Value)], cpus: &str) -> Capacity {
        let flags: Vec<Override> = flags.to_vec();
        let experiment = Experiment::resolve(Some(kind), None, flags).unwrap();
        Capacity::of(&experiment, &cpus.parse().unwrap())
    }

    #[test]
    fn workers_need_a_cpu_each() {
        let threads = |n: i64| [("server.workers", toml::Value::Integer(n))];
        let workers = |n, cpus| {
            capacity(ServerKind::Memcached, &threads(n), cpus)
                .workers
                .get()
        };
        assert_eq!(workers(4, "0"), 1);
        assert_eq!(workers(4, "0-2"), 3);
        assert_eq!(workers(2, "0-7"), 2);
        // a thread for each of 256 connections
        assert_eq!(capacity(ServerKind::NullRpc, &[], "0-1").workers.get(), 2);
    }

    #[test]
    fn workers_that_wait_need_none() {
        let flags = [
            ("server.architecture", "epoll-shared".into()),
            ("server.workers", toml::Value::Integer(8)),
            ("server.service", "wait:exponential:1ms".into()),
        ];
        let capacity = capacity(ServerKind::NullRpc, &flags, "0");
        assert_eq!(capacity.workers.get(), 8);
        let t = capacity.service_time(5000.0).unwrap();
        assert_eq!(t, Nanos::from_millis(1));
        assert_eq!(capacity.rate_per_s(0.75, t), 6000.0);
    }

    #[test]
    fn the_service_time_is_the_workers_share_of_the_peak() {
        let flags = [("server.workers", toml::Value::Integer(2))];
        let capacity = capacity(ServerKind::Nginx, &flags, "0-1");
        let t = capacity.service_time(50_000.0).unwrap();
        assert_eq!(t, Nanos::from_micros(40));
        assert!((capacity.rate_per_s(0.5, t) - 25_000.0).abs() < 1e-6);
        assert!((capacity.utilization(25_000.0, t) - 0.5).abs() < 1e-9);
        assert!((capacity.usable_share(8) - 0.25).abs() < 1e-9);
        assert_eq!(capacity.service_time(f64::INFINITY), None);
        assert_eq!(capacity.service_time(0.0), None);
    }
}
