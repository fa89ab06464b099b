//! Compares the sends with their schedule, for processes whose gaps have no distribution to test
//! against: bursts, steps, recorded traces.
//!
//! The schedule is itself a sample of the process, and the sends are the same requests: where they
//! differ, the client is the cause, not chance. So the two-sample distances are reported, but
//! single gaps are not judged (the equal gaps of a constant rate would fail by a nanosecond). The
//! dispersion of the counts is judged, window by window.

use taillab_model::summary::{ArrivalsReference, ArrivalsVerdict};
use taillab_model::{Monotonic, Nanos};

use super::SHORTEST_WINDOW;
use super::gaps::{
    ANDERSON_DARLING_CRITICAL, coefficient_of_variation, dispersion, index_of_dispersion,
    sorted_gaps, sorted_ns,
};

/// Judges the times at which requests were sent against those at which they were due.
///
/// `passed`: the two-sample Kolmogorov–Smirnov distance of the gaps is within the 5 % point. That
/// point is for independent samples and is generous for these. Neither series need be sorted.
pub fn schedule_verdict(
    process: &str,
    intended: impl IntoIterator<Item = Monotonic>,
    sends: impl IntoIterator<Item = Monotonic>,
) -> ArrivalsVerdict {
    let (planned_ns, sent_ns) = (sorted_ns(intended), sorted_ns(sends));
    let (planned, sent) = (sorted_gaps(&planned_ns), sorted_gaps(&sent_ns));
    let (ks_d, ad_a2) = two_samples(&planned, &sent);
    let ks_critical = two_sample_critical(planned.len(), sent.len());
    ArrivalsVerdict {
        process: process.to_owned(),
        reference: ArrivalsReference::Schedule,
        cv: coefficient_of_variation(&sent),
        ks_d,
        ks_critical,
        ad_a2,
        ad_critical: ANDERSON_DARLING_CRITICAL,
        idc: dispersion(&sent_ns, SHORTEST_WINDOW, |window, _| {
            index_of_dispersion(&planned_ns, window)
        }),
        passed: !sent.is_empty() && ks_d <= ks_critical,
        dead_time: None,
    }
}

/// The distance that 5 % of pairs of independent samples of one distribution exceed
/// (Smirnov 1939): 1.358 √(1/n + 1/m); 1 without gaps.
fn two_sample_critical(n: usize, m: usize) -> f64 {
    if n == 0 || m == 0 {
        return 1.0;
    }
    (1.358 * (1.0 / n as f64 + 1.0 / m as f64).sqrt()).min(1.0)
}

