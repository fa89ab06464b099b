//! Statistics of the gaps between sends.

use taillab_model::summary::DispersionAt;
use taillab_model::{Monotonic, Nanos};
use taillab_queueing::arrivals::ArrivalError;

use crate::LoadError;

/// A² that 5 % of samples from the true distribution exceed, when it is fully
/// specified (Stephens 1974, JASA 69, table 1, case 0; n ≥ 5).
pub(super) const ANDERSON_DARLING_CRITICAL: f64 = 2.492;

/// The windows of the index of dispersion, after the shortest.
const WINDOWS: [Nanos; 7] = [
    Nanos::from_micros(10),
    Nanos::from_micros(30),
    Nanos::from_micros(100),
    Nanos::from_micros(300),
    Nanos::from_millis(1),
    Nanos::from_millis(10),
    Nanos::from_millis(100),
];

/// With fewer windows there is no index of dispersion.
const FEWEST_WINDOWS: u64 = 10;

/// The Kolmogorov–Smirnov distance of sorted gaps from the exponential distribution of the given
/// rate; 1 without gaps.
///
/// D = max over i of i/n − F(x_i) and F(x_i) − (i−1)/n. Equal gaps are one step, so that D
/// is not larger only because times are whole nanoseconds.
///
/// # Errors
/// [`LoadError::Arrivals`] when the rate is not positive and finite.
pub(super) fn kolmogorov_smirnov(gaps: &[Nanos], rate_per_s: f64) -> Result<f64, LoadError> {
    let mean_ns = mean_gap_ns(rate_per_s)?;
    let n = gaps.len() as f64;
    let mut d: f64 = if gaps.is_empty() { 1.0 } else { 0.0 };
    let mut before = 0;
    for tied in gaps.chunk_by(|a, b| a == b) {
        let wanted = -(-(tied[0].get() as f64) / mean_ns).exp_m1();
        let until = before + tied.len();
        for rank in [before, until] {
            d = d.max((rank as f64 / n - wanted).abs());
        }
        before = until;
    }
    Ok(d)
}

/// The distance that 5 % of samples of `n` from the true distribution exceed: the
/// limiting 1.358 with the correction for finite n of Stephens (1974, table 1, case 0),
/// within 0.002 of the exact value from n = 5 on.
pub(super) fn ks_critical(n: usize) -> f64 {
    let root = (n as f64).sqrt();
    if n == 0 {
        return 1.0;
    }
    1.358 / (root + 0.12 + 0.11 / root)
}

/// Anderson and Darling's A² of sorted gaps against the exponential distribution of the
/// given rate; 0 without gaps.
///
/// A² = −n − Σ (2i−1)/n · (ln F(x_i) + ln(1 − F(x_{n+1−i}))) (Anderson, Darling 1954,
/// JASA 49). The shortest and the longest gaps have the most weight.
///
/// # Errors
/// [`LoadError::Arrivals`] when the rate is not positive and finite.
pub(super) fn anderson_darling(gaps: &[Nanos], rate_per_s: f64) -> Result<f64, LoadError> {
    let mean_ns = mean_gap_ns(rate_per_s)?;
    let n = gaps.len() as f64;
    // a gap of 0 ns is less than a nanosecond, and ln F(0) would be −∞
    let scaled = |gap: &Nanos| (gap.get() as f64).max(0.5) / mean_ns;
    let sum: f64 = gaps
        .iter()
        .zip(gaps.iter().rev())
        .enumerate()
        .map(|(i, (short, long))| {
            // 1 − F(x) is exp(−x/mean), so its logarithm is exact
            let ln_f = (-(-scaled(short)).exp_m1()).ln();
            (2 * i + 1) as f64 / n * (ln_f - scaled(long))
        })
        .sum();
    Ok(if gaps.is_empty() { 0.0 } else { -n - sum })
}

