//! Do the intervals of 95 % hold the true quantile in about 95 % of runs?
//!
//! Share of 300 runs of 20,000 observations whose interval holds the true p50, p90, p99:
//!
//! | series | naive | taillab |
//! |---|---|---|
//! | independent | 94, 96, 96 % | 96, 97, 97 % |
//! | autoregressive, φ = 0.9 | 38, 43, 62 % | 94, 96, 96 % |
//! | M/D/1 sojourns at load 0.7 | 59, 39, 37 % | 97, 96, 94 % |
//!
//! A capacity that drifts from one segment of 2 s to the next, 20 s of M/D/1 at load 0.7; beside it a
//! bootstrap that draws whole segments, which is what one thinks of first. Share of 200 runs whose
//! interval holds the true p50, p99, p99.9:
//!
//! | drift between segments (standard deviation) | bootstrap | taillab |
//! |---|---|---|
//! | none | 88, 89, 82 % | 95, 94, 95 % |
//! | 5 % | 90, 83, 69 % | 91, 92, 97 % |
//! | 10 % | 90, 66, 40 % | 91, 89, 100 % |
//!
//! Ten segments are too few to draw from: a far percentile is made by one or two of them. So the
//! intervals come from batch means, the longest of which are longer than such a segment.
//!
//! What it cannot do: in a series that holds only one or two of its rare stalls no
//! estimate sees how rare they are. With 1.4 stalls in a run, p90 is covered in 70 % of runs.

use std::num::NonZeroU32;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::statistics::distribution_of;
use taillab_model::{Distribution, Nanos};
use taillab_queueing::ideal;

const LENGTH: usize = 20_000;
const RUNS: u64 = 300;

fn autoregressive(rng: &mut Xoshiro256PlusPlus, phi: f64) -> Vec<Nanos> {
    let mut x: f64 = StandardNormal.sample(rng);
    let mut next = || {
        let noise: f64 = StandardNormal.sample(rng);
        x = phi * x + (1.0 - phi * phi).sqrt() * noise;
        Nanos::new((1e9 + 1e8 * x) as u64)
    };
    (0..LENGTH).map(|_| next()).collect()
}

fn waiting(rng: &mut Xoshiro256PlusPlus, load: f64) -> Vec<Nanos> {
    let mut at_ns = 0.0;
    let arrivals: Vec<Nanos> = (0..2_000 + LENGTH)
        .map(|_| {
            let gap: f64 = Exp1.sample(rng);
            at_ns += gap * 50_000.0 / load;
            Nanos::new(at_ns as u64)
        })
        .collect();
    ideal::sojourns(&arrivals, Nanos::from_micros(50), NonZeroU32::MIN).split_off(2_000)
}

