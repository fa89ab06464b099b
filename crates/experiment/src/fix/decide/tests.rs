//! Decisions on simulated blocks.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::Nanos;

use super::*;
use crate::fix::level::Level;

/// A block of a noisy machine: exponential sojourns, and now and then a stall that lengthens some of
/// them.
fn block(rng: &mut Xoshiro256PlusPlus, factor: f64, requests: usize) -> Vec<Nanos> {
    let stall = match rng.random_bool(0.3) {
        true => rng.random_range(1.0..4.0),
        false => 1.0,
    };
    (0..requests)
        .map(|place| {
            let slow = if place % 50 == 0 { stall } else { 1.0 };
            let sojourn = -(1.0 - rng.random::<f64>()).ln() * 1e5 * factor * slow;
            Nanos::new(sojourn as u64 + 1)
        })
        .collect()
}

#[test]
fn what_does_not_count_is_told_where_it_is_much() {
    let seen = |cut: usize| BlockResult {
        latencies: vec![Nanos::new(1); 100 - cut],
        cut,
        recorded: None,
    };
    let reason = |without, with| {
        let mut trial = Trial::new(LEVEL, 6);
        trial.cut.add(&seen(without), &seen(with));
        judge(&trial).reason
    };
    assert!(!reason(5, 5).contains("do not count"));
    let both = reason(30, 32);
    assert!(both.ends_with("30 % of the requests without it and 32 % with it do not count, since the generator was held up"), "{both}");
    let moved = reason(2, 40);
    assert!(
        moved.ends_with("other threads to the generator's CPU"),
        "{moved}"
    );
}

/// The level of a single candidate.
const LEVEL: f64 = 0.05;

/// A trial of these pairs that has ended, and in which the replay reproduces no block.
fn of(pairs: &Pairs) -> Trial {
    let mut trial = Trial::new(LEVEL, pairs.count());
    trial.pairs = pairs.clone();
    trial.end();
    trial
}

/// What disturbs simulated blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noise {
    /// Stalls lengthen 2 % of the requests in 30 % of the blocks of 2,500.
    Stalls,
    /// In 15 % of the blocks of 12,000, a burst of 50 to 3,000 requests waits for up to 30 ms.
    Bursts,
}

/// A block with this noise of a server that is `factor` times as slow as usual.
fn noisy(rng: &mut Xoshiro256PlusPlus, factor: f64, noise: Noise) -> Vec<Nanos> {
    if noise == Noise::Stalls {
        return block(rng, factor, 2_500);
    }
    let mut all = block(rng, factor, 12_000);
    if rng.random_bool(0.15) {
        let burst = rng.random_range(50..3_000_u64);
        all.extend((1..=burst).map(|i| Nanos::new(i * 10_000)));
    }
    all
}

/// Runs a trial as the module `trial` does: after each pair, it checks whether the trial can end.
pub(super) fn tried(
    seed: u64,
    level: f64,
    factor: f64,
    most: usize,
    noise: Noise,
) -> (Judgement, Trial) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut trial = Trial::new(level, most);
    while !trial.is_settled() {
        let drift = rng.random_range(1.0..2.0);
        let before = noisy(&mut rng, drift, noise);
        let after = noisy(&mut rng, drift * factor, noise);
        trial.pairs.push(before, after);
    }
    (judge(&trial), trial)
}

fn trial(seed: u64, factor: f64, most: usize) -> (Judgement, usize) {
    let (judgement, trial) = tried(seed, LEVEL, factor, most, Noise::Stalls);
    (judgement, trial.pairs.count())
}

/// Whether a judgement claims a difference, on either side.
pub(super) fn claims(judgement: &Judgement) -> bool {
    judgement.outcome == FixOutcome::Kept || judgement.reason.contains(": worse")
}

/// In at most 5 % of so many trials a change that does nothing is kept or called worse. Their seeds are always the same, so
/// chance has no part in it.
fn assert_rarely_claimed(trials: usize, most: usize) {
    let is_wrong = |seed: &u64| claims(&trial(*seed, 1.0, most).0);
    let wrong = (0..trials as u64).filter(is_wrong).count();
    assert!(20 * wrong <= trials, "{wrong} of {trials}");
}

#[test]
fn a_change_that_does_nothing_is_rarely_kept_or_called_worse() {
    assert_rarely_claimed(60, 21);
}

/// The same with the most pairs that a trial may have, and so with the most looks.
#[test]
fn a_change_that_does_nothing_is_rarely_kept_or_called_worse_in_sixty_pairs() {
    assert_rarely_claimed(40, 60);
}

