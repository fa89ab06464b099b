//! M/M/c with other orders than first in first out.
//!
//! While all c servers are busy, departures are Poisson with the rate cµ, so for a request that must wait,
//! the queue is an M/M/1 queue that is c times faster. Only the probability of waiting (Erlang C) depends
//! on c otherwise. Times are in mean service times.

use super::ExactError;
use super::mixture::ExponentialMixture;
use super::mmc::Mmc;
use super::numeric::invert_tail;

/// The M/M/c queue whose waiting requests are served last in first out or at random.
#[derive(Clone, Debug)]
pub struct MmcReordered {
    fifo: Mmc,
    /// The wait of the requests that wait.
    wait: ExponentialMixture,
}

impl MmcReordered {
    /// The most recent arrival is served next, without preemption.
    ///
    /// A waiting request is served when the work of all later arrivals is done: after a busy period of
    /// M/M/1 (Vaulot 1954; Riordan 1961).
    ///
    /// # Errors
    /// When there is no worker or the utilisation is not in (0, 1).
    pub fn last_in_first_out(workers: u32, utilization: f64) -> Result<Self, ExactError> {
        Self::new(workers, utilization, ExponentialMixture::busy_period)
    }

    /// Each waiting request is equally likely to be served next (Pollaczek 1946; Flatto
    /// 1997).
    ///
    /// # Errors
    /// When there is no worker or the utilisation is not in (0, 1).
    pub fn random_order(workers: u32, utilization: f64) -> Result<Self, ExactError> {
        Self::new(workers, utilization, ExponentialMixture::random_order)
    }

    fn new(
        workers: u32,
        utilization: f64,
        wait: fn(f64) -> ExponentialMixture,
    ) -> Result<Self, ExactError> {
        Ok(Self {
            fifo: Mmc::new(workers, utilization)?,
            wait: wait(utilization).accelerate(f64::from(workers)),
        })
    }

    /// E\[T\], the same as first in first out (Little's law).
    pub fn mean_sojourn_services(&self) -> f64 {
        self.fifo.mean_sojourn_services()
    }

    /// P(W > x).
    pub fn wait_ccdf(&self, x_services: f64) -> f64 {
        self.fifo.wait_probability() * self.wait.ccdf(x_services.max(0.0))
    }

    /// P(T > x), T = W + S with an independent exponential S.
    pub fn sojourn_ccdf(&self, x_services: f64) -> f64 {
        let x = x_services.max(0.0);
        (-x).exp() + self.fifo.wait_probability() * self.wait.excess_with_service(x)
    }

    /// The x with P(T > x) = p.
    pub fn sojourn_upper_quantile_services(&self, p: f64) -> f64 {
        invert_tail(|x| self.sojourn_ccdf(x), p, 1.0)
    }
}

/// M/M/1 with processor sharing: each of n requests gets 1/n of the server.
///
/// The sojourn has the law of the random-order wait of a request that finds the server
/// of M/M/1 busy (Borst, Boxma, Morrison and Núñez-Queija 2003, *The equivalence between
/// processor sharing and service in random order*).
#[derive(Clone, Debug)]
pub struct Mm1Ps {
    sojourn: ExponentialMixture,
}

impl Mm1Ps {
    /// The queue at the utilisation ρ.
    ///
    /// # Errors
    /// When the utilisation is not in (0, 1).
    pub fn new(utilization: f64) -> Result<Self, ExactError> {
        super::checked_load(1, utilization)?;
        Ok(Self {
            sojourn: ExponentialMixture::random_order(utilization),
        })
    }

    /// E\[T\] = 1/(1 − ρ).
    pub fn mean_sojourn_services(&self) -> f64 {
        self.sojourn.mean()
    }

    /// P(T > x).
    pub fn sojourn_ccdf(&self, x_services: f64) -> f64 {
        self.sojourn.ccdf(x_services.max(0.0))
    }

    /// The x with P(T > x) = p.
    pub fn sojourn_upper_quantile_services(&self, p: f64) -> f64 {
        invert_tail(|x| self.sojourn_ccdf(x), p, 1.0)
    }
}
