//! The effect of a change, from measurements without and with it in turn.
//!
//! On a shared machine, measurements some minutes apart differ by more than the effect of most changes.
//! So the two conditions are measured in pairs of neighbouring blocks, in an order drawn at random for
//! each pair. Drift is common to both blocks of a pair and cancels (Bulej et al., *Duet Benchmarking*,
//! ICPE 2020). The bootstrap for the interval draws pairs, not requests, so the interval holds for any
//! correlation within a block.

use taillab_model::Nanos;
pub use taillab_model::interval::Estimate as PairedEstimate;
use taillab_model::interval::{median, student_975};
use taillab_queueing::random::lanes::{GOLDEN, mix};

use crate::exchange::{WAYS, Ways, signs};
use crate::replay::BlockHistogram;

/// Draws of the bootstrap.
const DRAWS: u64 = 400;

/// Fewer pairs than this give no interval.
pub const MIN_PAIRS: usize = 5;

/// A quantile with fewer requests beyond it is not reported.
pub(crate) const FEWEST_BEYOND: f64 = 10.0;

/// Sojourns of pairs of blocks.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    before: BlockHistogram,
    after: BlockHistogram,
}

impl Pairs {
    /// Adds a pair: the sojourns without and with the change.
    pub fn push(
        &mut self,
        before: impl IntoIterator<Item = Nanos>,
        after: impl IntoIterator<Item = Nanos>,
    ) {
        self.before.push_block(before);
        self.after.push_block(after);
    }

    /// The number of pairs.
    pub fn count(&self) -> usize {
        self.before.blocks()
    }

    /// The quantile `q` over all blocks without and with the change; `None` where one of them has
    /// no requests.
    pub fn quantiles(&self, q: f64) -> Option<(Nanos, Nanos)> {
        let of = |blocks: &BlockHistogram| Some(Nanos::new(blocks.all().quantile_ns(q)? as u64));
        Some((of(&self.before)?, of(&self.after)?))
    }

    /// The quantile `q` with the change ÷ that without it; below 1 is an improvement.
    ///
    /// The interval is ± Student's t times the bootstrap's standard error of the ratio's logarithm,
    /// widened by √(n/(n−1)) for what the bootstrap lacks in small samples (Hesterberg 2015, *What
    /// Teachers Should Know About the Bootstrap*, section 4). `None` with fewer than [`MIN_PAIRS`], or
    /// where one of the conditions has fewer than ten requests beyond the quantile.
    pub fn ratio(&self, q: f64) -> Option<PairedEstimate> {
        if !self.supports(q) {
            return None;
        }
        let (before, after) = (self.before.cumulative(), self.after.cumulative());
        let of = |times: &[u32]| {
            let before = before.quantile_ns(times, q)?;
            let after = after.quantile_ns(times, q)?;
            (before > 0.0 && after > 0.0).then(|| (after / before).ln())
        };
        bootstrapped(self.count(), of).map(PairedEstimate::exp)
    }

    /// Whether there are enough pairs, and enough requests beyond the quantile.
    fn supports(&self, q: f64) -> bool {
        let beyond = |blocks: &BlockHistogram| (1.0 - q) * blocks.all().total() as f64;
        self.count() >= MIN_PAIRS && beyond(&self.before).min(beyond(&self.after)) >= FEWEST_BEYOND
    }

    /// The quantile `q` of each pair's blocks, without and with the change; `None` where one of them has
    /// fewer than ten requests beyond it.
    pub fn by_pair(&self, q: f64) -> Option<Vec<(Nanos, Nanos)>> {
        let of = |blocks: &BlockHistogram, pair: usize| {
            let mut times = vec![0; self.count()];
            times[pair] = 1;
            let block = blocks.weighted(&times);
            let is_enough = (1.0 - q) * block.total() as f64 >= FEWEST_BEYOND;
            Some(Nanos::new(
                block.quantile_ns(q).filter(|_| is_enough)? as u64
            ))
        };
        (0..self.count())
            .map(|pair| Some((of(&self.before, pair)?, of(&self.after, pair)?)))
            .collect()
    }

