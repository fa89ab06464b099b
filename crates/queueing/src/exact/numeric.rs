//! Numerical tools for the exact results: probabilities without cancellation, quadrature, and the inversion
//! of a tail.

use std::f64::consts::PI;

/// ln(1 + x) − x, without cancellation for small x.
///
/// With r = x/(2+x), ln(1+x) = 2 atanh(r) = 2(r + r³/3 + …) and x = 2r + xr.
pub(super) fn log1p_minus_x(x: f64) -> f64 {
    if !(-0.4..=0.7).contains(&x) {
        return x.ln_1p() - x;
    }
    let r = x / (2.0 + x);
    let r2 = r * r;
    // |r| < 0.26, so 14 terms leave less than 1e-17 of the first
    let series = (1..=14)
        .rev()
        .fold(0.0, |sum, k| r2 * (sum + 1.0 / f64::from(2 * k + 1)));
    r * (2.0 * series - x)
}

/// ln Γ(x+1) − [(x+½) ln x − x + ½ ln 2π], the error of Stirling's formula, for x ≥ 16.
fn stirling_error(x: f64) -> f64 {
    let s = 1.0 / (x * x);
    (1.0 / 12.0 - s * (1.0 / 360.0 - s * (1.0 / 1260.0 - s * (1.0 / 1680.0 - s / 1188.0)))) / x
}

/// mˣ e^{−m} / Γ(x+1): the Poisson probability of the integer x, and its smooth
/// continuation to real x ≥ 16.
///
/// The saddle-point form keeps full relative precision where the factors overflow
/// (Loader 2000, *Fast and accurate computation of binomial probabilities*).
pub(super) fn poisson(x: f64, mean: f64) -> f64 {
    if x < 16.0 {
        debug_assert!(x.fract() == 0.0, "below 16 only integers are needed");
        return (1..=x as u32).fold((-mean).exp(), |p, k| p * mean / f64::from(k));
    }
    let deviance = -x * log1p_minus_x((mean - x) / x);
    (-stirling_error(x) - deviance).exp() / (2.0 * PI * x).sqrt()
}

/// (1 − e^{−z})/z, continued to 1 at z = 0.
pub(super) fn one_minus_exp_over(z: f64) -> f64 {
    if z == 0.0 { 1.0 } else { -(-z).exp_m1() / z }
}

/// The nodes and weights of Gauss–Legendre quadrature on (0, 1).
pub(super) fn gauss_legendre<const N: usize>() -> [(f64, f64); N] {
    let n = N as f64;
    std::array::from_fn(|i| {
        let mut x = (PI * (i as f64 + 0.75) / (n + 0.5)).cos();
        let mut slope = 1.0;
        // Newton's method on the Legendre polynomial converges from this start in four steps
        for _ in 0..8 {
            let (mut p, mut before) = (1.0, 0.0);
            for k in 0..N {
                let k = k as f64;
                (p, before) = (((2.0 * k + 1.0) * x * p - k * before) / (k + 1.0), p);
            }
            slope = n * (x * p - before) / (x * x - 1.0);
            x -= p / slope;
        }
        (0.5 * (1.0 - x), 1.0 / ((1.0 - x * x) * slope * slope))
    })
}

/// The x ≥ 0 at which the falling, continuous `ccdf` reaches `p`; 0 if it begins below `p`.
///
/// `scale` is any length of the right order. The root of ln ccdf − ln p is bracketed by doubling and then
/// found by inverse quadratic interpolation, guarded by bisection (Chandrupatla 1997), to a relative
/// 4e-16 of x, or as far as `ccdf` resolves it.
pub(super) fn invert_tail(ccdf: impl Fn(f64) -> f64, p: f64, scale: f64) -> f64 {
    if p <= 0.0 {
        return f64::INFINITY;
    }
    // a tail that has underflowed counts as the smallest positive double, and so does a smaller `p`
    let log_p = p.max(f64::MIN_POSITIVE).ln();
    let excess = |x: f64| ccdf(x).max(f64::MIN_POSITIVE).ln() - log_p;
    let (mut lo, mut at_lo) = (0.0, excess(0.0));
    if at_lo <= 0.0 {
        return 0.0;
    }
    let (mut hi, mut at_hi) = (scale, excess(scale));
    while at_hi > 0.0 {
        (lo, at_lo) = (hi, at_hi);
        hi *= 2.0;
        at_hi = excess(hi);
    }
    let (mut a, mut fa, mut b, mut fb) = (hi, at_hi, lo, at_lo);
    let mut t = 0.5;
    for _ in 0..200 {
        let x = a + t * (b - a);
        let fx = excess(x);
        let (c, fc);
        if (fx > 0.0) == (fa > 0.0) {
            (c, fc) = (a, fa);
        } else {
            (c, fc) = (b, fb);
            (b, fb) = (a, fa);
        }
        (a, fa) = (x, fx);
        let (best, at_best) = if fa.abs() < fb.abs() {
            (a, fa)
        } else {
            (b, fb)
        };
        let least = 2.0 * f64::EPSILON * best.abs() / (b - a).abs();
        if least > 0.5 || at_best == 0.0 {
            return best;
        }
        let xi = (a - b) / (c - b);
        let phi = (fa - fb) / (fc - fb);
        t = if phi * phi < xi && (1.0 - phi) * (1.0 - phi) < 1.0 - xi {
            fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        } else {
            0.5
        };
        t = t.clamp(least, 1.0 - least);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log1p_minus_x_agrees_with_the_plain_form_where_that_is_good() {
        for x in [-0.39_f64, -0.2, 0.3, 0.69] {
            let plain = x.ln_1p() - x;
            assert!((log1p_minus_x(x) / plain - 1.0).abs() < 1e-14, "{x}");
        }
        // −x²/2 + x³/3 − x⁴/4
        let x = 1e-4_f64;
        let series = -x * x / 2.0 + x * x * x / 3.0 - x.powi(4) / 4.0 + x.powi(5) / 5.0;
        assert!((log1p_minus_x(x) / series - 1.0).abs() < 1e-15);
    }

    #[test]
    fn poisson_sums_to_one_and_steps_by_its_ratio() {
        for mean in [0.5, 15.9, 16.0, 300.0, 4_000.0] {
            let total: f64 = (0..10_000).map(|k| poisson(f64::from(k), mean)).sum();
            assert!((total - 1.0).abs() < 1e-12, "{mean}: {total}");
            let ratio = poisson(16.0, mean) / poisson(15.0, mean) / (mean / 16.0);
            assert!(
                mean > 700.0 || (ratio - 1.0).abs() < 1e-13,
                "{mean}: {ratio}"
            );
        }
    }

    #[test]
    fn gauss_legendre_integrates_polynomials_of_degree_2n_minus_1() {
        let rule = gauss_legendre::<12>();
        for degree in 0..24 {
            let integral: f64 = rule.iter().map(|(x, w)| w * x.powi(degree)).sum();
            assert!((integral * f64::from(degree + 1) - 1.0).abs() < 1e-13);
        }
    }

    #[test]
    fn a_tail_is_inverted_to_the_last_digits() {
        for p in [0.9_f64, 0.5, 1e-3, 1e-12] {
            let x = invert_tail(|x| (-3.0 * x).exp(), p, 1.0);
            assert!((x / (-p.ln() / 3.0) - 1.0).abs() < 1e-14, "{p}");
        }
        assert_eq!(invert_tail(|x| 0.5 * (-x).exp(), 0.6, 1.0), 0.0);
    }
}
