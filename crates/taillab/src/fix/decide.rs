//! Decides from pairs of blocks whether a change helps.

use std::collections::VecDeque;

use taillab_analysis::paired::{MIN_PAIRS, PairedEstimate, Pairs};
use taillab_analysis::untouched::ReplayedBlock;
use taillab_model::fix::{DecidedBy, FixOutcome, PairsAt, Ratio, RatioAt};

use super::load::Seen;

/// A change is worth keeping if it reduces the latency to at most this share: by 5 % or more.
pub const WORTH: f64 = 0.95;

/// The fewest pairs for a decision: the interval of fewer pairs is itself uncertain.
pub const FEWEST_PAIRS: usize = MIN_PAIRS + 1;

/// A trial ends early only if its interval, stretched by this factor, gives the same decision: a 95 %
/// interval that is checked repeatedly misses more often than once in twenty.
const MARGIN: f64 = 1.6;

/// An interval that reaches no further than this factor to either side is narrow enough.
const NARROW: f64 = 1.03;

/// A change is kept only if a change without effect would show as large a gain with at most this probability.
const CHANCE: f64 = 0.025;

/// The percentiles that are reported.
pub const TOLD: [f64; 3] = [0.5, 0.99, 0.999];

/// The percentiles that may decide, the best first.
const DECIDING: [f64; 3] = [0.999, 0.99, 0.5];

/// What a trial measured.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// The latencies as they were measured.
    pub pairs: Pairs,
    /// The sojourns of the pairs that the replay reproduces, without disturbances by others that the
    /// change does not treat.
    pub adjusted: Pairs,
    /// How many requests do not count.
    pub cut: Cut,
    /// The last blocks with the change that the replay reproduces; they show what is left to gain.
    pub changed: VecDeque<ReplayedBlock>,
}

/// How many requests do not count, because something held the generator up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Requests of the blocks without the change: those that do not count, and all.
    without: (usize, usize),
    /// Requests of the blocks with the change: those that do not count, and all.
    with: (usize, usize),
}

impl Cut {
    /// Adds the blocks of a pair.
    pub const fn add(&mut self, before: &Seen, after: &Seen) {
        self.without.0 += before.cut;
        self.without.1 += before.cut + before.latencies.len();
        self.with.0 += after.cut;
        self.with.1 += after.cut + after.latencies.len();
    }

    /// A clause for the reason of the decision, if many requests do not count.
    fn told(self) -> Option<String> {
        /// Smaller shares are usual.
        const MUCH: f64 = 0.05;
        let share = |(cut, all): (usize, usize)| cut as f64 / all.max(1) as f64;
        let (without, with) = (share(self.without), share(self.with));
        (without.max(with) > MUCH).then(|| {
            format!(
                "; {:.0} % of the requests without it and {:.0} % with it do not count, since the \
                 generator was held up{}",
                100.0 * without,
                100.0 * with,
                match with > 2.0 * without {
                    true => ": it may have moved other threads to the generator's CPU",
                    false => "",
                }
            )
        })
    }
}

/// The decision, and what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Kept, reverted or inconclusive.
    pub outcome: FixOutcome,
    /// The quantile that decided, and which list of the result has the ratio that decided.
    pub decided: Option<(f64, DecidedBy)>,
    /// The reason, as text for the result.
    pub reason: String,
}

/// The highest percentile that the pairs support, with its ratio.
pub fn deciding(pairs: &Pairs) -> Option<(f64, PairedEstimate)> {
    DECIDING
        .into_iter()
        .find_map(|q| Some((q, pairs.ratio(q)?)))
}

/// Whether the trial can end, because more pairs would not change the outcome.
pub fn is_settled(pairs: &Pairs) -> bool {
    if pairs.count() < FEWEST_PAIRS {
        return false;
    }
    deciding(pairs).is_some_and(|(q, ratio)| {
        let is_narrow = ratio.hi / ratio.value <= NARROW;
        let far = stretched(ratio, MARGIN);
        is_narrow
            || is_clear(far) && (far.lo > WORTH || is_no_chance(pairs, q))
            || !is_clear(ratio) && pairs.typical(q).is_some_and(is_surely_better)
    })
}

