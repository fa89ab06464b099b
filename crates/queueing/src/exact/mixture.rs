//! Mixtures of exponentials: the law of a wait in M/M/1 under other orders than FIFO.

use std::f64::consts::PI;

use super::numeric::one_minus_exp_over;

/// Step of the trapezoidal rule in u. The integrands are analytic for |Im u| < π/2, or
/// π/4 once e^{−Rt} dominates, so the error is below e^{−2π(π/4)/h} ≈ 1e-34.
const STEP: f64 = 1.0 / 16.0;

/// P(X > t) = Σ wᵢ e^{−rᵢt}, all wᵢ ≥ 0.
#[derive(Clone, Debug)]
pub(super) struct ExponentialMixture {
    /// (weight, rate)
    terms: Vec<(f64, f64)>,
}

impl ExponentialMixture {
    /// The busy period of M/M/1, which is the wait under LIFO of a request that finds the
    /// server busy; in mean service times.
    ///
    /// Its density e^{−(1+ρ)t} I₁(2√ρ t)/(t√ρ) (Kleinrock 1975, eq. 5.156) with Bessel's
    /// I₁ as an integral over θ gives
    /// P(B > t) = (2/π) ∫₀^π sin²θ e^{−Rt}/R dθ, R = 1 + ρ − 2√ρ cos θ.
    pub(super) fn busy_period(rho: f64) -> Self {
        // the range is long on the left: at large t only small θ matter, and they must be resolved
        Self::over_angle(rho, -40.0, 14.0, |at| 2.0 / PI * at.sin * at.sin / at.rate)
    }

    /// The wait of a request that finds the server of M/M/1 busy, if the next request is drawn at random;
    /// in mean service times.
    ///
    /// Pollaczek 1946, Flatto 1997 (*The waiting time distribution for the random order
    /// service M/M/1 queue*): with R as above and φ = arctan(√ρ sin θ/(1 − √ρ cos θ)),
    /// P(W > t | W > 0) = 2(1−ρ) ∫₀^π e^{(2φ+θ) cot θ}/(e^{π cot θ} + 1) · sin θ/R² ·
    /// e^{−Rt} dθ. The weight is that of Pollaczek's polynomials, in which the
    /// probabilities of the state "n requests wait" expand.
    pub(super) fn random_order(rho: f64) -> Self {
        let root = rho.sqrt();
        // outside of this range e^{−3 sinh|u|} underflows
        Self::over_angle(rho, -7.0, 7.0, |at| {
            let phi = (root * at.sin).atan2(1.0 - root * at.cos);
            // e^{(2φ+θ)cot}/(e^{π cot}+1), written so that no exponential overflows
            let exponent = if at.cot > 0.0 {
                (2.0 * phi + at.theta - PI) * at.cot
            } else {
                (2.0 * phi + at.theta) * at.cot
            };
            let share = exponent.exp() / (1.0 + (-PI * at.cot.abs()).exp());
            2.0 * (1.0 - rho) * share * at.sin / (at.rate * at.rate)
        })
    }

    /// ∫₀^π density(θ) e^{−R(θ)t} dθ by the trapezoidal rule in u = ln tan(θ/2), which resolves both ends
    /// and the peak near θ = 0 at every load.
    fn over_angle(rho: f64, from: f64, to: f64, density: impl Fn(&Angle) -> f64) -> Self {
        let steps = ((to - from) / STEP) as u32;
        let terms = (0..=steps)
            .map(|i| {
                let at = Angle::new(from + STEP * f64::from(i), rho);
                // dθ = sin θ du
                (STEP * at.sin * density(&at), at.rate)
            })
            .filter(|(weight, _)| *weight > 0.0)
            .collect();
        Self { terms }
    }

    /// The same law with time running `factor` times faster.
    pub(super) fn accelerate(mut self, factor: f64) -> Self {
        for (_, rate) in &mut self.terms {
            *rate *= factor;
        }
        self
    }

    /// P(X > t).
    pub(super) fn ccdf(&self, t: f64) -> f64 {
        self.terms.iter().map(|(w, r)| w * (-r * t).exp()).sum()
    }

