//! The number of waiting requests in M/D/c, Q = (N − c)⁺, one service time apart.
//!
//! With D = 1, all requests in service now have left after one service time, so Q' = (Q + A − c)⁺ with
//! A ~ Poisson(a): a random walk on the integers, reflected at 0 (Crommelin 1932). Its stationary law is
//! computed in one of two ways:
//!
//! - light and moderate load: Spitzer's identity makes Q compound Poisson with jump
//!   weights ν_j = Σ_l P(Poisson(la) = lc + j)/l, and n q_n = Σ_j jν_j q_{n−j}. Every
//!   term is ≥ 0, so even the far tail keeps its relative precision;
//! - heavy load, where that sum over l is long: Crommelin's generating function on a circle, without its
//!   nearest pole τ, inverted by the trapezoidal rule. P(wait) is of order 1 there, so absolute precision
//!   is relative precision.

use std::f64::consts::PI;

use super::numeric::poisson;
use super::roots::{Complex, inner_roots, overload_rate, second_outer_modulus, tail_root};

/// If the sum over l needs more multiplications, the circle is used.
const SPITZER_BUDGET: f64 = 1e6;

/// The stationary law of Q; beyond the table it is geometric to double precision.
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    /// P(Q > i), i = 0, 1, …
    tail: Vec<f64>,
    /// P(Q > i) → `geometric` · τ^{−i}.
    geometric: f64,
    tau: f64,
}

impl Backlog {
    pub(super) fn new(workers: u32, rho: f64) -> Self {
        let tau = tail_root(rho);
        let c = f64::from(workers);
        let length = Self::table_length(workers, rho, tau) as f64;
        // the last l: the walk's mean is beyond the table, and the terms are below e^{−45}
        let steps = length / (c * (rho * tau - 1.0)) + 45.0 / (c * overload_rate(rho));
        if steps * length <= SPITZER_BUDGET {
            Self::by_spitzer(workers, rho)
        } else {
            Self::on_circle(workers, rho)
        }
    }

    /// P(Q > i); 1 for negative i.
    pub(super) fn tail(&self, i: i64) -> f64 {
        match usize::try_from(i) {
            Err(_) => 1.0,
            Ok(i) => self
                .tail
                .get(i)
                .copied()
                .unwrap_or_else(|| self.geometric * (-(i as f64) * self.tau.ln()).exp()),
        }
    }

    /// The first i from which P(Q > i) is geometric.
    pub(super) fn table_len(&self) -> usize {
        self.tail.len()
    }

    /// B of P(Q > i) ~ B τ^{−i}.
    pub(super) fn geometric(&self) -> f64 {
        self.geometric
    }

    /// τ of P(Q > i) ~ B τ^{−i}.
    pub(super) fn tau(&self) -> f64 {
        self.tau
    }

    /// E\[Q\] = Σ P(Q > i).
    pub(super) fn mean(&self) -> f64 {
        let beyond = self.tail(self.tail.len() as i64) / (1.0 - 1.0 / self.tau);
        self.tail.iter().rev().fold(beyond, |sum, p| sum + p)
    }

    /// The number of entries until the next poles' part is e^{−45} of the first's, or the tail is e^{−70}.
    fn table_length(workers: u32, rho: f64, tau: f64) -> usize {
        let gap = (second_outer_modulus(workers, rho, tau) / tau).ln();
        let settled = 45.0 / gap;
        let negligible = 70.0 / tau.ln();
        settled.min(negligible).ceil() as usize + 8
    }

    /// By Spitzer's identity; see the module.
    pub(super) fn by_spitzer(workers: u32, rho: f64) -> Self {
        let tau = tail_root(rho);
        let c = f64::from(workers);
        let a = c * rho;
        let length = Self::table_length(workers, rho, tau);
        let last = length as f64;
        let mut jumps = vec![0.0; length + 1];
        let mut l = 0.0;
        loop {
            l += 1.0;
            let mut p = poisson(l * c + 1.0, l * a);
            for (j, jump) in jumps.iter_mut().enumerate().skip(1) {
                *jump += p / l;
                p *= l * a / (l * c + j as f64 + 1.0);
            }
            // under the conjugate law (Poisson with mean laτ) the terms of every entry
            // are past their peak and below e^{−45} of it
            let (at, mean) = (l * c + last, l * a * tau);
            if mean > at && mean - at - at * (mean / at).ln() > 45.0 {
                break;
            }
        }
        // beyond the table jν_j is τ^{−j}
        let beyond: f64 = (1..=(70.0 / tau.ln()) as usize)
            .map(|k| (length + k) as f64)
            .map(|j| (-j * tau.ln()).exp() / j)
            .sum();
        let total = jumps.iter().sum::<f64>() + beyond;
        for (j, jump) in jumps.iter_mut().enumerate() {
            *jump *= j as f64;
        }
        let mut q = vec![(-total).exp()];
        for n in 1..=length {
            let sum: f64 = (1..=n).map(|j| jumps[j] * q[n - j]).sum();
            q.push(sum / n as f64);
        }
        let mut tail = vec![q[length] / (tau - 1.0); length + 1];
        for i in (0..length).rev() {
            tail[i] = tail[i + 1] + q[i + 1];
        }
        let geometric = tail[length] * (last * tau.ln()).exp();
        Self {
            tail,
            geometric,
            tau,
        }
    }

