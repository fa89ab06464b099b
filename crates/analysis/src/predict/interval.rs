//! The interval of a forecast: that of the percentile which the replay with the change has.
//!
//! It comes from the share of slow requests in blocks of time, 1/32 to 1/64 of the measurement each, which are long
//! compared with the queue's memory. The spread of the shares over the blocks gives the error of the share in all; the
//! interval reaches from one quantile of the replay to another, as far as that error moves the rank.
//!
//! The ratio to the replay without changes has a narrower interval where a change hardly matters, since both replays
//! have the same requests. But it says how much *these* requests gain, and not what others will see: of percentiles
//! of a long run, it contains as little as a fifth. Therefore it is not used, and the narrower of the two even less.
//! What this achieves is in the tests here, and in docs/notes/intervals.md.

use taillab_model::interval::{Interval, student_975};

use crate::replay::BlockHistogram;

/// If fewer blocks have requests, there is no interval.
const MIN_BLOCKS: usize = 8;

/// From here on, a quantile is far.
const FAR: f64 = 0.9;

/// The interval of 95 % of each of these quantiles of a replay, which ascend, as factors of the quantile. The upper one
/// is infinite where it is beyond the slowest request. `None` if there are too few blocks.
pub(super) fn factors(replayed: &BlockHistogram, quantiles: &[f64]) -> Vec<Option<Interval<f64>>> {
    let all = replayed.all();
    let n = all.total() as f64;
    let mut at_least = 1.0;
    let of = |q: f64| {
        let value = all.quantile_ns(q).filter(|value| *value > 0.0)?;
        let blocks = BlockCounts::of(&replayed.beyond(value))?;
        let inflation = blocks.inflation(q).max(at_least);
        // Far out there are few clusters of slow requests to estimate from, and where they happen to be small the interval
        // would be too narrow. The factor is about the same at all far quantiles, and smaller near the middle.
        at_least = match q < FAR {
            true => inflation / 2.0,
            false => inflation,
        };
        let half = blocks.student * (inflation * q * (1.0 - q) / n).sqrt();
        let lo = all.quantile_ns((q - half).max(0.0))?;
        // at least one request must be above the interval
        let hi = match (1.0 - q - half) * n < 1.0 {
            true => f64::INFINITY,
            false => all.quantile_ns(q + half).unwrap_or(f64::INFINITY),
        };
        Some(Interval {
            lo: lo / value,
            hi: hi / value,
        })
    };
    quantiles.iter().copied().map(of).collect()
}

/// The requests of each block that has any: those above a value, those at or above it, and all.
struct BlockCounts {
    used: Vec<[f64; 3]>,
    n: f64,
    /// Student's factor for so many blocks.
    student: f64,
}

impl BlockCounts {
    fn of(counts: &[[u64; 3]]) -> Option<Self> {
        let used = counts.iter().filter(|[_, _, all]| *all > 0);
        let used: Vec<[f64; 3]> = used.map(|of| of.map(|count| count as f64)).collect();
        (used.len() >= MIN_BLOCKS).then(|| Self {
            n: used.iter().map(|[_, _, all]| all).sum(),
            student: student_975(used.len() - 1),
            used,
        })
    }

