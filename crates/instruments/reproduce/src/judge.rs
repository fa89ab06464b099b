//! Judges a statement from blocks: for each configuration, what its block of each round showed.
//!
//! In a round, every configuration has one block, in an order drawn at random, so that a drift of the machine is common to the
//! blocks of a round and cancels in their ratio. A simulated round has the same seed for all configurations. Pure.

use std::fmt;
use std::str::FromStr;

use taillab_analysis::paired::Pairs;
use taillab_model::Nanos;
use taillab_model::interval::{Interval, median};
use taillab_report::figures::quantile_name;

use crate::declared::Region;

/// The quantiles that statements can name.
pub const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// What a statement compares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StatedQuantity {
    /// A quantile of the latency: one of [`QUANTILES`].
    Quantile(f64),
    /// Requests per second at the peak.
    Peak,
}

impl fmt::Display for StatedQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantile(q) => f.write_str(&quantile_name(*q)),
            Self::Peak => f.write_str("peak"),
        }
    }
}

impl FromStr for StatedQuantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |at: &Self| at.to_string() == text;
        let quantiles = QUANTILES.into_iter().map(Self::Quantile);
        let mut known = quantiles.chain([Self::Peak]);
        known
            .find(named)
            .ok_or_else(|| format!("`{text}` is none of p50, p90, p99, p99.9, peak"))
    }
}

/// What one block showed: the latency at each of [`QUANTILES`], in nanoseconds, `None` where it has too few requests.
pub type BlockQuantiles = [Option<f64>; QUANTILES.len()];

/// The blocks of a configuration, one for each round; `None` where there is none.
#[derive(Clone, Debug, Default)]
pub struct RoundBlocks {
    quantiles: Vec<Option<BlockQuantiles>>,
    latencies: Vec<Vec<Nanos>>,
    /// Requests per second at the peak, in each round.
    peaks: Vec<Option<f64>>,
    /// The same if what they were computed from is as small, and as large, as it may be; empty if they were measured.
    bounds: Vec<RoundBlocks>,
}

impl RoundBlocks {
    /// Adds the block of the next round.
    pub fn push(&mut self, quantiles: BlockQuantiles) {
        self.quantiles.push(Some(quantiles));
        self.latencies.push(Vec::new());
        self.peaks.push(None);
    }

    /// Adds a measured block, with all of its latencies.
    pub fn push_measured(&mut self, latencies: Vec<Nanos>) {
        let mut sorted = latencies.clone();
        sorted.sort_unstable();
        self.quantiles
            .push(Some(QUANTILES.map(|q| supported(&sorted, q))));
        self.latencies.push(latencies);
        self.peaks.push(None);
    }

    /// Adds the peak of the last round.
    pub fn set_peak(&mut self, per_s: f64) {
        if let Some(peak) = self.peaks.last_mut() {
            *peak = Some(per_s);
        }
    }

    /// Adds a block that was computed, with what it would be at both ends of the interval of what it was computed from.
    pub fn push_bounded(&mut self, latencies: Vec<Nanos>, bounds: Option<[Vec<Nanos>; 2]>) {
        self.push_measured(latencies);
        let rounds = self.quantiles.len();
        for (place, bound) in bounds.into_iter().flatten().enumerate() {
            if self.bounds.len() <= place {
                self.bounds.push(Self::default());
            }
            let of = &mut self.bounds[place];
            while of.quantiles.len() + 1 < rounds {
                of.push_none();
            }
            of.push_measured(bound);
        }
    }

    /// Says that the next round has no block.
    pub fn push_none(&mut self) {
        self.quantiles.push(None);
        self.latencies.push(Vec::new());
        self.peaks.push(None);
    }

    /// The number of rounds that have a block.
    pub fn count(&self) -> usize {
        self.quantiles.iter().flatten().count()
    }

    /// The latencies of all measured blocks, in no order.
    pub fn all(&self) -> impl Iterator<Item = Nanos> + '_ {
        self.latencies.iter().flatten().copied()
    }

    /// What a round's block showed.
    fn at(&self, round: usize, at: StatedQuantity) -> Option<f64> {
        let value = match at {
            StatedQuantity::Quantile(q) => {
                let place = QUANTILES.iter().position(|known| *known == q)?;
                (*self.quantiles.get(round)?)?[place]
            }
            StatedQuantity::Peak => *self.peaks.get(round)?,
        };
        value.filter(|value| *value > 0.0)
    }
}

/// A quantile of sorted latencies in nanoseconds, where ten requests or more are beyond it.
fn supported(sorted: &[Nanos], q: f64) -> Option<f64> {
    /// As in [`Pairs::by_pair`].
    const FEWEST_BEYOND: f64 = 10.0;
    let n = sorted.len() as f64;
    let place = ((q * n).ceil() as usize).max(1) - 1;
    let value = sorted.get(place)?.get() as f64;
    ((1.0 - q) * n >= FEWEST_BEYOND - 1e-6).then_some(value)
}