    /// By Crommelin's generating function on a circle; see the module.
    ///
    /// Q(z) = (c − a)(z − 1) Π (z − z_k)/(1 − z_k) / (z^c − e^{a(z−1)}), and
    /// Σ P(Q > i) zⁱ = (1 − Q(z))/(1 − z), whose residue at τ gives
    /// B = (c − a)/(aτ − c) · Π (1 − z_k/τ)/(1 − z_k) / τ.
    pub(super) fn on_circle(workers: u32, rho: f64) -> Self {
        let tau = tail_root(rho);
        let c = f64::from(workers);
        let a = c * rho;
        let roots = inner_roots(workers, rho);
        // the product over all z_k ≠ 1, a conjugate pair at a time
        let product = |factor: &dyn Fn(Complex) -> Complex| {
            roots.iter().fold(Complex::ONE, |product, &root| {
                let alone = workers.is_multiple_of(2) && root.re < 0.0 && root.im.abs() < 1e-9;
                let once = product * factor(root);
                if alone {
                    once
                } else {
                    once * factor(root.conj())
                }
            })
        };
        let over_one = |w: Complex| Complex::ONE / (Complex::ONE - w);
        let at_tau = product(&|w| (Complex::ONE - w.scale(1.0 / tau)) * over_one(w)).re;
        let geometric = (c - a) / (a * tau - c) * at_tau / tau;

        let second = second_outer_modulus(workers, rho, tau);
        let radius = (tau * second).sqrt();
        let length = Self::table_length(workers, rho, tau);
        let points = (40.0 / (second / radius).ln()).ceil() as usize + length;
        let mut tail = vec![0.0; length];
        // only half of the points; the other half are their conjugates
        for n in 0..points {
            let z = Complex::polar(radius, PI * (n as f64 + 0.5) / points as f64);
            let numerator = product(&|w| (z - w) * over_one(w)).scale(c - a);
            let power = z.ln().scale(c).exp();
            let denominator = power - (z - Complex::ONE).scale(a).exp();
            // (1 − Q)/(1 − z), with the factor (z − 1) of Q cancelled
            let rest = Complex::ONE / (Complex::ONE - z) + numerator / denominator;
            let pole = Complex::real(geometric) / (Complex::ONE - z.scale(1.0 / tau));
            let step = Complex::ONE / z;
            let mut value = (rest - pole).scale(1.0 / points as f64);
            for entry in &mut tail {
                *entry += value.re;
                value = value * step;
            }
        }
        for (i, entry) in tail.iter_mut().enumerate() {
            *entry += geometric * (-(i as f64) * tau.ln()).exp();
        }
        Self {
            tail,
            geometric,
            tau,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two derivations without a common step agree to 12 digits, from 1 to 200 servers.
    #[test]
    fn both_ways_give_the_same_law() {
        for (c, rho) in [
            (1, 0.7),
            (1, 0.9),
            (1, 0.98),
            (2, 0.9),
            (4, 0.95),
            (16, 0.9),
            (16, 0.99),
            (64, 0.95),
            (64, 0.99),
            (200, 0.98),
        ] {
            let (x, y) = (Backlog::by_spitzer(c, rho), Backlog::on_circle(c, rho));
            let mut worst = 0.0_f64;
            for i in 0..(x.table_len() as i64 + 50) {
                worst = worst.max((x.tail(i) / y.tail(i) - 1.0).abs());
            }
            assert!(worst < 1e-12, "c={c} ρ={rho}: {worst:e}");
        }
    }

    /// E\[Q\] = Σ 1/(1 − z_k) − (c(c−1) − a²)/(2(c−a)), from the roots alone.
    #[test]
    fn the_mean_agrees_with_the_closed_form() {
        for (c, rho) in [
            (1, 0.5),
            (4, 0.8),
            (8, 0.9),
            (64, 0.95),
            (64, 0.999),
            (1000, 0.99),
        ] {
            let servers = f64::from(c);
            let a = servers * rho;
            let roots = inner_roots(c, rho);
            let sum: f64 = roots
                .iter()
                .map(|&z| {
                    let term = (Complex::ONE / (Complex::ONE - z)).re;
                    if z.im.abs() < 1e-9 { term } else { 2.0 * term }
                })
                .sum();
            let exact = sum - (servers * (servers - 1.0) - a * a) / (2.0 * (servers - a));
            let mean = Backlog::new(c, rho).mean();
            assert!(
                (mean / exact - 1.0).abs() < 1e-9,
                "c={c} ρ={rho}: {mean} {exact}"
            );
        }
    }
}
