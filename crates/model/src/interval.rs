//! Intervals of 95 %, and when each of them holds.
//!
//! | what is estimated | interval | holds where | function |
//! |---|---|---|---|
//! | a quantile of a sample | order statistics by the score interval of the share below, its variance taken `inflation` times larger | the inflation contains the correlation: see below | [`crate::quantile_ranks`] |
//! | a quantile of independent values | order statistics by the normal approximation of how many lie below | the values are independent, and at least a few dozen | [`quantile_of_independent`] |
//! | a mean of blocks | Student's t | the blocks are independent: they are much longer than what correlates requests | [`half_width_of_mean`] |
//! | a share of independent events | the score interval (Wilson 1927) | the events are independent, also where few or none were seen | [`share_of_events`] |
//! | how large such a share may be at most | Clopper and Pearson (1934), one side, 95 % | as above; never too narrow | [`largest_share`] |
//! | Σ part ÷ Σ all over blocks | Student's t on the linearised ratio | the blocks are independent, and the sum of `all` is well known; the ratio may be below 0 or above 1 | [`error_of_ratio`], [`ratio_of_sums`] |
//! | the same where few blocks hold most of it | Student's t on the jackknife | the blocks are independent | [`share_of_sums`] |
//! | a median of repeated measurements | the sign test | the measurements are independent; nothing is asked of their distribution | [`median`] |
//! | a statistic over pairs of blocks | bootstrap over pairs | the pairs are independent, whatever correlates requests in a block | `analysis::paired` |
//! | a forecast's percentile | Student's t on shares of blocks of the replay | the replay reproduces the measurement | `analysis::predict` |
//!
//! Where requests of one sample are correlated, `analysis::statistics` measures by how much that multiplies the variance
//! of a share (`inflation`), from batches. Whether there is any effect at all is not read from an interval, but tested by
//! exchange (`analysis::exchange`). How often these intervals contain the truth: `docs/notes/intervals.md`.

use crate::share::Share;

/// The normal's 97.5 % point.
pub const NORMAL_975: f64 = 1.959_963_984_540_054;

/// The exact values of Student's distribution for one to four degrees of freedom, where the expansion is too inaccurate.
const FEW: [f64; 4] = [12.706_205, 4.302_653, 3.182_446, 2.776_445];

/// The 97.5 % point of Student's distribution with this number of degrees of freedom, within 0.3 %
/// (Cornish and Fisher 1938); infinite for 0 degrees.
pub fn student_975(degrees: usize) -> f64 {
    if degrees == 0 {
        return f64::INFINITY;
    }
    if let Some(exact) = FEW.get(degrees - 1) {
        return *exact;
    }
    let v = degrees as f64;
    let z2 = NORMAL_975 * NORMAL_975;
    let g1 = (z2 + 1.0) / 4.0;
    let g2 = ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let g3 = (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    NORMAL_975 * (1.0 + g1 / v + g2 / (v * v) + g3 / (v * v * v))
}

/// The mean of independent values, and half of its interval. Infinite with fewer than two values.
pub fn half_width_of_mean(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (n - 1.0) / n).sqrt();
    (mean, student_975(values.len() - 1) * error)
}

/// The share that `found` of `all` independent events are; 0 without an interval if there are none.
pub fn share_of_events(found: u64, all: u64) -> Share {
    if all == 0 {
        return Share::default();
    }
    let (n, value) = (all as f64, found as f64 / all as f64);
    let z2 = NORMAL_975 * NORMAL_975;
    let centre = value + z2 / (2.0 * n);
    let half = NORMAL_975 * (value * (1.0 - value) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    let lo = match found {
        0 => 0.0,
        _ => ((centre - half) / scale).max(0.0),
    };
    Share {
        value,
        lo: Some(lo),
        hi: Some(((centre + half) / scale).min(1.0)),
    }
}

/// The largest share of which `found` or fewer of `all` independent events have a probability of at least 5 %.
pub fn largest_share(found: u32, all: u32) -> f64 {
    const LEVEL: f64 = 0.05;
    if found >= all {
        return 1.0;
    }
    let at_most = |share: f64| {
        let mut term = (1.0 - share).powi(all as i32);
        let mut sum = term;
        for k in 0..found {
            term *= f64::from(all - k) / f64::from(k + 1) * share / (1.0 - share);
            sum += term;
        }
        sum
    };
    let (mut lo, mut hi) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(lo, hi);
        match at_most(middle) >= LEVEL {
            true => lo = middle,
            false => hi = middle,
        }
    }
    lo
}

