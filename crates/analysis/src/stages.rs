//! Where the time of a sojourn went: the five stages.

use taillab_model::histogram::{HISTOGRAM_BITS, cell};
use taillab_model::summary::{Stages, StagesAt};
use taillab_model::{Distribution, Histogram, Nanos, Stage};

use crate::requests::Requests;
use crate::statistics::distribution_of;

/// The percentiles at which the stages are reported; 1 is the slowest request.
pub const STAGE_PERCENTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// Half the width of a percentile's band, as a share of the requests above it.
const BAND_SHARE: f64 = 0.05;

/// Half the width of a band, in requests, at least; less only near the slowest.
const BAND_MIN: u64 = 10;

/// The distribution of each stage over the complete ones of `requests` at `places`, which
/// are in order of time.
pub fn stages(requests: &Requests, places: impl Iterator<Item = usize> + Clone) -> Stages {
    let of = |stage: Stage| -> Distribution {
        let complete = (places.clone()).filter_map(|place| requests.stamps(place).stages());
        let series: Vec<Nanos> = complete.map(|stages| stages[stage as usize]).collect();
        distribution_of(&series)
    };
    Stages {
        t1_t2: of(Stage::StackReceive),
        t2_t3: of(Stage::QueueAndWakeup),
        t3_t4: of(Stage::CopyAndReturn),
        t4_t5: of(Stage::Application),
        t5_t6: of(Stage::Transmit),
    }
}

/// Mean stages of the requests at `places` around each of [`STAGE_PERCENTILES`] of the sojourn.
///
/// All requests are ranked by sojourn, complete or not, so that the band lies at the
/// percentile that is reported elsewhere. The band is the rank of the percentile and
/// 5 % of the requests above it on either side, at least ten, but never past the slowest;
/// its complete requests are averaged. A band without a complete one grows until it
/// has one. A percentile with less than one request above it is left out.
pub fn stages_at(requests: &Requests, places: impl Iterator<Item = usize>) -> Vec<StagesAt> {
    let mut ranked: Vec<(Nanos, u32)> = places
        .map(|place| (requests.sojourn(place), place as u32))
        .collect();
    // the earlier of two of the same length first: places are in order of T1
    ranked.sort_unstable();
    STAGE_PERCENTILES
        .iter()
        .filter_map(|&q| band_at(requests, &ranked, q))
        .collect()
}

/// The rank of a percentile among `n`, and how many to either side are its band; `None` where
/// less than one is above it.
fn band(n: u64, q: f64) -> Option<(u64, u64)> {
    let above = (1.0 - q) * n as f64;
    if n == 0 || (q < 1.0 && above < 1.0) {
        return None;
    }
    let centre = ((q * n as f64).ceil() as u64).clamp(1, n) - 1;
    let half = ((BAND_SHARE * above).round() as u64).max(BAND_MIN);
    Some((centre, half.min(n - 1 - centre).min(centre)))
}

/// [`stages_at`] of requests that come one at a time: summed by the cells of their sojourns, so
/// that a band holds the complete ones of the cells in which its ends lie and of those between.
/// A band without a complete request is left out.
#[derive(Clone, Debug, Default)]
pub struct StageCells(Vec<StageSums>);

#[derive(Clone, Copy, Debug, Default)]
struct StageSums {
    requests: u64,
    sums_ns: [u64; 5],
}

impl StageCells {
    /// Takes a complete request.
    pub fn add(&mut self, sojourn: Nanos, stages: [Nanos; 5]) {
        let cell = cell(sojourn.get(), HISTOGRAM_BITS);
        if cell >= self.0.len() {
            self.0.resize(cell + 1, StageSums::default());
        }
        let sums = &mut self.0[cell];
        sums.requests += 1;
        for (sum, stage) in sums.sums_ns.iter_mut().zip(stages) {
            *sum += stage.get();
        }
    }

    /// The means, where these are the sojourns of all requests.
    pub fn finish(&self, sojourns: &Histogram) -> Vec<StagesAt> {
        let (n, ranked) = (sojourns.count(), sojourns.ranked());
        let place = |rank: u64| Some(cell(ranked.at(rank)?.from.get(), HISTOGRAM_BITS));
        let of = |&q: &f64| {
            let (centre, half) = band(n, q)?;
            let (first, last) = (place(centre - half)?, place(centre + half)?);
            let cells = self.0.iter().take(last + 1).skip(first);
            let all = cells.fold(StageSums::default(), |mut all, cell| {
                all.requests += cell.requests;
                for (sum, more) in all.sums_ns.iter_mut().zip(cell.sums_ns) {
                    *sum += more;
                }
                all
            });
            (all.requests > 0).then(|| mean_stages(q, all.requests, all.sums_ns))
        };
        STAGE_PERCENTILES.iter().filter_map(of).collect()
    }
}

