//! The probability that the trials of a session find a change without any effect better or worse, and how they share it.

use taillab_analysis::exchange::WAYS;

use super::decide::{FEWEST_PAIRS, Trial};

/// The level of a session, on both sides together.
pub const ALL: f64 = 0.05;

/// What is left of the level.
///
/// The candidates share it as Holm's procedure does (1979), in the order of their trials: each gets an equal part of
/// what is left. A trial that proves something leaves its part to the others, and one that ends early leaves
/// what it has not spent. So at most [`ALL`] is ever spent on changes without any effect.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    left: f64,
}

impl Level {
    /// The level before the first trial.
    pub const fn full() -> Self {
        Self { left: ALL }
    }

    /// The level of the next trial, where there are so many `candidates`, and time for so many `pairs`. Candidates that
    /// the time has no room for get nothing: so much is left for each of the others that it can prove something.
    pub fn next(self, candidates: usize, pairs: usize) -> f64 {
        let fits = |share: &usize| fewest_pairs(self.left / *share as f64) <= pairs / share;
        let shares = (1..=candidates).rev().find(fits).unwrap_or(1);
        self.left / shares as f64
    }

    /// Whether a trial at this level takes all that is left.
    pub fn is_all(self, level: f64) -> bool {
        level >= self.left
    }

    /// Takes away what a trial has spent.
    pub fn spend(&mut self, trial: &Trial) {
        self.left = (self.left - trial.spent()).max(0.0);
    }
}

/// Whether a trial at this level can prove anything, however long it is.
pub fn can_prove(level: f64) -> bool {
    level / 2.0 * WAYS as f64 >= 1.0
}

/// The fewest pairs that can prove anything at this level: all of them on one side.
pub fn fewest_pairs(level: f64) -> usize {
    ((2.0 / level).log2().ceil() as usize).max(FEWEST_PAIRS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_pairs_are_those_that_could_prove_something() {
        for (level, pairs) in [(0.05, 6), (0.031, 7), (0.05 / 8.0, 9), (0.05 / 20.0, 10)] {
            assert_eq!(fewest_pairs(level), pairs, "{level}");
        }
    }

    #[test]
    fn what_has_been_spent_whole_leaves_nothing_to_any_candidate() {
        let nothing = Level { left: 0.0 };
        for candidates in [0, 1, 3, 10] {
            assert_eq!(nothing.next(candidates, 1_000), 0.0);
        }
        assert!(!can_prove(nothing.next(10, 1_000)));
    }

    #[test]
    fn candidates_without_time_for_a_proof_get_nothing() {
        // six pairs at the level of one, seven each at those of two
        for (pairs, shares) in [(0, 1), (6, 1), (13, 1), (14, 2)] {
            assert_eq!(Level::full().next(2, pairs), ALL / f64::from(shares), "{pairs}");
        }
    }

    #[test]
    fn a_level_without_a_single_way_proves_nothing() {
        assert!(can_prove(ALL / 100.0) && !can_prove(ALL / 105.0) && !can_prove(0.0));
    }

    #[test]
    fn candidates_share_the_level_as_far_as_the_time_has_room() {
        let level = Level::full();
        assert_eq!(level.next(1, 100), 0.05);
        assert_eq!(level.next(8, 100), 0.05 / 8.0);
        // 54 pairs are six times nine, or seven times eight less two
        assert_eq!(level.next(8, 54), 0.05 / 6.0);
        assert_eq!(level.next(8, 3), 0.05);
    }

    #[test]
    fn however_many_trials_there_are_no_more_than_all_is_spent() {
        let (mut level, mut spent) = (Level::full(), 0.0);
        for left in (1..=9).rev() {
            let now = level.next(left, 1_000);
            spent += now;
            level.left -= now;
        }
        assert!((spent - ALL).abs() < 1e-9);
    }
}
