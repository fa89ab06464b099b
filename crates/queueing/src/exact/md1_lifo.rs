//! M/D/1, last in first out, without preemption. Times are in service times D.
//!
//! A request that finds the server busy (probability ρ) waits for the residual service
//! r ~ U(0, 1) and then for everything that arrives before the server would be idle
//! again: n whole services, where n has the Borel–Tanner law with a Poisson(ρr) start,
//! P(n | r) = ρr (ρ(r+n))^{n−1} e^{−ρ(r+n)}/n! (Takács 1962; Riordan 1961;
//! Haight and Breuer 1960). So W = r + n, and P(W > x) is a sum of terms ≥ 0.

use super::numeric::{gauss_legendre, invert_tail, poisson};
use super::roots::overload_rate;
use super::{ExactError, checked_load};

/// From this n on, the sum over n is replaced by an integral with end corrections; the first neglected
/// term is below 1e-13 of the first kept one.
const SMOOTH_FROM: f64 = 64.0;

/// The M/D/1 queue, last in first out, in units of the service time D.
#[derive(Clone, Debug)]
pub struct Md1Lifo {
    utilization: f64,
    rule: [(f64, f64); 12],
}

impl Md1Lifo {
    /// The queue at the utilisation ρ = λD.
    ///
    /// # Errors
    /// When the utilisation is not in (0, 1).
    pub fn new(utilization: f64) -> Result<Self, ExactError> {
        checked_load(1, utilization)?;
        Ok(Self {
            utilization,
            rule: gauss_legendre(),
        })
    }

    /// P(n | r) = r/(r+n) · Poisson(n; ρ(r+n)), for integers and for real n ≥ 16.
    fn served_first(&self, n: f64, r: f64) -> f64 {
        let mean = self.utilization * (r + n);
        if n == 0.0 {
            (-mean).exp()
        } else {
            r / (r + n) * poisson(n, mean)
        }
    }

    /// ∫_from^1 P(n | r) dr.
    fn over_residual(&self, n: f64, from: f64) -> f64 {
        let width = 1.0 - from;
        let sum: f64 = self
            .rule
            .iter()
            .map(|(x, w)| w * self.served_first(n, from + width * x))
            .sum();
        width * sum
    }

    /// Σ_{m ≥ n} ∫₀¹ P(m | r) dr.
    fn served_at_least(&self, n: f64) -> f64 {
        let smooth = n.max(SMOOTH_FROM);
        let mut direct = 0.0;
        let mut m = n;
        while m < smooth {
            direct += self.over_residual(m, 0.0);
            m += 1.0;
        }
        // Σ_{m ≥ s} g(m) = ∫_{s−½}^∞ g + δ/24 − 17δ³/5760 + 367δ⁵/967680, with the central
        // differences δ of g at s − ½ (Euler–Maclaurin, midpoint form)
        let g: [f64; 6] = std::array::from_fn(|i| self.over_residual(smooth - 3.0 + i as f64, 0.0));
        let d1 = g[3] - g[2];
        let d3 = g[4] - 3.0 * g[3] + 3.0 * g[2] - g[1];
        let d5 = g[5] - 5.0 * g[4] + 10.0 * g[3] - 10.0 * g[2] + 5.0 * g[1] - g[0];
        let ends = d1 / 24.0 - 17.0 * d3 / 5760.0 + 367.0 * d5 / 967_680.0;
        // g falls as m^{−3/2} e^{−I m}: the panels grow with m, up to the length of the decay
        let decay_length = 3.0 / overload_rate(self.utilization);
        let (mut at, mut integral) = (smooth - 0.5, 0.0);
        loop {
            let width = (0.5 * at).min(decay_length);
            let panel: f64 = self
                .rule
                .iter()
                .map(|(x, w)| w * self.over_residual(at + width * x, 0.0))
                .sum();
            integral += width * panel;
            at += width;
            if width * panel <= 1e-17 * integral {
                break;
            }
        }
        direct + integral + ends
    }

    /// P(W > x).
    pub fn wait_ccdf(&self, x_services: f64) -> f64 {
        let x = x_services.max(0.0);
        let n = x.floor();
        self.utilization * (self.over_residual(n, x - n) + self.served_at_least(n + 1.0))
    }

    /// P(T > x) = P(W > x − 1), 1 for x < 1.
    pub fn sojourn_ccdf(&self, x_services: f64) -> f64 {
        if x_services < 1.0 {
            1.0
        } else {
            self.wait_ccdf(x_services - 1.0)
        }
    }

    /// The x with P(T > x) = p; 1 where ρ ≤ p.
    pub fn sojourn_upper_quantile_services(&self, p: f64) -> f64 {
        1.0 + invert_tail(|x| self.wait_ccdf(x), p, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All n together are certain, even where the sum needs a million terms.
    #[test]
    fn everyone_is_served_in_the_end() {
        for rho in [0.01, 0.3, 0.5, 0.8, 0.95, 0.99, 0.999, 0.9999] {
            let at_zero = Md1Lifo::new(rho).unwrap().wait_ccdf(0.0);
            assert!((at_zero / rho - 1.0).abs() < 1e-12, "ρ={rho}: {at_zero}");
        }
    }

    /// The integral with end corrections agrees with the plain sum.
    #[test]
    fn the_smooth_tail_agrees_with_the_sum() {
        let queue = Md1Lifo::new(0.8).unwrap();
        for n in [64.0, 100.0, 500.0] {
            let sum: f64 = (0..3_000)
                .rev()
                .map(|m| queue.over_residual(n + f64::from(m), 0.0))
                .sum();
            let ours = queue.served_at_least(n);
            assert!((ours / sum - 1.0).abs() < 1e-12, "n={n}: {ours} {sum}");
        }
    }
}
