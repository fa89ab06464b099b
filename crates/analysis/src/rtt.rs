//! Round trips of several runs: quantiles, the paper's average of runs, bursts, fan-out.
//!
//! *Deconstructing the Tail at Scale Effect* gives each figure as "the average of 10 runs, after
//! excluding the slowest and fastest runs" (section 5). That average has no interval, and it does not
//! exist for a quantile for which a single run is too short. So the quantile of all runs together is given
//! as well, with its interval. The paper's slowest round trip is such an average, too.

mod elimination;
mod explained;
mod split;

pub use self::elimination::elimination;
pub use self::explained::{DividedTrips, Explainer};
pub use self::split::{ClientEnd, Ends};

use taillab_model::explanation::FanOut;
use taillab_model::rtt::{
    QuantileNeed, RoundTrip, RttBursts, RttCurves, TrimmedQuantile, mean_without_extremes,
};
use taillab_model::{Distribution, Nanos, REPORTED_QUANTILES, quantile_ranks};

use crate::clustering::{Clusters, SLOW, threshold_rank};
use crate::fan_out::fan_out;
use crate::statistics::{Observations, distribution_of, middle, requests_needed};
use crate::verdict::Supported;

/// Runs of slow round trips are counted by length; the last count includes all longer runs.
const RUN_LENGTHS: usize = 8;
/// The largest number of points of the time series.
const BLOCKS: usize = 400;
/// The number of round trips on each side of the slowest, as in the paper's Figure 12.
const NEIGHBOURS: usize = 100;

/// The summary of all runs of a row.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The round trips of all runs together.
    pub rtt: Distribution,
    /// The round trips of each run.
    pub runs: Vec<Distribution>,
    /// The paper's average, for each reported quantile.
    pub trimmed: Vec<TrimmedQuantile>,
    /// The slowest ÷ the median, each as the paper averages it.
    pub worst_to_median: Option<f64>,
    /// Whether slow round trips come alone or in bursts.
    pub bursts: Option<RttBursts>,
    /// The slowest of several nodes.
    pub fan_out: Vec<FanOut>,
    /// How many round trips the missing quantiles need.
    pub needs: Vec<QuantileNeed>,
    /// The points of the figures.
    pub curves: RttCurves,
}

/// Summarises runs of round trips, each in order of time, as far as it is `supported`.
pub fn summarise(runs: &[Vec<RoundTrip>], supported: &Supported) -> Summary {
    let lengths =
        |run: &Vec<RoundTrip>| -> Vec<Nanos> { run.iter().map(|trip| trip.rtt).collect() };
    let each: Vec<Distribution> = (runs.iter())
        .map(|run| distribution_of(&lengths(run)))
        .collect();
    let all = Observations::of(&runs.iter().flat_map(lengths).collect::<Vec<_>>());
    let rtt = all.distribution();
    let sorted: Vec<Vec<Nanos>> = (runs.iter())
        .map(|run| {
            let mut lengths = lengths(run);
            lengths.sort_unstable();
            lengths
        })
        .collect();
    let lacking = REPORTED_QUANTILES
        .into_iter()
        .filter(|&q| rtt.quantile(q).is_none());
    let trimmed = |q| match supported.percentile(q) {
        true => trimmed(&sorted, q),
        false => TrimmedQuantile {
            q,
            mean_ns: None,
            runs: 0,
        },
    };
    // too few round trips for an interval of p99 can still show whether those above it come in bursts
    let shows_slow = supported.beyond(SLOW);
    Summary {
        trimmed: REPORTED_QUANTILES.map(trimmed).to_vec(),
        worst_to_median: worst_to_median(&sorted, &rtt).filter(|_| supported.percentile(0.5)),
        bursts: bursts(runs).filter(|_| shows_slow),
        fan_out: supported.fan_out(&fan_out(&all)),
        needs: lacking
            .map(|q| QuantileNeed {
                q,
                round_trips: requests_needed(all.factors(), q),
            })
            .collect(),
        curves: RttCurves {
            ccdf: supported.curve(all.curve()),
            over_time: over_time(runs),
            around_slowest: around_slowest(runs),
        },
        rtt: supported.distribution(rtt),
        runs: (each.into_iter())
            .map(|run| supported.distribution(run))
            .collect(),
    }
}