/// The Kolmogorov–Smirnov and the Anderson–Darling distance of two sorted samples.
///
/// Anderson and Darling's is the k-sample statistic with mid-ranks for ties of Scholz and
/// Stephens (1987, JASA 82, equation 7) for k = 2; its limit is that of one sample
/// (Pettitt 1976, Biometrika 63), so the 5 % point is the same.
fn two_samples(a: &[Nanos], b: &[Nanos]) -> (f64, f64) {
    if a.is_empty() || b.is_empty() {
        return (1.0, 0.0);
    }
    let (n, m) = (a.len() as f64, b.len() as f64);
    let all = n + m;
    let (mut i, mut j) = (0, 0);
    let (mut ks, mut sum) = (0.0_f64, 0.0);
    while i < a.len() || j < b.len() {
        let next = |of: &[Nanos], at: usize| of.get(at).copied().unwrap_or(Nanos::MAX);
        let value = next(a, i).min(next(b, j));
        let tied = |of: &[Nanos], at: usize| of[at..].iter().take_while(|x| **x == value).count();
        let (of_a, of_b) = (tied(a, i), tied(b, j));
        let here = (of_a + of_b) as f64;
        let below_a = i as f64 + of_a as f64 / 2.0;
        let below = (i + j) as f64 + here / 2.0;
        let spread = below * (all - below) - all * here / 4.0;
        if spread > 0.0 {
            // the second sample deviates as much, in the other direction
            let deviation = all * below_a - n * below;
            sum += here * deviation * deviation / spread * (1.0 / n + 1.0 / m);
        }
        (i, j) = (i + of_a, j + of_b);
        ks = ks.max((i as f64 / n - j as f64 / m).abs());
    }
    (ks, sum * (all - 1.0) / (all * all))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::{Distribution, Exp1};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns)
    }

    fn gaps(n: usize, seed: u64) -> Vec<Nanos> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut gaps: Vec<Nanos> = (0..n)
            .map(|_| {
                let gap: f64 = Exp1.sample(&mut rng);
                Nanos::new((gap * 50_000.0) as u64)
            })
            .collect();
        gaps.sort_unstable();
        gaps
    }

    /// By hand: {1, 3} against {2, 3}. D = ½ after the first value. Mid-ranks: at 1 (h 1)
    /// M 0.5, B 0.5; at 2 (h 1) M 1, B 1.5; at 3 (h 2) M 1.5, B 3. With N 4, n = m = 2:
    /// deviations 4·.5 − 2·.5 = 1, 4 − 3 = 1, 6 − 6 = 0; spreads .5·3.5 − 1 = .75 and
    /// 1.5·2.5 − 1 = 2.75; A² = ¾·¼·(1/.75 + 1/2.75)·(½ + ½) = .318182 — where the two
    /// samples' terms, ½ each, make the last factor.
    #[test]
    fn four_gaps_agree_with_a_calculation_by_hand() {
        let (ks, ad) = two_samples(&[1, 3].map(Nanos::new), &[2, 3].map(Nanos::new));
        assert!((ks - 0.5).abs() < 1e-12);
        assert!((ad - 0.318_181_818).abs() < 1e-8);
    }

    /// Independent samples of one distribution fail in 5 % of seeds, by both tests.
    #[test]
    fn samples_of_one_distribution_pass_in_95_percent_of_seeds() {
        let seeds = 1_000;
        let (mut ks, mut ad) = (0, 0);
        for seed in 0..seeds {
            let (d, a2) = two_samples(&gaps(400, seed), &gaps(300, seed + 1_000_000));
            ks += u32::from(d <= two_sample_critical(400, 300));
            ad += u32::from(a2 <= ANDERSON_DARLING_CRITICAL);
        }
        let bound = 4.0 * (0.05 * 0.95 / seeds as f64).sqrt();
        for passed in [ks, ad] {
            let share = f64::from(passed) / seeds as f64;
            assert!((share - 0.95).abs() < bound, "{share}");
        }
    }

    /// Bursts that the schedule planned are no fault; bursts that the client made are.
    #[test]
    fn only_the_clients_own_bursts_are_foreign() {
        let length = Nanos::from_secs(4);
        // 40 at once every 2 ms
        let bursty: Vec<Monotonic> = (0..80_000_u64)
            .map(|k| at(1_000_000_000 + k / 40 * 2_000_000 + k % 40 * 500))
            .collect();
        let as_planned = schedule_verdict("trace", bursty.clone(), bursty.clone());
        assert!(as_planned.passed && as_planned.ks_d == 0.0);
        let ms = |v: &ArrivalsVerdict| v.idc[4].value.unwrap();
        assert!(ms(&as_planned) > 5.0);
        assert_eq!(as_planned.foreign_bursts(length), None);

        let even: Vec<Monotonic> = (0..80_000_u64)
            .map(|k| at(1_000_000_000 + k * 50_000))
            .collect();
        let bursts_of_the_client = schedule_verdict("deterministic", even, bursty);
        assert!(!bursts_of_the_client.passed);
        let foreign = bursts_of_the_client.foreign_bursts(length).unwrap();
        // 20 of the 500 ns apart are in the shortest window
        assert_eq!(foreign.window_ns, SHORTEST_WINDOW);
        assert!(foreign.expected.unwrap() < 1.0 && foreign.value.unwrap() > 5.0);
    }

    #[test]
    fn without_sends_nothing_passes() {
        let verdict = schedule_verdict("trace", [], []);
        assert!(!verdict.passed && verdict.ks_d == 1.0 && verdict.cv == 0.0);
        assert!(
            verdict
                .idc
                .iter()
                .all(|at| at.value.is_none() && at.expected.is_none())
        );
    }
}
