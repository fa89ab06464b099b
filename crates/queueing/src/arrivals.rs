//! Arrival processes: the one source of schedules for the generator and the simulator.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use taillab_model::Nanos;

/// How requests arrive. The mean rate is given apart, so one process serves every load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalProcess {
    /// Independent exponential gaps.
    Poisson,
}

/// Why a schedule cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArrivalError {
    /// The rate is not a positive, finite number.
    #[error("the arrival rate must be a positive number of requests per second, not {0}")]
    Rate(f64),
}

impl ArrivalProcess {
    /// The due times, as offsets from the start, of all arrivals within `length`.
    ///
    /// The same process, rate, length and seed give the same schedule everywhere.
    ///
    /// # Errors
    /// [`ArrivalError::Rate`] when the rate is not positive and finite.
    pub fn schedule(
        &self,
        rate_per_s: f64,
        length: Nanos,
        seed: u64,
    ) -> Result<Vec<Nanos>, ArrivalError> {
        if !(rate_per_s > 0.0 && rate_per_s.is_finite()) {
            return Err(ArrivalError::Rate(rate_per_s));
        }
        let mean_gap_ns = 1e9 / rate_per_s;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let expected = length.get() as f64 / mean_gap_ns;
        let mut due = Vec::with_capacity((expected + 6.0 * expected.sqrt()) as usize + 16);
        let mut at_ns = 0.0_f64;
        loop {
            let Self::Poisson = self;
            let gap: f64 = Exp1.sample(&mut rng);
            at_ns += gap * mean_gap_ns;
            if at_ns >= length.get() as f64 {
                return Ok(due);
            }
            due.push(Nanos::new(at_ns as u64));
        }
    }
}