    /// P(X + S > t) − P(S > t) for an independent exponential S of mean 1.
    ///
    /// For one rate r: (e^{−t} − e^{−rt})/(r − 1), written as in [`super::Mmc::sojourn_ccdf`].
    pub(super) fn excess_with_service(&self, t: f64) -> f64 {
        self.terms
            .iter()
            .map(|(w, r)| w * t * (-r.min(1.0) * t).exp() * one_minus_exp_over((r - 1.0).abs() * t))
            .sum()
    }

    /// E\[X\].
    pub(super) fn mean(&self) -> f64 {
        self.terms.iter().map(|(w, r)| w / r).sum()
    }
}

/// A node of the quadrature.
struct Angle {
    theta: f64,
    sin: f64,
    cos: f64,
    cot: f64,
    /// R = (1 − √ρ)² + 2√ρ(1 − cos θ)
    rate: f64,
}

impl Angle {
    fn new(u: f64, rho: f64) -> Self {
        let root = rho.sqrt();
        let e = u.exp();
        // 1 − cos θ = 1 + tanh u, without cancellation for small θ
        let one_minus_cos = 2.0 * e * e / (1.0 + e * e);
        let gap = (1.0 - rho) / (1.0 + root);
        Self {
            theta: 2.0 * e.atan(),
            sin: 1.0 / u.cosh(),
            cos: -u.tanh(),
            cot: -u.sinh(),
            rate: gap * gap + 2.0 * root * one_minus_cos,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second_moment(law: &ExponentialMixture) -> f64 {
        law.terms.iter().map(|(w, r)| 2.0 * w / (r * r)).sum()
    }

    /// Moments that are known in closed form: the busy period's (Kleinrock 1975, §5.8),
    /// and the random-order wait's, whose unconditional E\[W²\] is 2/(2−ρ) times FIFO's.
    #[test]
    fn moments_are_the_known_ones() {
        for rho in [0.01, 0.3, 0.5, 0.8, 0.95, 0.999] {
            let busy = ExponentialMixture::busy_period(rho);
            let idle = 1.0 - rho;
            let near = |ours: f64, exact: f64, what: &str| {
                assert!(
                    (ours / exact - 1.0).abs() < 1e-11,
                    "{what} ρ={rho}: {ours} {exact}"
                );
            };
            near(busy.ccdf(0.0), 1.0, "busy period, total");
            near(busy.mean(), 1.0 / idle, "busy period, mean");
            near(
                second_moment(&busy),
                2.0 / idle.powi(3),
                "busy period, E[X²]",
            );
            let random = ExponentialMixture::random_order(rho);
            near(random.ccdf(0.0), 1.0, "random order, total");
            near(random.mean(), 1.0 / idle, "random order, mean");
            let fifo = 2.0 / (idle * idle);
            near(
                second_moment(&random),
                fifo * 2.0 / (2.0 - rho),
                "random order, E[X²]",
            );
        }
    }

    /// The random-order wait from its own Markov chain, with no integral in it: the
    /// uniformised backward equations w'ₙ = ρwₙ₊₁ + (1 − 1/n)wₙ₋₁ − (1+ρ)wₙ.
    #[test]
    fn random_order_solves_its_chain() {
        let rho = 0.7_f64;
        let states = 400;
        let t = 12.0;
        let mut w = vec![1.0; states + 2];
        let mut total = vec![0.0; states + 2];
        let clock = (1.0 + rho) * t;
        for k in 0..200 {
            let p = super::super::numeric::poisson(f64::from(k), clock);
            for (sum, x) in total.iter_mut().zip(&w) {
                *sum += p * x;
            }
            let next: Vec<f64> = (0..states + 2)
                .map(|n| match n {
                    0 => 0.0,
                    n if n > states => 1.0,
                    n => {
                        let stay = (1.0 - 1.0 / n as f64) * w[n - 1];
                        (rho * w[n + 1] + stay) / (1.0 + rho)
                    }
                })
                .collect();
            w = next;
        }
        let mixed: f64 = (1..=states)
            .map(|n| (1.0 - rho) * rho.powi(n as i32 - 1) * total[n])
            .sum();
        let ours = ExponentialMixture::random_order(rho).ccdf(t);
        assert!((mixed - ours).abs() < 1e-12, "{mixed} {ours}");
    }
}
