//! The ideal queue, and the intervals, against exact results for M/D/c.

use std::num::NonZeroU32;

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::statistics::{distribution_of, variance_inflation};
use taillab_model::{Nanos, Quantile};
use taillab_queueing::ideal;

const SERVICE: Nanos = Nanos::from_micros(50);
const REQUESTS: usize = 1_000_000;
/// The queue starts empty; at the highest load it forgets that within some thousands of requests.
const WARM_UP: usize = 50_000;

struct Exact {
    workers: u32,
    load: f64,
    rate_per_us: f64,
    waits: f64,
    quantiles_us: Vec<(f64, f64)>,
}

fn table() -> Vec<Exact> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../queueing/tests/reference/mdc_sojourn_quantiles.csv"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |place: usize| fields[place].parse::<f64>().unwrap();
        let quantiles = [0.5, 0.9, 0.99, 0.999, 0.9999];
        Exact {
            workers: fields[1].parse().unwrap(),
            load: number(2),
            rate_per_us: number(4),
            waits: number(5),
            quantiles_us: quantiles.into_iter().zip((7..).map(number)).collect(),
        }
    };
    let lines = text.lines().skip(1).filter(|line| !line.is_empty());
    lines.map(row).collect()
}

fn sojourns(exact: &Exact, seed: u64) -> Vec<Nanos> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut at_ns = 0.0;
    let arrivals: Vec<Nanos> = (0..WARM_UP + REQUESTS)
        .map(|_| {
            let gap: f64 = Exp1.sample(&mut rng);
            at_ns += gap * 1e3 / exact.rate_per_us;
            Nanos::new(at_ns as u64)
        })
        .collect();
    let workers = NonZeroU32::new(exact.workers).unwrap();
    ideal::sojourns(&arrivals, SERVICE, workers).split_off(WARM_UP)
}

/// How many standard errors the estimate is off, judged by the half of the interval on the side
/// of the truth; `None` where the sample cannot support the quantile.
fn z(quantile: &Quantile, truth_ns: f64) -> Option<f64> {
    let [value, lo, hi] = [quantile.value?, quantile.lo?, quantile.hi?].map(|x| x.get() as f64);
    let off = truth_ns - value;
    // whole nanoseconds, and atoms of the distribution, have no interval
    if off.abs() <= 1.0 {
        return Some(0.0);
    }
    let half = if off > 0.0 { hi - value } else { value - lo };
    Some(off.abs() / (half.max(1.0) / 1.96))
}

#[test]
fn ideal_quantiles_are_the_exact_ones_of_m_d_c() {
    let (mut supported, mut covered, mut worst) = (0, 0, 0.0_f64);
    for (row, exact) in table().iter().enumerate() {
        let series = sojourns(exact, 1_000 + row as u64);
        let at = format!("M/D/{} at {}", exact.workers, exact.load);

        // P(W > 0); at c = 1 and load 0.5 it is one half, so the median is not well defined there
        let waits = series.iter().filter(|x| **x > SERVICE).count() as f64 / REQUESTS as f64;
        let inflation = variance_inflation(&series, &[(0.5, SERVICE)])[0];
        let error = (exact.waits * (1.0 - exact.waits) * inflation / REQUESTS as f64).sqrt();
        let off = (waits - exact.waits).abs() / error;
        assert!(off <= 4.0, "{at}: P(wait) is off by {off} standard errors");

        let distribution = distribution_of(&series);
        for (q, truth_us) in &exact.quantiles_us {
            if (exact.workers, exact.load, *q) == (1, 0.5, 0.5) {
                continue;
            }
            let found = distribution.quantiles.iter().find(|x| x.q == *q).unwrap();
            let Some(z) = z(found, truth_us * 1e3) else {
                continue;
            };
            assert!(
                z <= 4.0,
                "{at}: p{q} is off by {z} standard errors: {found:?}"
            );
            if z > 1.96 {
                println!("{at}: p{q} off by {z:.2} errors of {truth_us}: {found:?}");
            }
            supported += 1;
            covered += u32::from(z <= 1.96);
            worst = worst.max(z);
        }
    }
    println!("{supported} quantiles, {covered} in their 95 % interval, worst {worst:.2} errors");
    assert!(supported >= 75, "only {supported} quantiles could be told");
    assert!(covered * 100 >= supported * 88, "{covered} of {supported}");
}
