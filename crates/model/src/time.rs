//! Typed time: a length in nanoseconds and an instant of a named clock.
//!
//! The unit and the epoch stand in the constructor's name, so that a bare
//! `u64` never crosses a function boundary without saying what it is.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

use serde::{Deserialize, Serialize};

/// A length of time in integer nanoseconds; never negative.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Nanos(u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest length that can be said (584 years).
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
        let n = (s * 1e9).round();
        // 2^64 as a double: the first value that does not fit
        (n >= 0.0 && n < 18_446_744_073_709_551_616.0).then_some(Self(n as u64))
    }

    /// The length in nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The length in seconds, as near as a double comes.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The length in microseconds, as near as a double comes.
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
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
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
    fn mul(self, n: u64) -> Self {
        Self(self.0 * n)
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

/// An instant of the host's `CLOCK_MONOTONIC`, in nanoseconds since boot.
///
/// The clock of `bpf_ktime_get_ns` and of `clock_gettime(CLOCK_MONOTONIC)`, so
/// kernel stamps and the generator's stamps on one host compare directly.
/// Instants of two hosts do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Monotonic(u64);

impl Monotonic {
    /// The instant `n` nanoseconds after boot.
    pub const fn from_nanos_since_boot(n: u64) -> Self {
        Self(n)
    }

    /// Nanoseconds since boot.
    pub const fn nanos_since_boot(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, or `None` when `earlier` is later.
    #[must_use]
    pub const fn checked_since(self, earlier: Self) -> Option<Nanos> {
        match self.0.checked_sub(earlier.0) {
            Some(n) => Some(Nanos(n)),
            None => None,
        }
    }

    /// The time from `earlier` to `self`, or zero when `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Monotonic {
    type Output = Self;
    fn add(self, length: Nanos) -> Self {
        Self(self.0 + length.get())
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
        assert_eq!(Nanos::try_from_secs_f64(1.5), Some(Nanos::from_millis(1500)));
        assert_eq!(Nanos::try_from_secs_f64(-1.0), None);
        assert_eq!(Nanos::try_from_secs_f64(f64::NAN), None);
        assert_eq!(Nanos::try_from_secs_f64(1e30), None);
    }

    #[test]
    fn instants_never_give_a_negative_length() {
        let a = Monotonic::from_nanos_since_boot(10);
        let b = Monotonic::from_nanos_since_boot(4);
        assert_eq!(a.checked_since(b), Some(Nanos::new(6)));
        assert_eq!(b.checked_since(a), None);
        assert_eq!(b.saturating_since(a), Nanos::ZERO);
    }
}