/// Standard deviation over mean; 0 with fewer than two gaps.
pub(super) fn coefficient_of_variation(gaps: &[Nanos]) -> f64 {
    let (mean, variance) = moments(gaps.iter().map(|g| g.get() as f64));
    if mean > 0.0 {
        variance.sqrt() / mean
    } else {
        0.0
    }
}

/// The shortest window, and all of [`WINDOWS`] that are well above it.
fn windows(shortest: Nanos) -> impl Iterator<Item = Nanos> {
    let shortest = shortest.max(Nanos::from_micros(1));
    let longer = move |window: &Nanos| window.get() * 2 > shortest.get() * 3;
    std::iter::once(shortest).chain(WINDOWS.into_iter().filter(longer))
}

/// The index of dispersion in windows from the `shortest` on; `expected` is given the window and its index.
pub(super) fn dispersion(
    sent_ns: &[u64],
    shortest: Nanos,
    expected: impl Fn(Nanos, Option<f64>) -> Option<f64>,
) -> Vec<DispersionAt> {
    windows(shortest)
        .map(|window| {
            let value = index_of_dispersion(sent_ns, window);
            DispersionAt {
                window_ns: window,
                value,
                expected: expected(window, value),
            }
        })
        .collect()
}

/// Variance over mean of the counts in the whole windows after the first send; `None`
/// with fewer than ten windows.
///
/// The windows begin half a mean gap after the first send: sends at a constant rate are then in the middle
/// between two ends, where a slightly late one is still in its window. `sent_ns` must be sorted. Takes no
/// memory: an hour has 360 million windows of 10 µs.
pub(super) fn index_of_dispersion(sent_ns: &[u64], window: Nanos) -> Option<f64> {
    let (&first, &last) = (sent_ns.first()?, sent_ns.last()?);
    let gaps = sent_ns.len() as u64 - 1;
    let from = first + (last - first) / (2 * gaps.max(1));
    let windows = (last - from) / window.get();
    if windows < FEWEST_WINDOWS {
        return None;
    }
    let counted = sent_ns.partition_point(|&at| at < from);
    let places = sent_ns[counted..]
        .iter()
        .map(|&at| (at - from) / window.get());
    let (mut sends, mut squares) = (0_u128, 0_u128);
    let (mut place, mut count) = (0, 0_u128);
    for at in places.take_while(|&at| at < windows) {
        if at != place {
            squares += count * count;
            (place, count) = (at, 0);
        }
        sends += 1;
        count += 1;
    }
    squares += count * count;
    // (Σ c² − (Σ c)² / n) / (n − 1), over the mean (Σ c) / n
    let deviations = u128::from(windows) * squares - sends * sends;
    (sends > 0).then(|| deviations as f64 / (sends as f64 * (windows - 1) as f64))
}

/// Mean and sample variance; zeros with fewer than two values (Welford 1962).
fn moments(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        n += 1.0;
        let before = value - mean;
        mean += before / n;
        squares += before * (value - mean);
    }
    if n < 2.0 {
        (0.0, 0.0)
    } else {
        (mean, squares / (n - 1.0))
    }
}

fn mean_gap_ns(rate_per_s: f64) -> Result<f64, LoadError> {
    if rate_per_s > 0.0 && rate_per_s.is_finite() {
        Ok(1e9 / rate_per_s)
    } else {
        Err(ArrivalError::Rate(rate_per_s).into())
    }
}

/// The times, sorted, in nanoseconds.
pub(super) fn sorted_ns(sends: impl IntoIterator<Item = Monotonic>) -> Vec<u64> {
    let mut sent_ns: Vec<u64> = sends.into_iter().map(Monotonic::nanos_since_boot).collect();
    if !sent_ns.is_sorted() {
        sent_ns.sort_unstable();
    }
    sent_ns
}

/// The gaps between sorted times, sorted.
pub(super) fn sorted_gaps(sent_ns: &[u64]) -> Vec<Nanos> {
    let mut gaps: Vec<_> = sent_ns
        .windows(2)
        .map(|pair| Nanos::new(pair[1] - pair[0]))
        .collect();
    gaps.sort_unstable();
    gaps
}