/// What a ratio rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The quantiles over all blocks together.
    AllBlocks,
    /// The median of the ratios of the rounds.
    TypicalRound,
}

/// A ratio of quantiles with its interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundRatio {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub lo: f64,
    /// Upper end of the interval.
    pub hi: f64,
    /// What it rests on.
    pub basis: Basis,
}

impl FoundRatio {
    const fn interval(&self) -> Interval<f64> {
        Interval {
            lo: self.lo,
            hi: self.hi,
        }
    }
}

/// Whether a statement agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// All of the interval is where the statement says.
    Agrees,
    /// All of it is elsewhere.
    Differs,
    /// Neither.
    Undecided,
}

/// A judged statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The ratio that decides, or that comes closest to it.
    pub ratio: Option<FoundRatio>,
    /// Whether it agrees.
    pub judged: Agreement,
    /// Why, in words.
    pub why: String,
}

/// A quantile or the peak of one configuration ÷ that of another, on every basis that the blocks allow. Where one of them was computed from
/// something that is known only within an interval, such as the ideal from t, the ratio's interval is as wide as that makes it.
pub fn ratios(
    of: (&RoundBlocks, StatedQuantity),
    to: (&RoundBlocks, StatedQuantity),
) -> Vec<FoundRatio> {
    let mut found = plain_ratios(of, to);
    let above = of.0.bounds.iter().map(|bound| ((bound, of.1), to));
    let below = to.0.bounds.iter().map(|bound| (of, (bound, to.1)));
    for (of, to) in above.chain(below) {
        for bound in plain_ratios(of, to) {
            for ratio in found.iter_mut().filter(|ratio| ratio.basis == bound.basis) {
                ratio.lo = ratio.lo.min(bound.lo);
                ratio.hi = ratio.hi.max(bound.hi);
            }
        }
    }
    found
}

/// The same if both were measured.
fn plain_ratios(
    of: (&RoundBlocks, StatedQuantity),
    to: (&RoundBlocks, StatedQuantity),
) -> Vec<FoundRatio> {
    let mut found = Vec::new();
    found.extend(over_all(of, to));
    let rounds = of.0.quantiles.len().min(to.0.quantiles.len());
    let logarithms: Vec<f64> = (0..rounds)
        .filter_map(|round| Some((of.0.at(round, of.1)? / to.0.at(round, to.1)?).ln()))
        .collect();
    found.extend(median(&logarithms).map(|of| FoundRatio {
        value: of.value.exp(),
        lo: of.lo.exp(),
        hi: of.hi.exp(),
        basis: Basis::TypicalRound,
    }));
    found
}

/// From all measured blocks; `None` where the two quantiles are not the same one.
fn over_all(
    of: (&RoundBlocks, StatedQuantity),
    to: (&RoundBlocks, StatedQuantity),
) -> Option<FoundRatio> {
    let StatedQuantity::Quantile(q) = of.1 else {
        return None;
    };
    if of.1 != to.1 {
        return None;
    }
    let mut pairs = Pairs::default();
    for (above, below) in of.0.latencies.iter().zip(&to.0.latencies) {
        if !above.is_empty() && !below.is_empty() {
            pairs.push(below.iter().copied(), above.iter().copied());
        }
    }
    let ratio = pairs.ratio(q)?;
    Some(FoundRatio {
        value: ratio.value,
        lo: ratio.lo,
        hi: ratio.hi,
        basis: Basis::AllBlocks,
    })
}

/// Judges a statement that agrees where the ratio is in `region`. A ratio over all blocks decides; where its interval is too wide,
/// the ratio of a typical round does. `lacking` says why there may be none.
pub fn judge(region: Region, ratios: &[FoundRatio], lacking: &str) -> Judgement {
    let verdict = |ratio: &FoundRatio| match ratio.interval() {
        interval if region.holds(interval) => Agreement::Agrees,
        interval if region.excludes(interval) => Agreement::Differs,
        _ => Agreement::Undecided,
    };
    let decided = |wanted| ratios.iter().find(|ratio| verdict(ratio) == wanted);
    let (judged, ratio) = match (decided(Agreement::Agrees), decided(Agreement::Differs)) {
        (Some(_), Some(_)) => {
            let why = "a typical round says one thing and all rounds together another: rare slow requests decide, and there \
                       are too few of them";
            return Judgement {
                ratio: ratios.first().copied(),
                judged: Agreement::Undecided,
                why: why.to_owned(),
            };
        }
        (Some(ratio), None) => (Agreement::Agrees, ratio),
        (None, Some(ratio)) => (Agreement::Differs, ratio),
        (None, None) => match ratios.iter().min_by(|a, b| width(a).total_cmp(&width(b))) {
            Some(narrowest) => (Agreement::Undecided, narrowest),
            None => {
                return Judgement {
                    ratio: None,
                    judged: Agreement::Undecided,
                    why: lacking.to_owned(),
                };
            }
        },
    };
    let basis = match ratio.basis {
        Basis::AllBlocks => "over all blocks",
        Basis::TypicalRound => "in a typical round",
    };
    let relation = match judged {
        Agreement::Agrees => "is within",
        Agreement::Differs => "is outside of",
        Agreement::Undecided => "reaches across an end of",
    };
    Judgement {
        ratio: Some(*ratio),
        judged,
        why: format!("the interval {basis} {relation} “{region}”"),
    }
}

