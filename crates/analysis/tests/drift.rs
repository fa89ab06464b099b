//! Do the intervals contain the true quantile when the capacity drifts during the run?
//!
//! Sojourns of an M/D/1 queue at load 0.7 whose service takes 200 µs times a factor that drifts, for 20 s:
//! 70,000 requests. The example `drift` does the same with more runs, kinds and lengths, and computes the
//! true quantiles; its table is in `docs/notes/intervals.md`.

use rand::SeedableRng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::statistics::distribution_of;
use taillab_model::Nanos;

/// The quantiles that are judged.
pub(crate) const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// How the capacity changes; shares are of the service time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drift {
    /// Not at all.
    None,
    /// Drawn anew every 2 s, with this standard deviation.
    Steps(f64),
    /// It rises evenly from this much below the mean to as much above.
    Trend(f64),
    /// Autoregressive, with this standard deviation and this correlation time in seconds.
    Correlated(f64, f64),
}

const SERVICE_NS: f64 = 200_000.0;
const LOAD: f64 = 0.7;
/// The time before the measurement.
const WARM_UP_NS: f64 = 5e8;

/// Sojourns in order of the arrivals.
pub(crate) fn sojourns(rng: &mut Xoshiro256PlusPlus, drift: Drift, seconds: f64) -> Vec<Nanos> {
    let end_ns = seconds * 1e9;
    let (mut at_ns, mut free_ns, mut changes_ns) = (-WARM_UP_NS, -WARM_UP_NS, -WARM_UP_NS);
    let normal = |rng: &mut Xoshiro256PlusPlus| -> f64 { StandardNormal.sample(rng) };
    let mut state = normal(rng);
    let (mut factor, mut sojourns) = (1.0, Vec::new());
    loop {
        let gap: f64 = Exp1.sample(rng);
        at_ns += gap * SERVICE_NS / LOAD;
        if at_ns >= end_ns {
            return sojourns;
        }
        while at_ns >= changes_ns {
            let (next, for_s): (f64, f64) = match drift {
                Drift::None => (0.0, 1e9),
                Drift::Steps(deviation) => (deviation * normal(rng), 2.0),
                Drift::Trend(most) => (most * (2.0 * at_ns.max(0.0) / end_ns - 1.0), 0.01),
                Drift::Correlated(deviation, length_s) => {
                    let kept = (-0.1 / length_s).exp();
                    state = kept * state + (1.0 - kept * kept).sqrt() * normal(rng);
                    (deviation * state, 0.1)
                }
            };
            factor = (1.0 + next).clamp(0.5, 1.3);
            changes_ns += for_s * 1e9;
        }
        free_ns = f64::max(free_ns, at_ns) + SERVICE_NS * factor;
        if at_ns >= 0.0 {
            sojourns.push(Nanos::new((free_ns - at_ns) as u64));
        }
    }
}

/// How good the intervals of some runs were, at one quantile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coverage {
    /// Runs whose interval contains the true quantile, or that do not know it.
    pub(crate) held: u32,
    /// Runs that know the quantile.
    pub(crate) known: u32,
    /// Those of them whose interval has no upper end.
    pub(crate) open: u32,
}

/// The result at each of [`QUANTILES`], whose true values are `truth_ns`, over runs with these seeds.
pub(crate) fn judge(
    drift: Drift,
    seconds: f64,
    truth_ns: [f64; 3],
    seeds: std::ops::Range<u64>,
) -> [Coverage; 3] {
    let mut all = [Coverage::default(); 3];
    for seed in seeds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let distribution = distribution_of(&sojourns(&mut rng, drift, seconds));
        for ((of, q), truth_ns) in all.iter_mut().zip(QUANTILES).zip(truth_ns) {
            let quantile = distribution.at(q).unwrap();
            let end = |end: Option<Nanos>, none: f64| end.map_or(none, |end| end.get() as f64);
            let within = end(quantile.lo, 0.0)..=end(quantile.hi, f64::INFINITY);
            of.held += u32::from(within.contains(&truth_ns));
            of.known += u32::from(quantile.value.is_some());
            of.open += u32::from(quantile.value.is_some() && quantile.hi.is_none());
        }
    }
    all
}

/// None of the seeds of these runs was used to choose the method.
const RUNS: u32 = 120;

/// The intervals contain the truth in at least 90 % of the runs, and at least `known` runs know the
/// percentiles.
fn hold(drift: Drift, truth_ns: [f64; 3], known: [u32; 3]) {
    let found = judge(drift, 20.0, truth_ns, 50_000..50_000 + u64::from(RUNS));
    println!("{drift:?}: {found:?}");
    for ((of, q), known) in found.into_iter().zip(QUANTILES).zip(known) {
        assert!(of.held * 100 >= 90 * RUNS, "{drift:?}: {q}: {of:?}");
        assert!(of.known >= known, "{drift:?}: {q}: {of:?}");
    }
}

#[test]
fn without_a_drift_every_percentile_is_known() {
    hold(
        Drift::None,
        [346_016.0, 1_496_352.0, 2_174_112.0],
        [RUNS; 3],
    );
}

#[test]
fn of_a_capacity_that_changes_every_two_seconds() {
    let truth = [345_824.0, 1_511_392.0, 2_208_480.0];
    hold(Drift::Steps(0.02), truth, [RUNS, RUNS, 118]);
    let truth = [344_800.0, 1_593_952.0, 2_406_624.0];
    hold(Drift::Steps(0.05), truth, [RUNS, RUNS, 115]);
    // only the slow segments decide p99.9, and a run has one of them or none
    let truth = [342_240.0, 1_965_792.0, 3_437_920.0];
    hold(Drift::Steps(0.1), truth, [RUNS, 118, 50]);
}

#[test]
fn of_a_capacity_that_changes_smoothly() {
    let truth = [345_504.0, 1_527_648.0, 2_248_224.0];
    hold(Drift::Trend(0.05), truth, [RUNS, RUNS, 115]);
    let truth = [344_288.0, 1_592_928.0, 2_408_480.0];
    hold(Drift::Correlated(0.05, 1.0), truth, [RUNS, RUNS, 115]);
}
