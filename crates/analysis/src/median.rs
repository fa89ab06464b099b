//! The median of a few repeated measurements, with a distribution-free interval.

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
    pub(crate) fn exp(self) -> Self {
        Self {
            value: self.value.exp(),
            lo: self.lo.exp(),
            hi: self.hi.exp(),
        }
    }
}

/// The fewest measurements whose range is an interval of 95 %.
pub const FEWEST: usize = 6;

/// The median of independent measurements and its interval of at least 95 % confidence,
/// from the sign test: the closest pair of order statistics that excludes at most 2.5 %
/// on each side (Conover, *Practical Nonparametric Statistics*, 3.2). `None` with fewer
/// than [`FEWEST`] measurements, or if one is not a number.
pub fn median(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n < FEWEST || values.iter().any(|v| v.is_nan()) {
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
