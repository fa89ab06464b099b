//! Decides from pairs of blocks whether a change helps.

use std::collections::VecDeque;

use taillab_analysis::exchange::{ExchangeTest, Figure, Side};
use taillab_analysis::paired::{MIN_PAIRS, PairedEstimate, Pairs};
use taillab_analysis::untouched::ReplayedBlock;
use taillab_model::fix::{DecidedBy, FixOutcome, PairsAt, Ratio, RatioAt};

use super::load::BlockResult;

/// A change is worth keeping if it reduces the latency to at most this share: by 5 % or more.
pub const WORTH: f64 = 0.95;

/// The fewest pairs for a decision: the interval of fewer pairs is itself uncertain.
pub const FEWEST_PAIRS: usize = MIN_PAIRS + 1;

/// Each look has this many times the pairs of the look before.
const NEXT_LOOK: f64 = 1.3;

/// A trial ends early without a proof only if its interval, stretched by this factor, gives the same decision: a
/// 95 % interval that is checked repeatedly misses more often than once in twenty.
const MARGIN: f64 = 1.6;

/// An interval that reaches no further than this factor to either side is narrow enough.
const NARROW: f64 = 1.03;

/// The percentiles that are reported.
pub const TOLD: [f64; 3] = [0.5, 0.99, 0.999];

/// The percentiles that may decide, the best first.
const DECIDING: [f64; 3] = [0.999, 0.99, 0.5];

/// The percentile that decides if p99.9 does not: a few stalls of the machine make the interval of p99.9
/// wide.
const P99: f64 = 0.99;

/// A figure of a trial: the percentile, and the list of ratios that it is in.
type Named = (f64, DecidedBy);

/// What a trial measured.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The latencies as they were measured.
    pub pairs: Pairs,
    /// The sojourns of the pairs that the replay reproduces, without disturbances by others that the
    /// change does not treat.
    pub adjusted: Pairs,
    /// The numbers of these pairs.
    pub adjusted_of: Vec<usize>,
    /// How many requests do not count.
    pub cut: Cut,
    /// The last blocks with the change that the replay reproduces; they show what is left to gain.
    pub changed: VecDeque<ReplayedBlock>,
    /// The most pairs that it may have.
    most: usize,
    /// What its looks have shown.
    test: ExchangeTest<Named>,
    /// The number of pairs at the next look.
    next_look: usize,
}

impl Trial {
    /// A trial without any pairs, of at most `most`. `level` is the probability that it finds a change without
    /// any effect better or worse.
    pub fn new(level: f64, most: usize) -> Self {
        Self {
            pairs: Pairs::default(),
            adjusted: Pairs::default(),
            adjusted_of: Vec::new(),
            cut: Cut::default(),
            changed: VecDeque::new(),
            most,
            test: ExchangeTest::new(level),
            next_look: FEWEST_PAIRS,
        }
    }

    /// Whether the trial can end. It looks at the pairs only where a look is due.
    pub fn is_settled(&mut self) -> bool {
        if self.pairs.count() >= self.most {
            self.end();
            return true;
        }
        if self.pairs.count() < self.next_look {
            return false;
        }
        self.next_look = (self.next_look as f64 * NEXT_LOOK).ceil() as usize;
        self.look(self.pairs.count() as f64 / self.most as f64);
        kept(self).is_some() || worse(self).is_some() || self.surely_has_no_gain()
    }

    /// Whether the interval would be above [`WORTH`] even if it were wider, and a typical pair has no gain either; or it
    /// is so narrow that more pairs would change nothing. What looks like harm goes on, until that is proven.
    fn surely_has_no_gain(&self) -> bool {
        deciding(&self.pairs).is_some_and(|(q, ratio)| {
            let looks_like_harm = ratio.value > 1.0 / WORTH;
            let is_above =
                stretched(ratio, MARGIN).lo > WORTH && has_no_typical_gain(&self.pairs, q);
            ratio.hi / ratio.value <= NARROW || is_above && !looks_like_harm
        })
    }

