//! Two configurations, each started several times in turn: what differs between starts is the error.
//!
//! A measurement of one start knows how precise it is, and not what the next start would say: where the server's
//! memory lies, how connections fall on its workers, what else runs. So a start is the unit, each of its percentiles
//! is one number, and the pair of two starts one after the other is what is compared. The order within a pair is
//! drawn, so a change that does nothing makes either of them the faster one equally often
//! ([`exchange`](crate::exchange)), whatever the distribution of the starts is.

use taillab_model::compare::StartsAt;
use taillab_model::{Distribution, Nanos, REPORTED_QUANTILES};
use taillab_queueing::random::lanes::split_mix;

use crate::exchange::{ExchangeTest, Figure, Side, WAYS, Ways, signs};
use taillab_model::interval::{Estimate, FEWEST_FOR_MEDIAN, median};

/// Fewer starts of each decide nothing, however much they differ.
pub const FEWEST_STARTS: usize = FEWEST_FOR_MEDIAN;

/// The probability that a change that does nothing is found to be lower or higher at any percentile.
pub const LEVEL: f64 = 0.05;

/// For each pair of starts, whether the second configuration is started first.
pub fn order(seed: u64, pairs: usize) -> Vec<bool> {
    let mut state = seed;
    (0..pairs).map(|_| split_mix(&mut state) & 1 == 1).collect()
}

/// What differs by name: the percentile, and whether each pair only says which of its two starts was faster.
type Name = (usize, bool);

/// The percentiles that all starts know, compared: what each pair of starts measured, before and after.
pub fn judge(pairs: &[(Distribution, Distribution)]) -> Vec<StartsAt> {
    let mut found: Vec<(StartsAt, Vec<f64>)> = (REPORTED_QUANTILES.into_iter())
        .filter_map(|q| at(q, pairs))
        .collect();
    let numbers: Vec<usize> = (0..pairs.len()).collect();
    let ways = Ways::of(&numbers);
    let mut figures: Vec<Figure<Name>> = Vec::new();
    for (place, (_, logarithms)) in found.iter().enumerate() {
        for (is_sign, values) in [
            (false, sums(logarithms, &ways)),
            (true, signs(logarithms, &ways)),
        ] {
            let name = (place, is_sign);
            figures.push(Figure { name, values });
        }
    }
    let mut test = ExchangeTest::new(LEVEL);
    test.look(&figures, 1.0);
    for (place, (at, _)) in found.iter_mut().enumerate() {
        let is_proven = |side| test.proven(side).iter().any(|(of, _)| *of == place);
        at.is_lower = is_proven(Side::Better);
        at.is_higher = is_proven(Side::Worse);
    }
    found.into_iter().map(|(at, _)| at).collect()
}

/// The starts at a percentile, and the logarithm of each pair's ratio; `None` where a start does not know it.
fn at(q: f64, pairs: &[(Distribution, Distribution)]) -> Option<(StartsAt, Vec<f64>)> {
    let both =
        |(before, after): &(Distribution, Distribution)| before.quantile(q).zip(after.quantile(q));
    let known: Option<Vec<(Nanos, Nanos)>> = pairs.iter().map(both).collect();
    let (before, after): (Vec<Nanos>, Vec<Nanos>) = known?.into_iter().unzip();
    let logarithm = |(before, after): (&Nanos, &Nanos)| {
        let ratio = after.get() as f64 / before.get() as f64;
        Some(ratio.ln()).filter(|ln| ln.is_finite())
    };
    let logarithms: Option<Vec<f64>> = before.iter().zip(&after).map(logarithm).collect();
    let logarithms = logarithms?;
    let Estimate { value, lo, hi } = median(&logarithms)?.exp();
    let at = StartsAt {
        q,
        before_ns: before,
        after_ns: after,
        ratio: value,
        lo,
        hi,
        is_lower: false,
        is_higher: false,
    };
    Some((at, logarithms))
}

