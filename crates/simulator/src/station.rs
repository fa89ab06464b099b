//! The queue of a simulation, without its arrivals, and the checks before it runs.

use std::num::NonZeroU32;

use crate::error::{SimulationError, parameter};
use taillab_queueing::discipline::{Assignment, Discipline};
use taillab_queueing::service::Service;

/// A limit, since each replication has a table of its connections.
const MOST_CONNECTIONS: u32 = 1_000_000;

/// The part of a specification that does not depend on the arrivals.
#[derive(Clone, Copy)]
pub(crate) struct Station<'a> {
    pub(crate) service: &'a Service,
    pub(crate) workers: NonZeroU32,
    pub(crate) discipline: &'a Discipline,
    pub(crate) seed: u64,
}

impl Station<'_> {
    pub(crate) fn count(&self) -> usize {
        self.workers.get() as usize
    }

    /// The number of workers, as a divisor of loads.
    pub(crate) fn capacity(&self) -> f64 {
        f64::from(self.workers.get())
    }

    /// Whether the service of every request takes exactly its drawn service time.
    pub(crate) fn keeps_service_times(&self) -> bool {
        !matches!(self.discipline, Discipline::WorkStealing { cost } if cost.get() > 0)
    }

    /// Load ÷ capacity: the utilisation, plus the cost of the discipline itself.
    pub(crate) fn load(&self, utilization: f64) -> f64 {
        let mean_ns = self.service.mean_ns();
        match self.discipline {
            Discipline::Priority { background, .. } => utilization + background,
            Discipline::WorkStealing { cost } => utilization * (1.0 + cost.get() as f64 / mean_ns),
            Discipline::TimeSliced { quantum, switch } => {
                let switches = 1.0 / mean_ns + 1.0 / quantum.get() as f64;
                utilization * (1.0 + switch.get() as f64 * switches)
            }
            _ => utilization,
        }
    }

    /// The load, and what is added to it.
    fn load_in_words(&self) -> String {
        let costs = match self.discipline {
            Discipline::Priority { .. } => true,
            Discipline::WorkStealing { cost } => cost.get() > 0,
            Discipline::TimeSliced { switch, .. } => switch.get() > 0,
            _ => false,
        };
        match costs {
            true => format!("the load, with the worst-case cost of {},", self.discipline),
            false => "the load".to_owned(),
        }
    }

    /// Refuses an overload.
    pub(crate) fn check_load(&self, utilization: f64) -> Result<(), SimulationError> {
        let refuse = |what: String, load: f64| Err(SimulationError::Overload { what, load });
        let load = self.load(utilization);
        if load.is_nan() || load >= 1.0 {
            return refuse(self.load_in_words(), load);
        }
        // with a queue for each worker, each must keep up by itself
        let shares: Vec<f64> = match self.discipline {
            Discipline::RandomWorker | Discipline::RoundRobin | Discipline::PowerOfD { d: 1 } => {
                vec![1.0 / self.count() as f64; self.count()]
            }
            Discipline::Static {
                connections,
                assignment: Assignment::RoundRobin,
            } => {
                let (n, c) = (*connections as usize, self.count());
                (0..c)
                    .map(|k| (n / c + usize::from(k < n % c)) as f64 / n as f64)
                    .collect()
            }
            _ => return Ok(()),
        };
        for (k, share) in shares.into_iter().enumerate() {
            let load = utilization * self.capacity() * share;
            if load.is_nan() || load >= 1.0 {
                return refuse(
                    format!("the load of worker {k} under {}", self.discipline),
                    load,
                );
            }
        }
        Ok(())
    }

    /// How many of the first `replications` have a random assignment of connections that overloads some
    /// worker.
    pub(crate) fn overloaded(&self, utilization: f64, replications: u64) -> u64 {
        let Discipline::Static {
            connections,
            assignment: Assignment::Random,
        } = self.discipline
        else {
            return 0;
        };
        let of_connection = utilization * self.capacity() / f64::from(*connections);
        let overloads = |replication: &u64| {
            let mut load = vec![0.0; self.count()];
            for worker in self.connections(*replication) {
                load[worker as usize] += of_connection;
            }
            load.iter().any(|load| *load >= 1.0)
        };
        (0..replications).filter(overloads).count() as u64
    }

    /// Checks the parameters.
    pub(crate) fn check(&self) -> Result<(), SimulationError> {
        self.service.check()?;
        match self.discipline {
            Discipline::Priority {
                background: share,
                service,
                ..
            } => {
                service.check()?;
                let good = *share > 0.0 && *share < 1.0;
                let what = "the background class's share";
                parameter(what, "between 0 and 1", *share, good)
            }
            Discipline::TimeSliced { quantum, .. } => {
                let ns = quantum.get();
                parameter("the quantum", "above 0", ns as f64, ns > 0)
            }
            Discipline::PowerOfD { d } => {
                parameter("d of power-of-d", "at least 1", f64::from(*d), *d > 0)
            }
            Discipline::Static { connections: n, .. } => {
                let what = "the number of connections";
                let good = (1..=MOST_CONNECTIONS).contains(n);
                parameter(what, "between 1 and 1000000", f64::from(*n), good)
            }
            _ => Ok(()),
        }
    }
}
