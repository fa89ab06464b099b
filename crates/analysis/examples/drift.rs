//! How often the intervals contain the true quantile when the capacity drifts: the table in
//! `docs/notes/intervals.md`.
//!
//! `cargo run --release -p taillab-analysis --example drift [-- SECONDS [RUNS [FIRST SEED]]]`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/drift.rs"]
mod drift;

use drift::{Drift, QUANTILES, judge, sojourns};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::Histogram;

/// The true quantiles are those of the requests of this many runs together.
const TRUE_RUNS: u64 = 2_000;

fn main() {
    let given: Result<Vec<u64>, _> = std::env::args().skip(1).map(|n| n.parse()).collect();
    let Ok(given) = given else {
        eprintln!("usage: drift [SECONDS [RUNS [FIRST SEED]]], e.g. drift 20 400 900000");
        std::process::exit(2);
    };
    let number = |place: usize, otherwise| given.get(place).copied().unwrap_or(otherwise);
    let (seconds, runs, first) = (number(0, 20) as f64, number(1, 400), number(2, 900_000));
    println!("{seconds} s, {runs} runs from seed {first}: held, known, open at p50, p99, p99.9");
    for drift in [
        Drift::None,
        Drift::Steps(0.02),
        Drift::Steps(0.05),
        Drift::Steps(0.1),
        Drift::Trend(0.05),
        Drift::Trend(0.1),
        Drift::Correlated(0.05, 0.5),
        Drift::Correlated(0.05, 1.0),
        Drift::Correlated(0.1, 1.0),
        Drift::Correlated(0.05, 2.0),
    ] {
        let truth_ns = truth_ns(drift, seconds);
        let shares = judge(drift, seconds, truth_ns, first..first + runs).map(|of| {
            let share = |count: u32| f64::from(count) / runs as f64;
            let (held, known, open) = (share(of.held), share(of.known), share(of.open));
            format!("{held:.3} {known:.2} {open:.2}")
        });
        println!("{drift:?} | {} | {truth_ns:.0?} ns", shares.join(" | "));
    }
}

/// The true quantiles, in nanoseconds.
fn truth_ns(drift: Drift, seconds: f64) -> [f64; 3] {
    let mut all = Histogram::default();
    for seed in 0..TRUE_RUNS {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64((1 << 40) + seed);
        all.record_all(&sojourns(&mut rng, drift, seconds));
    }
    let ranked = all.ranked();
    QUANTILES.map(|q| {
        let rank = (q * all.count() as f64) as u64;
        ranked.at(rank).unwrap().middle.get() as f64
    })
}