/// Share of the runs whose interval holds each true quantile: naive, and ours.
fn coverage(
    series: impl Fn(&mut Xoshiro256PlusPlus) -> Vec<Nanos>,
    truth: &[(f64, f64)],
) -> Vec<[f64; 2]> {
    let mut held = vec![[0_u32; 2]; truth.len()];
    for seed in 0..RUNS {
        let series = series(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let mut sorted = series.clone();
        sorted.sort_unstable();
        let ours = distribution_of(&series);
        let naive = Distribution::from_sorted(&sorted);
        for (held, &(q, truth_ns)) in held.iter_mut().zip(truth) {
            for (held, distribution) in held.iter_mut().zip([&naive, &ours]) {
                let quantile = distribution.quantiles.iter().find(|x| x.q == q).unwrap();
                // A quantile that is declared unknown makes no false claim.
                let holds = quantile.lo.zip(quantile.hi).is_none_or(|(lo, hi)| {
                    lo.get() as f64 <= truth_ns && truth_ns <= hi.get() as f64
                });
                *held += u32::from(holds);
            }
        }
    }
    let share = |count: u32| f64::from(count) / RUNS as f64;
    let shares: Vec<[f64; 2]> = held.iter().map(|h| h.map(share)).collect();
    println!("naive and taillab, p50 p90 p99: {shares:.3?}");
    shares
}

fn normal(quantile: f64) -> f64 {
    1e9 + 1e8 * quantile
}

const NORMAL: [(f64, f64); 3] = [(0.5, 0.0), (0.9, 1.281_551_566), (0.99, 2.326_347_874)];

#[test]
fn of_independent_observations_the_interval_is_hardly_wider() {
    let truth = NORMAL.map(|(q, x)| (q, normal(x)));
    for [naive, ours] in coverage(|rng| autoregressive(rng, 0.0), &truth) {
        assert!(naive >= 0.90 && ours >= 0.90, "{naive} {ours}");
        assert!(ours <= naive + 0.05, "{naive} {ours}");
    }
}

#[test]
fn of_autoregressive_observations_the_interval_holds_the_truth() {
    let truth = NORMAL.map(|(q, x)| (q, normal(x)));
    for [naive, ours] in coverage(|rng| autoregressive(rng, 0.9), &truth) {
        assert!(naive <= 0.70, "the naive interval should fail: {naive}");
        assert!(ours >= 0.88, "{ours}");
    }
}

#[test]
fn of_waiting_times_the_interval_holds_the_truth() {
    // M/D/1, load .7, service 50 µs: exact sojourns
    let truth = [(0.5, 86_487.545), (0.9, 203_854.344), (0.99, 374_274.971)];
    for [naive, ours] in coverage(|rng| waiting(rng, 0.7), &truth) {
        assert!(naive <= 0.75, "the naive interval should fail: {naive}");
        assert!(ours >= 0.88, "{ours}");
    }
}

/// Segments of a run, and what a request takes on average.
const SEGMENTS: usize = 10;
const SEGMENT_NS: f64 = 2e9;
const DRIFTING_NS: f64 = 200_000.0;

/// Sojourns in an M/D/1 queue whose service is constant in a segment and another in the next one, and
/// where each segment begins.
fn drifting(
    rng: &mut Xoshiro256PlusPlus,
    deviation: f64,
    segments: usize,
) -> (Vec<Nanos>, Vec<usize>) {
    let (mut at_ns, mut idle_ns, mut service_ns) = (0.0, 0.0_f64, DRIFTING_NS);
    let (mut sojourns, mut begins) = (Vec::new(), Vec::new());
    while begins.len() <= segments {
        let gap: f64 = Exp1.sample(rng);
        at_ns += gap * DRIFTING_NS / 0.7;
        if at_ns >= begins.len() as f64 * SEGMENT_NS {
            begins.push(sojourns.len());
            let normal: f64 = StandardNormal.sample(rng);
            service_ns = DRIFTING_NS * (1.0 + deviation * normal).clamp(0.5, 1.3);
        }
        idle_ns = idle_ns.max(at_ns) + service_ns;
        sojourns.push(Nanos::new((idle_ns - at_ns) as u64));
    }
    sojourns.pop();
    (sojourns, begins)
}

/// The middle 95 % of a quantile over draws of whole segments.
fn bootstrap(
    rng: &mut Xoshiro256PlusPlus,
    (series, begins): (&[Nanos], &[usize]),
    q: f64,
) -> (f64, f64) {
    const DRAWS: usize = 200;
    let segments: Vec<Vec<Nanos>> = begins
        .windows(2)
        .map(|w| {
            let mut segment = series[w[0]..w[1]].to_vec();
            segment.sort_unstable();
            segment
        })
        .collect();
    let mut draws: Vec<Nanos> = (0..DRAWS)
        .map(|_| {
            let drawn: Vec<&Vec<Nanos>> = (0..segments.len())
                .map(|_| &segments[rng.random_range(0..segments.len())])
                .collect();
            let all: usize = drawn.iter().map(|segment| segment.len()).sum();
            let wanted = (q * all as f64) as usize;
            let up_to = |x: Nanos| -> usize {
                let below = drawn.iter().map(|s| s.partition_point(|y| *y <= x));
                below.sum()
            };
            let (mut lo, mut hi) = (0, 1_u64 << 36);
            while lo < hi {
                let middle = u64::midpoint(lo, hi);
                match up_to(Nanos::new(middle)) > wanted {
                    true => hi = middle,
                    false => lo = middle + 1,
                }
            }
            Nanos::new(lo)
        })
        .collect();
    draws.sort_unstable();
    let at = |p: f64| draws[((DRAWS - 1) as f64 * p).round() as usize].get() as f64;
    (at(0.025), at(0.975))
}

/// Share of the runs whose interval holds each true quantile: of a bootstrap over segments, and ours.
fn drift_coverage(deviation: f64, runs: u64) -> Vec<[f64; 2]> {
    const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
    let (mut long, _) = drifting(
        &mut Xoshiro256PlusPlus::seed_from_u64(4_711),
        deviation,
        3_000,
    );
    long.sort_unstable();
    let truth = QUANTILES.map(|q| long[(q * long.len() as f64) as usize].get() as f64);
    let mut held = [[0_u32; 2]; 3];
    for seed in 0..runs {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (series, begins) = drifting(&mut rng, deviation, SEGMENTS);
        let ours = distribution_of(&series);
        for ((held, q), truth) in held.iter_mut().zip(QUANTILES).zip(truth) {
            let (lo, hi) = bootstrap(&mut rng, (&series, &begins), q);
            held[0] += u32::from((lo..=hi).contains(&truth));
            let quantile = ours.quantiles.iter().find(|x| x.q == q).unwrap();
            let holds = quantile.value.is_none() || {
                let lo = quantile.lo.map_or(0.0, |lo| lo.get() as f64);
                let hi = quantile.hi.map_or(f64::INFINITY, |hi| hi.get() as f64);
                (lo..=hi).contains(&truth)
            };
            held[1] += u32::from(holds);
        }
    }
    let shares = held.map(|h| h.map(|count| f64::from(count) / runs as f64));
    println!("drift {deviation}: bootstrap and taillab, p50 p99 p99.9: {shares:.3?}");
    shares.to_vec()
}

#[test]
fn of_a_capacity_that_drifts_the_interval_holds_the_truth() {
    for deviation in [0.0, 0.05, 0.1] {
        for [bootstrap, ours] in drift_coverage(deviation, 200) {
            assert!(ours >= 0.85, "{deviation}: {ours}");
            assert!(ours >= bootstrap - 0.05, "{deviation}: {bootstrap} {ours}");
        }
    }
}
