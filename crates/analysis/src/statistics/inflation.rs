//! How much correlation widens a quantile's interval.

use taillab_model::Nanos;

/// The normal distribution's 97.5 % point, for intervals of 95 %.
pub const SCORE_Z: f64 = 1.959_963_984_540_054;

/// Fewer observations than this are not enough to see a correlation in.
const MIN_SERIES: usize = 200;

/// The factor (≥ 1) by which correlation multiplies the variance of the share of
/// observations at or below `threshold`, in a series in order of time.
pub fn variance_inflation(series: &[Nanos], threshold: Nanos) -> f64 {
    let n = series.len();
    if n < MIN_SERIES {
        return 1.0;
    }
    let batch = n / 32;
    overlapping_batch_means(series, threshold, batch).max(1.0)
}

/// Variance of the mean of `batch` neighbouring indicators 1{x ≤ threshold}, over all
/// stretches of that length, against the binomial variance of independent ones.
fn overlapping_batch_means(series: &[Nanos], threshold: Nanos, batch: usize) -> f64 {
    let n = series.len();
    let below = |x: &Nanos| u64::from(*x <= threshold);
    let total: u64 = series.iter().map(below).sum();
    let share = total as f64 / n as f64;
    let independent = share * (1.0 - share);
    if independent == 0.0 {
        return 1.0;
    }
    let mut sum: u64 = series[..batch].iter().map(below).sum();
    let expected = share * batch as f64;
    let mut squares = (sum as f64 - expected).powi(2);
    for (leaves, enters) in series.iter().zip(&series[batch..]) {
        sum = sum + below(enters) - below(leaves);
        squares += (sum as f64 - expected).powi(2);
    }
    // Meketon and Schmeiser 1984, with the factor that makes it unbiased for
    // independent observations
    let windows = (n - batch + 1) as f64;
    let variance = squares / windows / batch as f64 * n as f64 / (n - batch) as f64;
    variance / independent
}
