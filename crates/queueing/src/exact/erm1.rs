//! E_c/M/1: the single server of a round robin over c exponential servers.
//!
//! Every c-th Poisson arrival makes Erlang-c gaps. In G/M/1 an arrival finds n requests
//! with probability (1−σ)σⁿ, where σ = A*(µ(1−σ)) with the gaps' Laplace transform A*;
//! here σ = (cρ/(cρ + 1 − σ))^c (Kendall 1953; Kleinrock 1975, §6.4). Times are in mean
//! service times.

use super::{ExactError, checked_load};

/// One of c exponential servers that take Poisson arrivals in turn, first in first out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErlangArrivals {
    sigma: f64,
}

impl ErlangArrivals {
    /// The server of a round robin over `workers` at the utilisation ρ.
    ///
    /// # Errors
    /// When there is no worker or the utilisation is not in (0, 1).
    pub fn new(workers: u32, utilization: f64) -> Result<Self, ExactError> {
        checked_load(workers, utilization)?;
        let c = f64::from(workers);
        let a = c * utilization;
        // The equation for y = 1 − σ, 1 − y = e^{−c ln(1 + y/a)}, has the root y = 0 as
        // well; f(y) = ln(1−y)/c + ln(1 + y/a) is concave and > 0 between the two.
        let f = |y: f64| (-y).ln_1p() / c + (y / a).ln_1p();
        let (mut lo, mut hi) = (0.0, 1.0);
        for _ in 0..2_000 {
            let y = 0.5 * (lo + hi);
            if y <= lo || y >= hi {
                break;
            }
            if f(y) > 0.0 { lo = y } else { hi = y }
        }
        Ok(Self { sigma: 1.0 - lo })
    }

    /// E\[W\] = σ/(1−σ).
    pub fn mean_wait_services(&self) -> f64 {
        self.sigma / (1.0 - self.sigma)
    }

    /// P(T > x) = e^{−(1−σ)x}.
    pub fn sojourn_ccdf(&self, x_services: f64) -> f64 {
        (-(1.0 - self.sigma) * x_services.max(0.0)).exp()
    }

    /// The x with P(T > x) = p.
    pub fn sojourn_upper_quantile_services(&self, p: f64) -> f64 {
        (-p.ln() / (1.0 - self.sigma)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigma_solves_its_equation() {
        for (c, rho) in [(1, 0.3), (2, 0.5), (4, 0.8), (64, 0.95), (64, 0.05)] {
            let sigma = ErlangArrivals::new(c, rho).unwrap().sigma;
            let a = f64::from(c) * rho;
            let image = (a / (a + 1.0 - sigma)).powi(c as i32);
            assert!(
                (image - sigma).abs() < 1e-14,
                "c={c} ρ={rho}: {sigma} {image}"
            );
            assert!(sigma < 1.0 - 1e-6, "c={c} ρ={rho}: the trivial root");
        }
        // Poisson arrivals: σ = ρ
        let plain = ErlangArrivals::new(1, 0.3).unwrap();
        assert!((plain.sigma - 0.3).abs() < 1e-14);
    }
}