/// Whether exchanging the blocks of pairs at random rarely gives as large a gain.
fn is_no_chance(pairs: &Pairs, q: f64) -> bool {
    pairs.chance(q).is_some_and(|chance| chance <= CHANCE)
}

/// Whether the interval allows only one outcome.
fn is_clear(ratio: PairedEstimate) -> bool {
    ratio.lo > WORTH || (ratio.hi < 1.0 && ratio.value <= WORTH)
}

/// The ratio with the ends of its interval `by` times as far from the estimate, in logarithms.
fn stretched(ratio: PairedEstimate, by: f64) -> PairedEstimate {
    let end = |end: f64| ratio.value * (end / ratio.value).powf(by);
    PairedEstimate {
        value: ratio.value,
        lo: end(ratio.lo),
        hi: end(ratio.hi),
    }
}

/// The outcome: kept where the ratio is significantly below 1 and at most [`WORTH`].
///
/// If the latencies of all blocks do not decide, the latencies without disturbances by others may, then those
/// of a typical pair, and then a lower percentile. None of them may contradict what was measured.
pub fn judge(trial: &Trial) -> Judgement {
    let mut judgement = judge_pairs(trial);
    if let Some(cut) = trial.cut.told() {
        judgement.reason.push_str(&cut);
    }
    judgement
}

fn judge_pairs(trial: &Trial) -> Judgement {
    let pairs = &trial.pairs;
    let Some((q, ratio)) = deciding(pairs) else {
        return Judgement {
            outcome: FixOutcome::Inconclusive,
            decided: None,
            reason: format!(
                "{} pairs of blocks have too few requests for any interval: raise the rate or \
                 --fix-budget",
                pairs.count()
            ),
        };
    };
    let name = format!("p{}", q * 100.0);
    let shown = format!("{name} {}", told(ratio));
    let instead = match q < DECIDING[0] {
        true => format!(" (too few requests for p{})", DECIDING[0] * 100.0),
        false => String::new(),
    };
    let gains = ratio.hi < 1.0 && ratio.value <= WORTH;
    let (outcome, reason) = if gains && is_no_chance(pairs, q) {
        (FixOutcome::Kept, format!("{shown}{instead}"))
    } else if ratio.lo > 1.0 {
        (FixOutcome::Reverted, format!("{shown}: worse{instead}"))
    } else if ratio.lo > WORTH {
        let why = format!("{shown}: less than 5 % better, if at all{instead}");
        (FixOutcome::Reverted, why)
    } else if ratio.hi < 1.0 && ratio.value > WORTH {
        let why = format!("{shown}: better, but by less than 5 %{instead}");
        (FixOutcome::Reverted, why)
    } else if let Some(clear) = second_look(trial, q, ratio) {
        return clear;
    } else if gains {
        let chance = 100.0 * pairs.chance(q).unwrap_or(1.0);
        let why =
            format!("{shown}, but chance alone gives this in {chance:.0} % of cases{instead}");
        (FixOutcome::Inconclusive, why)
    } else {
        let why = format!("{shown}: the interval includes both a gain of 5 % and no gain{instead}");
        (FixOutcome::Inconclusive, why)
    };
    Judgement {
        outcome,
        decided: Some((q, DecidedBy::Measured)),
        reason,
    }
}

/// The second looks, for when the latencies of all blocks do not decide.
fn second_look(trial: &Trial, q: f64, undecided: PairedEstimate) -> Option<Judgement> {
    clear_without_others(&trial.adjusted, q, undecided)
        .or_else(|| better_in_most_pairs(&trial.pairs, q, undecided))
        .or_else(|| surely_better_below(trial, q, undecided))
        .or_else(|| surely_worse_below(&trial.pairs, q, undecided))
}

/// If noise makes the interval too wide, a replay of both conditions without disturbances by others may be
/// clear. A second look must be clearer than the first.
fn clear_without_others(adjusted: &Pairs, q: f64, undecided: PairedEstimate) -> Option<Judgement> {
    let ratio = adjusted.ratio(q)?;
    let stretched = stretched(ratio, MARGIN);
    let outcome = if stretched.lo > WORTH {
        FixOutcome::Reverted
    } else if is_surely_better(ratio) && undecided.value <= 1.0 && is_no_chance(adjusted, q) {
        FixOutcome::Kept
    } else {
        return None;
    };
    Some(Judgement {
        outcome,
        decided: Some((q, DecidedBy::Adjusted)),
        reason: format!(
            "p{} {} without what others did to the CPUs; as measured, it is not decided ({})",
            q * 100.0,
            told(ratio),
            told(undecided)
        ),
    })
}

