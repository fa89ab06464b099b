//! A two-level factorial design: several changes, each on and off, in all combinations.
//!
//! Changes interact: two that each help may together help no more than one. So all combinations
//! are measured, in rounds that contain each of them once. The model is that of Zhang et al.,
//! *Treadmill* (ISCA 2016, section 4): the quantile of the logarithm of the latency as a linear
//! function of all changes and of their products, by quantile regression. With all products in it
//! the model has as many coefficients as there are combinations, so the regression's minimum is
//! where each combination has its own sample quantile (Koenker, *Quantile Regression*, 2005,
//! section 2.2), and a coefficient is a contrast of those. The bootstrap for the interval draws rounds,
//! so the interval holds for any correlation within a block and any drift between rounds.

use taillab_model::Nanos;

use crate::paired::{FEWEST_BEYOND, MIN_PAIRS, PairedEstimate, bootstrapped, hash};
use crate::replay::BlockHistogram;

/// With more changes, measuring all combinations takes too long.
pub const MOST_FACTORS: usize = 4;

/// A combination of changes, or an effect of such a combination: bit i is change i.
pub type Combination = usize;

/// The blocks of all combinations.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// By combination; each round adds a block to every one.
    cells: Vec<BlockHistogram>,
}

impl Rounds {
    /// No rounds yet, of `factors` changes; at most [`MOST_FACTORS`].
    pub fn new(factors: usize) -> Self {
        Self {
            cells: vec![BlockHistogram::default(); 1 << factors],
        }
    }

    /// The combinations, the one without any change first.
    pub fn combinations(&self) -> std::ops::Range<Combination> {
        0..self.cells.len()
    }

    /// The combinations in the order of the next round, which is drawn at random from `seed`.
    pub fn next_order(&self, seed: u64) -> Vec<Combination> {
        let mut order: Vec<Combination> = self.combinations().collect();
        let round = seed.wrapping_add(self.count() as u64);
        order.sort_by_key(|combination| hash(round, *combination as u64));
        order
    }

    /// Adds a round: the latencies of each combination, in the order of [`Self::combinations`].
    pub fn push(&mut self, round: impl IntoIterator<Item = Vec<Nanos>>) {
        for (cell, block) in self.cells.iter_mut().zip(round) {
            cell.push_block(block);
        }
    }

    /// The number of rounds so far.
    pub fn count(&self) -> usize {
        self.cells[0].blocks()
    }

    /// The quantile `q` of a combination; `None` where fewer than ten requests are beyond it.
    pub fn quantile(&self, combination: Combination, q: f64) -> Option<Nanos> {
        let counts = self.cells[combination].all();
        ((1.0 - q) * counts.total() as f64 >= FEWEST_BEYOND)
            .then(|| counts.quantile_ns(q))
            .flatten()
            .map(|ns| Nanos::new(ns as u64))
    }