    /// The ratio of the quantile `q` in a typical pair: the median over the pairs, with the interval of the sign
    /// test (Hollander, Wolfe and Chicken 2014, *Nonparametric Statistical Methods*, sections 3.5 and 3.6).
    ///
    /// A burst of the machine that falls into one block of nine decides [`Self::ratio`] and hardly moves this.
    /// An effect that occurs in fewer than half of the pairs does not show here. The order of a pair's blocks
    /// is drawn at random, so a change that does nothing makes either block the faster one equally often, and
    /// the test holds for any distribution. `None` with fewer than six pairs, which have no interval of 95 %,
    /// or where [`Self::by_pair`] is `None`.
    pub fn typical(&self, q: f64) -> Option<PairedEstimate> {
        median(&self.logarithms(q)?).map(PairedEstimate::exp)
    }

    /// The logarithm of each pair's ratio; `None` where [`Self::by_pair`] is `None`.
    fn logarithms(&self, q: f64) -> Option<Vec<f64>> {
        let ratios = self.by_pair(q)?.into_iter().map(|(before, after)| {
            let ratio = after.get() as f64 / before.get() as f64;
            ratio.ln().is_finite().then(|| ratio.ln())
        });
        ratios.collect()
    }

    /// The logarithm of [`Self::ratio`] in each of the [`WAYS`] to exchange the blocks of pairs, which have these
    /// `numbers` in their trial. `None` where [`Self::ratio`] is `None`.
    pub fn exchanged_ratios(&self, q: f64, numbers: &[usize]) -> Option<Vec<f64>> {
        if !self.supports(q) {
            return None;
        }
        let (before, after) = (self.before.cumulative(), self.after.cumulative());
        let ways = Ways::of(numbers);
        let ratio = |way| {
            let exchanged: Vec<u32> = ways.exchanged(way).collect();
            let stay: Vec<u32> = exchanged.iter().map(|one| 1 - one).collect();
            let changed = after.quantile_with_ns(&stay, (&before, &exchanged), q)?;
            let unchanged = before.quantile_with_ns(&stay, (&after, &exchanged), q)?;
            Some((changed / unchanged).ln()).filter(|ratio| ratio.is_finite())
        };
        // a quantile beyond all bins says nothing on either side
        Some((0..WAYS).map(|way| ratio(way).unwrap_or(0.0)).collect())
    }

    /// How many pairs' own ratios are above 1, less those below, in each of these ways: what a typical pair says. `None` where
    /// [`Self::by_pair`] is `None`.
    pub fn exchanged_signs(&self, q: f64, numbers: &[usize]) -> Option<Vec<f64>> {
        Some(signs(&self.logarithms(q)?, &Ways::of(numbers)))
    }
}

/// A statistic of `n` units (pairs, rounds) with its interval. `of` computes it for a sample, given how
/// often each unit is in it.
pub(crate) fn bootstrapped(n: usize, of: impl Fn(&[u32]) -> Option<f64>) -> Option<PairedEstimate> {
    let value = of(&vec![1; n])?;
    let half = half_width((0..DRAWS).filter_map(|draw| of(&drawn(draw, n))), n)?;
    Some(PairedEstimate {
        value,
        lo: value - half,
        hi: value + half,
    })
}

/// The ratio Σ `numerator` ÷ Σ `denominator` over pairs, with an interval like that of
/// [`Pairs::ratio`], but not of the logarithm, since a sum of differences can be negative. `None`
/// with fewer than [`MIN_PAIRS`] or where the denominators sum to 0.
pub fn ratio_of_sums(pairs: &[(f64, f64)]) -> Option<PairedEstimate> {
    let n = pairs.len();
    let of = |times: &[u32]| {
        let weighted = pairs.iter().zip(times);
        let (above, below) = weighted.fold((0.0, 0.0), |(above, below), (pair, times)| {
            let times = f64::from(*times);
            (above + times * pair.0, below + times * pair.1)
        });
        let ratio: f64 = above / below;
        ratio.is_finite().then_some(ratio)
    };
    if n < MIN_PAIRS {
        return None;
    }
    bootstrapped(n, of)
}

/// Whether the changed condition comes first in a pair: drawn at random, in exactly one of every two pairs.
pub fn changed_first(seed: u64, pair: u64) -> bool {
    // the second of two pairs takes the other order, so no seed always puts the same condition first
    (hash(seed, pair / 2) & 1 == 1) ^ !pair.is_multiple_of(2)
}

