//! Fan-out: a request that is done when the last of its N independent parts is done.
//!
//! The largest of N independent sojourns with the distribution F has the distribution Fᴺ, so its quantile
//! at q is that of F at q^{1/N}: the p99 of 100 parts is about the p99.99 of one (Dean and Barroso 2013,
//! *The tail at scale*). Everything here works with upper probabilities 1 − F, which keep their digits for
//! any N. Parts that share their arrivals are not independent; they need a simulation of the fork-join.

use taillab_model::{Nanos, Quantile, quantile_ranks};

/// P(one > x) from p = P(the largest of `parts` > x): 1 − (1 − p)^{1/N}, without cancellation.
pub fn one_upper_probability(parts: u32, largest: f64) -> f64 {
    -((-largest).ln_1p() / f64::from(parts)).exp_m1()
}

/// The quantile of the largest of `parts` at `q`, with its interval, from a sample of one part, whose
/// observations `at` gives by their rank, the smallest first.
///
/// `inflation` is the factor (≥ 1) by which correlation multiplies the variance of the
/// share of observations below a quantile; 1 for independent observations.
/// `None` if there is no part, if `q` is not in (0, 1), or if the sample does not support the quantile.
pub fn largest(
    observations: u64,
    parts: u32,
    q: f64,
    inflation: f64,
    at: impl Fn(u64) -> Nanos,
) -> Option<Quantile> {
    let ranks = quantile_ranks(observations, one_level(parts, q)?, inflation)?;
    Some(Quantile {
        q,
        value: Some(at(ranks.value)),
        lo: Some(at(ranks.lo)),
        hi: ranks.hi.map(at),
    })
}

/// The quantile of one part that equals the quantile `q` of the largest.
fn one_level(parts: u32, q: f64) -> Option<f64> {
    (parts > 0 && q > 0.0 && q < 1.0).then(|| (q.ln() / f64::from(parts)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use taillab_model::{Histogram, quantile_need};

    fn of_sorted(sorted: &[Nanos], parts: u32, q: f64) -> Option<Quantile> {
        largest(sorted.len() as u64, parts, q, 1.0, |rank| {
            sorted[rank as usize]
        })
    }

    #[test]
    fn the_p99_of_a_hundred_is_about_the_p9999_of_one() {
        let p = one_upper_probability(100, 0.01);
        assert!((p / 1.005e-4 - 1.0).abs() < 1e-4, "{p}");
        // 10,000 parts at p99.9999: as 1 − q the probability would keep six digits
        let far = one_upper_probability(10_000, 1e-6);
        assert!((far / 1e-10 - 1.0).abs() < 1e-6, "{far:e}");
    }

    proptest! {
        #[test]
        fn the_two_probabilities_are_inverse(parts in 1_u32..=10_000, log_p in -30.0_f64..-0.01) {
            let p = log_p.exp();
            let one = one_upper_probability(parts, p);
            let back = -(f64::from(parts) * (-one).ln_1p()).exp_m1();
            prop_assert!((back / p - 1.0).abs() < 1e-12, "{} {}", p, back);
        }

        #[test]
        fn a_histogram_and_its_sample_agree(
            values in prop::collection::vec(1_u64..50, 2_000),
            parts in 1_u32..20,
        ) {
            let mut sorted: Vec<Nanos> = values.iter().copied().map(Nanos::new).collect();
            sorted.sort_unstable();
            let mut histogram = Histogram::default();
            histogram.record_all(&sorted);
            let ranked = histogram.ranked();
            let at = |rank| ranked.at(rank).map_or(Nanos::ZERO, |cell| cell.middle);
            for q in [0.1, 0.5, 0.9, 0.99] {
                prop_assert_eq!(
                    of_sorted(&sorted, parts, q),
                    largest(histogram.count(), parts, q, 1.0, at)
                );
            }
        }
    }

    #[test]
    fn what_a_sample_needs_is_just_enough() {
        let sample: Vec<Nanos> = (1..=10_000).map(Nanos::new).collect();
        assert_eq!(of_sorted(&sample, 100, 0.99), None);
        let needed = quantile_need(one_level(100, 0.99).unwrap());
        // about 3.84 observations above the p99.99 of one
        assert!((38_000..60_000).contains(&needed), "{needed}");
        let enough: Vec<Nanos> = (1..=needed).map(Nanos::new).collect();
        assert!(of_sorted(&enough, 100, 0.99).is_some());
        assert_eq!(of_sorted(&enough[1..], 100, 0.99), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for (parts, q) in [(0, 0.5), (3, 1.0), (3, f64::NAN)] {
            assert_eq!(of_sorted(&[], parts, q), None);
            assert_eq!(one_level(parts, q), None);
        }
        assert_eq!(of_sorted(&[], 3, 0.5), None);
    }
}