/// The width of an interval, as a factor.
fn width(ratio: &FoundRatio) -> f64 {
    ratio.hi / ratio.lo
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RoundBlocks whose quantiles are this in each round.
    fn blocks(rounds: &[f64]) -> RoundBlocks {
        let mut blocks = RoundBlocks::default();
        for value in rounds {
            blocks.push([Some(*value); QUANTILES.len()]);
        }
        blocks
    }

    fn judged(of: &[f64], to: &[f64], region: &str) -> Judgement {
        let (of, to) = (blocks(of), blocks(to));
        let ratios = ratios(
            (&of, StatedQuantity::Quantile(0.99)),
            (&to, StatedQuantity::Quantile(0.99)),
        );
        judge(region.parse().unwrap(), &ratios, "too few")
    }

    const ONES: [f64; 8] = [1.0; 8];

    #[test]
    fn a_ratio_inside_agrees_and_one_outside_differs() {
        let three = [2.8, 3.1, 3.0, 2.9, 3.2, 3.0, 3.1, 2.9];
        let found = judged(&three, &ONES, "2 to 4");
        assert_eq!(found.judged, Agreement::Agrees);
        let ratio = found.ratio.unwrap();
        assert_eq!((ratio.lo, ratio.hi), (2.8, 3.2));
        assert!((ratio.value - 3.0).abs() < 0.01, "{ratio:?}");
        assert_eq!(
            found.why,
            "the interval in a typical round is within “2 to 4”"
        );
        assert_eq!(judged(&three, &ONES, "below 2").judged, Agreement::Differs);
        assert_eq!(
            judged(&three, &ONES, "above 3").judged,
            Agreement::Undecided
        );
    }

    #[test]
    fn a_drift_that_all_configurations_share_cancels() {
        let drift: Vec<f64> = (1..=8).map(|round| f64::from(1 << round)).collect();
        let double: Vec<f64> = drift.iter().map(|value| 2.0 * value).collect();
        let found = judged(&double, &drift, "1.9 to 2.1");
        assert_eq!(found.judged, Agreement::Agrees, "{found:?}");
    }

    #[test]
    fn noise_is_undecided_and_never_agreement() {
        let noise = [0.2, 5.0, 0.3, 4.0, 1.0, 0.1, 9.0, 2.0];
        for region in ["above 1", "below 1", "0.9 to 1.1"] {
            let found = judged(&noise, &ONES, region);
            assert_eq!(found.judged, Agreement::Undecided, "{region}");
            assert!(found.why.contains("reaches across"), "{}", found.why);
        }
    }

    #[test]
    fn too_few_rounds_say_nothing() {
        let found = judged(&[3.0; 5], &[1.0; 5], "above 1");
        assert_eq!((found.judged, found.ratio), (Agreement::Undecided, None));
        assert_eq!(found.why, "too few");
        // five rounds have both blocks
        let mut gaps = blocks(&[3.0; 5]);
        gaps.push_none();
        gaps.push([None; QUANTILES.len()]);
        assert_eq!(gaps.count(), 6);
        let ones = blocks(&ONES);
        assert!(
            ratios(
                (&gaps, StatedQuantity::Quantile(0.5)),
                (&ones, StatedQuantity::Quantile(0.5))
            )
            .is_empty()
        );
    }

    /// Of 20 blocks, one has a stall that decides p99 of all of them.
    fn measured(factor: u64, stall: bool) -> RoundBlocks {
        let mut blocks = RoundBlocks::default();
        for round in 0..20 {
            let latencies = (1..=2_000).map(|n| Nanos::new(factor * (1_000 + n + round)));
            let stalled = stall && round == 3;
            let stalls = (0..if stalled { 1_000 } else { 0 }).map(|n| Nanos::new(10_000_000 + n));
            blocks.push_measured(latencies.chain(stalls).collect());
        }
        blocks
    }

    #[test]
    fn measured_blocks_have_a_ratio_of_all_and_of_a_typical_round() {
        let (one, two) = (measured(1, false), measured(2, false));
        let found = ratios(
            (&two, StatedQuantity::Quantile(0.99)),
            (&one, StatedQuantity::Quantile(0.99)),
        );
        let bases: Vec<Basis> = found.iter().map(|ratio| ratio.basis).collect();
        assert_eq!(bases, [Basis::AllBlocks, Basis::TypicalRound]);
        assert!(
            found.iter().all(|ratio| (ratio.value - 2.0).abs() < 0.05),
            "{found:?}"
        );
        // p99 ÷ p50 has no pairs
        assert_eq!(
            ratios(
                (&two, StatedQuantity::Quantile(0.99)),
                (&one, StatedQuantity::Quantile(0.5))
            )
            .len(),
            1
        );
        assert_eq!(one.all().count(), 40_000);
    }

    #[test]
    fn a_ratio_to_the_ideal_is_as_uncertain_as_what_the_ideal_is_computed_from() {
        let (two, mut ideal) = (measured(2, false), RoundBlocks::default());
        for round in 0..20_u64 {
            let times = |factor: u64| -> Vec<Nanos> {
                let block = (1..=2_000).map(|n| Nanos::new(factor * (1_000 + n + round) / 10));
                block.collect()
            };
            ideal.push_bounded(times(10), Some([times(8), times(12)]));
        }
        for ratio in ratios(
            (&two, StatedQuantity::Quantile(0.99)),
            (&ideal, StatedQuantity::Quantile(0.99)),
        ) {
            assert!((ratio.value - 2.0).abs() < 0.05, "{ratio:?}");
            assert!((1.6..1.7).contains(&ratio.lo), "{ratio:?}");
            assert!((2.45..2.6).contains(&ratio.hi), "{ratio:?}");
        }
    }

    #[test]
    fn a_single_stall_leaves_the_decision_to_a_typical_round() {
        let (one, two) = (measured(1, false), measured(2, true));
        let found = ratios(
            (&two, StatedQuantity::Quantile(0.99)),
            (&one, StatedQuantity::Quantile(0.99)),
        );
        let judgement = judge("1.5 to 2.5".parse().unwrap(), &found, "");
        assert_eq!(judgement.judged, Agreement::Agrees, "{found:?}");
        assert_eq!(judgement.ratio.unwrap().basis, Basis::TypicalRound);
    }

    #[test]
    fn two_bases_that_contradict_each_other_decide_nothing() {
        let ratio = |value: f64, basis| FoundRatio {
            value,
            lo: value * 0.9,
            hi: value * 1.1,
            basis,
        };
        let both = [
            ratio(5.0, Basis::AllBlocks),
            ratio(1.0, Basis::TypicalRound),
        ];
        let found = judge("above 2".parse().unwrap(), &both, "");
        assert_eq!(found.judged, Agreement::Undecided);
        assert!(found.why.contains("rare slow requests"), "{}", found.why);
    }

    #[test]
    fn peaks_are_compared_round_by_round() {
        let mut blocks = [RoundBlocks::default(), RoundBlocks::default()];
        for round in 0..8 {
            for (place, blocks) in blocks.iter_mut().enumerate() {
                blocks.push_measured(Vec::new());
                blocks.set_peak(f64::from(1 << round) * (2.0 - place as f64));
            }
        }
        let found = ratios(
            (&blocks[0], StatedQuantity::Peak),
            (&blocks[1], StatedQuantity::Peak),
        );
        assert_eq!(found.len(), 1);
        assert!((found[0].value - 2.0).abs() < 1e-9, "{found:?}");
        // rounds without a peak have none
        blocks[0].push_none();
        assert_eq!(blocks[0].at(8, StatedQuantity::Peak), None);
    }

    #[test]
    fn a_quantile_and_the_peak_are_named() {
        for name in ["p50", "p90", "p99", "p99.9", "peak"] {
            assert_eq!(name.parse::<StatedQuantity>().unwrap().to_string(), name);
        }
        assert!("p98".parse::<StatedQuantity>().is_err() && "".parse::<StatedQuantity>().is_err());
    }

    #[test]
    fn a_block_has_only_the_quantiles_that_it_supports() {
        let latencies: Vec<Nanos> = (1..=1_000).map(Nanos::new).collect();
        assert_eq!(supported(&latencies, 0.5), Some(500.0));
        assert_eq!(supported(&latencies, 0.99), Some(990.0));
        assert_eq!(supported(&latencies, 0.999), None);
        assert_eq!(supported(&[], 0.5), None);
    }
}
