//! A round trip through a network as a sum of independent parts: hosts as measured, switches and fibre as
//! specified.
//!
//! Each draw adds up every traversal of every part. The contribution of a part at the median is its mean
//! over the draws around the median; in the tail, it is its mean over the slowest thousandth. A part that
//! is small on average may dominate the tail. There is no queueing in the network: the sum holds if nobody
//! else sends.

use taillab_model::{Distribution, Nanos};
use taillab_queueing::service::{Service, ServiceError};

/// Half the width of the band of ranks around the median.
const MEDIAN_BAND: f64 = 0.05;
/// The share of the draws that are the slowest.
const TAIL: f64 = 0.001;

/// A part of a round trip.
#[derive(Clone, Debug)]
pub struct Part {
    /// The name in results.
    pub name: String,
    /// How often a round trip passes through it.
    pub traversals: u32,
    /// The distribution of the time of one passage.
    pub law: Service,
}

/// The contribution of a part to the sum, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// The name of the part.
    pub name: String,
    /// Its mean among the draws around the median.
    pub at_median_ns: f64,
    /// Its mean among the slowest thousandth.
    pub in_tail_ns: f64,
}

/// The sum of all parts.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    /// Its distribution.
    pub total: Distribution,
    /// Its sorted values, for figures.
    pub sorted: Vec<Nanos>,
    /// The contributions, in the order of the parts.
    pub contributions: Vec<Contribution>,
}

/// Draws the sum of these parts `draws` times; the same seed gives the same draws.
///
/// # Errors
/// [`ServiceError`] when the law of a part is out of range.
pub fn round_trip(parts: &[Part], draws: usize, seed: u64) -> Result<RoundTrip, ServiceError> {
    let mut of_parts: Vec<Vec<u64>> = Vec::with_capacity(parts.len());
    for (place, part) in parts.iter().enumerate() {
        let mut times = part.law.times(seed, place as u64)?;
        let mut passage = || times.draw().get();
        let one = |_| (0..part.traversals).map(|_| passage()).sum();
        of_parts.push((0..draws).map(one).collect());
    }
    let totals: Vec<u64> = (0..draws)
        .map(|draw| of_parts.iter().map(|part| part[draw]).sum())
        .collect();
    let mut order: Vec<usize> = (0..draws).collect();
    order.sort_by_key(|&draw| totals[draw]);
    let rank = |share: f64| ((share * draws as f64) as usize).min(draws);
    let from = rank(0.5 - MEDIAN_BAND);
    let middle = &order[from..rank(0.5 + MEDIAN_BAND).max(from + 1).min(draws)];
    let slowest = &order[draws - rank(TAIL).max(1).min(draws)..];
    let mean = |part: &[u64], among: &[usize]| {
        let sum: u64 = among.iter().map(|&draw| part[draw]).sum();
        sum as f64 / among.len().max(1) as f64
    };
    let contributions = (parts.iter().zip(&of_parts))
        .map(|(part, times)| Contribution {
            name: part.name.clone(),
            at_median_ns: mean(times, middle),
            in_tail_ns: mean(times, slowest),
        })
        .collect();
    let sorted: Vec<Nanos> = order.iter().map(|&draw| Nanos::new(totals[draw])).collect();
    Ok(RoundTrip {
        total: Distribution::from_sorted(&sorted),
        sorted,
        contributions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, traversals: u32, law: Service) -> Part {
        Part {
            name: name.into(),
            traversals,
            law,
        }
    }

    /// 1 or 3 µs with equal odds.
    fn coin() -> Service {
        Service::empirical(vec![Nanos::from_micros(1), Nanos::from_micros(3)]).unwrap()
    }

    #[test]
    fn a_sum_of_coins_is_binomial() {
        const DRAWS: usize = 200_000;
        let constant = Service::deterministic(Nanos::from_micros(10));
        let parts = [part("coin", 4, coin()), part("fibre", 2, constant)];
        let sum = round_trip(&parts, DRAWS, 7).unwrap();
        // 20 µs of fibre, 1 µs for each of the four coins, and 2 µs more for each head
        for (heads, ways) in [(0, 1.0), (1, 4.0), (2, 6.0), (3, 4.0), (4, 1.0)] {
            let value = Nanos::from_micros(24 + 2 * heads);
            let found = sum.sorted.iter().filter(|total| **total == value).count() as f64;
            let p = ways / 16.0;
            let error = (DRAWS as f64 * p * (1.0 - p)).sqrt();
            let expected = DRAWS as f64 * p;
            assert!(
                (found - expected).abs() < 5.0 * error,
                "{heads}: {found} {expected}"
            );
        }
        // not the middle of a cell of a histogram
        assert_eq!(sum.total.quantile(0.5), Some(Nanos::from_micros(28)));
        let [coins, fibre] = &sum.contributions[..] else {
            panic!("two parts");
        };
        assert_eq!((fibre.at_median_ns, fibre.in_tail_ns), (20_000.0, 20_000.0));
        // the sums of the middle tenth are 28 µs, those of the slowest thousandth 32 µs
        assert_eq!((coins.at_median_ns, coins.in_tail_ns), (8_000.0, 12_000.0));
    }

    #[test]
    fn parts_sum_to_the_whole_and_a_seed_repeats() {
        let law: Service = "exponential:5us".parse().unwrap();
        let parts = [part("a", 1, law.clone()), part("b", 3, law)];
        let one = round_trip(&parts, 20_000, 1).unwrap();
        assert_eq!(one.sorted, round_trip(&parts, 20_000, 1).unwrap().sorted);
        let tail: f64 = one.contributions.iter().map(|part| part.in_tail_ns).sum();
        let slowest = &one.sorted[one.sorted.len() - 20..];
        let mean = slowest.iter().map(|total| total.get()).sum::<u64>() as f64 / 20.0;
        assert!((tail - mean).abs() < 1e-6, "{tail} {mean}");
        // four exponentials of 5 µs: mean 20 µs, standard error 10 µs / √20,000
        let found = one.total.mean.unwrap();
        assert!((found - 20_000.0).abs() < 5.0 * 71.0, "{found}");
    }

    #[test]
    fn a_few_draws_have_a_middle_too() {
        let parts = [part("fibre", 1, Service::deterministic(Nanos::new(7)))];
        for draws in 1..20 {
            let sum = round_trip(&parts, draws, 1).unwrap();
            let fibre = &sum.contributions[0];
            assert_eq!(
                (fibre.at_median_ns, fibre.in_tail_ns),
                (7.0, 7.0),
                "{draws}"
            );
        }
    }

    #[test]
    fn nothing_takes_no_time() {
        let none = round_trip(&[], 10, 1).unwrap();
        assert_eq!(none.total.max, Some(Nanos::ZERO));
    }
}
