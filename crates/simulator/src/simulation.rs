//! The specification of a simulation, checked before anything runs.

use std::num::{NonZeroU32, NonZeroUsize};
use std::str::FromStr;

use crate::error::{SimulationError, parameter};
use crate::station::Station;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::discipline::Discipline;
use taillab_queueing::service::Service;

/// A queue with random arrivals, and the precision wanted.
///
/// The same specification gives the same result on every machine with 64-bit floating point arithmetic, with
/// any number of threads and any vector instructions. (The parameters of some laws are computed once with the
/// platform's logarithm. A library that rounds it differently could change the last bit of the lengths.)
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// How requests arrive.
    pub arrivals: ArrivalProcess,
    /// Their service times.
    pub service: Service,
    /// The number of workers.
    pub workers: NonZeroU32,
    /// Arrival rate · mean service time ÷ number of workers, between 0 and 1.
    pub utilization: f64,
    /// The discipline.
    pub discipline: Discipline,
    /// When to stop.
    pub stop: Stop,
    /// The requests discarded at the start of each replication. To compare disciplines with the same
    /// requests, give all of them the longest of their warm-ups.
    pub warm_up: WarmUp,
    /// The seed of every random choice.
    pub seed: u64,
    /// The number of threads; `None` for one per processor. The result does not depend on it.
    pub threads: Option<NonZeroUsize>,
    /// The number of independent batches, from which the intervals come; at least 8.
    pub batches: u32,
}

/// When a simulation stops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    /// After this number of requests, rounded up to the same number for each replication.
    Requests(u64),
    /// When a quantile of the sojourn is precise enough.
    Precision {
        /// The quantile and its precision.
        target: Precision,
        /// The maximum number of requests.
        at_most: u64,
    },
}

/// A quantile and the precision wanted, in text `p99.9=1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// The quantile, between 0 and 1.
    pub quantile: f64,
    /// Half the width of its interval relative to its value, above 0.
    pub relative: f64,
}

/// The requests discarded at the start of each replication, because it begins empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// Eight times the relaxation time of the queue, estimated from the utilisation and the variability (see
    /// [`Simulation::warm_up_requests`]).
    Auto,
    /// This number of requests in each replication.
    Requests(u64),
}

/// Why a text is not a precision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a precision; write a percentile and a relative half width, e.g. p99.9=1%")]
pub struct ParsePrecisionError(String);

impl FromStr for Precision {
    type Err = ParsePrecisionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (percentile, width) = text.trim().strip_prefix('p')?.split_once('=')?;
            let percentile: f64 = percentile.trim().parse().ok()?;
            let width: f64 = width.trim().strip_suffix('%')?.trim().parse().ok()?;
            let good = percentile > 0.0 && percentile < 100.0 && width > 0.0 && width.is_finite();
            good.then_some(Self {
                // 99.9 / 100 differs from 0.999 in the last bit, so round to decimal digits
                quantile: (percentile * 1e9).round() / 1e11,
                relative: width / 100.0,
            })
        };
        parse().ok_or_else(|| ParsePrecisionError(text.to_owned()))
    }
}

/// The warm-up of a replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUpLength {
    /// The number of requests discarded at the start of each replication.
    pub requests: u64,
    /// The estimate was longer than the longest warm-up allowed. The latencies may be too low, since long
    /// queues take longer to build up.
    pub capped: bool,
}

/// The longest automatic warm-up, in requests of each replication.
const LONGEST_WARM_UP: f64 = 4e6;

impl Simulation {
    /// A simulation of twenty million requests with the usual settings.
    pub fn new(
        arrivals: ArrivalProcess,
        service: Service,
        workers: NonZeroU32,
        utilization: f64,
        discipline: Discipline,
    ) -> Self {
        Self {
            arrivals,
            service,
            workers,
            utilization,
            discipline,
            stop: Stop::Requests(20_000_000),
            warm_up: WarmUp::Auto,
            seed: 1,
            threads: None,
            batches: 32,
        }
    }

    /// The mean time between two arrivals.
    pub fn mean_gap_ns(&self) -> f64 {
        self.service.mean_ns() / (self.utilization * self.station().capacity())
    }

