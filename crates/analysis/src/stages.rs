//! How a sojourn divides into the five stages.

use std::ops::Range;

use taillab_model::histogram::{HISTOGRAM_BITS, cell};
use taillab_model::summary::StagesAt;
use taillab_model::{Histogram, Nanos, quantile_rank};

use crate::id_map::grow_to;
use crate::statistics::{Observations, Values};

/// The percentiles at which the stages are reported; 1 is the slowest request.
pub const STAGE_PERCENTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// Half the width of a percentile's band, as a share of the requests above it.
pub(crate) const BAND_SHARE: f64 = 0.05;

/// The least half width of a band, in requests; less if the slowest or the fastest request is nearer.
const BAND_MIN: u64 = 10;

/// The rank of a percentile and the half width of its band; `None` if less than one request is above it,
/// or if the request at that rank was not answered. The unanswered ones rank above all others; the slowest
/// request is the slowest that was answered.
fn band(answered: u64, unanswered: u64, q: f64) -> Option<(u64, u64)> {
    let last = answered.checked_sub(1)?;
    let n = match q < 1.0 {
        true => answered + unanswered,
        false => answered,
    };
    let above = (1.0 - q) * n as f64;
    if q < 1.0 && above < 1.0 {
        return None;
    }
    let centre = quantile_rank(n, q);
    let half = ((BAND_SHARE * above).round() as u64).max(BAND_MIN);
    let to_last = last.checked_sub(centre)?;
    Some((centre, half.min(to_last).min(centre)))
}

/// The cells of a histogram in which the band of a percentile lies; `counts` are the requests in each cell,
/// and those that were not answered rank above all others.
pub(crate) fn cells_around(counts: &[u64], unanswered: u64, q: f64) -> Option<Range<usize>> {
    let (centre, half) = band(counts.iter().sum(), unanswered, q)?;
    let cell_of = |rank: u64| {
        let mut below = 0;
        counts.iter().position(|count| {
            below += count;
            below > rank
        })
    };
    Some(cell_of(centre - half)?..cell_of(centre + half)? + 1)
}

/// Mean stages of the requests around each of [`STAGE_PERCENTILES`] of the sojourn.
///
/// All requests are ranked by sojourn, complete or not, answered or not, so that the band lies at the
/// percentile that is reported elsewhere. The band is the rank of the percentile and 5 % of the requests
/// above it on either side, at least ten, but never past the slowest; its complete requests are
/// averaged. A band without a complete one grows until it has one. A percentile with less than one
/// request above it, or at which no request was answered, is left out.
///
/// Up to a limit the requests are kept. Beyond it, they are summed by the histogram cells of their
/// sojourns: a band then consists of the complete requests from the cell of its lower end to that of
/// its upper end, and is left out if there is none.
#[derive(Clone, Debug)]
pub struct StageBands {
    /// All requests, while there are no more than `exact`.
    kept: Vec<KeptRequest>,
    exact: usize,
    /// By the cell of the sojourn; empty as long as the requests are kept.
    cells: Vec<StageSums>,
}

/// The sojourn and, of a complete request, the stages.
type KeptRequest = (Nanos, Option<[Nanos; 5]>);

/// The complete requests of a band, or of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct StageSums {
    requests: u64,
    sums_ns: [u64; 5],
}

impl StageSums {
    fn add(&mut self, stages: [Nanos; 5]) {
        self.requests += 1;
        for (sum, stage) in self.sums_ns.iter_mut().zip(stages) {
            *sum += stage.get();
        }
    }

    /// The means at the percentile `q`; `None` without a request.
    fn means(&self, q: f64) -> Option<StagesAt> {
        let mean_stage_ns = self.sums_ns.map(|sum| sum as f64 / self.requests as f64);
        (self.requests > 0).then(|| StagesAt {
            q,
            requests: self.requests,
            // the sum of the stages' means, so that the parts make exactly the whole
            mean_sojourn_ns: mean_stage_ns.iter().sum(),
            mean_stage_ns,
        })
    }
}

impl StageBands {
    /// No requests yet; up to `exact` of them will be kept.
    pub const fn new(exact: usize) -> Self {
        Self {
            kept: Vec::new(),
            exact,
            cells: Vec::new(),
        }
    }

    /// Adds a request; only a complete one has stages.
    pub fn add(&mut self, sojourn: Nanos, stages: Option<[Nanos; 5]>) {
        if self.cells.is_empty() && self.kept.len() < self.exact {
            self.kept.push((sojourn, stages));
            return;
        }
        for (sojourn, stages) in std::mem::take(&mut self.kept) {
            self.count(sojourn, stages);
        }
        self.count(sojourn, stages);
    }

    fn count(&mut self, sojourn: Nanos, stages: Option<[Nanos; 5]>) {
        let cell = cell(sojourn.get(), HISTOGRAM_BITS);
        let sums = grow_to(&mut self.cells, cell);
        if let Some(stages) = stages {
            sums.add(stages);
        }
    }

