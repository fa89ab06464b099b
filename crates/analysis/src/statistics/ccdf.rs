//! The complementary distribution function, thinned for plotting.

use taillab_model::Nanos;

/// The largest number of points that [`ccdf()`] returns.
const CCDF_POINTS: usize = 400;

/// Points (x, P(X ≥ x)) of a sorted sample, evenly spaced in log P, from (min, 1) to
/// (max, 1/n).
pub fn ccdf(sorted: &[Nanos]) -> Vec<(Nanos, f64)> {
    ccdf_of_ranks(sorted.len(), 0, |rank| sorted[rank])
}

/// The same for `n` observations, which `at` gives by rank, and `longer` further observations that are
/// longer than all of these; the curve ends above their share.
pub fn ccdf_of_ranks(n: usize, longer: u64, at: impl Fn(usize) -> Nanos) -> Vec<(Nanos, f64)> {
    let all = n as f64 + longer as f64;
    let mut points = Vec::with_capacity(n.min(CCDF_POINTS));
    let mut last = 0;
    for step in 0..CCDF_POINTS {
        let exponent = step as f64 / (CCDF_POINTS - 1) as f64;
        // observations at or above the point: from n down to 1
        let above = ((n as f64).powf(1.0 - exponent).round() as usize).clamp(1, n.max(1));
        if above != last && n > 0 {
            points.push((at(n - above), (above as f64 + longer as f64) / all));
            last = above;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_from_the_least_with_probability_one_to_the_most_with_one_in_n() {
        for n in [1_u64, 2, 7, 500, 100_000] {
            let sorted: Vec<Nanos> = (1..=n).map(Nanos::new).collect();
            let points = ccdf(&sorted);
            assert!(points.len() <= CCDF_POINTS);
            assert_eq!(points[0], (Nanos::new(1), 1.0));
            assert_eq!(*points.last().unwrap(), (Nanos::new(n), 1.0 / n as f64));
            assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1));
            for (x, p) in points {
                assert_eq!((n - x.get() + 1) as f64 / n as f64, p);
            }
        }
        assert!(ccdf(&[]).is_empty());
    }

    #[test]
    fn with_observations_that_are_longer_it_ends_above_their_share() {
        let points = ccdf_of_ranks(90, 10, |rank| Nanos::new(rank as u64));
        assert_eq!(points[0], (Nanos::ZERO, 1.0));
        assert_eq!(*points.last().unwrap(), (Nanos::new(89), 0.11));
    }
}