    /// Checks everything that can be checked before the first request.
    ///
    /// # Errors
    /// [`SimulationError`] says what is wrong and what is valid.
    pub fn check(&self) -> Result<(), SimulationError> {
        self.arrivals.check()?;
        self.station().check()?;
        if !(self.utilization > 0.0 && self.utilization.is_finite()) {
            return Err(SimulationError::Utilization(self.utilization));
        }
        self.station().check_load(self.utilization)?;
        let most = 1_u64 << 53;
        let requests = |n: u64| {
            let good = n > 0 && n <= most;
            parameter(
                "the number of requests",
                "above 0 and at most 2^53",
                n as f64,
                good,
            )
        };
        match self.stop {
            Stop::Requests(n) => requests(n)?,
            Stop::Precision { target, at_most } => {
                requests(at_most)?;
                let q = target.quantile;
                parameter("the quantile", "between 0 and 1", q, q > 0.0 && q < 1.0)?;
                let r = target.relative;
                parameter(
                    "the relative precision",
                    "above 0",
                    r,
                    r > 0.0 && r.is_finite(),
                )?;
            }
        }
        let batches = f64::from(self.batches);
        let good = (8..=1024).contains(&self.batches);
        parameter("the number of batches", "between 8 and 1024", batches, good)
    }

    /// The warm-up of each replication.
    ///
    /// The automatic one is 8 (I_a + c_s²)/2 · ρ/(1 − √ρ)² + 20 c requests, where I_a is the limiting index of
    /// dispersion of the arrivals. The relaxation time of a queue near its stationary state is about
    /// 1/(√µ − √λ)² (Cohen 1982, for M/M/1), and grows in proportion to the variability, of which a queue near its
    /// capacity sees that over long times (Whitt 1982). With a queue for each worker, every worker needs this many
    /// requests.
    pub fn warm_up_requests(&self) -> WarmUpLength {
        if let WarmUp::Requests(requests) = self.warm_up {
            return WarmUpLength {
                requests,
                capped: false,
            };
        }
        let load = self.station().load(self.utilization).min(0.999_999);
        let workers = f64::from(self.workers.get());
        let queues = if self.discipline.has_own_queues() {
            workers
        } else {
            1.0
        };
        let variability = variability(&self.arrivals, &self.service);
        let relaxation = variability * load / (1.0 - load.sqrt()).powi(2);
        let requests = 8.0 * relaxation * queues + 20.0 * workers;
        WarmUpLength {
            requests: requests.min(LONGEST_WARM_UP).ceil() as u64,
            capped: requests > LONGEST_WARM_UP,
        }
    }

    /// How strongly slow requests come together: see [`clustering`].
    pub fn clustering(&self) -> f64 {
        let load = self.station().load(self.utilization);
        clustering(load, variability(&self.arrivals, &self.service))
    }

    pub(crate) fn station(&self) -> Station<'_> {
        Station {
            service: &self.service,
            workers: self.workers,
            discipline: &self.discipline,
            seed: self.seed,
        }
    }
}

/// The mean of the arrivals' limiting index of dispersion and of the squared coefficient of variation of the service
/// times: 1 for M/M/1, 1/2 for M/D/1. Squares above 100 count as 100: a run sees no more of so heavy a tail.
fn variability(arrivals: &ArrivalProcess, service: &Service) -> f64 {
    const MOST_SQUARED: f64 = 100.0;
    let dispersion = match arrivals {
        // bursts that last long are no heavy tail: a run sees all of them
        ArrivalProcess::Mmpp2 { .. } => arrivals.dispersion(),
        _ => arrivals.dispersion().min(MOST_SQUARED),
    };
    let squared = (service.cv() * service.cv()).min(MOST_SQUARED);
    f64::midpoint(dispersion, squared).max(0.5)
}

/// By which factor clusters of slow requests multiply the variance of the share of requests beyond a far quantile.
///
/// A queue that is beyond a high level stays there for as long as a busy period lasts, and comes back soon after: with
/// M/M/1, a cluster is a geometric number of excursions with mean 1/(1 − ρ), and each serves as many requests
/// as a busy period. So the size C of a cluster has E\[C²\]/E\[C\] = ((1 + ρ)/(1 − ρ))² (Aldous 1989,
/// *Probability Approximations via the Poisson Clumping Heuristic*). Other queues differ from M/M/1 in proportion
/// to their [`variability`]. A queue at its capacity or beyond has no steady state, and the factor is 1.
fn clustering(load: f64, variability: f64) -> f64 {
    if load >= 1.0 {
        return 1.0;
    }
    (variability * ((1.0 + load) / (1.0 - load)).powi(2)).max(1.0)
}

/// The same for recorded arrivals, which are taken to be Poisson's.
pub(crate) fn clustering_of_trace(load: f64, service: &Service) -> f64 {
    clustering(load, variability(&ArrivalProcess::Poisson, service))
}