/// How often draw number `draw` has each of `n` pairs.
fn drawn(draw: u64, n: usize) -> Vec<u32> {
    let mut times = vec![0; n];
    for place in 0..n as u64 {
        times[(hash(draw, place) % n as u64) as usize] += 1;
    }
    times
}

/// Half of the interval's width around a statistic with these draws.
fn half_width(draws: impl Iterator<Item = f64>, pairs: usize) -> Option<f64> {
    let draws: Vec<f64> = draws.collect();
    if (draws.len() as u64) < DRAWS / 2 {
        return None;
    }
    let count = draws.len() as f64;
    let mean = draws.iter().sum::<f64>() / count;
    let squares: f64 = draws.iter().map(|draw| (draw - mean).powi(2)).sum();
    let small_sample = (pairs as f64 / (pairs - 1) as f64).sqrt();
    Some(student_975(pairs - 1) * small_sample * (squares / (count - 1.0)).sqrt())
}

/// A random number for each place of each draw.
pub(crate) fn hash(draw: u64, place: u64) -> u64 {
    let z = (draw.wrapping_mul(GOLDEN) ^ (place << 32)).wrapping_add(GOLDEN);
    mix(mix(z))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of a server that is `factor` times as slow as usual: exponential, with bursts in some
    /// blocks that make everything slower.
    fn block(seed: u64, factor: f64) -> Vec<Nanos> {
        let uniform = |place: u64| (hash(seed, place) >> 11) as f64 / (1_u64 << 53) as f64;
        let burst = if uniform(0) < 0.3 { 1.3 } else { 1.0 };
        (1..1_500)
            .map(|place| Nanos::new((-uniform(place).ln() * 1e5 * factor * burst) as u64))
            .collect()
    }

    /// How many of the intervals over `pairs` pairs contain the truth, of 200: of all blocks, and of a
    /// typical pair.
    fn covered(pairs: u64, truth: f64, q: f64) -> [usize; 2] {
        let contains = |trial: u64| {
            let mut all = Pairs::default();
            for pair in 0..pairs {
                let seed = trial * 1_000 + pair * 2;
                // a drift by up to a factor of two between pairs is common to both blocks of a pair
                let drift = 1.0 + (hash(seed, 99_999) >> 11) as f64 / (1_u64 << 53) as f64;
                all.push(block(seed, drift), block(seed + 1, drift * truth));
            }
            let contains = |of: PairedEstimate| of.lo <= truth && truth <= of.hi;
            [all.ratio(q), all.typical(q)].map(|of| of.is_some_and(contains))
        };
        let found: Vec<[bool; 2]> = (1..=200).map(contains).collect();
        [0, 1].map(|of| found.iter().filter(|found| found[of]).count())
    }

    #[test]
    fn intervals_contain_the_truth_in_about_95_of_100() {
        for (pairs, truth, q) in [(6, 1.0, 0.5), (8, 0.6, 0.99), (20, 1.0, 0.99)] {
            let covered = covered(pairs, truth, q);
            assert!(
                covered.iter().all(|covered| *covered >= 182),
                "{covered:?} of 200 with {pairs} pairs at {q}"
            );
        }
    }

    /// How many of [`WAYS`] are as low as what was measured: over all blocks, and in a typical pair.
    fn as_low(all: &Pairs) -> [usize; 2] {
        let numbers: Vec<usize> = (0..all.count()).collect();
        [
            all.exchanged_ratios(0.99, &numbers),
            all.exchanged_signs(0.99, &numbers),
        ]
        .map(|values| {
            let values = values.unwrap();
            values.iter().filter(|value| **value <= values[0]).count()
        })
    }

    #[test]
    fn a_change_that_does_nothing_is_rarely_unlikely() {
        // a single stall decides p99 of its block, and of all
        let stalled = |seed: u64| {
            let mut block = block(seed, 1.0);
            if hash(seed, 77_777).is_multiple_of(4) {
                let stall = 1e7 * (1 + hash(seed, 88_888) % 50) as f64;
                block.extend((1..=90).map(|i| Nanos::new((stall * i as f64 / 90.0) as u64)));
            }
            block
        };
        let trials = (1..=60).map(|trial| {
            let mut all = Pairs::default();
            for pair in 0..7 {
                let seed = trial * 1_000 + pair * 2;
                all.push(stalled(seed), stalled(seed + 1));
            }
            as_low(&all)
        });
        let trials: Vec<[usize; 2]> = trials.collect();
        for figure in [0, 1] {
            let unlikely = trials.iter().filter(|of| of[figure] <= WAYS / 40).count();
            assert!(unlikely <= 5, "{unlikely} of 60");
        }
    }

    #[test]
    fn a_large_improvement_is_the_lowest_of_all_ways() {
        for pairs in [6, 12] {
            let mut all = Pairs::default();
            for pair in 0..pairs {
                all.push(block(2 * pair, 1.0), block(2 * pair + 1, 0.3));
            }
            let none_lower = WAYS >> pairs;
            assert_eq!(as_low(&all), [none_lower; 2]);
        }
        assert_eq!(Pairs::default().exchanged_ratios(0.99, &[]), None);
    }

    #[test]
    fn a_large_improvement_is_seen_with_few_pairs_through_a_drift() {
        let mut all = Pairs::default();
        for pair in 0..6 {
            let drift = 1.0 + pair as f64 / 3.0;
            all.push(block(2 * pair, drift), block(2 * pair + 1, 0.3 * drift));
        }
        let ratio = all.ratio(0.99).unwrap();
        assert!(ratio.hi < 0.6 && ratio.lo > 0.1, "{ratio:?}");
        let (before, after) = all.quantiles(0.99).unwrap();
        let quotient = after.get() as f64 / before.get() as f64;
        assert!((quotient - ratio.value).abs() < 0.01);
    }

    #[test]
    fn a_burst_in_one_block_hides_the_ratio_of_all_but_not_of_a_typical_pair() {
        let mut all = Pairs::default();
        for pair in 0..9 {
            let mut after = block(2 * pair + 1, 0.3);
            if pair == 3 {
                after.extend((1..=400).map(|i| Nanos::new(i * 1_000_000)));
            }
            all.push(block(2 * pair, 1.0), after);
        }
        let (ratio, typical) = (all.ratio(0.99).unwrap(), all.typical(0.99).unwrap());
        assert!(ratio.lo < 1.0 && ratio.hi > 1.0, "{ratio:?}");
        assert!(typical.lo > 0.2 && typical.hi < 0.5, "{typical:?}");
        let pairs = all.by_pair(0.99).unwrap();
        assert_eq!(pairs.len(), 9);
        assert!(pairs[3].1 > pairs[3].0 && pairs[4].1 < pairs[4].0);
        // 1,499 requests have one beyond p99.9
        assert_eq!(all.by_pair(0.999), None);
        assert_eq!(all.typical(0.999), None);
    }

    #[test]
    fn what_cannot_be_supported_is_not_estimated() {
        let mut all = Pairs::default();
        assert_eq!(all.quantiles(0.5), None);
        for pair in 0..4 {
            all.push(block(pair, 1.0), block(pair + 9, 1.0));
        }
        assert_eq!(all.ratio(0.5), None);
        all.push(block(7, 1.0), block(8, 1.0));
        assert!(all.ratio(0.5).is_some());
        // 7,495 requests have seven beyond p99.9
        assert_eq!(all.ratio(0.999), None);
    }

    #[test]
    fn a_ratio_of_sums_has_the_interval_of_its_pairs() {
        let same = ratio_of_sums(&[(2.0, 4.0); 6]).unwrap();
        assert_eq!((same.value, same.lo, same.hi), (0.5, 0.5, 0.5));
        let spread = [(1.0, 1.0), (2.0, 1.0), (0.5, 1.0), (1.5, 1.0), (1.0, 1.0)];
        let spread = ratio_of_sums(&spread).unwrap();
        assert!(
            spread.lo < 0.8 && spread.value == 1.2 && spread.hi > 1.6,
            "{spread:?}"
        );
        assert_eq!(ratio_of_sums(&[(1.0, 1.0); 4]), None);
        assert_eq!(ratio_of_sums(&[(1.0, 0.0); 6]), None);
    }

    #[test]
    fn both_orders_come_equally_often() {
        for seed in 0..20 {
            let first = (0..10).filter(|pair| changed_first(seed, *pair)).count();
            assert_eq!(first, 5, "{seed}");
        }
        let begins = (0..200).filter(|seed| changed_first(*seed, 0)).count();
        assert!((60..140).contains(&begins), "{begins}");
    }
}
