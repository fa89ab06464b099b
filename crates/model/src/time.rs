//! Typed time: a length in nanoseconds and an instant of a named clock.
//!
//! The unit and the epoch are in the constructor's name, so that no bare `u64` crosses a function
//! boundary without saying what it is.

use std::fmt;
use std::iter::Sum;
use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A length of time in integer nanoseconds; never negative.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Nanos(u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest length that can be represented (584 years).
    pub const MAX: Self = Self(u64::MAX);

    /// A length of `n` nanoseconds.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// A length of `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// A length of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// A length of `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// A length of `s` seconds, rounded to the nearest nanosecond.
    ///
    /// `None` when `s` is negative, not a number, or longer than [`Nanos::MAX`].
    pub fn try_from_secs_f64(s: f64) -> Option<Self> {
        Self::try_from_nanos_f64(s * 1e9)
    }

    /// A length of `ns` nanoseconds, rounded to a whole one.
    ///
    /// `None` when `ns` is negative, not a number, or longer than [`Nanos::MAX`].
    pub fn try_from_nanos_f64(ns: f64) -> Option<Self> {
        let n = ns.round();
        // 2^64 as a double: the first value that does not fit
        (0.0..18_446_744_073_709_551_616.0)
            .contains(&n)
            .then_some(Self(n as u64))
    }

    /// The length in nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The length in seconds, as precise as a double can be.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The length in microseconds, as precise as a double can be.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// `self − other`, or zero where that would be negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self − other`, or `None` where that would be negative.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }
}

impl Add for Nanos {
    type Output = Self;
    /// At most [`Nanos::MAX`]: a sum never starts again at zero.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Sub for Nanos {
    type Output = Self;
    /// Panics on underflow in every build: a negative length is a defect.
    fn sub(self, other: Self) -> Self {
        self.checked_sub(other)
            .expect("a length of time cannot be negative")
    }
}

impl Mul<u64> for Nanos {
    type Output = Self;
    /// At most [`Nanos::MAX`].
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Nanos {
    /// Three significant digits with the unit that keeps them readable: `850 ns`,
    /// `41.6 µs`, `3.34 ms`, `2.50 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..=999 => return f.pad(&format!("{} ns", self.0)),
            1_000..=999_499 => (self.0 as f64 / 1e3, "µs"),
            999_500..=999_499_999 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.0 as f64 / 1e9, "s"),
        };
        let text = if value < 9.995 {
            format!("{value:.2} {unit}")
        } else if value < 99.95 {
            format!("{value:.1} {unit}")
        } else {
            format!("{value:.0} {unit}")
        };
        f.pad(&text)
    }
}

/// Why a text is not a length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a length of time; write a number and a unit, e.g. 50us, 1.5ms, 20s, 2m")]
pub struct ParseNanosError(String);

impl FromStr for Nanos {
    type Err = ParseNanosError;

    /// A number and one of the units ns, us (or µs), ms, s, m, h, e.g. `50us` or `1.5s`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseNanosError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(error)?;
        let (number, unit) = trimmed.split_at(split);
        let unit_ns = match unit.trim() {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            _ => return Err(error()),
        };
        let number: f64 = number.parse().map_err(|_| error())?;
        Self::try_from_secs_f64(number * unit_ns / 1e9).ok_or_else(error)
    }
}

impl Nanos {
    /// The length in a notation that [`Nanos::from_str`] reads back exactly: with the
    /// largest unit that keeps the number whole, e.g. `20s`, `1500ms`, `14523ns`.
    pub fn to_exact_string(self) -> String {
        let (divisor, unit) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
            .into_iter()
            .find(|(divisor, _)| self.0.is_multiple_of(*divisor))
            .unwrap_or((1, "ns"));
        format!("{}{unit}", self.0 / divisor)
    }
}

/// An instant of the host's `CLOCK_MONOTONIC`, in nanoseconds since boot.
///
/// This is the clock of `bpf_ktime_get_ns` and of `clock_gettime(CLOCK_MONOTONIC)`, so kernel
/// stamps and the generator's stamps on one host can be compared. Instants of two hosts cannot.
// Held as n + 1, which is never zero: an `Option` of it then takes 8 bytes, not 16.
// A request has five of them, and a run has millions of requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(from = "u64", into = "u64")]
#[repr(transparent)]
pub struct Monotonic(NonZeroU64);

