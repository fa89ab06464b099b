//! M/G/1: the mean and the second moment of the wait for any service distribution.
//!
//! Source: Pollaczek 1930 and Khinchine 1932 (first in first out); Takács 1963, *Delay
//! distributions for one line with Poisson input, general holding times, and various
//! orders of service* (last in first out and random order). Times are in mean service
//! times.

use super::{ExactError, checked_load};

/// The moments of a service time relative to its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceMoments {
    /// E\[S²\]/E\[S\]².
    pub second: f64,
    /// E\[S³\]/E\[S\]³.
    pub third: f64,
}

impl ServiceMoments {
    /// Every service takes the same time.
    pub const DETERMINISTIC: Self = Self {
        second: 1.0,
        third: 1.0,
    };
}

/// The M/G/1 queue, in units of the mean service time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mg1 {
    utilization: f64,
    service: ServiceMoments,
}

impl Mg1 {
    /// The queue at the utilisation ρ = λ E\[S\].
    ///
    /// # Errors
    /// When the utilisation is not in (0, 1), or the moments are those of no positive time.
    pub fn new(utilization: f64, service: ServiceMoments) -> Result<Self, ExactError> {
        checked_load(1, utilization)?;
        // E[S]² ≤ E[S²] and E[S²]² ≤ E[S] E[S³] (Cauchy–Schwarz), up to rounding
        let ServiceMoments { second, third } = service;
        if !(second >= 1.0 - 1e-12 && third >= second * second * (1.0 - 1e-12)) {
            return Err(ExactError::Moments { second, third });
        }
        Ok(Self {
            utilization,
            service,
        })
    }

    /// E\[W\] = λE\[S²\]/(2(1−ρ)), for every order that ignores the service times.
    pub fn mean_wait_services(&self) -> f64 {
        self.utilization * self.service.second / (2.0 * (1.0 - self.utilization))
    }

    /// E\[T\] = E\[W\] + 1.
    pub fn mean_sojourn_services(&self) -> f64 {
        self.mean_wait_services() + 1.0
    }

    /// E\[W²\] first in first out: 2E\[W\]² + λE\[S³\]/(3(1−ρ)).
    pub fn wait_second_moment_fifo_services2(&self) -> f64 {
        let mean = self.mean_wait_services();
        let residual = self.utilization * self.service.third / (3.0 * (1.0 - self.utilization));
        2.0 * mean * mean + residual
    }

    /// E\[W²\] last in first out: FIFO's divided by 1 − ρ.
    pub fn wait_second_moment_lifo_services2(&self) -> f64 {
        self.wait_second_moment_fifo_services2() / (1.0 - self.utilization)
    }

    /// E\[W²\] in random order: FIFO's times 2/(2 − ρ).
    pub fn wait_second_moment_random_services2(&self) -> f64 {
        self.wait_second_moment_fifo_services2() * 2.0 / (2.0 - self.utilization)
    }
}