/// Whether one of eight changes that do nothing is kept or called worse, in a session that shares its level.
pub(super) fn any_of_eight(session: u64, most: usize) -> bool {
    let mut level = Level::full();
    (0..8).any(|number| {
        let now = level.next(8 - number, 1_000);
        let seed = 100 * session + number as u64;
        let (judgement, trial) = tried(seed, now, 1.0, most, Noise::Stalls);
        level.spend(&trial);
        claims(&judgement)
    })
}

#[test]
fn of_eight_changes_that_do_nothing_rarely_one_is_kept_or_called_worse() {
    let wrong = (0..12).filter(|session| any_of_eight(*session, 14)).count();
    assert!(wrong <= 3, "{wrong} of 12");
}

#[test]
fn a_change_that_halves_the_tail_is_kept_after_few_pairs() {
    for seed in 0..10 {
        let (judgement, pairs) = trial(seed, 0.3, 40);
        assert_eq!(judgement.outcome, FixOutcome::Kept, "{judgement:?}");
        assert!(pairs <= 20, "{pairs}");
        assert_eq!(judgement.decided, Some((0.999, DecidedBy::Measured)));
    }
}

/// A block whose sojourns are the percentiles of an exponential distribution, `factor` times as long as usual.
fn even(factor: f64) -> Vec<Nanos> {
    const REQUESTS: u32 = 2_500;
    let at = |place| -((f64::from(place) + 0.5) / f64::from(REQUESTS)).ln();
    (0..REQUESTS)
        .map(|place| Nanos::new((at(place) * 1e5 * factor) as u64))
        .collect()
}

/// Eight pairs, of which one says the opposite of all others: a bootstrap calls that a difference, on either side. Of
/// the 256 ways to exchange blocks, nine are as extreme, and a level of 5 % has room for six of them on each side.
#[test]
fn where_one_pair_of_eight_disagrees_neither_side_is_proven() {
    let trial = |factor: f64| {
        let mut pairs = Pairs::default();
        for pair in 0..8 {
            let (before, after) = if pair == 5 {
                (factor, 1.0)
            } else {
                (1.0, factor)
            };
            pairs.push(even(before), even(after));
        }
        let (_, bootstrapped) = deciding(&pairs).unwrap();
        (judge(&of(&pairs)), bootstrapped)
    };
    // the rule of before called this worse
    let (slower, bootstrapped) = trial(1.1);
    assert!(bootstrapped.lo > 1.0, "{bootstrapped:?}");
    assert!(!claims(&slower), "{slower:?}");
    let says = "less than 5 % better, if at all";
    assert!(slower.reason.ends_with(says), "{slower:?}");
    // and here half of a proof
    let (faster, bootstrapped) = trial(1.0 / 1.1);
    assert!(bootstrapped.hi < 1.0, "{bootstrapped:?}");
    assert_eq!(faster.outcome, FixOutcome::Inconclusive, "{faster:?}");
    let says = "chance alone gives this too often";
    assert!(faster.reason.contains(says), "{faster:?}");
}

/// A few stalls, in blocks with and without the change, hide its effect on p99.9.
#[test]
fn where_stalls_hide_p999_a_clear_gain_or_loss_at_p99_decides() {
    let trial = |factor: f64, stalls_before: fn(u64) -> bool, stalls_after: fn(u64) -> bool| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut pairs = Pairs::default();
        for pair in 0..8 {
            let stalled = |mut block: Vec<Nanos>, stalls: bool| {
                block.truncate(2_490);
                let length = if stalls { 500_000_000 } else { 1_000 };
                block.extend((1..=10).map(|i| Nanos::new(i * length)));
                block
            };
            let before = stalled(block(&mut rng, 1.0, 2_500), stalls_before(pair));
            let after = stalled(block(&mut rng, factor, 2_500), stalls_after(pair));
            pairs.push(before, after);
        }
        judge(&of(&pairs))
    };
    let (often, rarely) = (|pair| pair % 2 == 0, |pair| pair % 3 == 0);
    let better = trial(0.1, often, rarely);
    // p99.9 is "longer" with the change, within an interval that reaches far below 1
    let unlucky = trial(0.1, rarely, often);
    let worse = trial(10.0, rarely, often);
    let outcomes = (better.outcome, unlucky.outcome, worse.outcome);
    let expected = (FixOutcome::Kept, FixOutcome::Kept, FixOutcome::Reverted);
    assert_eq!(outcomes, expected, "{better:?} {unlucky:?} {worse:?}");
    for judgement in [better, unlucky, worse] {
        let at = judgement.decided.map(|(q, _)| q);
        assert_eq!(at, Some(0.99), "{judgement:?}");
        assert!(
            judgement.reason.contains("p99.9 is not decided"),
            "{judgement:?}"
        );
    }
}

