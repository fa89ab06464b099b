//! Where the time of a sojourn went: the five stages.

use taillab_model::summary::{Stages, StagesAt};
use taillab_model::{Distribution, Nanos, Request, Stage};

use crate::statistics::distribution_of;

/// The percentiles at which the stages are reported; 1 is the slowest request.
pub const STAGE_PERCENTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// Half the width of a percentile's band, as a share of the requests above it.
const BAND_SHARE: f64 = 0.05;

/// Half the width of a band, in requests, at least; less only near the slowest.
const BAND_MIN: u64 = 10;

/// The distribution of each stage over the complete ones of `requests`, which are in
/// order of time.
pub fn stages<'a>(requests: impl Iterator<Item = &'a Request> + Clone) -> Stages {
    let of = |stage: Stage| -> Distribution {
        let complete = requests.clone().filter_map(|r| r.server.stages());
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

/// Mean stages of the requests around each of [`STAGE_PERCENTILES`] of the sojourn.
///
/// All requests are ranked by sojourn, complete or not, so that the band lies at the
/// percentile that is reported elsewhere. The band is the rank of the percentile and
/// 5 % of the requests above it on either side, at least ten, but never past the slowest;
/// its complete requests are averaged. A band without a complete one grows until it
/// has one. A percentile with less than one request above it is left out.
pub fn stages_at<'a>(requests: impl Iterator<Item = &'a Request>) -> Vec<StagesAt> {
    let mut ranked: Vec<(Nanos, &Request)> = requests
        .map(|r| (r.server.t6.saturating_since(r.server.t1), r))
        .collect();
    ranked.sort_unstable_by_key(|&(sojourn, request)| (sojourn, request.server.t1));
    STAGE_PERCENTILES
        .iter()
        .filter_map(|&q| band_at(&ranked, q))
        .collect()
}

fn band_at(ranked: &[(Nanos, &Request)], q: f64) -> Option<StagesAt> {
    let n = ranked.len() as u64;
    let above = (1.0 - q) * n as f64;
    if n == 0 || (q < 1.0 && above < 1.0) {
        return None;
    }
    let centre = ((q * n as f64).ceil() as u64).clamp(1, n) - 1;
    let mut half = ((BAND_SHARE * above) as u64).max(BAND_MIN);
    half = half.min(n - 1 - centre).min(centre);
    loop {
        let band = centre.saturating_sub(half)..=(centre + half).min(n - 1);
        let (from, to) = (*band.start() as usize, *band.end() as usize);
        let mut sums = [0_u64; 5];
        let mut count = 0_u64;
        let complete = ranked[from..=to]
            .iter()
            .filter_map(|(_, r)| r.server.stages());
        for stages in complete {
            count += 1;
            for (sum, stage) in sums.iter_mut().zip(stages) {
                *sum += stage.get();
            }
        }
        if count > 0 {
            let mean_stage_ns = sums.map(|sum| sum as f64 / count as f64);
            return Some(StagesAt {
                q,
                requests: count,
                // the sum of the stages' means, so that the parts make exactly the whole
                mean_sojourn_ns: mean_stage_ns.iter().sum(),
                mean_stage_ns,
            });
        }
        if from == 0 && to as u64 == n - 1 {
            return None;
        }
        half = half * 2 + 1;
    }
}
