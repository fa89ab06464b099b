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
    let is_kept_by =
        |pairs: &Pairs, ratio: PairedEstimate| is_surely_better(ratio) && is_no_chance(pairs, P99);
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
mod tests;
