//! What a failed or a passed test of the gaps means.
//!
//! With n gaps Kolmogorov–Smirnov finds a distortion of 1.36/√n, so the same sender passes with few
//! gaps and fails with many: two sends cannot be closer than the time one send takes, and a large n
//! shows it. [`BlockTest`] tests blocks of consecutive gaps. Of a true process 5 % are rejected;
//! whether more are rejected is a test with a known power.

use taillab_load::LoadError;
use taillab_load::verdict::KolmogorovSmirnov;
use taillab_model::{Monotonic, Nanos};

/// The share of true blocks that the test rejects.
const LEVEL: f64 = 0.05;

/// The smallest block of [`BlockTest::largest_true_block`].
const SMALLEST_BLOCK: usize = 64;

/// With fewer blocks nothing can be said about the share that is rejected: of 20 true blocks one
/// is rejected.
const FEWEST_BLOCKS: usize = 20;

/// In the search for the largest block each size is tested at this level, so that the
/// five sizes or so together reject a true sender in one case of twenty.
const SEARCH_LEVEL: f64 = 0.01;

/// Kolmogorov–Smirnov at 5 % on each whole block of consecutive gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockTest {
    /// Gaps in a block.
    pub(crate) gaps: usize,
    /// Number of whole blocks.
    pub(crate) blocks: usize,
    /// Blocks that the test rejected.
    pub(crate) rejected: usize,
}

impl BlockTest {
    /// Tests the blocks of `gaps` gaps between the given times against a Poisson process.
    ///
    /// # Errors
    /// [`LoadError::Arrivals`] when the rate is not positive and finite.
    #[cfg(test)]
    pub(crate) fn of_sends(
        sends: impl IntoIterator<Item = Monotonic>,
        rate_per_s: f64,
        gaps: usize,
    ) -> Result<Self, LoadError> {
        Self::of_gaps(&gaps_of(sends), rate_per_s, gaps)
    }

    /// The largest block, a power of two from 64 on, of which no more are rejected than of
    /// a true process (binomial test at 1 % for each size): blocks up to this size do not
    /// show that the sender is not one. `None` if even the smallest do, or there are too few gaps.
    ///
    /// # Errors
    /// As [`BlockTest::of_sends`].
    pub(crate) fn largest_true_block(
        sends: impl IntoIterator<Item = Monotonic>,
        rate_per_s: f64,
    ) -> Result<Option<Self>, LoadError> {
        let gaps = gaps_of(sends);
        let mut largest = None;
        let mut size = SMALLEST_BLOCK;
        while gaps.len() / size >= FEWEST_BLOCKS {
            let test = Self::of_gaps(&gaps, rate_per_s, size)?;
            if test.chance_of_as_many() < SEARCH_LEVEL {
                break;
            }
            largest = Some(test);
            size *= 2;
        }
        Ok(largest)
    }

    fn of_gaps(gaps: &[Nanos], rate_per_s: f64, size: usize) -> Result<Self, LoadError> {
        let size = size.max(1);
        let mut test = Self {
            gaps: size,
            blocks: 0,
            rejected: 0,
        };
        let mut block = Vec::with_capacity(size);
        for part in gaps.chunks_exact(size) {
            block.clear();
            block.extend_from_slice(part);
            block.sort_unstable();
            test.blocks += 1;
            let ks = KolmogorovSmirnov::of_sorted(&block, rate_per_s)?;
            test.rejected += usize::from(!ks.passed());
        }
        Ok(test)
    }

    /// Share of the blocks that were rejected; 5 % of true ones are.
    #[cfg(test)]
    pub(crate) fn rejected_share(&self) -> f64 {
        self.rejected as f64 / self.blocks.max(1) as f64
    }

    /// No more blocks are rejected than 19 of 20 true senders would have: the exact
    /// one-sided binomial test at 5 %.
    #[cfg(test)]
    pub(crate) fn is_true(&self) -> bool {
        self.blocks > 0 && self.chance_of_as_many() > LEVEL
    }

    /// The probability that at least as many blocks of a true sender are rejected: the upper tail of
    /// the binomial distribution, summed from its logarithms.
    fn chance_of_as_many(&self) -> f64 {
        let n = self.blocks as f64;
        let odds = (LEVEL / (1.0 - LEVEL)).ln();
        let mut ln_term = n * (1.0 - LEVEL).ln();
        let mut below = 0.0;
        for k in 0..self.rejected {
            below += ln_term.exp();
            ln_term += odds + ((n - k as f64) / (k as f64 + 1.0)).ln();
        }
        1.0 - below
    }
}