    /// By which factor (≥ 1) correlation multiplies the variance of the share above the quantile `q`. Where many
    /// requests take equally long, the shares on both sides of them count.
    fn inflation(&self, q: f64) -> f64 {
        let count = self.used.len() as f64;
        let variance = |side: usize| {
            let share = self.used.iter().map(|of| of[side]).sum::<f64>() / self.n;
            let squares = self
                .used
                .iter()
                .map(|of| (of[side] - share * of[2]).powi(2));
            count / (count - 1.0) * squares.sum::<f64>() / (self.n * self.n)
        };
        let independent = q * (1.0 - q) / self.n;
        (variance(0).max(variance(1)) / independent).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::Nanos;
    use taillab_queueing::random::lanes::split_mix;

    use super::*;
    use crate::statistics::distribution_of;

    const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
    const BLOCKS: usize = 48;

    fn histogram(of: impl Fn(usize) -> u64) -> BlockHistogram {
        let mut histogram = BlockHistogram::new(16);
        for i in 0..16_000 {
            histogram.add(i / 1_000, of(i));
        }
        histogram
    }

    #[test]
    fn what_every_block_has_is_known_and_what_one_has_is_not() {
        let even = histogram(|i| 1_000_000 + (i as u64 * 617 % 1_000) * 1_000);
        for factor in factors(&even, &[0.5, 0.9]) {
            let Interval { lo, hi } = factor.unwrap();
            assert!(lo > 0.97 && hi < 1.03, "{lo} {hi}");
        }
        let burst = histogram(|i| if i < 1_000 { 80_000_000 } else { 2_000_000 });
        let Interval { lo, hi } = factors(&burst, &[0.97])[0].unwrap();
        assert!(lo < 0.1 && hi.is_infinite(), "{lo} {hi}");
        let mut few = BlockHistogram::new(16);
        (0..700).for_each(|i| few.add(i % 7, 5));
        assert_eq!(factors(&few, &[0.5]), [None]);
    }

    /// What disturbs a queue of exponential or of equal service times.
    struct Case {
        name: &'static str,
        load: f64,
        exponential: bool,
        /// Stalls of the worker, in mean service times: the mean time between two of them, and their length.
        every: f64,
        stall: f64,
    }

    /// The sojourns of the same requests with and without the stalls, in thousandths of the mean service time.
    fn simulated(case: &Case, n: usize, seed: u64) -> [Vec<Nanos>; 2] {
        let mut state = seed;
        let mut exponential = |mean: f64| {
            let unit = ((split_mix(&mut state) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            -unit.ln() * mean
        };
        let mut next = exponential(case.every);
        let (mut with, mut without) = (0.0_f64, 0.0_f64);
        let mut sojourns = [Vec::with_capacity(n), Vec::with_capacity(n)];
        for _ in 0..n {
            let gap = exponential(1.0 / case.load);
            let service = match case.exponential {
                true => exponential(1.0),
                false => 1.0,
            };
            without = (without - gap).max(0.0) + service;
            let (mut left, mut work) = (gap, with);
            while next <= left {
                work = (work - next).max(0.0) + case.stall;
                left -= next;
                next = exponential(case.every);
            }
            next -= left;
            with = (work - left).max(0.0) + service;
            for (sojourns, sojourn) in sojourns.iter_mut().zip([with, without]) {
                sojourns.push(Nanos::new((sojourn * 1_000.0) as u64 + 1));
            }
        }
        sojourns
    }

    /// Of the forecasts of percentiles that the measurement supports, at least 90 % contain the percentile of a long run
    /// without the stalls: where they make the tail, and where they hardly matter. (The narrower of two intervals by
    /// bootstrap, which was used before, contained 11 to 95 %.)
    #[test]
    fn intervals_contain_what_a_long_run_without_the_cause_has() {
        const RUNS: u64 = 150;
        const LENGTH: usize = 40_000;
        let case = |name, load, exponential, every, stall| Case {
            name,
            load,
            exponential,
            every,
            stall,
        };
        for case in [
            case("stalls make the tail", 0.55, false, 400.0, 27.0),
            case("of exponential services", 0.6, true, 300.0, 20.0),
            case("stalls hardly matter", 0.7, true, 400.0, 2.0),
        ] {
            let [_, mut long] = simulated(&case, 3_000_000, 1);
            long.sort_unstable();
            let truth = QUANTILES.map(|q| long[(q * long.len() as f64) as usize].get() as f64);
            let (mut shown, mut held, mut open) = ([0_u32; 3], [0_u32; 3], [0_u32; 3]);
            for run in 0..RUNS {
                let [with, without] = simulated(&case, LENGTH, 1_000 + run);
                let measured = distribution_of(&with);
                let mut histogram = BlockHistogram::new(BLOCKS);
                for (place, sojourn) in without.iter().enumerate() {
                    histogram.add(place * BLOCKS / LENGTH, sojourn.get());
                }
                let all = histogram.all().quantiles_ns(&QUANTILES);
                for (place, factor) in factors(&histogram, &QUANTILES).into_iter().enumerate() {
                    if measured.quantile(QUANTILES[place]).is_none() {
                        continue;
                    }
                    let Interval { lo, hi } = factor.unwrap();
                    let relative = truth[place] / all[place].unwrap();
                    shown[place] += 1;
                    held[place] += u32::from(lo * 0.996 <= relative && relative <= hi * 1.004);
                    open[place] += u32::from(hi.is_infinite());
                }
            }
            println!(
                "{}: shown {shown:?}, hold {held:?}, open {open:?}",
                case.name
            );
            for place in 0..3 {
                let least = 0.9 * f64::from(shown[place]);
                assert!(
                    f64::from(held[place]) >= least,
                    "{} {place}: {held:?} of {shown:?}",
                    case.name
                );
            }
            assert!(shown[0] > 140 && shown[1] > 75, "{shown:?}");
        }
    }
}