/// The sum of these logarithms in each way to exchange the starts of some pairs.
fn sums(logarithms: &[f64], ways: &Ways) -> Vec<f64> {
    let sum = |way| {
        let exchanged = logarithms.iter().zip(ways.exchanged(way));
        let signed = exchanged.map(|(ln, exchanged)| if exchanged == 1 { -ln } else { *ln });
        signed.sum()
    };
    (0..WAYS).map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distribution of a start whose requests take these nanoseconds, all of them `times` as long.
    fn start(times: f64) -> Distribution {
        let of = |i: u64| Nanos::new(((20_000 + 7 * i) as f64 * times) as u64);
        let sorted: Vec<Nanos> = (0..2_000).map(of).collect();
        Distribution::from_sorted(&sorted)
    }

    /// The natural logarithm of how slow a start is, from a normal distribution: twelve uniform numbers less their mean.
    fn drawn(state: &mut u64, spread: f64) -> f64 {
        let uniform = |state: &mut u64| (split_mix(state) >> 11) as f64 / (1_u64 << 53) as f64;
        let sum: f64 = (0..12).map(|_| uniform(state)).sum();
        (spread * (sum - 6.0)).exp()
    }

    /// Starts that differ by 10 %, and pairs of which the second has `factor` of the first.
    fn trial(seed: u64, pairs: usize, factor: f64) -> Vec<StartsAt> {
        let mut state = seed;
        let pair = |_| {
            let before = start(drawn(&mut state, 0.1));
            let after = start(factor * drawn(&mut state, 0.1));
            (before, after)
        };
        judge(&(0..pairs).map(pair).collect::<Vec<_>>())
    }

    /// Each of two single runs has an interval of 1 %, so nine of ten pairs of runs that are the same would be called
    /// different by them. Here it is at most 5 % of the trials, with the interval holding in at least 93 %.
    #[test]
    fn starts_of_the_same_are_rarely_called_different_and_the_interval_holds() {
        const TRIALS: u64 = 300;
        let (mut different, mut held, mut single) = (0, 0, 0);
        for seed in 0..TRIALS {
            let found = trial(seed, 8, 1.0);
            different += u64::from(found.iter().any(|at| at.is_lower || at.is_higher));
            held += u64::from(found[0].lo <= 1.0 && 1.0 <= found[0].hi);
            let ratio = found[0].after_ns[0].get() as f64 / found[0].before_ns[0].get() as f64;
            single += u64::from((ratio - 1.0).abs() > 0.02);
        }
        println!("{different} {held} {single} of {TRIALS}");
        assert!(different as f64 <= 0.075 * TRIALS as f64, "{different}");
        assert!(held as f64 >= 0.92 * TRIALS as f64, "{held}");
        assert!(single as f64 > 0.7 * TRIALS as f64, "{single}");
    }

    #[test]
    fn a_difference_well_above_that_between_starts_is_found() {
        let found = |factor: f64| (0..40).map(move |seed| trial(seed, 8, factor));
        let lower = found(0.7).filter(|at| at[0].is_lower).count();
        let higher = found(1.0 / 0.7).filter(|at| at[0].is_higher).count();
        assert!(lower >= 36 && higher >= 36, "{lower} {higher}");
        assert!(found(0.7).all(|at| !at[0].is_higher));
    }

    #[test]
    fn six_starts_of_each_can_prove_it_and_five_say_nothing() {
        let six = trial(1, 6, 0.3);
        assert!(six[0].is_lower && six[0].hi < 1.0, "{six:?}");
        assert!(trial(1, 5, 0.3).is_empty());
        // 2,000 requests show no p99.99
        assert!(six.iter().all(|at| at.q < 0.9999), "{six:?}");
        let mut half: Vec<_> = (0..6).map(|_| (start(1.0), start(1.0))).collect();
        half[3].1 = Distribution::from_sorted(&[]);
        assert!(judge(&half).is_empty());
    }

    #[test]
    fn the_order_of_pairs_is_drawn_and_can_be_repeated() {
        let all = order(7, 400);
        assert_eq!(all, order(7, 400));
        assert_ne!(all, order(8, 400));
        let first = all.iter().filter(|second| **second).count();
        assert!((150..250).contains(&first), "{first}");
    }
}
