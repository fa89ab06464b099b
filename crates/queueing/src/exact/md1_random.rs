//! M/D/1 with the next request drawn at random. Times are in service times D.
//!
//! Source: P. J. Burke 1959, *Equilibrium delay distribution for one channel with
//! constant holding time, Poisson input and random service*. A request that finds the
//! server busy waits for the residual r ~ U(0, 1) and then for M whole services. At the
//! first choice it has N competitors, where N is distributed as the number in the system
//! (what the service in progress left behind and what arrives during it), independently
//! of r. Each choice takes it with probability 1/(competitors + 1); otherwise one
//! competitor leaves and Poisson(ρ) arrive. All terms are ≥ 0.

use super::backlog::Backlog;
use super::numeric::{invert_tail, poisson};
use super::{ExactError, checked_load};

/// The maximum number of multiplications for the chain: about 0.2 s.
const BUDGET: usize = 400_000_000;
/// Numbers of competitors with a smaller probability are ignored.
const NEGLIGIBLE: f64 = 1e-17;

/// The M/D/1 queue in random order, in units of the service time D, down to a smallest probability.
#[derive(Clone, Debug)]
pub struct Md1Random {
    /// P(M ≥ m and busy), m = 0, 1, …
    tail: Vec<f64>,
}

impl Md1Random {
    /// The queue at the utilisation ρ = λD, computed down to P(W > x) < `smallest`.
    ///
    /// The work grows as (1−ρ)⁻². It is limited, so near ρ = 1 it may end before `smallest` is reached: see
    /// [`Md1Random::smallest_probability`].
    ///
    /// # Errors
    /// When the utilisation is not in (0, 1).
    pub fn new(utilization: f64, smallest: f64) -> Result<Self, ExactError> {
        checked_load(1, utilization)?;
        let backlog = Backlog::new(1, utilization);
        // P(N = n), n = 0, 1, …, from P(N > n) = P(Q > n − 1)
        let more_than = |n: i64| {
            if n == 0 {
                utilization
            } else {
                backlog.tail(n - 1)
            }
        };
        let states = (NEGLIGIBLE.ln().abs() / backlog.tau().ln()).ceil() as usize + 40;
        let arrivals: Vec<f64> = (0..60)
            .map(|k| poisson(f64::from(k), utilization))
            .take_while(|p| *p > 1e-19)
            .collect();
        let mut tail = vec![utilization];
        // not even one step; so many states might not fit into memory
        if states > BUDGET / arrivals.len() {
            return Ok(Self { tail });
        }
        let mut present: Vec<f64> = (0..states as i64)
            .map(|n| match n {
                0 => utilization * (1.0 - utilization),
                n => utilization * (more_than(n - 1) - more_than(n)),
            })
            .collect();
        let mut work = 0;
        let mut next = vec![0.0; states];
        loop {
            // with n competitors it is not taken with probability n/(n+1); then it has n − 1 + arrivals
            next.fill(0.0);
            for (n, p) in present.iter().enumerate().skip(1) {
                let missed = p * n as f64 / (n as f64 + 1.0);
                let room = arrivals.len().min(states - (n - 1));
                for (to, share) in next[n - 1..n - 1 + room].iter_mut().zip(&arrivals) {
                    *to += missed * share;
                }
            }
            std::mem::swap(&mut present, &mut next);
            let left: f64 = present.iter().sum();
            tail.push(left);
            work += states * arrivals.len();
            if left < smallest || work > BUDGET {
                return Ok(Self { tail });
            }
        }
    }

    /// The smallest P(W > x) that was computed; below it, the results are `None`.
    pub fn smallest_probability(&self) -> f64 {
        self.tail[self.tail.len() - 1]
    }

    /// P(W > x), linear between whole x because the residual service is uniform.
    pub fn wait_ccdf(&self, x_services: f64) -> Option<f64> {
        let x = x_services.max(0.0);
        let n = x.floor();
        let at = *self.tail.get(n as usize)?;
        let after = *self.tail.get(n as usize + 1)?;
        Some(at - (x - n) * (at - after))
    }

    /// P(T > x) = P(W > x − 1), 1 for x < 1.
    pub fn sojourn_ccdf(&self, x_services: f64) -> Option<f64> {
        if x_services < 1.0 {
            Some(1.0)
        } else {
            self.wait_ccdf(x_services - 1.0)
        }
    }

    /// The x with P(T > x) = p; 1 where ρ ≤ p.
    pub fn sojourn_upper_quantile_services(&self, p: f64) -> Option<f64> {
        let wait = || invert_tail(|x| self.wait_ccdf(x).unwrap_or(0.0), p, 1.0);
        (p >= self.smallest_probability()).then(|| 1.0 + wait())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chain's mean is FIFO's and its second moment 2/(2−ρ) times FIFO's (Takács 1963).
    #[test]
    fn moments_are_the_known_ones() {
        for rho in [0.1, 0.5, 0.8] {
            let queue = Md1Random::new(rho, 1e-16).unwrap();
            // ∫ P(W > x) dx and ∫ 2x P(W > x) dx of a piecewise linear tail
            let (mut mean, mut second) = (0.0, 0.0);
            for (n, pair) in queue.tail.windows(2).enumerate() {
                let (p, q, n) = (pair[0], pair[1], n as f64);
                mean += 0.5 * (p + q);
                second += n * (p + q) + (p + 2.0 * q) / 3.0;
            }
            let wait = rho / (2.0 * (1.0 - rho));
            assert!((mean / wait - 1.0).abs() < 1e-11, "ρ={rho}");
            let fifo = 2.0 * wait * wait + rho / (3.0 * (1.0 - rho));
            assert!(
                (second / (fifo * 2.0 / (2.0 - rho)) - 1.0).abs() < 1e-10,
                "ρ={rho}: {second}"
            );
        }
    }

    #[test]
    fn below_what_was_computed_there_is_no_answer() {
        let queue = Md1Random::new(0.5, 1e-4).unwrap();
        assert!(queue.smallest_probability() < 1e-4);
        assert!(queue.sojourn_upper_quantile_services(1e-4).is_some());
        assert_eq!(queue.sojourn_upper_quantile_services(1e-9), None);
        assert_eq!(queue.wait_ccdf(1e6), None);
        // so near saturation that the chain has more states than memory
        let nearly_full = Md1Random::new(1.0 - 1e-12, 1e-4).unwrap();
        assert_eq!(nearly_full.sojourn_upper_quantile_services(0.5), None);
    }
}