/// Hypervisor stalls hide the effect at p99.9 and at p99; without them it is clear.
#[test]
fn where_others_hide_everything_the_rest_decides() {
    let trial = |factor: f64| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut trial = Trial::new(LEVEL, 8);
        for pair in 0..8 {
            let (before, after) = (block(&mut rng, 1.0, 2_500), block(&mut rng, factor, 2_500));
            trial.adjusted.push(before.clone(), after.clone());
            trial.adjusted_of.push(trial.pairs.count());
            let stalled = |mut block: Vec<Nanos>, stalls: bool| {
                block.truncate(2_400);
                let length = if stalls { 500_000_000 } else { 400_000 };
                block.extend((1..=100).map(|i| Nanos::new(i * length)));
                block
            };
            trial.pairs.push(
                stalled(before, pair % 2 == 0),
                stalled(after, pair % 2 == 0 && pair > 0),
            );
        }
        trial.end();
        judge(&trial)
    };
    let better = trial(0.3);
    assert_eq!(better.outcome, FixOutcome::Kept, "{better:?}");
    assert!(
        better.reason.contains("without what others did"),
        "{better:?}"
    );
    let by = better.decided.map(|(_, by)| by);
    assert_eq!(by, Some(DecidedBy::Adjusted));
    let same = trial(1.0);
    assert_ne!(same.outcome, FixOutcome::Kept, "{same:?}");
}

#[test]
fn beside_bursts_what_helps_is_mostly_kept_and_what_does_nothing_rarely() {
    let of = |factor: f64| {
        let trial = |seed: u64| tried(seed, LEVEL, factor, 12, Noise::Bursts).0;
        let kept = |seed: &u64| trial(*seed).outcome == FixOutcome::Kept;
        (0..40).filter(kept).count()
    };
    let (helps, does_nothing) = (of(0.4), of(1.0));
    assert!(helps >= 20, "{helps} of 40");
    assert!(does_nothing <= 3, "{does_nothing} of 40");
}

/// One long burst in one block of each trial dominates p99 and above.
#[test]
fn where_single_bursts_decide_all_blocks_a_typical_pair_decides() {
    let trial = |factor: f64, burst: usize| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(burst as u64);
        let mut pairs = Pairs::default();
        for pair in 0..12 {
            let before = block(&mut rng, 1.0, 12_000);
            let mut after = block(&mut rng, factor, 12_000);
            if pair == burst {
                after.extend((1..=4_000).map(|i| Nanos::new(i * 20_000)));
            }
            pairs.push(before, after);
        }
        judge(&of(&pairs))
    };
    for burst in 0..12 {
        let better = trial(0.2, burst);
        assert_eq!(better.outcome, FixOutcome::Kept, "{better:?}");
        assert!(better.reason.contains("in a typical pair"), "{better:?}");
        let by = better.decided.map(|(_, by)| by);
        assert_eq!(by, Some(DecidedBy::Typical));
        let same = trial(1.0, burst);
        assert_ne!(same.outcome, FixOutcome::Kept, "{same:?}");
    }
}

#[test]
fn a_change_that_does_harm_is_reverted() {
    for seed in 0..10 {
        let (judgement, _) = trial(seed, 3.0, 40);
        assert_eq!(judgement.outcome, FixOutcome::Reverted, "{judgement:?}");
        assert!(judgement.reason.contains("worse"), "{judgement:?}");
    }
}

#[test]
fn where_p999_lacks_requests_p99_decides_and_it_is_said() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut pairs = Pairs::default();
    for _ in 0..FEWEST_PAIRS {
        pairs.push(block(&mut rng, 1.0, 300), block(&mut rng, 0.2, 300));
    }
    let judgement = judge(&of(&pairs));
    assert_eq!(judgement.decided, Some((0.99, DecidedBy::Measured)));
    assert!(judgement.reason.contains("too few requests for p99.9"));
    assert_eq!(judgement.outcome, FixOutcome::Kept);
}

#[test]
fn what_no_pair_supports_is_inconclusive() {
    let mut pairs = Pairs::default();
    assert!(!Trial::new(LEVEL, 6).is_settled());
    pairs.push([Nanos::new(5)], [Nanos::new(1)]);
    let judgement = judge(&of(&pairs));
    assert_eq!(judgement.outcome, FixOutcome::Inconclusive);
    assert_eq!(judgement.decided, None);
    assert!(ratios(|q| pairs.ratio(q)).is_empty());
}