/// Whether the change is better, clearly enough for a second look.
fn is_surely_better(ratio: PairedEstimate) -> bool {
    ratio.value <= WORTH && stretched(ratio, MARGIN).hi < 1.0
}

/// If bursts in a few blocks dominate the quantile over all blocks, the change may be clearly better in a
/// typical pair. A second look must be clearer than the first.
fn better_in_most_pairs(pairs: &Pairs, q: f64, undecided: PairedEstimate) -> Option<Judgement> {
    let ratio = pairs.typical(q).filter(|ratio| is_surely_better(*ratio))?;
    Some(Judgement {
        outcome: FixOutcome::Kept,
        decided: Some((q, DecidedBy::Typical)),
        reason: format!(
            "p{} {} in a typical pair; over all blocks it is not decided ({})",
            q * 100.0,
            told(ratio),
            told(undecided)
        ),
    })
}

/// The percentile that decides if p99.9 does not: a few stalls of the machine make the interval of p99.9
/// wide.
const P99: f64 = 0.99;

/// Whether an undecided percentile speaks against the change: it does if no gain is in the inner half of its
/// interval. A few stalls of the machine in either condition make it "better" or "worse" by any factor, and an
/// interval as wide as that says nothing.
fn speaks_against(undecided: PairedEstimate) -> bool {
    stretched(undecided, 0.5).lo > 1.0
}

/// If p99.9 is undecided and does not speak against the change, a clear gain at p99 keeps it: as measured,
/// without what others did to the CPUs, or in a typical pair. A second look must be clearer than the first.
fn surely_better_below(trial: &Trial, q: f64, undecided: PairedEstimate) -> Option<Judgement> {
    let pairs = &trial.pairs;
    let measured = pairs.ratio(P99).filter(|_| q > P99)?;
    if speaks_against(undecided) && pairs.typical(q).is_none_or(speaks_against) {
        return None;
    }
    let is_kept_by = |pairs: &Pairs, ratio: PairedEstimate| {
        is_surely_better(ratio) && is_no_chance(pairs, P99)
    };
    let kept = |ratio, by, within: &str| Judgement {
        outcome: FixOutcome::Kept,
        decided: Some((P99, by)),
        reason: format!(
            "p99 {}{within}; p99.9 is not decided ({})",
            told(ratio),
            told(undecided)
        ),
    };
    if is_kept_by(pairs, measured) {
        return Some(kept(measured, DecidedBy::Measured, ""));
    }
    let adjusted = trial.adjusted.ratio(P99);
    let adjusted = adjusted.filter(|ratio| is_kept_by(&trial.adjusted, *ratio));
    match adjusted {
        Some(ratio) if measured.value <= 1.0 => Some(kept(
            ratio,
            DecidedBy::Adjusted,
            " without what others did to the CPUs",
        )),
        _ => better_in_most_pairs(pairs, P99, measured),
    }
}

/// If p99.9 is undecided and does not speak for the change, a clear loss at p99, over all blocks or in a
/// typical pair, ends the trial.
fn surely_worse_below(pairs: &Pairs, q: f64, undecided: PairedEstimate) -> Option<Judgement> {
    let speaks_for = |ratio: PairedEstimate| ratio.value <= 1.0;
    if q <= P99 || speaks_for(undecided) || pairs.typical(q).is_some_and(speaks_for) {
        return None;
    }
    let is_worse = |ratio: &PairedEstimate| stretched(*ratio, MARGIN).lo > 1.0;
    let in_all = || Some((pairs.ratio(P99).filter(is_worse)?, DecidedBy::Measured, ""));
    let in_most = || {
        let ratio = pairs.typical(P99).filter(is_worse)?;
        Some((ratio, DecidedBy::Typical, " in a typical pair"))
    };
    let (ratio, by, within) = in_all().or_else(in_most)?;
    Some(Judgement {
        outcome: FixOutcome::Reverted,
        decided: Some((P99, by)),
        reason: format!(
            "p99 {}{within}: worse; p99.9 is not decided ({})",
            told(ratio),
            told(undecided)
        ),
    })
}

