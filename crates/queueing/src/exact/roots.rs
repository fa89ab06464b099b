//! The zeros of z^c − e^{a(z−1)}, which determine the M/D/c queue (Crommelin 1932).
//!
//! There are c − 1 of them inside the unit circle and one at 1; of those outside, the real τ is nearest
//! and determines the decay of the tail. In terms of Lambert's W, the zeros are −W_m(−ρ w_k e^{−ρ})/ρ,
//! where w_k are the c-th roots of unity: branch 0 gives those inside, the others give those outside.

use std::f64::consts::TAU;
use std::ops::{Add, Div, Mul, Sub};

use super::numeric::log1p_minus_x;

/// A complex number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    pub(super) const ONE: Self = Self { re: 1.0, im: 0.0 };

    pub(super) fn real(re: f64) -> Self {
        Self { re, im: 0.0 }
    }

    pub(super) fn polar(radius: f64, angle: f64) -> Self {
        let (sin, cos) = angle.sin_cos();
        Self {
            re: radius * cos,
            im: radius * sin,
        }
    }

    pub(super) fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }

    pub(super) fn exp(self) -> Self {
        Self::polar(self.re.exp(), self.im)
    }

    /// The principal logarithm.
    pub(super) fn ln(self) -> Self {
        Self {
            re: self.abs().ln(),
            im: self.im.atan2(self.re),
        }
    }

    pub(super) fn scale(self, by: f64) -> Self {
        Self {
            re: self.re * by,
            im: self.im * by,
        }
    }

    pub(super) fn conj(self) -> Self {
        Self {
            re: self.re,
            im: -self.im,
        }
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            re: self.re - other.re,
            im: self.im - other.im,
        }
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

impl Div for Complex {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let norm = other.re * other.re + other.im * other.im;
        (self * other.conj()).scale(1.0 / norm)
    }
}

/// I(ρ) = ρ − 1 − ln ρ, Cramér's rate at which the number of arrivals in a long time exceeds the capacity,
/// without cancellation near ρ = 1.
pub(super) fn overload_rate(rho: f64) -> f64 {
    -log1p_minus_x(rho - 1.0)
}

/// τ = −W₋₁(−ρe^{−ρ})/ρ, the zero on the real axis beyond 1; τ^c = e^{a(τ−1)} for every c.
///
/// With y = ρτ − 1 the equation is y − ln(1+y) = I(ρ), which keeps its precision as
/// ρ → 1, where τ − 1 ≈ 2(1 − ρ). Newton's method falls onto the root from the upper
/// bound √(2I) + I (Chatzigeorgiou 2013).
pub(super) fn tail_root(rho: f64) -> f64 {
    let rate = overload_rate(rho);
    let mut y = (2.0 * rate).sqrt() + rate;
    for _ in 0..100 {
        let step = (-log1p_minus_x(y) - rate) * (1.0 + y) / y;
        y -= step;
        if step.abs() <= 1e-16 * y {
            break;
        }
    }
    (1.0 + y) / rho
}

/// The zeros inside the unit circle other than 1 with imaginary part ≥ 0: one of each
/// conjugate pair, and for even c the one on the negative axis.
pub(super) fn inner_roots(workers: u32, rho: f64) -> Vec<Complex> {
    (1..=workers / 2)
        .map(|k| {
            // z = w e^{ρ(z−1)} is a contraction inside the circle; Newton's method refines it
            let w = Complex::polar(1.0, TAU * f64::from(k) / f64::from(workers));
            let image = |z: Complex| w * (z - Complex::ONE).scale(rho).exp();
            let mut z = (0..30).fold(w.scale(0.5), |z, _| image(z));
            for _ in 0..50 {
                let g = image(z);
                let step = (z - g) / (Complex::ONE - g.scale(rho));
                z = z - step;
                if step.abs() <= 1e-16 * z.abs() {
                    break;
                }
            }
            z
        })
        .collect()
}

/// The modulus of the zeros outside the unit circle that are nearest after τ.
///
/// They solve c Ln z = a(z − 1) ± 2πi; z ← 1 + (c Ln z − 2πi)/a contracts there, because
/// every outer zero has |z| ≥ τ > 1/ρ.
pub(super) fn second_outer_modulus(workers: u32, rho: f64, tau: f64) -> f64 {
    let c = f64::from(workers);
    let a = c * rho;
    let turn = Complex { re: 0.0, im: TAU };
    let mut z = Complex {
        re: tau,
        im: -TAU / a,
    };
    for _ in 0..100 {
        z = Complex::ONE + (z.ln().scale(c) - turn).scale(1.0 / a);
    }
    for _ in 0..50 {
        let g = z.ln().scale(c) - (z - Complex::ONE).scale(a) - turn;
        let step = g / (Complex::real(c) / z - Complex::real(a));
        z = z - step;
        if step.abs() <= 1e-15 * z.abs() {
            break;
        }
    }
    z.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_root_solves_its_equation() {
        for rho in [1e-3, 0.1, 0.5, 0.9, 0.999, 0.999_999] {
            let tau = tail_root(rho);
            assert!(tau > 1.0 / rho);
            // ln τ − ρ(τ − 1) relative to its slope there
            let residual = tau.ln() - rho * (tau - 1.0);
            assert!((residual / (tau * rho)).abs() < 3e-15, "{rho}: {residual}");
        }
        // ρ → 1: τ − 1 = 2ε + 8ε²/3 + O(ε³), ε = 1 − ρ
        let e = 1e-6;
        let expansion = 2.0 * e + 8.0 / 3.0 * e * e;
        assert!(((tail_root(1.0 - e) - 1.0) / expansion - 1.0).abs() < 1e-9);
    }

    #[test]
    fn inner_roots_are_zeros_and_distinct() {
        for (c, rho) in [(2, 0.5), (8, 0.7), (64, 0.95), (65, 0.999), (512, 0.9999)] {
            let roots = inner_roots(c, rho);
            assert_eq!(roots.len(), c as usize / 2);
            let a = f64::from(c) * rho;
            for (k, z) in roots.iter().enumerate() {
                assert!(z.abs() < 1.0, "c={c}: |z_{k}| = {}", z.abs());
                let power = z.ln().scale(f64::from(c)).exp();
                let error = power - (*z - Complex::ONE).scale(a).exp();
                assert!(error.abs() < 1e-12, "c={c} k={k}: {error:?}");
                let apart = roots[..k]
                    .iter()
                    .all(|w| (*w - *z).abs() > 1e-3 / f64::from(c));
                assert!(apart, "c={c}: z_{k} was found twice");
            }
        }
    }

    #[test]
    fn the_second_outer_zero_is_a_zero_beyond_tau() {
        for (c, rho) in [
            (1, 0.5),
            (1, 0.99),
            (4, 0.8),
            (64, 0.5),
            (64, 0.999),
            (500, 0.9),
        ] {
            let tau = tail_root(rho);
            let modulus = second_outer_modulus(c, rho, tau);
            assert!(modulus > tau, "c={c} ρ={rho}: {modulus} ≤ {tau}");
        }
        // c = 1, ρ → 1: −W₁(−1/e) = 3.0888 + 7.4615 i
        let modulus = second_outer_modulus(1, 1.0 - 1e-9, tail_root(1.0 - 1e-9));
        assert!(
            (modulus - 3.088_843_f64.hypot(7.461_489)).abs() < 1e-5,
            "{modulus}"
        );
    }
}
