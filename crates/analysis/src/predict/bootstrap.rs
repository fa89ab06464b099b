//! The interval of a forecast: a bootstrap over blocks of time.
//!
//! A block (1/32 to 1/64 of the measurement) is long compared with the queue's memory, and drawing whole
//! blocks keeps correlated requests together (Efron and Tibshirani 1993, sections 8.6 and 13.3).
//! Two intervals are computed from the same draws: that of the forecast itself, and that of its ratio to
//! the replay without changes. Both replays have the same requests, so what they have in common cancels
//! in the ratio. The first interval is narrow if the change removes the bursts, the second if the change
//! hardly matters. The narrower one is used.

use taillab_queueing::random::lanes::split_mix;

use crate::replay::BlockHistogram;

const DRAWS: usize = 200;

/// If fewer blocks have requests, there is no interval.
const MIN_BLOCKS: usize = 8;

/// The draws of blocks; every forecast uses the same ones.
pub(crate) struct Bootstrap {
    /// How often each block occurs in each draw.
    draws: Vec<Vec<u32>>,
    /// The quantiles of the replay without changes, for each draw.
    with: Vec<Vec<Option<f64>>>,
    /// The quantiles of the replay without changes over all blocks.
    all: Vec<Option<f64>>,
    quantiles: Vec<f64>,
}

impl Bootstrap {
    /// Draws blocks. `with` is the replay without changes; `used` are the blocks that have requests.
    pub(crate) fn new(with: &BlockHistogram, used: &[usize], quantiles: &[f64]) -> Self {
        let mut state = 0x5eed_u64;
        let draws: Vec<Vec<u32>> = match used.len() {
            0..MIN_BLOCKS => Vec::new(),
            blocks => (0..DRAWS)
                .map(|_| {
                    let last = used.iter().max().map_or(0, |last| last + 1);
                    let mut times = vec![0; last];
                    for _ in 0..blocks {
                        let place = split_mix(&mut state) % blocks as u64;
                        times[used[place as usize]] += 1;
                    }
                    times
                })
                .collect(),
        };
        let each = draws.iter();
        let each = each.map(|times| with.weighted(times).quantiles_ns(quantiles));
        Self {
            with: each.collect(),
            all: with.all().quantiles_ns(quantiles),
            draws,
            quantiles: quantiles.to_vec(),
        }
    }

    /// The interval of 95 % of each quantile's forecast, as factors of the forecast over all blocks; `None`
    /// if there are too few blocks.
    pub(crate) fn factors(&self, without: &BlockHistogram) -> Vec<Option<(f64, f64)>> {
        let places = self.quantiles.len();
        let mut itself = vec![Vec::with_capacity(DRAWS); places];
        let mut ratios = vec![Vec::with_capacity(DRAWS); places];
        for (times, with) in self.draws.iter().zip(&self.with) {
            let quantiles = without.weighted(times).quantiles_ns(&self.quantiles);
            for (place, without) in quantiles.iter().enumerate() {
                if let (Some(without), Some(with)) = (without, with[place])
                    && with > 0.0
                {
                    itself[place].push(*without);
                    ratios[place].push(without / with);
                }
            }
        }
        let all = without.all().quantiles_ns(&self.quantiles);
        let series = itself
            .into_iter()
            .zip(ratios)
            .zip(all.iter().zip(&self.all));
        series
            .map(|((itself, ratios), (without, with))| {
                let (without, with) = (without.filter(|w| *w > 0.0)?, (*with)?);
                let scaled = |(lo, hi): (f64, f64), by: f64| (lo / by, hi / by);
                let itself = scaled(middle(itself)?, without);
                let ratio = scaled(middle(ratios)?, without / with);
                let width = |(lo, hi): (f64, f64)| hi - lo;
                Some(if width(itself) < width(ratio) {
                    itself
                } else {
                    ratio
                })
            })
            .collect()
    }
}

/// The 2.5 % and 97.5 % points.
fn middle(mut ratios: Vec<f64>) -> Option<(f64, f64)> {
    if ratios.len() < DRAWS / 2 {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    let place = |p: f64| ((ratios.len() - 1) as f64 * p).round() as usize;
    Some((ratios[place(0.025)], ratios[place(0.975)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(of: impl Fn(usize) -> u64) -> BlockHistogram {
        let mut histogram = BlockHistogram::new(16);
        for i in 0..16_000 {
            histogram.add(i / 1_000, of(i));
        }
        histogram
    }

    #[test]
    fn a_steady_gain_has_a_narrow_interval_and_an_uneven_one_a_wide_one() {
        let used: Vec<usize> = (0..16).collect();
        // each block is slower than the one before, so each forecast alone is uncertain
        let with =
            histogram(|i| 1_000_000 + (i as u64 % 1_000) * 1_000 + i as u64 / 1_000 * 90_000);
        let bootstrap = Bootstrap::new(&with, &used, &[0.5, 0.99]);
        let half = histogram(|i| 500_000 + (i as u64 % 1_000) * 500 + i as u64 / 1_000 * 45_000);
        for factor in bootstrap.factors(&half) {
            let (lo, hi) = factor.unwrap();
            assert!(lo > 0.98 && hi < 1.02, "{lo} {hi}");
        }
        // one block has a burst, which the change removes: what is left is certain
        let burst = histogram(|i| if i < 1_000 { 90_000_000 } else { 1_000_000 });
        let bootstrap = Bootstrap::new(&burst, &used, &[0.97]);
        let (lo, hi) = bootstrap.factors(&histogram(|_| 1_000_000))[0].unwrap();
        assert!(lo > 0.99 && hi < 1.01, "{lo} {hi}");
        // the burst stays, and a third of the draws do not contain it
        let (lo, hi) =
            bootstrap.factors(&histogram(
                |i| if i < 1_000 { 80_000_000 } else { 2_000_000 },
            ))[0]
                .unwrap();
        assert!(lo < 0.1 && hi > 0.99, "{lo} {hi}");
    }

    #[test]
    fn few_blocks_give_no_interval() {
        let with = histogram(|_| 7);
        let bootstrap = Bootstrap::new(&with, &[0, 1, 2], &[0.5]);
        assert_eq!(bootstrap.factors(&with), [None]);
    }
}
