//! The interval of a share of sums over blocks.

use taillab_model::explanation::Share;
use taillab_model::student_975;

/// If fewer blocks than this have requests, there is no interval.
const MIN_BLOCKS: usize = 8;

/// Σ part ÷ Σ all over the blocks, with its jackknife interval.
pub(super) fn share_of(pairs: &[(f64, f64)]) -> Share {
    let (part, all) = pairs
        .iter()
        .fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    if all <= 0.0 {
        return Share::default();
    }
    let value = part / all;
    let full = pairs.iter().filter(|pair| pair.1 > 0.0).count();
    if full < MIN_BLOCKS {
        return Share {
            value,
            lo: None,
            hi: None,
        };
    }
    let without: Vec<f64> = pairs
        .iter()
        .filter(|pair| pair.1 > 0.0 && all > pair.1)
        .map(|pair| (part - pair.0) / (all - pair.1))
        .collect();
    let n = without.len() as f64;
    let mean = without.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = without.iter().map(|x| (x - mean) * (x - mean)).sum();
    let student = student_975(without.len().saturating_sub(1));
    let half = student * ((n - 1.0).max(0.0) / n.max(1.0) * squares).sqrt();
    Share {
        value,
        lo: Some((value - half).max(0.0)),
        hi: Some((value + half).min(1.0)),
    }
}
