//! Fork-join: every arrival sends one part to each of N stations, and is done when the last part is done.
//!
//! The stations share their arrivals, so their backlogs are correlated, and the largest of N is smaller
//! than for independent stations ([`taillab_queueing::fanout`]). The exact mean is known only for two
//! M/M/1 stations (Flatto and Hahn 1984). This simulates any number of single-worker FIFO stations with one
//! Lindley recursion each: the sojourn of a part is T ← max(T − gap, 0) + service.

use taillab_queueing::arrivals::{ArrivalError, ArrivalProcess};
use taillab_queueing::exact::ExactError;
use taillab_queueing::grid::Grid;
use taillab_queueing::isa::{Isa, multiversion};
use taillab_queueing::random::lanes::{LaneRng, Purpose};
use taillab_queueing::random::law::Sampler;
use taillab_queueing::service::{Service, ServiceError};

/// The number of stations that are simulated together.
const LANES: usize = 8;
/// The number of rows of service times drawn at once, so that drawing vectorises for any N.
const BLOCK_ROWS: usize = 512;
/// The number of gaps drawn at once.
const BLOCK_GAPS: usize = 256;

/// Why a fork-join cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ForkJoinError {
    /// The arrival process.
    #[error(transparent)]
    Arrivals(#[from] ArrivalError),
    /// The service times.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The number of stations or the utilisation.
    #[error(transparent)]
    Load(#[from] ExactError),
}

/// An endless series of sojourns in nanoseconds, one for each request: that of its last part.
///
/// The stations start empty, so drop the first requests (see [`warm_up_requests`]). Sojourns of neighbouring
/// requests are correlated, so intervals need replications or batch means.
#[derive(Clone, Debug)]
pub struct ForkJoin {
    isa: Isa,
    gaps: Sampler<1>,
    gap_block: Vec<[f64; 1]>,
    next_gap: usize,
    services: Sampler<LANES>,
    service_block: Vec<[f64; LANES]>,
    next_row: usize,
    /// The sojourn of the last request's part at each station; unused lanes have services of 0 and stay at
    /// 0.
    sojourns_ns: Vec<[f64; LANES]>,
    /// The number of stations in the last row.
    last_lanes: usize,
}

impl ForkJoin {
    /// `stations` empty stations with one worker each, all at `utilization`, with the same `arrivals` and
    /// independent service times.
    ///
    /// The same seed gives the same series everywhere; its arrivals are those of a simulation's first
    /// replication with that seed.
    ///
    /// # Errors
    /// If there is no station, the utilisation is not in (0, 1), or a parameter is out of range.
    pub fn new(
        arrivals: &ArrivalProcess,
        service: &Service,
        stations: u32,
        utilization: f64,
        seed: u64,
    ) -> Result<Self, ForkJoinError> {
        if stations == 0 {
            return Err(ExactError::NoWorkers.into());
        }
        if !(utilization > 0.0 && utilization < 1.0) {
            return Err(ExactError::Utilization(utilization).into());
        }
        arrivals.check()?;
        service.check()?;
        let mean_gap_ns = service.mean_ns() / utilization;
        let rounder = Grid::for_mean_gap(mean_gap_ns).rounder();
        let rows = (stations as usize).div_ceil(LANES);
        let requests = (BLOCK_ROWS / rows).max(1);
        Ok(Self {
            isa: Isa::detect(),
            gaps: Sampler::new(
                arrivals.law(mean_gap_ns),
                LaneRng::new(seed, Purpose::Arrivals, 0),
                rounder,
            ),
            gap_block: vec![[0.0]; BLOCK_GAPS],
            next_gap: BLOCK_GAPS,
            services: Sampler::new(
                service.law(),
                LaneRng::new(seed, Purpose::Service, 0),
                rounder,
            ),
            service_block: vec![[0.0; LANES]; rows * requests],
            next_row: rows * requests,
            sojourns_ns: vec![[0.0; LANES]; rows],
            last_lanes: stations as usize - (rows - 1) * LANES,
        })
    }

    /// The sojourn of the next request in nanoseconds.
    pub fn next_sojourn_ns(&mut self) -> f64 {
        if self.next_gap == self.gap_block.len() {
            self.gaps.fill(self.isa, &mut self.gap_block);
            self.next_gap = 0;
        }
        let [gap_ns] = self.gap_block[self.next_gap];
        self.next_gap += 1;

        let rows = self.sojourns_ns.len();
        if self.next_row == self.service_block.len() {
            self.services.fill(self.isa, &mut self.service_block);
            for last in self.service_block.chunks_exact_mut(rows) {
                last[rows - 1][self.last_lanes..].fill(0.0);
            }
            self.next_row = 0;
        }
        let services = &self.service_block[self.next_row..self.next_row + rows];
        self.next_row += rows;
        lindley(self.isa, &mut self.sojourns_ns, services, gap_ns)
    }
}

impl Iterator for ForkJoin {
    type Item = f64;
    fn next(&mut self) -> Option<f64> {
        Some(self.next_sojourn_ns())
    }
}

multiversion! {
    /// One step of every station's recursion; returns the largest sojourn.
    fn lindley(sojourns: &mut [[f64; LANES]], services: &[[f64; LANES]], gap: f64) -> f64 {
        let mut largest = [0.0_f64; LANES];
        for (sojourns, services) in sojourns.iter_mut().zip(services) {
            for lane in 0..LANES {
                let left = sojourns[lane] - gap;
                // a compare-select is one instruction; f64::max also handles NaN, which cannot occur here
                let wait = if left > 0.0 { left } else { 0.0 };
                let sojourn = wait + services[lane];
                sojourns[lane] = sojourn;
                largest[lane] = if sojourn > largest[lane] { sojourn } else { largest[lane] };
            }
        }
        largest.into_iter().fold(0.0, f64::max)
    }
}

/// The number of requests after which it no longer matters that the queue started empty: twelve relaxation
/// times 1/(1 − √ρ)² of M/M/1 (Cohen 1969), so the bias is below e^{−12} of the mean. Services that vary
/// more than exponential ones need more.
pub fn warm_up_requests(utilization: f64) -> u64 {
    let gap = 1.0 - utilization.sqrt();
    (12.0 / (gap * gap)).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::Nanos;

    fn exponential() -> Service {
        Service::Exponential {
            mean: Nanos::from_micros(50),
        }
    }

    fn series(service: &Service, stations: u32, seed: u64) -> Vec<f64> {
        let join = ForkJoin::new(&ArrivalProcess::Poisson, service, stations, 0.8, seed);
        join.unwrap().take(3_000).collect()
    }

    #[test]
    fn the_last_part_is_that_of_a_plain_recursion() {
        for isa in Isa::available() {
            let mut sojourns = vec![[0.0; LANES]; 3];
            let mut plain = vec![0.0_f64; 3 * LANES];
            for n in 0..500_u64 {
                let gap = (n * 7 % 11) as f64;
                let service = |k: usize| ((n * 13 + k as u64 * 5) % 9) as f64;
                let services: [[f64; LANES]; 3] = std::array::from_fn(|row| {
                    std::array::from_fn(|lane| service(row * LANES + lane))
                });
                for (k, t) in plain.iter_mut().enumerate() {
                    *t = (*t - gap).max(0.0) + service(k);
                }
                let largest = plain.iter().copied().fold(0.0, f64::max);
                assert_eq!(
                    lindley(isa, &mut sojourns, &services, gap),
                    largest,
                    "{isa:?}"
                );
                assert_eq!(sojourns.as_flattened(), plain);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_series() {
        assert_eq!(
            series(&exponential(), 100, 1),
            series(&exponential(), 100, 1)
        );
        assert_ne!(
            series(&exponential(), 100, 1),
            series(&exponential(), 100, 2)
        );
    }

    /// With equal services all stations are in step: any number is as one.
    #[test]
    fn equal_services_make_one_station_of_many() {
        let service = Service::deterministic(Nanos::from_micros(50));
        let one = series(&service, 1, 3);
        for stations in [2, 8, 9, 10_000] {
            assert_eq!(series(&service, stations, 3), one, "{stations}");
        }
        assert!(one.iter().any(|t| *t > 50_000.0));
    }

    #[test]
    fn more_parts_take_longer() {
        let mean = |stations| series(&exponential(), stations, 4).iter().sum::<f64>();
        assert!(mean(1) < mean(7) && mean(7) < mean(65) && mean(65) < mean(1_000));
    }

    #[test]
    fn nonsense_is_refused() {
        let of = |stations, utilization| {
            ForkJoin::new(
                &ArrivalProcess::Poisson,
                &exponential(),
                stations,
                utilization,
                1,
            )
        };
        assert!(matches!(
            of(0, 0.5),
            Err(ForkJoinError::Load(ExactError::NoWorkers))
        ));
        assert!(matches!(
            of(2, 1.0),
            Err(ForkJoinError::Load(ExactError::Utilization(_)))
        ));
        let bad = ArrivalProcess::Lognormal { cv: -1.0 };
        assert!(matches!(
            ForkJoin::new(&bad, &exponential(), 2, 0.5, 1),
            Err(ForkJoinError::Arrivals(_))
        ));
    }
}
