//! Exact results of queueing theory, each with its formula and source.
//!
//! Everything here is a closed form, a convergent series of terms ≥ 0, or a quadrature with spectral
//! accuracy. There is no simulation, and asymptotic formulas are used only where they are exact to double
//! precision. Times are in mean service times unless a name says seconds. Quantiles are given by their
//! upper probability p = 1 − q, which keeps its digits at p99.9999.

mod backlog;
mod erm1;
mod md1_lifo;
mod md1_random;
mod mdc;
mod mixture;
mod mmc;
mod mmc_order;
mod model;
mod numeric;
mod recognise;
mod roots;

pub use erm1::ErlangArrivals;
pub use md1_lifo::Md1Lifo;
pub use md1_random::Md1Random;
pub use mdc::Mdc;
pub use mmc::Mmc;
pub use mmc_order::{Mm1Ps, MmcReordered};
pub use model::{ArrivalKind, ExactModel, Order, ServiceKind, System};

/// Why an exact result cannot be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExactError {
    /// There is no server.
    #[error("the number of workers is 0; a queue needs at least 1")]
    NoWorkers,
    /// There is no stationary queue at this utilisation.
    #[error(
        "the utilisation {0} is not between 0 and 1: at 1 or more the queue grows without bound \
         and has no stationary latency; lower the rate, or add workers"
    )]
    Utilization(f64),
    /// The mean service time is not a positive length of time.
    #[error("the mean service time must be a positive number of seconds, not {0}")]
    ServiceTime(f64),
}

fn checked_load(workers: u32, utilization: f64) -> Result<(), ExactError> {
    if workers == 0 {
        return Err(ExactError::NoWorkers);
    }
    if !(utilization > 0.0 && utilization < 1.0) {
        return Err(ExactError::Utilization(utilization));
    }
    Ok(())
}
