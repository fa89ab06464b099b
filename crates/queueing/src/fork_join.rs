//! Fork-join: every arrival sends one part to each of N stations, and is done when the
//! last part is.
//!
//! The stations share their arrivals, so their backlogs are correlated and the largest
//! of N is smaller than for independent stations. The exact mean is known for two M/M/1
//! stations only ([`crate::exact::moments::fork_join_two_mean_services`]); this simulates
//! any number, with one Lindley recursion per station: a part's sojourn is
//! T ← max(T − gap, 0) + service.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::exact::ExactError;

/// Stations that are worked on together; wide enough for any vector unit.
const LANES: usize = 8;

/// An endless series of sojourns, one per request, in the unit of the gaps and services.
///
/// It starts empty: the caller drops the first requests (see [`warm_up_requests`]).
#[derive(Clone, Debug)]
pub struct ForkJoin<Gap, Services> {
    /// The sojourn of the last request's part at each station; padded with stations
    /// whose services stay 0.
    sojourns: Vec<[f64; LANES]>,
    services: Vec<[f64; LANES]>,
    stations: usize,
    gap: Gap,
    fill: Services,
}

impl<Gap, Services> ForkJoin<Gap, Services>
where
    Gap: FnMut() -> f64,
    Services: FnMut(&mut [f64]),
{
    /// `stations` empty stations; `gap` gives the time since the arrival before, `fill`
    /// one service time for each station.
    ///
    /// # Errors
    /// When there is no station.
    pub fn new(stations: u32, gap: Gap, fill: Services) -> Result<Self, ExactError> {
        if stations == 0 {
            return Err(ExactError::NoWorkers);
        }
        let stations = stations as usize;
        let rows = stations.div_ceil(LANES);
        Ok(Self {
            sojourns: vec![[0.0; LANES]; rows],
            services: vec![[0.0; LANES]; rows],
            stations,
            gap,
            fill,
        })
    }

    /// The sojourn of the next request: that of its last part.
    pub fn next_sojourn(&mut self) -> f64 {
        let gap = (self.gap)();
        (self.fill)(&mut self.services.as_flattened_mut()[..self.stations]);
        let mut largest = [0.0_f64; LANES];
        for (sojourns, services) in self.sojourns.iter_mut().zip(&self.services) {
            for lane in 0..LANES {
                let left = sojourns[lane] - gap;
                // compare-select, not f64::max: no NaN can occur, and it vectorises
                let wait = if left > 0.0 { left } else { 0.0 };
                let sojourn = wait + services[lane];
                sojourns[lane] = sojourn;
                largest[lane] = if sojourn > largest[lane] {
                    sojourn
                } else {
                    largest[lane]
                };
            }
        }
        largest.into_iter().fold(0.0, f64::max)
    }
}

impl<Gap, Services> Iterator for ForkJoin<Gap, Services>
where
    Gap: FnMut() -> f64,
    Services: FnMut(&mut [f64]),
{
    type Item = f64;
    fn next(&mut self) -> Option<f64> {
        Some(self.next_sojourn())
    }
}

/// N parallel M/M/1 stations fed by the same Poisson arrivals, in mean service times.
///
/// The same seed gives the same series everywhere.
///
/// # Errors
/// When there is no station or the utilisation is not in (0, 1).
pub fn poisson_exponential(
    stations: u32,
    utilization: f64,
    seed: u64,
) -> Result<impl Iterator<Item = f64>, ExactError> {
    if !(utilization > 0.0 && utilization < 1.0) {
        return Err(ExactError::Utilization(utilization));
    }
    let mut gaps = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut services = gaps.clone();
    // a stream of its own, 2^128 draws away
    services.jump();
    ForkJoin::new(
        stations,
        move || {
            let gap: f64 = Exp1.sample(&mut gaps);
            gap / utilization
        },
        move |all| {
            for service in all {
                *service = Exp1.sample(&mut services);
            }
        },
    )
}

/// Requests after which a queue that started empty has forgotten it: twelve relaxation
/// times 1/(1 − √ρ)² of M/M/1 (Cohen 1969), a bias below e^{−12} of the mean.
pub fn warm_up_requests(utilization: f64) -> u64 {
    let gap = 1.0 - utilization.sqrt();
    (12.0 / (gap * gap)).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_is_that_of_a_plain_recursion() {
        for stations in [1_u32, 7, 8, 19] {
            let gap_of = |i: u64| (i * 7 % 11) as f64;
            let service_of = |i: u64, k: usize| ((i * 13 + k as u64 * 5) % 9) as f64;
            let (mut i, mut j) = (0, 0);
            let gap = || {
                i += 1;
                gap_of(i)
            };
            let fill = |all: &mut [f64]| {
                j += 1;
                for (k, service) in all.iter_mut().enumerate() {
                    *service = service_of(j, k);
                }
            };
            let ours = ForkJoin::new(stations, gap, fill).unwrap();
            let mut plain = vec![0.0_f64; stations as usize];
            for (n, sojourn) in ours.take(500).enumerate() {
                let n = n as u64 + 1;
                for (k, t) in plain.iter_mut().enumerate() {
                    *t = (*t - gap_of(n)).max(0.0) + service_of(n, k);
                }
                assert_eq!(sojourn, plain.iter().copied().fold(0.0, f64::max));
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_series() {
        let series = |seed| -> Vec<f64> {
            let join = poisson_exponential(100, 0.8, seed).unwrap();
            join.take(1_000).collect()
        };
        assert_eq!(series(1), series(1));
        assert_ne!(series(1), series(2));
    }

    #[test]
    fn no_station_and_no_room_are_refused() {
        assert!(poisson_exponential(0, 0.5, 1).is_err());
        assert!(poisson_exponential(2, 1.0, 1).is_err());
    }
}