fn told(ratio: PairedEstimate) -> String {
    format!(
        "{:.2} of what it was, {:.2} to {:.2}",
        ratio.value, ratio.lo, ratio.hi
    )
}

/// The ratios at all percentiles that the pairs support, as `of` estimates them.
pub fn ratios(of: impl Fn(f64) -> Option<PairedEstimate>) -> Vec<RatioAt> {
    let at = |q| {
        let ratio = estimate(of(q)?);
        Some(RatioAt { q, ratio })
    };
    TOLD.into_iter().filter_map(at).collect()
}

/// The latencies of each pair, at all percentiles that its blocks support.
pub fn by_pair(pairs: &Pairs) -> Vec<PairsAt> {
    let at = |q| {
        let (before_ns, after_ns) = pairs.by_pair(q)?.into_iter().unzip();
        Some(PairsAt {
            q,
            before_ns,
            after_ns,
        })
    };
    TOLD.into_iter().filter_map(at).collect()
}

/// The estimate in the form that the result uses.
pub const fn estimate(of: PairedEstimate) -> Ratio {
    Ratio {
        value: of.value,
        lo: Some(of.lo),
        hi: Some(of.hi),
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use taillab_model::Nanos;

    use super::*;

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
        let seen = |cut: usize| Seen {
            latencies: vec![Nanos::new(1); 100 - cut],
            cut,
            recorded: None,
        };
        let reason = |without, with| {
            let mut trial = Trial::default();
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

    /// A trial in which the replay reproduces no block.
    fn of(pairs: &Pairs) -> Trial {
        Trial {
            pairs: pairs.clone(),
            ..Trial::default()
        }
    }

    /// Runs a trial as the module `trial` does: after each pair, it checks whether the trial can end.
    fn trial(seed: u64, factor: f64, most: usize) -> (Judgement, usize) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pairs = Pairs::default();
        while pairs.count() < most && !is_settled(&pairs) {
            let drift = rng.random_range(1.0..2.0);
            let before = block(&mut rng, drift, 2_500);
            let after = block(&mut rng, drift * factor, 2_500);
            pairs.push(before, after);
        }
        (judge(&of(&pairs)), pairs.count())
    }

    #[test]
    fn a_change_that_does_nothing_is_almost_never_kept() {
        let kept = (0..30)
            .filter(|seed| trial(*seed, 1.0, 12).0.outcome == FixOutcome::Kept)
            .count();
        assert!(kept <= 2, "{kept} of 30");
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
            let mut trial = Trial::default();
            for pair in 0..8 {
                let (before, after) = (block(&mut rng, 1.0, 2_500), block(&mut rng, factor, 2_500));
                trial.adjusted.push(before.clone(), after.clone());
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

    /// How many of these trials, with bursts in 15 % of the blocks and at most 12 pairs, keep the change.
    fn kept_beside_bursts(trials: u64, factor: f64) -> usize {
        let trial = |seed: u64| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut pairs = Pairs::default();
            while pairs.count() < 12 && !is_settled(&pairs) {
                let drift = rng.random_range(1.0..1.5);
                let mut one = |factor: f64| {
                    let mut all = block(&mut rng, factor, 12_000);
                    if rng.random_bool(0.15) {
                        let burst = rng.random_range(50..3_000_u64);
                        all.extend((1..=burst).map(|i| Nanos::new(i * 10_000)));
                    }
                    all
                };
                let (before, after) = (one(drift), one(drift * factor));
                pairs.push(before, after);
            }
            judge(&of(&pairs)).outcome == FixOutcome::Kept
        };
        (0..trials).filter(|seed| trial(*seed)).count()
    }

    #[test]
    fn beside_bursts_what_helps_is_mostly_kept_and_what_does_nothing_rarely() {
        let (helps, does_nothing) = (kept_beside_bursts(40, 0.4), kept_beside_bursts(40, 1.0));
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
        assert!(!is_settled(&pairs));
        pairs.push([Nanos::new(5)], [Nanos::new(1)]);
        let judgement = judge(&of(&pairs));
        assert_eq!(judgement.outcome, FixOutcome::Inconclusive);
        assert_eq!(judgement.decided, None);
        assert!(ratios(|q| pairs.ratio(q)).is_empty());
    }
}