fn gaps_of(sends: impl IntoIterator<Item = Monotonic>) -> Vec<Nanos> {
    let mut sends: Vec<_> = sends.into_iter().collect();
    sends.sort_unstable();
    let gaps = sends.windows(2);
    gaps.map(|pair| pair[1].saturating_since(pair[0])).collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::{Distribution, Exp1};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const RATE: f64 = 20_000.0;
    const MEAN_NS: f64 = 50_000.0;

    /// A Poisson process whose sender needs `dead_ns` for a send: each is as late as it
    /// must be.
    fn sends(n: usize, dead_ns: f64, seed: u64) -> Vec<Monotonic> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut due, mut free) = (1e9, 0.0_f64);
        (0..n)
            .map(|_| {
                let gap: f64 = Exp1.sample(&mut rng);
                due += gap * MEAN_NS;
                let at = free.max(due);
                free = at + dead_ns;
                Monotonic::from_nanos_since_boot(at as u64)
            })
            .collect()
    }

    /// The binomial tail against exact values: of 20 blocks at 5 %, P(X ≥ 1) = 1 − .95²⁰,
    /// P(X ≥ 4) = .0159 (exact sum of four terms).
    #[test]
    fn the_binomial_tail_is_exact() {
        let tail = |blocks, rejected| {
            let test = BlockTest {
                gaps: 1,
                blocks,
                rejected,
            };
            test.chance_of_as_many()
        };
        assert!((tail(20, 0) - 1.0).abs() < 1e-12);
        assert!((tail(20, 1) - (1.0 - 0.95_f64.powi(20))).abs() < 1e-12);
        assert!((tail(20, 4) - 0.015_902).abs() < 1e-6);
        // large numbers do not underflow: the median of 100,000 is at 5,000
        assert!((tail(100_000, 5_000) - 0.5).abs() < 0.01);
        assert!(tail(100_000, 5_500) < 1e-9);
    }

    #[test]
    fn true_blocks_are_rejected_at_the_level_and_pass() {
        let test = BlockTest::of_sends(sends(400_001, 0.0, 3), RATE, 1000).unwrap();
        assert_eq!((test.gaps, test.blocks), (1000, 400));
        let bound = 4.0 * (0.05_f64 * 0.95 / 400.0).sqrt();
        assert!((test.rejected_share() - 0.05).abs() < bound, "{test:?}");
        assert!(test.is_true());
        let largest = BlockTest::largest_true_block(sends(400_001, 0.0, 3), RATE).unwrap();
        assert_eq!(largest.unwrap().gaps, 16_384);
    }

    /// A sender that needs 2 µs at 20,000/s distorts by 4 %: blocks of 256 gaps (critical
    /// 8 %) cannot show it, blocks of 4,096 (2.1 %) do.
    #[test]
    fn a_dead_time_shows_in_blocks_that_are_large_enough() {
        let spoiled = || sends(400_001, 2_000.0, 4);
        let small = BlockTest::of_sends(spoiled(), RATE, 256).unwrap();
        let large = BlockTest::of_sends(spoiled(), RATE, 4096).unwrap();
        assert!(small.rejected_share() < 0.15, "{small:?}");
        assert!(
            large.rejected_share() > 0.9 && !large.is_true(),
            "{large:?}"
        );
        let largest = BlockTest::largest_true_block(spoiled(), RATE).unwrap();
        // 1.358/.0392 squared is 1,200: the next power of two fails
        assert_eq!(largest.unwrap().gaps, 1024);
        let worse = BlockTest::largest_true_block(sends(400_001, 50_000.0, 4), RATE).unwrap();
        assert_eq!(worse, None);
    }

    #[test]
    fn few_gaps_give_no_block() {
        let test = BlockTest::of_sends(sends(10, 0.0, 1), RATE, 100).unwrap();
        assert_eq!(
            (test.blocks, test.rejected_share(), test.is_true()),
            (0, 0.0, false)
        );
        assert_eq!(
            BlockTest::largest_true_block(sends(10, 0.0, 1), RATE).unwrap(),
            None
        );
        assert!(BlockTest::of_sends(sends(10, 0.0, 1), -1.0, 2).is_err());
    }
}
