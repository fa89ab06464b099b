//! Which keys requests ask for, and how often each.

use std::fmt;
use std::str::FromStr;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::Operation;

use super::Planned;
use crate::LoadError;

/// How popular each key is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum KeyDistribution {
    /// All keys are equally popular.
    #[default]
    Uniform,
    /// Key number k with a probability proportional to (k + 1)^-s: key 0 is the most
    /// popular one.
    Zipf(f64),
}

impl KeyDistribution {
    /// The steepest exponent: with it the first key has all but 1/65,000 of the requests.
    pub const MAX_EXPONENT: f64 = 16.0;

    /// Checks that it can be drawn from.
    ///
    /// # Errors
    /// [`LoadError::KeyDistribution`] when the exponent is not above 0 and at most
    /// [`KeyDistribution::MAX_EXPONENT`].
    pub fn validate(self) -> Result<(), LoadError> {
        match self {
            // false for a NaN, too
            Self::Zipf(s) if !(s > 0.0 && s <= Self::MAX_EXPONENT) => {
                Err(LoadError::KeyDistribution(self.to_string()))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for KeyDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(s) => write!(f, "zipf:{s}"),
        }
    }
}

impl FromStr for KeyDistribution {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        let unknown = || LoadError::KeyDistribution(text.to_owned());
        let this = match text.split_once(':') {
            None if text == "uniform" => Self::Uniform,
            Some(("zipf", s)) => Self::Zipf(s.parse().map_err(|_| unknown())?),
            _ => return Err(unknown()),
        };
        this.validate().map_err(|_| unknown())?;
        Ok(this)
    }
}

/// Digits of the largest key number. In a longer key, zeros come before them.
const MAX_DIGITS: usize = Planned::MAX_KEYS.ilog10() as usize + 1;

/// All keys of a store: decimal numbers of one width, so that all requests have one length.
///
/// Each is written when it is needed: together they could take more memory than there is.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: u32,
    /// What all of them begin with.
    zeros: Vec<u8>,
    /// Bytes of a key after the zeros.
    digits: usize,
}

/// A key of a [`KeySet`].
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    number: u32,
    zeros: &'a [u8],
    digits: usize,
}

impl Key<'_> {
    /// Writes it over another key of its set: the one at the end of `bytes`.
    #[inline]
    pub fn write(self, bytes: &mut [u8]) {
        let mut rest = self.number;
        for digit in bytes.iter_mut().rev().take(self.digits) {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    /// Whether `text` is this key.
    #[inline]
    pub fn is(self, text: &[u8]) -> bool {
        let mut digits = [b'0'; MAX_DIGITS];
        self.write(&mut digits);
        text.strip_prefix(self.zeros) == Some(&digits[MAX_DIGITS - self.digits..])
    }
}

#[cfg(test)]
impl Key<'static> {
    /// A key of four digits.
    pub(super) const fn of_four(number: u32) -> Self {
        Self {
            number,
            zeros: b"",
            digits: 4,
        }
    }
}

impl KeySet {
    /// `keys` keys of `key_bytes` bytes each; a server accepts at most `max_key_bytes`.
    ///
    /// # Errors
    /// [`LoadError::Keys`] or [`LoadError::KeySize`].
    pub fn new(keys: u32, key_bytes: usize, max_key_bytes: usize) -> Result<Self, LoadError> {
        if keys == 0 || keys > Planned::MAX_KEYS {
            return Err(LoadError::Keys {
                keys,
                max: Planned::MAX_KEYS,
            });
        }
        let min = (keys - 1).checked_ilog10().unwrap_or(0) as usize + 1;
        if key_bytes < min || key_bytes > max_key_bytes {
            return Err(LoadError::KeySize {
                key_bytes,
                keys,
                min,
                max: max_key_bytes,
            });
        }
        let digits = key_bytes.min(MAX_DIGITS);
        Ok(Self {
            keys,
            zeros: vec![b'0'; key_bytes - digits],
            digits,
        })
    }

