//! The test of a trial that is looked at again and again: its pairs of blocks, exchanged.
//!
//! The order of the two blocks of a pair is drawn at random, so a change without any effect makes either of them
//! the faster one equally often, whatever the distribution of the blocks is. What the trial shows is therefore
//! compared with what it would show if the blocks of some of its pairs were exchanged (a randomisation test;
//! Fisher 1935, *The Design of Experiments*). Three errors are kept together below one level:
//!
//! - **Both sides.** "Better" and "worse" are the same test, each at half of the level.
//! - **Several figures.** The pairs are seen by several figures (p99.9 and p99, over all blocks and in a typical
//!   pair). Each is ranked among its own values over all ways to exchange, and the smallest rank is the statistic
//!   (Westfall and Young 1993, *Resampling-Based Multiple Testing*): so figures that say the same cost nothing.
//! - **Several looks.** Up to each look, a share of the level may be spent (Lan and DeMets 1983). The ways stay the
//!   same from look to look, and a way that was as extreme as the limit of an earlier look counts as spent: so
//!   looks that say the same cost nothing either.
//!
//! The ways form a group under composition, so the level holds exactly, for any number of pairs (Hemerik and Goeman
//! 2018, *Exact testing with random permutations*).

/// log2 of the number of ways.
const BITS: u32 = 12;

/// The number of ways to exchange: all of up to twelve pairs, and a subgroup of those of more.
pub const WAYS: usize = 1 << BITS;

/// x¹² + x⁶ + x⁴ + x + 1, whose powers of x are all 4,095 elements of the field other than 0.
const PRIMITIVE: usize = 0x1053;

/// By pair, the bits of the number of a way whose parity says whether it exchanges the pair's blocks. They are
/// the powers of x in GF(2¹²): independent for the first twelve pairs, and never the same for two.
fn masks(pairs: usize) -> Vec<usize> {
    let mut power = 1;
    (0..pairs)
        .map(|_| {
            let mask = power;
            power <<= 1;
            if power >= WAYS {
                power ^= PRIMITIVE;
            }
            mask
        })
        .collect()
}

/// The ways to exchange the blocks of pairs; the first one exchanges nothing.
#[derive(Clone, Debug)]
pub struct Ways {
    masks: Vec<usize>,
}

impl Ways {
    /// The ways of a trial's pairs with these numbers. The same numbers are exchanged together in every figure.
    pub fn of(numbers: &[usize]) -> Self {
        let all = masks(numbers.iter().max().map_or(0, |last| last + 1));
        Self {
            masks: numbers.iter().map(|number| all[*number]).collect(),
        }
    }

    /// For each pair, whether this way exchanges its blocks: 1, or 0.
    pub fn exchanged(&self, way: usize) -> impl Iterator<Item = u32> {
        (self.masks.iter()).map(move |mask| (way & mask).count_ones() & 1)
    }
}

/// A side on which a change may differ from one that does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its figures are lower.
    Better,
    /// Its figures are higher.
    Worse,
}

/// What is known about one side.
#[derive(Clone, Debug)]
struct Tested<K> {
    /// By way, whether it was beyond the limit of a look.
    is_spent: Vec<bool>,
    /// The figures that were beyond the limit in the trial itself.
    proven: Vec<K>,
}

/// The test of one trial, over all of its looks. `K` names its figures.
#[derive(Clone, Debug)]
pub struct ExchangeTest<K> {
    level: f64,
    better: Tested<K>,
    worse: Tested<K>,
    spent: f64,
}

/// The values of a figure, by way: lower is better.
#[derive(Clone, Debug)]
pub struct Figure<K> {
    /// Its name.
    pub name: K,
    /// Its value in each of [`WAYS`].
    pub values: Vec<f64>,
}