/// The mean of the quantile `q` over the runs, without the slowest and the fastest run at `q`. All runs are in it, or
/// there is none: those that lack a quantile for their bursts are the slow ones, and without them the mean would be
/// too low.
fn trimmed(sorted: &[Vec<Nanos>], q: f64) -> TrimmedQuantile {
    let of = |run: &Vec<Nanos>| {
        let ranks = quantile_ranks(run.len() as u64, q, 1.0)?;
        Some(run[ranks.value as usize])
    };
    let values: Option<Vec<Nanos>> = sorted.iter().map(of).collect();
    let mean_ns = values.and_then(mean_without_extremes);
    TrimmedQuantile {
        q,
        mean_ns,
        runs: mean_ns.map_or(0, |_| sorted.len() as u32 - 2),
    }
}

/// The slowest ÷ the median; both as the paper's average, if there are runs enough.
fn worst_to_median(sorted: &[Vec<Nanos>], all: &Distribution) -> Option<f64> {
    let worst: Option<Vec<Nanos>> = sorted.iter().map(|run| run.last().copied()).collect();
    let averages = worst
        .and_then(mean_without_extremes)
        .zip(trimmed(sorted, 0.5).mean_ns);
    let (worst, median) = averages.or_else(|| all.max.zip(all.quantile(0.5)))?;
    (median > Nanos::ZERO).then(|| worst.get() as f64 / median.get() as f64)
}

/// Whether slow round trips come in bursts; `None` if there are too few.
fn bursts(runs: &[Vec<RoundTrip>]) -> Option<RttBursts> {
    let mut lengths: Vec<Nanos> = runs.iter().flatten().map(|trip| trip.rtt).collect();
    let rank = threshold_rank(lengths.len() as u64)? as usize;
    let threshold = *lengths.select_nth_unstable(rank).1;
    drop(lengths);
    let mut clusters = Clusters::default();
    clusters.slow_is_above(threshold);
    let mut counts = [0_u64; RUN_LENGTHS];
    let mut longest = 0_usize;
    for run in runs {
        let mut slow = 0_usize;
        let mut end = |slow: &mut usize| {
            if let Some(last) = slow.checked_sub(1) {
                counts[last.min(RUN_LENGTHS - 1)] += 1;
                longest = longest.max(*slow);
            }
            *slow = 0;
        };
        for trip in run {
            clusters.add(trip.sent, trip.rtt);
            match trip.rtt > threshold {
                true => slow += 1,
                false => end(&mut slow),
            }
        }
        end(&mut slow);
    }
    Some(RttBursts {
        clustering: clusters.finish()?,
        threshold_ns: threshold,
        run_lengths: (1..).zip(counts).collect(),
        longest: longest as u32,
    })
}

/// Blocks of equal numbers of neighbouring round trips, over all runs.
fn over_time(runs: &[Vec<RoundTrip>]) -> Vec<(u64, Nanos, Nanos)> {
    let total: usize = runs.iter().map(Vec::len).sum();
    let length = total.div_ceil(BLOCKS).max(1);
    let mut trips = runs.iter().flatten().map(|trip| trip.rtt);
    let blocks = (0..total as u64).step_by(length).filter_map(|first| {
        let mut block: Vec<Nanos> = trips.by_ref().take(length).collect();
        let slowest = *block.iter().max()?;
        Some((first, middle(&mut block)?, slowest))
    });
    blocks.collect()
}

/// The slowest round trip of all, with its neighbours in the same run.
fn around_slowest(runs: &[Vec<RoundTrip>]) -> Vec<(u64, Nanos)> {
    let slowest = |run: &&Vec<RoundTrip>| run.iter().map(|trip| trip.rtt).max();
    let Some(run) = runs.iter().max_by_key(slowest) else {
        return Vec::new();
    };
    let Some(at) = (0..run.len()).max_by_key(|&n| run[n].rtt) else {
        return Vec::new();
    };
    let shown = at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS + 1).min(run.len());
    shown.map(|n| (n as u64, run[n].rtt)).collect()
}

#[cfg(test)]
mod tests {
    use taillab_model::Monotonic;

    use super::*;
    use crate::verdict::{Evidence, judge};

    /// With nothing against them.
    fn summarise(runs: &[Vec<RoundTrip>]) -> Summary {
        super::summarise(runs, judge(&Evidence::default()).supported())
    }

    /// One after the other, without gaps.
    fn run(lengths: impl IntoIterator<Item = u64>) -> Vec<RoundTrip> {
        let mut at = 0;
        let trip = |rtt| {
            let sent = Monotonic::from_nanos_since_boot(at);
            at += rtt;
            RoundTrip {
                sent,
                rtt: Nanos::new(rtt),
                connection: 0,
                lost: false,
            }
        };
        lengths.into_iter().map(trip).collect()
    }