    /// Key number `n`, which is below the number of keys.
    #[inline]
    pub fn get(&self, n: u32) -> Key<'_> {
        Key {
            number: n,
            zeros: &self.zeros,
            digits: self.digits,
        }
    }

    /// One set of each key, in order, so that every later get is a hit.
    pub(crate) fn sets(&self) -> Vec<Planned> {
        let keys = 0..self.keys;
        keys.map(|key| Planned::new(Operation::Set, key)).collect()
    }
}

/// Draws `n` gets and sets of `keys` keys, the same ones for the same seed.
pub(crate) fn plan_store(
    keys: u32,
    distribution: KeyDistribution,
    get_share: f64,
    n: usize,
    seed: u64,
) -> Vec<Planned> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let zipf = match distribution {
        KeyDistribution::Uniform => None,
        KeyDistribution::Zipf(s) => Some(Zipf::new(keys, s)),
    };
    let one = || {
        let operation = if rng.random::<f64>() < get_share {
            Operation::Get
        } else {
            Operation::Set
        };
        let key = match &zipf {
            None => rng.random_range(0..keys),
            Some(zipf) => zipf.rank(&mut rng) - 1,
        };
        Planned::new(operation, key)
    };
    std::iter::repeat_with(one).take(n).collect()
}

/// Exact draws of ranks 1 … n with probabilities proportional to rank^-s, in constant
/// time and memory, by rejection-inversion: W. Hörmann, G. Derflinger, "Rejection-inversion
/// to generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996,
/// algorithm ZRI. Written here because a crate may draw differently in its next version, and a
/// seed must give the same keys for as long as results are compared.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    n: f64,
    s: f64,
    /// H(1.5) − h(1) and H(n + ½): the range of the numbers that are drawn and inverted.
    lowest: f64,
    highest: f64,
    /// A rank that is at most this far above the continuous draw is accepted at once.
    sure: f64,
}

impl Zipf {
    fn new(n: u32, s: f64) -> Self {
        let mut this = Self {
            n: f64::from(n),
            s,
            lowest: 0.0,
            highest: 0.0,
            sure: 0.0,
        };
        this.lowest = this.integral(1.5) - 1.0;
        this.highest = this.integral(this.n + 0.5);
        this.sure = 2.0 - this.inverse(this.integral(2.5) - this.weight(2.0));
        this
    }

    fn rank(&self, rng: &mut Xoshiro256PlusPlus) -> u32 {
        loop {
            let u = self.highest + rng.random::<f64>() * (self.lowest - self.highest);
            let x = self.inverse(u);
            let rank = x.round().clamp(1.0, self.n);
            if rank - x <= self.sure || u >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u32;
            }
        }
    }

    /// h(x) = x^-s.
    fn weight(&self, x: f64) -> f64 {
        x.powf(-self.s)
    }

    /// H(x), the integral of h from 1: (x^(1−s) − 1) / (1 − s), and ln x for s = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        log * over(f64::exp_m1, (1.0 - self.s) * log)
    }

    /// The x whose H(x) is `area`.
    fn inverse(&self, area: f64) -> f64 {
        // rounding may carry it beyond the pole, which is at −1
        let t = (area * (1.0 - self.s)).max(-1.0);
        (area * over(f64::ln_1p, t)).exp()
    }
}