fn mean_stages(q: f64, requests: u64, sums_ns: [u64; 5]) -> StagesAt {
    let mean_stage_ns = sums_ns.map(|sum| sum as f64 / requests as f64);
    StagesAt {
        q,
        requests,
        // the sum of the stages' means, so that the parts make exactly the whole
        mean_sojourn_ns: mean_stage_ns.iter().sum(),
        mean_stage_ns,
    }
}

fn band_at(requests: &Requests, ranked: &[(Nanos, u32)], q: f64) -> Option<StagesAt> {
    let n = ranked.len() as u64;
    let (centre, mut half) = band(n, q)?;
    loop {
        let band = centre.saturating_sub(half)..=(centre + half).min(n - 1);
        let (from, to) = (*band.start() as usize, *band.end() as usize);
        let mut sums = [0_u64; 5];
        let mut count = 0_u64;
        let complete = ranked[from..=to]
            .iter()
            .filter_map(|&(_, place)| requests.stamps(place as usize).stages());
        for stages in complete {
            count += 1;
            for (sum, stage) in sums.iter_mut().zip(stages) {
                *sum += stage.get();
            }
        }
        if count > 0 {
            return Some(mean_stages(q, count, sums));
        }
        if from == 0 && to as u64 == n - 1 {
            return None;
        }
        half = half * 2 + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::{Monotonic, Request, Stamps};

    /// A request whose stages are i, 2i, 3i, 4i, 5i (sojourn 15i), or without its T3.
    fn request(i: u64, complete: bool) -> Request {
        let at = |parts: u64| Monotonic::from_nanos_since_boot(1_000 + parts * i);
        Request {
            server: Stamps {
                t1: at(0),
                t2: Some(at(1)),
                t3: complete.then(|| at(3)),
                t4: Some(at(6)),
                t5: Some(at(10)),
                t6: at(15),
            },
            client: None,
            operation: None,
        }
    }

    #[test]
    fn each_band_lies_around_its_percentile_and_its_parts_make_the_whole() {
        let requests: Requests = (1..=100_000).rev().map(|i| request(i, true)).collect();
        let bands = stages_at(&requests, 0..requests.len());
        assert_eq!(bands.len(), STAGE_PERCENTILES.len());
        for (band, q) in bands.iter().zip(STAGE_PERCENTILES) {
            assert_eq!(band.q, q);
            let centre = 15.0 * q * 100_000.0;
            assert!((band.mean_sojourn_ns - centre).abs() < 1.0, "{band:?}");
            assert_eq!(band.mean_stage_ns.iter().sum::<f64>(), band.mean_sojourn_ns);
        }
        // 5 % of the 50,000 above the median on either side; at least ten; one at the top
        let sizes: Vec<u64> = bands.iter().map(|band| band.requests).collect();
        assert_eq!(sizes, [5_001, 1_001, 101, 21, 21, 1]);
    }

    #[test]
    fn a_percentile_is_ranked_among_all_and_described_by_the_complete() {
        let requests: Requests = (1..=1_000).map(|i| request(i, i <= 980)).collect();
        let bands = stages_at(&requests, 0..requests.len());
        let slowest = bands.last().unwrap();
        // the nearest complete ones, in a band that had to grow down to them
        assert!(slowest.requests >= 1 && slowest.mean_sojourn_ns <= 15.0 * 980.0);
        assert!(bands.iter().all(|band| band.q != 0.9999));
        let none: Requests = (1..=50).map(|i| request(i, false)).collect();
        assert!(stages_at(&none, 0..none.len()).is_empty());
        assert!(stages_at(&none, 0..0).is_empty());
    }

    #[test]
    fn distributions_stand_for_the_complete_requests() {
        let requests: Requests = (1..=1_000).map(|i| request(i, i % 2 == 0)).collect();
        let stages = stages(&requests, 0..requests.len());
        assert_eq!(stages.t1_t2.count, 500);
        assert_eq!(stages.t5_t6.max, Some(Nanos::new(5_000)));
    }
}