    #[test]
    fn the_slowest_and_the_fastest_run_are_not_in_the_papers_average() {
        let runs: Vec<_> = [70_u64, 10, 20, 33, 1_000_000]
            .map(|length| run(std::iter::repeat_n(length, 5_000)))
            .to_vec();
        let found = summarise(&runs);
        let median = found.trimmed[0];
        assert_eq!((median.q, median.runs), (0.5, 3));
        assert_eq!(median.mean_ns, Some(Nanos::new(41)));
        assert_eq!(found.runs.len(), 5);
        assert_eq!(found.rtt.count, 25_000);
        // no single run supports it, so that there is nothing to average
        let far = found.trimmed.last().unwrap();
        assert_eq!((far.mean_ns, far.runs), (None, 0));
        // two runs leave none
        let two = summarise(&runs[..2]);
        assert_eq!(two.trimmed[0].mean_ns, None);
    }

    /// Each run has 3 % of slow round trips: two have them in a few bursts, which support no p99 by themselves.
    #[test]
    fn a_run_whose_slow_round_trips_come_in_bursts_is_in_the_average() {
        let scattered =
            |slow: u64| run((0..5_000).map(move |n| if n % 33 == 7 { slow } else { 10 }));
        let bursts =
            |slow: u64| run((0..5_000).map(move |n| if n / 150 == 20 { slow } else { 10 }));
        let found = summarise(&[
            scattered(50),
            scattered(60),
            bursts(900),
            scattered(70),
            bursts(800),
        ]);
        let alone: Vec<bool> = (found.runs.iter())
            .map(|run| run.quantile(0.99).is_some())
            .collect();
        assert_eq!(alone, [true, true, false, true, false]);
        let p99 = found.trimmed[2];
        // 60, 70 and 800: the fastest and the slowest run are left out
        assert_eq!(
            (p99.q, p99.runs, p99.mean_ns),
            (0.99, 3, Some(Nanos::new(310)))
        );
        // the slowest of a run, averaged in the same way: the median is 10
        assert_eq!(found.worst_to_median, Some(31.0));
        let two = summarise(&[scattered(50), bursts(900)]);
        assert_eq!(two.worst_to_median, Some(90.0));
    }

    #[test]
    fn a_quantile_that_the_sample_cannot_support_says_what_it_needs() {
        let found = summarise(&[run((0..10_000).map(|n| 100 + n * 7_919 % 1_000))]);
        let needed: Vec<f64> = found.needs.iter().map(|need| need.q).collect();
        assert_eq!(needed, [0.9999, 0.99999]);
        assert!(found.needs.iter().all(|need| need.round_trips > 10_000));
        assert!(found.worst_to_median.unwrap() > 1.0);
    }

    #[test]
    fn single_slow_round_trips_and_bursts_are_distinguished() {
        let single = run((0..50_000).map(|n| if n % 200 == 7 { 900 } else { 100 + n % 5 }));
        let found = summarise(&[single]).bursts.unwrap();
        assert_eq!((found.longest, found.run_lengths[0]), (1, (1, 250)));
        assert_eq!(found.clustering.in_runs_share, 0.0);
        let burst = run((0..50_000).map(|n| if n % 2_000 < 12 { 900 } else { 100 + n % 5 }));
        let found = summarise(&[burst]).bursts.unwrap();
        assert_eq!((found.longest, found.run_lengths[7]), (12, (8, 25)));
        assert_eq!(found.clustering.in_runs_share, 1.0);
        assert!(found.clustering.autocorrelation[0].1 > 0.8);
    }

    #[test]
    fn the_curves_have_every_round_trip_and_the_slowest_in_its_place() {
        let runs = [
            run((0..3_000).map(|_| 50)),
            run((0..3_000).map(|n| if n == 196 { 9_000 } else { 60 })),
        ];
        let curves = summarise(&runs).curves;
        assert_eq!(curves.around_slowest.len(), 201);
        assert_eq!(curves.around_slowest[100], (196, Nanos::new(9_000)));
        assert!(curves.over_time.len() <= BLOCKS);
        assert_eq!(curves.over_time[0], (0, Nanos::new(50), Nanos::new(50)));
        let slowest = curves.over_time.iter().map(|block| block.2).max();
        assert_eq!(slowest, Some(Nanos::new(9_000)));
        assert_eq!(curves.ccdf.first().unwrap().1, 1.0);
    }

    #[test]
    fn nothing_gives_nothing() {
        let found = summarise(&[]);
        assert_eq!(found.rtt.count, 0);
        assert!(found.bursts.is_none() && found.curves.around_slowest.is_empty());
        assert!(summarise(&[Vec::new()]).worst_to_median.is_none());
    }
}
