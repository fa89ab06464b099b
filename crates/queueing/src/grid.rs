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

    /// Later times need a new origin; up to there, waits up to four times as long still fit.
    #[inline]
    pub fn horizon_ns(self) -> f64 {
        2.0_f64.powi(50 + self.exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(grid: Grid, x_ns: f64) -> f64 {
        (x_ns + grid.rounder()) - grid.rounder()
    }

    #[test]
    fn rounding_goes_to_the_nearest_multiple_and_keeps_whole_nanoseconds() {
        let grid = Grid::for_mean_gap(12_500.0);
        assert_eq!(round(grid, 1.000_4), 1.0);
        assert_eq!(round(grid, 0.000_6), 1.0 / 1024.0);
        for whole in [0.0, 1.0, 50_000.0, 123_456_789.0] {
            assert_eq!(round(grid, whole), whole);
        }
    }

    #[test]
    fn short_gaps_get_a_finer_grid() {
        let grid = Grid::for_mean_gap(0.8);
        assert!((round(grid, 0.8) / 0.8 - 1.0).abs() < 2e-5);
    }
}