impl<K: Copy + PartialEq> ExchangeTest<K> {
    /// A test that has looked at nothing. `level` is the probability that a change without any effect is found to
    /// be better or worse at any look.
    pub fn new(level: f64) -> Self {
        let nothing = Tested {
            is_spent: vec![false; WAYS],
            proven: Vec::new(),
        };
        Self {
            level,
            better: nothing.clone(),
            worse: nothing,
            spent: 0.0,
        }
    }

    /// Looks at the figures of the pairs so far. Up to now, this share of the level may have been spent.
    pub fn look(&mut self, figures: &[Figure<K>], share: f64) {
        self.spent = self.spent.max(share.min(1.0));
        let most = (self.level / 2.0 * self.spent * WAYS as f64) as usize;
        for (tested, sign) in [(&mut self.better, 1.0), (&mut self.worse, -1.0)] {
            tested.look(figures, sign, most);
        }
    }

    /// The figures that prove this side, in the order of the looks; empty where it is not proven.
    pub fn proven(&self, side: Side) -> &[K] {
        match side {
            Side::Better => &self.better.proven,
            Side::Worse => &self.worse.proven,
        }
    }

    /// How much of the level is spent: nothing where a side is proven, which leaves the level to the other trials of a
    /// family (Holm 1979).
    pub fn spent(&self) -> f64 {
        match self.better.proven.is_empty() && self.worse.proven.is_empty() {
            true => self.level * self.spent,
            false => 0.0,
        }
    }
}

impl<K: Copy + PartialEq> Tested<K> {
    /// `most` ways may be spent up to this look.
    fn look(&mut self, figures: &[Figure<K>], sign: f64, most: usize) {
        let ranks: Vec<Vec<u32>> = figures
            .iter()
            .map(|figure| ranks(&figure.values, sign))
            .collect();
        let least = |way: usize| ranks.iter().map(|of| of[way]).min();
        let smallest: Option<Vec<u32>> = (0..WAYS).map(least).collect();
        let Some(smallest) = smallest else { return };
        let spent = self.is_spent.iter().filter(|is_spent| **is_spent).count();
        let Some(limit) = limit(&smallest, &self.is_spent, most.saturating_sub(spent)) else {
            return;
        };
        for (is_spent, rank) in self.is_spent.iter_mut().zip(&smallest) {
            *is_spent |= *rank <= limit;
        }
        for (figure, ranks) in figures.iter().zip(&ranks) {
            if ranks[0] <= limit && !self.proven.contains(&figure.name) {
                self.proven.push(figure.name);
            }
        }
    }
}

/// The largest rank such that at most `most` ways that are not spent yet have it or a smaller one.
fn limit(ranks: &[u32], is_spent: &[bool], most: usize) -> Option<u32> {
    let left = ranks.iter().zip(is_spent).filter(|(_, spent)| !**spent);
    let mut left: Vec<u32> = left.map(|(rank, _)| *rank).collect();
    left.sort_unstable();
    match left.get(most) {
        None => left.last().copied(),
        // ways with the same rank are spent together or not at all
        Some(beyond) => left[..most]
            .iter()
            .rev()
            .find(|rank| *rank < beyond)
            .copied(),
    }
}

/// For each value, how many are as low, if `sign` is 1, or as high.
fn ranks(values: &[f64], sign: f64) -> Vec<u32> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| (sign * values[*a]).total_cmp(&(sign * values[*b])));
    let mut ranks = vec![0; values.len()];
    let mut end = values.len();
    for place in (0..values.len()).rev() {
        // the last place with this value is the rank of all that share it
        if place + 1 < values.len() && values[order[place]] != values[order[place + 1]] {
            end = place + 1;
        }
        ranks[order[place]] = end as u32;
    }
    ranks
}