/// Σ part ÷ Σ all over independent blocks of (part, all), and its standard error: that of part − ratio · all.
/// Infinite with fewer than two blocks; `None` where the sum of `all` is 0.
pub fn error_of_ratio(blocks: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (part, all) = sums(blocks);
    if all <= 0.0 {
        return None;
    }
    let (value, n) = (part / all, blocks.len() as f64);
    if blocks.len() < 2 {
        return Some((value, f64::INFINITY));
    }
    let squares: f64 = (blocks.iter())
        .map(|(part, all)| (part - value * all).powi(2))
        .sum();
    Some((value, (n / (n - 1.0) * squares).sqrt() / all))
}

/// If fewer blocks than this have anything, there is no interval of a ratio of sums.
const LEAST_FOR_RATIO: usize = 5;

/// Σ part ÷ Σ all over independent blocks of (part, all), with the interval of [`error_of_ratio`]. It may be any
/// number, where [`share_of_sums`] is between 0 and 1.
pub fn ratio_of_sums(blocks: &[(f64, f64)]) -> Share {
    let Some((value, error)) = error_of_ratio(blocks) else {
        return Share::default();
    };
    let half = student_975(blocks.len().saturating_sub(1)) * error;
    let has_interval = blocks.len() >= LEAST_FOR_RATIO;
    Share {
        value,
        lo: has_interval.then_some(value - half),
        hi: has_interval.then_some(value + half),
    }
}

/// If fewer blocks than this have anything, there is no interval of a share of sums.
const LEAST_BLOCKS: usize = 8;

/// Σ part ÷ Σ all over independent blocks of (part, all), with its jackknife interval.
pub fn share_of_sums(blocks: &[(f64, f64)]) -> Share {
    let (part, all) = sums(blocks);
    if all <= 0.0 {
        return Share::default();
    }
    let value = part / all;
    let full = blocks.iter().filter(|block| block.1 > 0.0).count();
    if full < LEAST_BLOCKS {
        return Share {
            value,
            lo: None,
            hi: None,
        };
    }
    let without: Vec<f64> = blocks
        .iter()
        .filter(|block| block.1 > 0.0 && all > block.1)
        .map(|block| (part - block.0) / (all - block.1))
        .collect();
    let n = without.len() as f64;
    let mean = without.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = without.iter().map(|x| (x - mean) * (x - mean)).sum();
    let student = student_975(without.len().saturating_sub(1));
    let half = student * ((n - 1.0).max(0.0) / n.max(1.0) * squares).sqrt();
    Share {
        value,
        lo: Some((value - half).max(0.0)),
        hi: Some((value + half).min(1.0)),
    }
}

fn sums(blocks: &[(f64, f64)]) -> (f64, f64) {
    blocks
        .iter()
        .fold((0.0, 0.0), |sum, block| (sum.0 + block.0, sum.1 + block.1))
}

/// The quantile `q` of independent values, which are sorted, between the ends of its interval; `None` without any.
pub fn quantile_of_independent<V: Copy>(sorted: &[V], q: f64) -> Option<(V, V, V)> {
    let n = sorted.len() as f64;
    let last = sorted.len().checked_sub(1)?;
    let half = NORMAL_975 * (n * q * (1.0 - q)).sqrt();
    let at = |rank: f64| sorted[(rank.max(0.0) as usize).min(last)];
    let rank = (n * q).ceil() - 1.0;
    Some((at(rank - half), at(rank), at(rank + half.ceil())))
}

/// An interval without its estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval<T> {
    /// Lower end.
    pub lo: T,
    /// Upper end.
    pub hi: T,
}

/// An estimate with its interval of 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub lo: f64,
    /// Upper end of the interval.
    pub hi: f64,
}

impl Estimate {
    /// The estimate of a quantity, if this is the estimate of its natural logarithm.
    #[must_use]
    pub fn exp(self) -> Self {
        Self {
            value: self.value.exp(),
            lo: self.lo.exp(),
            hi: self.hi.exp(),
        }
    }
}

/// The fewest measurements whose range is an interval of 95 %.
pub const FEWEST_FOR_MEDIAN: usize = 6;

