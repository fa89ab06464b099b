//! The time grid: every random length is rounded to a multiple of a power of two of a nanosecond.
//!
//! Multiples of one power of two are added, subtracted and compared as doubles without any rounding, as
//! long as they are below 2⁵³ of that unit. The kernels do nothing else, so they are exact: two kernels
//! that must agree do so to the last bit, in whatever order they calculate, and whole nanoseconds stay
//! whole. With the usual grid of 2⁻¹⁰ ns, times of more than two hours are possible, counted from an origin
//! that moves along.

/// A unit of time: a power of two of a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// log₂ of the unit in nanoseconds.
    exponent: i32,
}

impl Grid {
    /// Whole nanoseconds.
    pub const WHOLE: Self = Self { exponent: 0 };

    /// The grid for gaps with this mean: 2⁻¹⁰ ns, or 2⁻¹⁶ of the mean if that is finer.
    ///
    /// The rounding is unbiased, and far smaller than any sampling error.
    pub fn for_mean_gap(mean_gap_ns: f64) -> Self {
        let of_gap = mean_gap_ns.max(f64::MIN_POSITIVE).log2().floor() as i32 - 16;
        Self {
            exponent: of_gap.clamp(-40, -10),
        }
    }

    /// Adding and subtracting this number rounds to the grid.
    #[inline]
    pub fn rounder(self) -> f64 {
        1.5 * 2.0_f64.powi(52 + self.exponent)
    }

    /// `x_ns` rounded to the grid.
    #[inline]
    pub fn round(self, x_ns: f64) -> f64 {
        (x_ns + self.rounder()) - self.rounder()
    }

    /// Later times need a new origin; up to there, waits up to four times as long still fit.
    #[inline]
    pub fn horizon_ns(self) -> f64 {
        2.0_f64.powi(50 + self.exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_goes_to_the_nearest_multiple_and_keeps_whole_nanoseconds() {
        let grid = Grid::for_mean_gap(12_500.0);
        assert_eq!(grid.round(1.000_4), 1.0);
        assert_eq!(grid.round(0.000_6), 1.0 / 1024.0);
        for whole in [0.0, 1.0, 50_000.0, 123_456_789.0] {
            assert_eq!(grid.round(whole), whole);
        }
    }

    #[test]
    fn the_grid_of_whole_nanoseconds_has_no_parts_of_them() {
        for (x, rounded) in [(0.4, 0.0), (5.75, 6.0), (1e15 + 0.25, 1e15)] {
            assert_eq!(Grid::WHOLE.round(x), rounded);
        }
    }

    #[test]
    fn short_gaps_get_a_finer_grid() {
        let grid = Grid::for_mean_gap(0.8);
        assert!(grid.round(0.8) != 0.0);
        assert!((grid.round(0.8) / 0.8 - 1.0).abs() < 2e-5);
    }
}
