//! M/D/c, first in first out: the queue of the paper's figures.
//!
//! Source: C. D. Crommelin 1932, *Delay probability formulae when the holding times are
//! constant*; G. J. Franx 2001, *A simple solution for the M/D/c waiting time
//! distribution*; Tijms 2003, *A First Course in Stochastic Models*, §9.6. Times are in
//! service times D.
//!
//! Verified for 1 to 64 servers and utilisations to 0.99 by two independent derivations
//! (see the tests of `backlog`); the code has no limit of its own below 1.

use super::backlog::Backlog;
use super::numeric::{invert_tail, poisson};
use super::{ExactError, checked_load};

/// Terms below this share of the sum are ignored.
const NEGLIGIBLE: f64 = 1e-18;

/// The M/D/c queue, first in first out, in units of the service time D.
#[derive(Clone, Debug)]
pub struct Mdc {
    workers: u32,
    utilization: f64,
    backlog: Backlog,
}

impl Mdc {
    /// The queue of `workers` servers at the utilisation ρ = λD/c.
    ///
    /// # Errors
    /// When there is no worker or the utilisation is not in (0, 1).
    pub fn new(workers: u32, utilization: f64) -> Result<Self, ExactError> {
        checked_load(workers, utilization)?;
        Ok(Self {
            workers,
            utilization,
            backlog: Backlog::new(workers, utilization),
        })
    }

    fn load_erlangs(&self) -> f64 {
        f64::from(self.workers) * self.utilization
    }

    /// E\[W\] = E\[Q\]/a (Little's law).
    pub fn mean_wait_services(&self) -> f64 {
        self.backlog.mean() / self.load_erlangs()
    }

    /// The rate at which the tail falls, a(τ − 1) per service time: c times that of one server at the
    /// same utilisation.
    pub fn tail_decay_per_service(&self) -> f64 {
        self.load_erlangs() * (self.backlog.tau() - 1.0)
    }

    /// K of P(W > x) ~ K e^{−a(τ−1)x}.
    pub fn tail_amplitude(&self) -> f64 {
        self.backlog.geometric() * self.backlog.tau()
    }

    /// P(W > x).
    ///
    /// With k = ⌊x⌋ + 1 and u = k − x ∈ (0, 1], P(W > x) = P(Q + A_u ≥ kc) where
    /// A_u ~ Poisson(au): Franx's formula, complemented so that every term is ≥ 0.
    pub fn wait_ccdf(&self, x_services: f64) -> f64 {
        let x = x_services.max(0.0);
        let a = self.load_erlangs();
        let k = x.floor() + 1.0;
        let arrivals = a * (k - x);
        let needed = k * f64::from(self.workers);
        // the number of arrivals that can matter, under the tail's conjugate law
        let conjugate = arrivals * self.backlog.tau();
        let most = conjugate + 12.0 * conjugate.sqrt() + 50.0;
        if needed - 1.0 - most > self.backlog.table_len() as f64 {
            return self.tail_amplitude() * (-self.tail_decay_per_service() * x).exp();
        }
        let term = |j: f64, p: f64| p * self.backlog.tail((needed - 1.0 - j) as i64);
        // from the middle of the mass upwards, beyond P(A_u ≥ kc), and then downwards
        let start = conjugate.min(needed).floor();
        let at_start = poisson(start, arrivals);
        let mut sum = 0.0;
        let (mut j, mut p, mut last) = (start, at_start, 0.0);
        loop {
            let t = term(j, p);
            sum += t;
            if (t <= last && t <= NEGLIGIBLE * sum) || p == 0.0 {
                break;
            }
            last = t;
            j += 1.0;
            p *= arrivals / j;
        }
        let (mut j, mut p, mut last) = (start, at_start, 0.0);
        while j > 0.0 {
            p *= j / arrivals;
            j -= 1.0;
            let t = term(j, p);
            sum += t;
            if t <= last && t <= NEGLIGIBLE * sum {
                break;
            }
            last = t;
        }
        sum
    }

    /// P(T > x) = P(W > x − 1), 1 for x < 1.
    pub fn sojourn_ccdf(&self, x_services: f64) -> f64 {
        if x_services < 1.0 {
            1.0
        } else {
            self.wait_ccdf(x_services - 1.0)
        }
    }

    /// The x with P(W > x) = p; 0 if P(W > 0) ≤ p.
    pub fn wait_upper_quantile_services(&self, p: f64) -> f64 {
        let scale = 1.0 / self.tail_decay_per_service();
        invert_tail(|x| self.wait_ccdf(x), p, scale)
    }

    /// The x with P(T > x) = p; 1 if P(W > 0) ≤ p.
    pub fn sojourn_upper_quantile_services(&self, p: f64) -> f64 {
        1.0 + self.wait_upper_quantile_services(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Erlang 1909: P(W ≤ x) = (1−ρ) Σ_{j ≤ x} (−ρ(x−j))^j e^{ρ(x−j)}/j!, accurate for small x.
    #[test]
    fn one_server_agrees_with_erlang() {
        for rho in [0.05, 0.3, 0.5, 0.8, 0.95] {
            let queue = Mdc::new(1, rho).unwrap();
            for i in 0..60 {
                let x = f64::from(i) * 0.1;
                let (mut sum, mut factorial) = (0.0, 1.0);
                for j in 0..=x.floor() as i32 {
                    factorial *= f64::from(j.max(1));
                    let y = rho * (x - f64::from(j));
                    sum += (-y).powi(j) * y.exp() / factorial;
                }
                let erlang = 1.0 - (1.0 - rho) * sum;
                let ours = queue.wait_ccdf(x);
                assert!(
                    (ours - erlang).abs() < 1e-12,
                    "ρ={rho} x={x}: {ours} {erlang}"
                );
            }
        }
    }

    /// Where the asymptote takes over from the sum, there is no step.
    #[test]
    fn the_asymptote_takes_over_smoothly() {
        for (c, rho) in [(1, 0.5), (4, 0.8), (16, 0.9), (64, 0.95)] {
            let q = Mdc::new(c, rho).unwrap();
            let decay = q.tail_decay_per_service();
            let far = (q.backlog.table_len() as f64 / f64::from(c)).ceil() + 60.0;
            let mut x = far - 60.0;
            while x < far {
                let ratio = q.wait_ccdf(x + 0.25) / q.wait_ccdf(x) / (-0.25 * decay).exp();
                assert!((ratio - 1.0).abs() < 1e-11, "c={c} ρ={rho} x={x}: {ratio}");
                x += 0.25;
            }
        }
    }

    #[test]
    fn an_almost_idle_server_almost_never_makes_wait() {
        let q = Mdc::new(1, 1e-6).unwrap();
        assert!((q.wait_ccdf(0.0) / 1e-6 - 1.0).abs() < 1e-6);
        let many = Mdc::new(64, 0.05).unwrap();
        assert!(many.wait_ccdf(0.0) < 1e-30 && many.wait_ccdf(0.0) > 0.0);
        assert_eq!(many.sojourn_upper_quantile_services(1e-6), 1.0);
    }
}
