//! How sure a forecast is: a bootstrap over blocks of time.
//!
//! Both replays, with and without, are of the same requests, so the ratio of their
//! quantiles is taken over the same drawn blocks (Efron and Tibshirani 1993, sections 8.6
//! and 13.3: moving the blocks together keeps what correlates together). Blocks of a
//! thirty-second of the measurement are long against the queue's memory.

use crate::replay::BlockHistogram;

/// Draws of the blocks.
const DRAWS: usize = 200;

/// Fewer blocks with requests than this give no interval.
const MIN_BLOCKS: usize = 8;

/// The same draws of blocks for every forecast.
pub(crate) struct Bootstrap {
    /// How often each block stands in each draw.
    draws: Vec<Vec<u32>>,
    /// The quantiles of the replay as it was, for each draw.
    with: Vec<Vec<Option<f64>>>,
    quantiles: Vec<f64>,
}

impl Bootstrap {
    /// Draws blocks; `with` is the replay of the queue as it was, `used` the blocks that
    /// hold requests.
    pub(crate) fn new(with: &BlockHistogram, used: &[usize], quantiles: &[f64]) -> Self {
        let mut state = 0x5eed_u64;
        let draws: Vec<Vec<u32>> = match used.len() {
            0..MIN_BLOCKS => Vec::new(),
            blocks => (0..DRAWS)
                .map(|_| {
                    let last = used.iter().max().map_or(0, |last| last + 1);
                    let mut times = vec![0; last];
                    for _ in 0..blocks {
                        times[used[below(&mut state, blocks)]] += 1;
                    }
                    times
                })
                .collect(),
        };
        let with = draws
            .iter()
            .map(|times| at(with, times, quantiles))
            .collect();
        Self {
            draws,
            with,
            quantiles: quantiles.to_vec(),
        }
    }

    /// The middle 95 % of without ÷ with, for each quantile; `None` where that cannot be
    /// said.
    pub(crate) fn ratios(&self, without: &BlockHistogram) -> Vec<Option<(f64, f64)>> {
        let mut ratios = vec![Vec::with_capacity(DRAWS); self.quantiles.len()];
        for (times, with) in self.draws.iter().zip(&self.with) {
            let without = at(without, times, &self.quantiles);
            for (ratios, (without, with)) in ratios.iter_mut().zip(without.iter().zip(with)) {
                if let (Some(without), Some(with)) = (without, with)
                    && *with > 0.0
                {
                    ratios.push(without / with);
                }
            }
        }
        ratios.into_iter().map(middle).collect()
    }
}

fn at(histogram: &BlockHistogram, times: &[u32], quantiles: &[f64]) -> Vec<Option<f64>> {
    let counts = histogram.weighted(times);
    quantiles.iter().map(|q| counts.quantile_ns(*q)).collect()
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

/// A number below `n`, evenly enough (SplitMix64; Steele, Lea and Flood 2014).
fn below(state: &mut u64, n: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % n as u64) as usize
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
        let with = histogram(|i| 1_000_000 + (i as u64 % 1_000) * 1_000);
        let bootstrap = Bootstrap::new(&with, &used, &[0.5, 0.99]);
        let half = histogram(|i| 500_000 + (i as u64 % 1_000) * 500);
        for ratio in bootstrap.ratios(&half) {
            let (lo, hi) = ratio.unwrap();
            assert!(lo > 0.49 && hi < 0.51, "{lo} {hi}");
        }
        // only the first block gains, and a third of the draws do without it
        let bootstrap = Bootstrap::new(&with, &used, &[0.05]);
        let one = histogram(|i| if i < 1_000 { 1_000 } else { 1_500_000 });
        let (lo, hi) = bootstrap.ratios(&one)[0].unwrap();
        assert!(lo < 0.01 && hi > 1.0, "{lo} {hi}");
    }

    #[test]
    fn few_blocks_give_no_interval() {
        let with = histogram(|_| 7);
        let bootstrap = Bootstrap::new(&with, &[0, 1, 2], &[0.5]);
        assert_eq!(bootstrap.ratios(&with), [None]);
    }
}