    /// Takes the last look, at which all of the level may be spent: where the pairs or the time are used up, and not
    /// where the pairs themselves have ended the trial.
    pub fn end(&mut self) {
        self.look(1.0);
    }

    /// How much of the level is spent: nothing if the change is proven to be better or worse.
    pub fn spent(&self) -> f64 {
        self.test.spent()
    }

    /// Looks at all figures. `part` is the share of the most pairs; the root of it is the share of the level that may
    /// be spent, so that a large effect is found early.
    fn look(&mut self, part: f64) {
        let Some((q, _)) = deciding(&self.pairs) else {
            return;
        };
        let numbers: Vec<usize> = (0..self.pairs.count()).collect();
        let mut figures = Vec::new();
        for q in [Some(q), Some(P99).filter(|p99| q > *p99)]
            .into_iter()
            .flatten()
        {
            let lists = [
                (
                    DecidedBy::Measured,
                    self.pairs.exchanged_ratios(q, &numbers),
                ),
                (
                    DecidedBy::Adjusted,
                    self.adjusted.exchanged_ratios(q, &self.adjusted_of),
                ),
                (DecidedBy::Typical, self.pairs.exchanged_signs(q, &numbers)),
            ];
            figures.extend(lists.into_iter().filter_map(|(by, values)| {
                let values = values?;
                Some(Figure {
                    name: (q, by),
                    values,
                })
            }));
        }
        self.test.look(&figures, part.sqrt());
    }

    /// The ratio of a figure.
    fn ratio(&self, (q, by): Named) -> Option<PairedEstimate> {
        match by {
            DecidedBy::Measured => self.pairs.ratio(q),
            DecidedBy::Adjusted => self.adjusted.ratio(q),
            DecidedBy::Typical => self.pairs.typical(q),
        }
    }

