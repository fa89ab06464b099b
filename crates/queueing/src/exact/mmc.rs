//! M/M/c, first in first out: Erlang's formulas.
//!
//! Source: A. K. Erlang 1917, *Solution of some problems in the theory of probabilities
//! of significance in automatic telephone exchanges*; Kleinrock 1975, *Queueing Systems*
//! vol. 1, §3.5. Times are in mean service times.

use super::numeric::{invert_tail, one_minus_exp_over};
use super::{ExactError, checked_load};

/// Erlang's loss probability B(c, a) for an offered load of `load_erlangs` = λ E\[S\].
///
/// B(0) = 1, B(k) = aB(k−1)/(k + aB(k−1)): every term is positive, so the recursion is
/// stable for any c.
fn erlang_b(workers: u32, load_erlangs: f64) -> f64 {
    (1..=workers).fold(1.0, |b, k| {
        load_erlangs * b / (f64::from(k) + load_erlangs * b)
    })
}

/// Erlang's delay probability C(c, a): the probability that a request must wait.
///
/// C = B/(1 − ρ(1 − B)), ρ = a/c < 1.
fn erlang_c(workers: u32, load_erlangs: f64) -> f64 {
    let b = erlang_b(workers, load_erlangs);
    let rho = load_erlangs / f64::from(workers);
    b / ((1.0 - rho) + rho * b)
}

/// The M/M/c queue, first in first out, in units of the mean service time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mmc {
    wait_probability: f64,
    /// θ = c − a: the rate at which the wait's tail falls, per mean service time.
    decay: f64,
}

impl Mmc {
    /// The queue of `workers` servers at the utilisation ρ = λ E\[S\]/c.
    ///
    /// # Errors
    /// When there is no worker or the utilisation is not in (0, 1).
    pub fn new(workers: u32, utilization: f64) -> Result<Self, ExactError> {
        checked_load(workers, utilization)?;
        let c = f64::from(workers);
        Ok(Self {
            wait_probability: erlang_c(workers, c * utilization),
            decay: c * (1.0 - utilization),
        })
    }

    /// P(W > 0), Erlang C.
    pub fn wait_probability(&self) -> f64 {
        self.wait_probability
    }

    /// E\[T\] = C/θ + 1.
    pub fn mean_sojourn_services(&self) -> f64 {
        self.wait_probability / self.decay + 1.0
    }

    /// P(T > x) = e^{−x} + C (e^{−x} − e^{−θx})/(θ − 1).
    ///
    /// The difference quotient is x e^{−min(θ,1)x} (1 − e^{−z})/z with z = |θ−1|x, which
    /// neither cancels nor breaks down at θ = 1, where the service rate equals the
    /// wait's decay.
    pub fn sojourn_ccdf(&self, x_services: f64) -> f64 {
        let x = x_services.max(0.0);
        let quotient =
            x * (-self.decay.min(1.0) * x).exp() * one_minus_exp_over((self.decay - 1.0).abs() * x);
        (-x).exp() + self.wait_probability * quotient
    }

    /// The x with P(T > x) = p.
    pub fn sojourn_upper_quantile_services(&self, p: f64) -> f64 {
        invert_tail(|x| self.sojourn_ccdf(x), p, 1.0 + 1.0 / self.decay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erlang_b_of_the_textbook() {
        // a = 2 on 3 servers: (8/6)/(1 + 2 + 2 + 8/6)
        assert!((erlang_b(3, 2.0) - 4.0 / 19.0).abs() < 1e-15);
        // stable where a^c/c! overflows
        let b = erlang_b(10_000, 9_900.0);
        assert!(b > 0.0 && b < 0.01, "{b}");
    }

    #[test]
    fn the_sojourn_passes_smoothly_through_equal_rates() {
        // c = 2, ρ = ½: θ = 1, the limit is e^{−x}(1 + Cx)
        let at = Mmc::new(2, 0.5).unwrap();
        let near = Mmc::new(2, 0.5 + 1e-9).unwrap();
        for x in [0.1_f64, 1.0, 7.0, 40.0] {
            let limit = (-x).exp() * (1.0 + at.wait_probability() * x);
            assert!((at.sojourn_ccdf(x) / limit - 1.0).abs() < 1e-14);
            assert!((near.sojourn_ccdf(x) / limit - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn one_worker_has_an_exponential_sojourn() {
        let q = Mmc::new(1, 0.8).unwrap();
        for x in [0.0_f64, 0.5, 3.0, 100.0] {
            assert!((q.sojourn_ccdf(x) / (-0.2 * x).exp() - 1.0).abs() < 1e-13);
        }
    }
}