    /// The effect of the changes of `of` on the quantile `q`, as a ratio.
    ///
    /// For one change: the latency with it ÷ without it, as the geometric mean over all combinations of
    /// the others. For two changes: the factor by which the effect of one differs when the other is made
    /// too; 1 if they do not interact; and so on. The interval is that of
    /// [`Pairs::ratio`](crate::paired::Pairs::ratio), over rounds. `None` if there are too few rounds, or
    /// too few requests beyond the quantile.
    pub fn effect(&self, of: Combination, q: f64) -> Option<PairedEstimate> {
        let supported = |cell: Combination| self.quantile(cell, q).is_some();
        if of == 0 || self.count() < MIN_PAIRS || !self.combinations().all(supported) {
            return None;
        }
        // each coefficient is the mean difference over the combinations of all that is not in `of`
        let others = (self.cells.len() >> of.count_ones()) as f64;
        let cells: Vec<_> = self.cells.iter().map(BlockHistogram::cumulative).collect();
        let logarithm = bootstrapped(self.count(), |times| {
            let logarithms = self.combinations().map(|cell| {
                let ns = cells[cell].quantile_ns(times, q)?;
                let is_plus = (of & !cell).count_ones().is_multiple_of(2);
                (ns > 0.0).then(|| if is_plus { ns.ln() } else { -ns.ln() })
            });
            logarithms.sum::<Option<f64>>().map(|sum| sum / others)
        })?;
        Some(logarithm.exp())
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Rounds of exponential latencies whose mean the combination decides, with a drift that the
    /// combinations of a round have in common.
    fn rounds(count: usize, seed: u64, mean: impl Fn(Combination) -> f64) -> Rounds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut rounds = Rounds::new(2);
        for _ in 0..count {
            let drift = rng.random_range(1.0..2.0);
            let round: Vec<Vec<Nanos>> = rounds
                .combinations()
                .map(|combination| {
                    let scale = 1e5 * drift * mean(combination);
                    (0..2_000)
                        .map(|_| Nanos::new((-(1.0 - rng.random::<f64>()).ln() * scale) as u64 + 1))
                        .collect()
                })
                .collect();
            rounds.push(round);
        }
        rounds
    }

    #[test]
    fn effects_that_multiply_do_not_interact() {
        let rounds = rounds(8, 1, |of| [1.0, 0.5][of & 1] * [1.0, 0.8][of >> 1 & 1]);
        for q in [0.5, 0.99] {
            for (of, truth) in [(0b01, 0.5), (0b10, 0.8), (0b11, 1.0)] {
                let effect = rounds.effect(of, q).unwrap();
                assert!(effect.lo <= truth && truth <= effect.hi, "{of}: {effect:?}");
                assert!(effect.hi / effect.lo < 1.6, "{of} at {q}: {effect:?}");
            }
        }
    }

    #[test]
    fn two_that_help_only_once_interact() {
        // either of them halves the latency, both together no more than one
        let rounds = rounds(8, 2, |of| if of == 0 { 1.0 } else { 0.5 });
        let both = rounds.effect(0b11, 0.5).unwrap();
        assert!(both.lo > 1.5 && both.hi < 2.5, "{both:?}");
        // its effect is 1 with the other change, and a half without it
        let one = rounds.effect(0b01, 0.5).unwrap();
        assert!((one.value - 0.5_f64.sqrt()).abs() < 0.05, "{one:?}");
    }

    #[test]
    fn intervals_contain_the_truth_in_about_95_of_100() {
        let covered = (0..100)
            .filter(|seed| {
                let rounds = rounds(6, 100 + seed, |of| [1.0, 0.7][of & 1]);
                let effect = rounds.effect(0b01, 0.99).unwrap();
                effect.lo <= 0.7 && 0.7 <= effect.hi
            })
            .count();
        assert!(covered >= 88, "{covered} of 100");
    }

    #[test]
    fn each_round_has_every_combination_in_an_order_of_its_own() {
        let mut rounds = Rounds::new(3);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..20 {
            let order = rounds.next_order(7);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..8).collect::<Vec<_>>());
            seen.insert(order);
            rounds.push(vec![Vec::new(); 8]);
        }
        assert!(seen.len() > 15, "{}", seen.len());
    }

    #[test]
    fn what_cannot_be_supported_is_not_estimated() {
        let few = rounds(MIN_PAIRS - 1, 3, |_| 1.0);
        assert_eq!(few.effect(0b01, 0.5), None);
        let enough = rounds(MIN_PAIRS, 3, |_| 1.0);
        assert!(enough.effect(0b01, 0.5).is_some());
        // 10,000 requests of each combination: ten beyond p99.9, one beyond p99.99
        assert!(enough.effect(0b01, 0.999).is_some());
        assert_eq!(enough.effect(0b01, 0.999_9), None);
        assert_eq!(enough.quantile(0, 0.999_9), None);
    }
}