/// f(x) / x, for functions for which it tends to 1 at 0. Near 0 it differs from 1 by less than x,
/// and so by less than rounding.
fn over(f: impl Fn(f64) -> f64, x: f64) -> f64 {
    if x.abs() < 1e-16 { 1.0 } else { f(x) / x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-squared of the draws of one law against the exact probabilities of another, and its limit;
    /// ranks expected less than ten times are taken together.
    fn chi_squared(keys: u32, drawn: f64, s: f64, draws: usize, seed: u64) -> (f64, f64) {
        let plan = plan_store(keys, KeyDistribution::Zipf(drawn), 1.0, draws, seed);
        let mut seen = vec![0_u32; keys as usize];
        for what in plan {
            seen[what.key() as usize] += 1;
        }
        let weights: Vec<f64> = (1..=keys).map(|k| f64::from(k).powf(-s)).collect();
        let sum: f64 = weights.iter().rev().sum();
        let (mut statistic, mut cells) = (0.0, 0);
        let (mut pooled_seen, mut pooled_expected) = (0.0, 0.0);
        for (count, weight) in seen.iter().zip(&weights) {
            pooled_seen += f64::from(*count);
            pooled_expected += draws as f64 * weight / sum;
            if pooled_expected >= 10.0 {
                statistic += (pooled_seen - pooled_expected).powi(2) / pooled_expected;
                cells += 1;
                (pooled_seen, pooled_expected) = (0.0, 0.0);
            }
        }
        if pooled_expected > 0.0 {
            statistic += (pooled_seen - pooled_expected).powi(2) / pooled_expected.max(1.0);
            cells += 1;
        }
        let freedom = f64::from(cells - 1);
        // Wilson and Hilferty: the cube root is nearly normal; 4 deviations
        let limit = if freedom > 0.0 {
            let v = 2.0 / (9.0 * freedom);
            freedom * (1.0 - v + 4.0 * v.sqrt()).powi(3)
        } else {
            0.0
        };
        (statistic, limit)
    }

    #[test]
    fn zipf_draws_have_exact_frequencies() {
        for keys in [1, 2, 10, 1000, 100_000] {
            for s in [0.1, 0.5, 0.99, 1.0, 1.0 + 1e-12, 1.2, 2.0, 5.0] {
                let (statistic, limit) = chi_squared(keys, s, s, 200_000, 42);
                assert!(
                    statistic <= limit,
                    "{keys} keys, s = {s}: {statistic} of {limit}"
                );
            }
        }
    }

    /// The draws are enough to detect a law that differs only slightly.
    #[test]
    fn the_test_of_frequencies_can_fail() {
        for other in [0.97, 1.03] {
            let (statistic, limit) = chi_squared(1000, 1.0, other, 200_000, 7);
            assert!(statistic > limit, "s = {other}: {statistic} of {limit}");
        }
    }

    #[test]
    fn the_tail_of_a_large_set_is_drawn_too() {
        let keys = Planned::MAX_KEYS;
        let plan = plan_store(keys, KeyDistribution::Zipf(0.5), 1.0, 10_000, 3);
        // P(rank > n / 4) = 1 − √(1/4) for s = ½ and many keys
        let upper = plan.iter().filter(|p| p.key() >= keys / 4).count() as f64;
        assert!((upper - 5000.0).abs() < 4.0 * 50.0, "{upper}");
    }

    #[test]
    fn distributions_are_read_as_they_are_written() {
        for this in [
            KeyDistribution::Uniform,
            KeyDistribution::Zipf(0.99),
            KeyDistribution::Zipf(16.0),
        ] {
            assert_eq!(this.to_string().parse::<KeyDistribution>().unwrap(), this);
        }
        for bad in [
            "", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:nan", "zipf:17", "pareto:1",
        ] {
            let error = bad.parse::<KeyDistribution>().unwrap_err().to_string();
            assert!(error.contains("zipf:"), "{error}");
        }
    }

    #[test]
    fn keys_have_one_width() {
        for (keys, key_bytes) in [(1, 1), (101, 5), (1000, 64), (Planned::MAX_KEYS, 8)] {
            let set = KeySet::new(keys, key_bytes, 250).unwrap();
            let mut text = vec![b'0'; key_bytes];
            for n in [keys - 1, 0, keys / 2] {
                let key = set.get(n);
                key.write(&mut text);
                assert_eq!(text, format!("{n:0key_bytes$}").as_bytes());
                assert!(key.is(&text) && !key.is(&text[1..]));
                assert!(!key.is(&[&text[..], b"0"].concat()));
                for at in 0..key_bytes {
                    let mut other = text.clone();
                    other[at] ^= 1;
                    assert!(!key.is(&other));
                }
            }
        }
        assert!(KeySet::new(101, 2, 250).is_err());
        assert!(KeySet::new(0, 2, 250).is_err());
        assert!(KeySet::new(1, 251, 250).is_err());
    }
}