/// How many of these logarithms are above 0, less those below, in each way: a sign test. A single pair counts no more
/// than any other, however large its ratio.
pub(crate) fn signs(logarithms: &[f64], ways: &Ways) -> Vec<f64> {
    let sign = |x: f64| if x == 0.0 { 0.0 } else { x.signum() };
    let signs: Vec<f64> = logarithms.iter().map(|x| sign(*x)).collect();
    let sum = |way| {
        let exchanged = signs.iter().zip(ways.exchanged(way));
        let signed = exchanged.map(|(sign, exchanged)| if exchanged == 1 { -sign } else { *sign });
        signed.sum()
    };
    (0..WAYS).map(sum).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_pairs_are_always_exchanged_together_and_all_ways_of_twelve_differ() {
        let masks = masks(4_095);
        assert!(masks.iter().all(|mask| (1..WAYS).contains(mask)));
        assert_eq!(masks.iter().collect::<HashSet<_>>().len(), 4_095);
        let ways = Ways::of(&(0..12).collect::<Vec<_>>());
        let of = |way| ways.exchanged(way).collect::<Vec<_>>();
        assert_eq!((0..WAYS).map(of).collect::<HashSet<_>>().len(), WAYS);
        assert_eq!(of(0), [0; 12]);
    }

    #[test]
    fn ranks_count_what_is_as_low_or_as_high() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0], 1.0), [4, 1, 4, 2]);
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0], -1.0), [2, 4, 2, 3]);
    }

    /// One figure of pairs of which each says the same: ranks by number of pairs that stay.
    fn all_lower(pairs: usize) -> Vec<Figure<u8>> {
        let ways = Ways::of(&(0..pairs).collect::<Vec<_>>());
        vec![Figure {
            name: 1,
            values: signs(&vec![-1.0; pairs], &ways),
        }]
    }

    #[test]
    fn six_pairs_that_agree_prove_it_at_a_level_of_one_in_32_and_not_below() {
        let proven = |level: f64, pairs: usize| {
            let mut test = ExchangeTest::new(level);
            test.look(&all_lower(pairs), 1.0);
            assert!(test.proven(Side::Worse).is_empty());
            !test.proven(Side::Better).is_empty()
        };
        assert!(proven(1.0 / 32.0, 6));
        assert!(!proven(1.0 / 33.0, 6));
        assert!(proven(0.05 / 8.0, 9) && !proven(0.05 / 8.0, 8));
        assert!(proven(0.05, 40));
    }

    #[test]
    fn what_is_proven_leaves_its_level_and_what_is_not_spends_what_it_used() {
        let mut test = ExchangeTest::new(0.05);
        test.look(&all_lower(6), 0.5);
        assert!(test.proven(Side::Better).is_empty());
        assert_eq!(test.spent(), 0.025);
        test.look(&all_lower(8), 0.7);
        assert_eq!(test.proven(Side::Better), [1]);
        assert_eq!(test.spent(), 0.0);
    }

    /// However often one looks, and at however many figures, no more ways are spent than the level has.
    #[test]
    fn looks_and_figures_share_one_level() {
        let noise = |figure: u64, pair: usize| {
            let mixed =
                (0x9e37_79b9_7f4a_7c15_u64).wrapping_mul((figure + 1) * 1_000 + pair as u64);
            ((mixed ^ (mixed >> 29)) % 2_001) as f64 - 1_000.5
        };
        let mut test = ExchangeTest::new(0.05);
        for pairs in 6..=40 {
            let ways = Ways::of(&(0..pairs).collect::<Vec<_>>());
            let figures = (0..4_u64).map(|name| {
                let logarithms: Vec<f64> = (0..pairs).map(|pair| noise(name, pair)).collect();
                let values = signs(&logarithms, &ways);
                Figure { name, values }
            });
            test.look(&figures.collect::<Vec<_>>(), pairs as f64 / 40.0);
            for tested in [&test.better, &test.worse] {
                let spent = tested.is_spent.iter().filter(|spent| **spent).count();
                assert!(
                    spent <= WAYS * pairs / 40 / 40,
                    "{spent} with {pairs} pairs"
                );
            }
        }
        let spent = test.better.is_spent.iter().filter(|spent| **spent).count();
        assert!(spent > WAYS / 50, "{spent}");
    }
}