/// The median of independent measurements and its interval of at least 95 % confidence,
/// from the sign test: the closest pair of order statistics that excludes at most 2.5 %
/// on each side (Conover, *Practical Nonparametric Statistics*, 3.2). `None` with fewer
/// than [`FEWEST_FOR_MEDIAN`] measurements, or if one is not a number.
pub fn median(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n < FEWEST_FOR_MEDIAN || values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Largest k with P(binomial(n, 1/2) ≤ k) ≤ 2.5 %: the interval is [x(k+1), x(n−k)].
    let mut term = 0.5_f64.powi(n as i32);
    let mut below = term;
    let mut k = 0;
    while k + 1 < n / 2 {
        term *= (n - k) as f64 / (k + 1) as f64;
        if below + term > 0.025 {
            break;
        }
        below += term;
        k += 1;
    }
    let middle = n / 2;
    let value = if n.is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    };
    Some(Estimate {
        value,
        lo: sorted[k],
        hi: sorted[n - 1 - k],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_the_tabulated_one() {
        let tabulated = [
            (1, 12.706),
            (4, 2.7764),
            (5, 2.5706),
            (10, 2.2281),
            (31, 2.0395),
            (63, 1.9983),
        ];
        for (degrees, t) in tabulated {
            assert!((student_975(degrees) / t - 1.0).abs() < 3e-3, "{degrees}");
        }
        assert_eq!(student_975(0), f64::INFINITY);
    }

    /// By hand: the standard deviation is 2, of the mean of four 1; 3.182 degrees of freedom.
    #[test]
    fn a_mean_has_student_s_interval() {
        let root = 1.5_f64.sqrt() * 2.0;
        let (mean, half) = half_width_of_mean(&[10.0 - root, 10.0, 10.0, 10.0 + root]);
        assert_eq!(mean, 10.0);
        assert!((half - 3.182_446).abs() < 1e-6, "{half}");
        assert_eq!(half_width_of_mean(&[7.0]), (7.0, f64::INFINITY));
    }

    /// The interval of 10 of 100: R's `prop.test(10, 100, correct = FALSE)`.
    #[test]
    fn a_share_has_the_score_interval() {
        let share = share_of_events(10, 100);
        let (lo, hi) = (share.lo.unwrap(), share.hi.unwrap());
        assert!(
            (lo - 0.055_229).abs() < 1e-6 && (hi - 0.174_366).abs() < 1e-6,
            "{lo} {hi}"
        );
        assert_eq!(share_of_events(0, 100).lo, Some(0.0));
        assert_eq!(share_of_events(0, 0), Share::default());
    }

    /// Clopper and Pearson's table: none of 8 has an upper end of 0.312.
    #[test]
    fn what_was_not_seen_may_be_as_much_as_the_table_says() {
        assert!((largest_share(0, 8) - 0.312).abs() < 1e-3);
        assert_eq!(largest_share(8, 8), 1.0);
    }

    #[test]
    fn the_errors_of_a_ratio_by_two_ways_are_near() {
        let blocks: Vec<(f64, f64)> = (0..32)
            .map(|i: u32| (f64::from(i % 5), 10.0 + f64::from(i % 3)))
            .collect();
        let (value, error) = error_of_ratio(&blocks).unwrap();
        let share = share_of_sums(&blocks);
        assert_eq!(share.value, value);
        let half = (share.hi.unwrap() - share.lo.unwrap()) / 2.0;
        assert!(
            (half / (student_975(31) * error) - 1.0).abs() < 0.02,
            "{half} {error}"
        );
        assert_eq!(error_of_ratio(&[]), None);
        assert_eq!(error_of_ratio(&[(1.0, 2.0)]), Some((0.5, f64::INFINITY)));
        let ratio = ratio_of_sums(&blocks);
        let half = student_975(31) * error;
        let ends = (Some(value - half), Some(value + half));
        assert_eq!((ratio.value, (ratio.lo, ratio.hi)), (value, ends));
        let few = ratio_of_sums(&blocks[..LEAST_FOR_RATIO - 1]);
        assert_eq!((few.lo, few.hi), (None, None));
        assert_eq!(ratio_of_sums(&[]), Share::default());
    }

    #[test]
    fn a_quantile_of_independent_values_lies_between_its_ranks() {
        let values: Vec<u32> = (1..=40).collect();
        assert_eq!(quantile_of_independent(&values, 0.1), Some((1, 4, 8)));
        assert_eq!(quantile_of_independent(&[9], 0.1), Some((9, 9, 9)));
        assert_eq!(quantile_of_independent::<u32>(&[], 0.1), None);
    }

    /// Dixon and Mood 1946, *The Statistical Sign Test*, table 1: the largest number of the rarer sign that is
    /// significant at 5 %, on both sides together.
    #[test]
    fn the_interval_is_the_sign_test_s() {
        let table: [(u32, u32); 10] = [
            (6, 0),
            (8, 0),
            (9, 1),
            (11, 1),
            (12, 2),
            (15, 3),
            (17, 4),
            (20, 5),
            (25, 7),
            (60, 21),
        ];
        for (n, largest) in table {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            let found = median(&values).unwrap();
            let ends = (f64::from(largest + 1), f64::from(n - largest));
            assert_eq!((found.lo, found.hi), ends, "{n}");
            assert_eq!(found.value, f64::from(n + 1) / 2.0, "{n}");
        }
        let nine = median(&[9.0, 1.0, 2.0, 3.0, 8.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        assert_eq!((nine.lo, nine.value, nine.hi), (2.0, 5.0, 8.0));
    }

    #[test]
    fn too_few_measurements_have_no_interval() {
        assert_eq!(median(&[1.0; 5]), None);
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0, 5.0, f64::NAN]), None);
    }
}