impl Monotonic {
    /// The latest instant: nothing comes after it.
    pub const MAX: Self = Self(NonZeroU64::MAX);

    /// The instant `n` nanoseconds after boot; 2⁶⁴ − 1 (after 584 years) becomes 2⁶⁴ − 2.
    pub const fn from_nanos_since_boot(n: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(n))
    }

    /// Nanoseconds since boot.
    pub const fn nanos_since_boot(self) -> u64 {
        self.0.get() - 1
    }

    /// The time from `earlier` to `self`, or `None` when `earlier` is later.
    #[must_use]
    pub const fn checked_since(self, earlier: Self) -> Option<Nanos> {
        match self.0.get().checked_sub(earlier.0.get()) {
            Some(n) => Some(Nanos(n)),
            None => None,
        }
    }

    /// The time from `earlier` to `self`, or zero when `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Nanos {
        Nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

impl From<u64> for Monotonic {
    /// The number is nanoseconds since boot, as in stored data.
    fn from(n: u64) -> Self {
        Self::from_nanos_since_boot(n)
    }
}

impl From<Monotonic> for u64 {
    fn from(at: Monotonic) -> Self {
        at.nanos_since_boot()
    }
}

impl fmt::Debug for Monotonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monotonic")
            .field(&self.nanos_since_boot())
            .finish()
    }
}

impl Add<Nanos> for Monotonic {
    type Output = Self;
    fn add(self, length: Nanos) -> Self {
        Self::from_nanos_since_boot(self.nanos_since_boot().saturating_add(length.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_keeps_three_significant_digits_and_the_unit() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (41_640, "41.6 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (3_340_000, "3.34 ms"),
            (2_500_000_000, "2.50 s"),
        ];
        for (n, text) in cases {
            assert_eq!(Nanos::new(n).to_string(), text);
        }
    }

    #[test]
    fn lengths_from_seconds_refuse_what_is_not_a_length() {
        assert_eq!(
            Nanos::try_from_secs_f64(1.5),
            Some(Nanos::from_millis(1500))
        );
        assert_eq!(Nanos::try_from_secs_f64(-1.0), None);
        assert_eq!(Nanos::try_from_secs_f64(f64::NAN), None);
        assert_eq!(Nanos::try_from_secs_f64(1e30), None);
    }

    #[test]
    fn a_sum_that_is_too_long_stays_the_longest() {
        let year = Nanos::from_secs(365 * 86_400);
        assert_eq!(year + Nanos::MAX, Nanos::MAX);
        assert_eq!(year * 1_000, Nanos::MAX);
        assert_eq!([year; 600].into_iter().sum::<Nanos>(), Nanos::MAX);
        let last = Monotonic::MAX.nanos_since_boot();
        assert_eq!((Monotonic::MAX + year).nanos_since_boot(), last);
    }

    #[test]
    fn lengths_are_read_from_text_and_written_back() {
        for (text, ns) in [
            ("50us", 50_000),
            ("1.5 ms", 1_500_000),
            ("20s", 20_000_000_000),
            ("2m", 120_000_000_000),
            ("7ns", 7),
        ] {
            assert_eq!(text.parse(), Ok(Nanos::new(ns)), "{text}");
        }
        for text in ["", "50", "us", "-3s", "1e3s", "nan s", "5 parsecs"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
        for ns in [0, 7, 14_523, 1_500_000, 20_000_000_000] {
            let length = Nanos::new(ns);
            assert_eq!(length.to_exact_string().parse(), Ok(length));
        }
    }

    #[test]
    fn instants_never_give_a_negative_length() {
        let a = Monotonic::from_nanos_since_boot(10);
        let b = Monotonic::from_nanos_since_boot(4);
        assert_eq!(a.checked_since(b), Some(Nanos::new(6)));
        assert_eq!(b.checked_since(a), None);
        assert_eq!(b.saturating_since(a), Nanos::ZERO);
    }

    #[test]
    fn an_instant_that_may_be_missing_takes_no_more_room() {
        assert_eq!(size_of::<Option<Monotonic>>(), 8);
        for n in [0, 1, u64::MAX - 1] {
            assert_eq!(Monotonic::from_nanos_since_boot(n).nanos_since_boot(), n);
        }
        let last = Monotonic::from_nanos_since_boot(u64::MAX);
        assert_eq!(last.nanos_since_boot(), u64::MAX - 1);
    }
}