    /// The figures that prove this side, the best first, with their ratios.
    fn proven(&self, side: Side) -> Vec<(Named, PairedEstimate)> {
        let mut proven: Vec<_> = (self.test.proven(side).iter())
            .filter_map(|name| Some((*name, self.ratio(*name)?)))
            .collect();
        proven.sort_by(|(a, _), (b, _)| b.0.total_cmp(&a.0).then((a.1 as u8).cmp(&(b.1 as u8))));
        proven
    }
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
    pub const fn add(&mut self, before: &BlockResult, after: &BlockResult) {
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

/// The ratio with the ends of its interval `by` times as far from the estimate, in logarithms.
fn stretched(ratio: PairedEstimate, by: f64) -> PairedEstimate {
    let end = |end: f64| ratio.value * (end / ratio.value).powf(by);
    PairedEstimate {
        value: ratio.value,
        lo: end(ratio.lo),
        hi: end(ratio.hi),
    }
}

/// The outcome: kept where a figure proves that the change is better, and its ratio is at most [`WORTH`].
///
/// "Better" and "worse" need the same proof ([`ExchangeTest`]). It may come from the latencies of all blocks, from
/// those without disturbances by others, from a typical pair, or from p99. None of them may contradict what
/// was measured.
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
    let instead = match q < DECIDING[0] {
        true => format!(" (too few requests for p{})", DECIDING[0] * 100.0),
        false => String::new(),
    };
    if let Some((by, clear)) = kept(trial) {
        return decided(FixOutcome::Kept, (by, clear), (q, ratio), &instead);
    }
    if let Some((by, clear)) = worse(trial) {
        let ending = format!(": worse{instead}");
        return decided(FixOutcome::Reverted, (by, clear), (q, ratio), &ending);
    }
    let shown = format!("p{} {}", q * 100.0, told(ratio));
    let is_better = !trial.test.proven(Side::Better).is_empty();
    let (outcome, why) = if ratio.lo > WORTH && !has_no_typical_gain(pairs, q) {
        let why = "a typical pair is better, so a few blocks make the difference";
        (FixOutcome::Inconclusive, why)
    } else if ratio.lo > WORTH {
        (FixOutcome::Reverted, "less than 5 % better, if at all")
    } else if is_better && ratio.hi < 1.0 && ratio.value > WORTH {
        (FixOutcome::Reverted, "better, but by less than 5 %")
    } else if ratio.hi < 1.0 && ratio.value <= WORTH {
        let why =
            "chance alone gives this too often to keep it: a longer --fix-budget decides more";
        (FixOutcome::Inconclusive, why)
    } else {
        let why = "the interval includes both a gain of 5 % and no gain";
        (FixOutcome::Inconclusive, why)
    };
    Judgement {
        outcome,
        decided: Some((q, DecidedBy::Measured)),
        reason: format!("{shown}: {why}{instead}"),
    }
}

/// Whether a typical pair does not have the gain that a change is kept for, as far as its blocks say.
fn has_no_typical_gain(pairs: &Pairs, q: f64) -> bool {
    pairs.typical(q).is_none_or(|typical| typical.value > WORTH)
}

/// A judgement by a figure, where p99.9 over all blocks may be undecided.
fn decided(
    outcome: FixOutcome,
    (by, clear): (Named, PairedEstimate),
    (q, all): (f64, PairedEstimate),
    ending: &str,
) -> Judgement {
    let within = match by.1 {
        DecidedBy::Measured => "",
        DecidedBy::Adjusted => " without what others did to the CPUs",
        DecidedBy::Typical => " in a typical pair",
    };
    let besides = match by {
        (at, DecidedBy::Measured) if at == q => String::new(),
        (at, _) if at == q => format!("; over all blocks it is not decided ({})", told(all)),
        _ => format!("; p{} is not decided ({})", q * 100.0, told(all)),
    };
    Judgement {
        outcome,
        decided: Some(by),
        reason: format!("p{} {}{within}{ending}{besides}", by.0 * 100.0, told(clear)),
    }
}

/// The figure that keeps the change: proven to be better, by 5 % or more.
fn kept(trial: &Trial) -> Option<(Named, PairedEstimate)> {
    let (q, all) = deciding(&trial.pairs)?;
    let typical = trial.pairs.typical(q);
    let harm = worse(trial).map_or(0.0, |((at, _), _)| at);
    let may_decide = |(at, by): Named| {
        let is_refuted =
            at < harm || at < q && speaks_against(all) && typical.is_none_or(speaks_against);
        let measured = || trial.pairs.ratio(at);
        // without what others did it must not be better only
        let is_measured_too =
            by != DecidedBy::Adjusted || measured().is_some_and(|ratio| ratio.value <= 1.0);
        !is_refuted && is_measured_too
    };
    let mut proven = trial.proven(Side::Better).into_iter();
    proven.find(|(by, ratio)| ratio.hi < 1.0 && ratio.value <= WORTH && may_decide(*by))
}

/// Whether an undecided percentile speaks against the change: it does if no gain is in the inner half of its
/// interval. A few stalls of the machine in either condition make it "better" or "worse" by any factor, and an
/// interval as wide as that says nothing.
fn speaks_against(undecided: PairedEstimate) -> bool {
    stretched(undecided, 0.5).lo > 1.0
}

/// The figure that ends the trial: proven to be worse.
fn worse(trial: &Trial) -> Option<(Named, PairedEstimate)> {
    let (q, all) = deciding(&trial.pairs)?;
    let speaks_for = |ratio: PairedEstimate| ratio.value <= 1.0;
    let may_decide = |(at, by): Named| {
        let is_refuted =
            at < q && (speaks_for(all) || trial.pairs.typical(q).is_some_and(speaks_for));
        let is_measured_too = by != DecidedBy::Adjusted || !speaks_for(all);
        !is_refuted && is_measured_too
    };
    let mut proven = trial.proven(Side::Worse).into_iter();
    proven.find(|(by, ratio)| ratio.lo > 1.0 && may_decide(*by))
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
mod table;
#[cfg(test)]
mod tests;