    /// The means; `sojourns` are those of all requests that were added, and of those without an answer.
    pub fn finish(mut self, sojourns: &Observations) -> Vec<StagesAt> {
        let unanswered = sojourns.unanswered();
        match sojourns.values() {
            Values::Sorted(_) => {
                // the sort is stable: of equal sojourns, the earlier request comes first
                self.kept.sort_by_key(|(sojourn, _)| *sojourn);
                let at = |&q: &f64| band_of_kept((&self.kept, unanswered), q);
                STAGE_PERCENTILES.iter().filter_map(at).collect()
            }
            Values::Counted(histogram) => {
                let at = |&q: &f64| band_of_cells(&self.cells, (histogram, unanswered), q);
                STAGE_PERCENTILES.iter().filter_map(at).collect()
            }
        }
    }
}

fn band_of_cells(
    cells: &[StageSums],
    (sojourns, unanswered): (&Histogram, u64),
    q: f64,
) -> Option<StagesAt> {
    let ranked = sojourns.ranked();
    let place = |rank: u64| Some(cell(ranked.at(rank)?.from.get(), HISTOGRAM_BITS));
    let (centre, half) = band(sojourns.count(), unanswered, q)?;
    let (first, last) = (place(centre - half)?, place(centre + half)?);
    let mut all = StageSums::default();
    for cell in cells.iter().take(last + 1).skip(first) {
        all.requests += cell.requests;
        for (sum, more) in all.sums_ns.iter_mut().zip(cell.sums_ns) {
            *sum += more;
        }
    }
    all.means(q)
}

/// The requests are in order of their sojourns.
fn band_of_kept((ranked, unanswered): (&[KeptRequest], u64), q: f64) -> Option<StagesAt> {
    let n = ranked.len() as u64;
    let (centre, mut half) = band(n, unanswered, q)?;
    loop {
        let (from, to) = (centre.saturating_sub(half), (centre + half).min(n - 1));
        let mut sums = StageSums::default();
        for (_, stages) in &ranked[from as usize..=to as usize] {
            if let Some(stages) = stages {
                sums.add(*stages);
            }
        }
        if let Some(means) = sums.means(q) {
            return Some(means);
        }
        if from == 0 && to == n - 1 {
            return None;
        }
        half = half * 2 + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Series;
    use taillab_model::{HISTOGRAM_ERROR, Monotonic, Stamps};

    /// Stamps whose stages are i, 2i, 3i, 4i, 5i (sojourn 15i), or without T3.
    fn stamps(i: u64, complete: bool) -> Stamps {
        let at = |parts: u64| Monotonic::from_nanos_since_boot(1_000 + parts * i);
        Stamps {
            t1: at(0),
            t2: Some(at(1)),
            t3: complete.then(|| at(3)),
            t4: Some(at(6)),
            t5: Some(at(10)),
            t6: at(15),
        }
    }

    fn stages_at(requests: impl Iterator<Item = Stamps>, exact: usize) -> Vec<StagesAt> {
        let (mut bands, mut series) = (StageBands::new(exact), Series::new(exact));
        for stamps in requests {
            let sojourn = stamps.t6.saturating_since(stamps.t1);
            bands.add(sojourn, stamps.stages());
            series.extend(&[sojourn]);
        }
        bands.finish(&series.finish())
    }

    #[test]
    fn each_band_lies_around_its_percentile_and_its_parts_make_the_whole() {
        let bands = stages_at((1..=100_000).rev().map(|i| stamps(i, true)), 100_000);
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
        let bands = stages_at((1..=1_000).map(|i| stamps(i, i <= 980)), 1_000);
        let slowest = bands.last().unwrap();
        // the nearest complete requests, in a band that had to grow down to them
        assert!(slowest.requests >= 1 && slowest.mean_sojourn_ns <= 15.0 * 980.0);
        assert!(bands.iter().all(|band| band.q != 0.9999));
        assert!(stages_at((1..=50).map(|i| stamps(i, false)), 50).is_empty());
        assert!(stages_at(std::iter::empty(), 0).is_empty());
    }

    #[test]
    fn requests_without_an_answer_rank_above_all_others() {
        for exact in [9_500, 0] {
            let (mut bands, mut series) = (StageBands::new(exact), Series::new(exact));
            for i in 1..=9_500 {
                let stamps = stamps(i, true);
                let sojourn = stamps.t6.saturating_since(stamps.t1);
                bands.add(sojourn, stamps.stages());
                series.extend(&[sojourn]);
            }
            let found = bands.finish(&series.finish().with_unanswered(500));
            // p99 is one of those without an answer; the slowest answer is known
            let shown: Vec<f64> = found.iter().map(|at| at.q).collect();
            assert_eq!(shown, [0.5, 0.9, 1.0]);
            // ranks among all 10,000
            for (at, rank) in found.iter().zip([5_000.0, 9_000.0, 9_500.0]) {
                let off = at.mean_sojourn_ns / (15.0 * rank) - 1.0;
                assert!(off.abs() < 2.0 * HISTOGRAM_ERROR, "{exact}: {at:?}");
            }
        }
    }

    #[test]
    fn more_requests_than_are_kept_give_nearly_the_same() {
        let requests = || (1..=100_000).map(|i| stamps(i, i % 2 == 0));
        let (exact, counted) = (
            stages_at(requests(), 100_000),
            stages_at(requests(), 99_999),
        );
        assert_eq!(counted.len(), exact.len());
        for (found, exact) in counted.iter().zip(&exact) {
            let off = (found.mean_sojourn_ns / exact.mean_sojourn_ns - 1.0).abs();
            assert!(off < 2.0 * HISTOGRAM_ERROR, "{found:?} is not {exact:?}");
        }
    }
}
