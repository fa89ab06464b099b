//! Random lengths in blocks: a law fills rows with independent lengths, one for each lane.

use std::sync::Arc;

use super::lanes::{LaneRng, fill_bits, open_unit};
use super::math::{exp, neg_ln, sin_cos_turns};
use crate::isa::{Isa, multiversion};

/// A distribution of lengths in nanoseconds, with its parameters in the form that drawing needs.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the formula of each law names its parameters")]
pub enum Law {
    /// Always the same value.
    Constant { value_ns: f64 },
    /// An exponential of this mean.
    Exponential { mean_ns: f64 },
    /// exp(mu + sigma Z), Z a standard normal.
    Lognormal { mu: f64, sigma: f64 },
    /// The sum of `shape` exponentials.
    Erlang { shape: u32, mean_of_one_ns: f64 },
    /// A gamma variate of this shape and scale.
    Gamma { shape: f64, scale_ns: f64 },
    /// scale · E^(1/shape), E a unit exponential.
    Weibull { inverse_shape: f64, scale_ns: f64 },
    /// One of two exponentials.
    Hyperexponential {
        share_first: f64,
        first_ns: f64,
        second_ns: f64,
    },
    /// min · U^(−1/alpha), possibly bounded by a largest value; `mass` is P(Pareto ≤ largest).
    Pareto {
        inverse_alpha: f64,
        min_ns: f64,
        mass: f64,
    },
    /// One of two values.
    TwoPoints {
        share_second: f64,
        first_ns: f64,
        second_ns: f64,
    },
    /// Each value equally likely.
    Empirical { values_ns: Arc<[f64]> },
    /// Gaps of a Poisson process whose rate follows a two-state Markov chain.
    Mmpp2(Mmpp2),
}

/// Markov-modulated Poisson process, two states; all rates per nanosecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mmpp2 {
    /// Arrivals in each state.
    pub arrival_rates: [f64; 2],
    /// Changes to the other state.
    pub leave_rates: [f64; 2],
}

/// A law, its random streams and, for laws with memory, the state of each lane.
#[derive(Clone, Debug)]
pub struct Sampler<const L: usize> {
    law: Law,
    rng: LaneRng<L>,
    /// The state of the Markov chain; unused by the other laws.
    phases: [usize; L],
    rounder: f64,
    bits: Vec<[u64; L]>,
    /// One stage of each Erlang length.
    stage: Vec<f64>,
}

impl<const L: usize> Sampler<L> {
    /// `rounder` as of [`crate::grid::Grid::rounder`].
    pub fn new(law: Law, mut rng: LaneRng<L>, rounder: f64) -> Self {
        let mut phases = [0; L];
        if let Law::Mmpp2(m) = &law {
            // from the chain's stationary distribution, so that no warm-up is needed
            let share_of_1 = m.leave_rates[0] / (m.leave_rates[0] + m.leave_rates[1]);
            for (lane, phase) in phases.iter_mut().enumerate() {
                *phase = usize::from(rng.uniform_of(lane) < share_of_1);
            }
        }
        Self {
            law,
            rng,
            phases,
            rounder,
            bits: Vec::new(),
            stage: Vec::new(),
        }
    }

    /// Fills the rows with the next lengths of each lane, rounded to the grid.
    pub fn fill(&mut self, isa: Isa, rows: &mut [[f64; L]]) {
        self.bits.resize(rows.len(), [0; L]);
        match self.law {
            Law::Constant { value_ns } => {
                let value_ns = (value_ns + self.rounder) - self.rounder;
                rows.as_flattened_mut().fill(value_ns);
            }
            Law::Exponential { mean_ns } => {
                let rounder = self.rounder;
                let out = rows.as_flattened_mut();
                exponential(isa, self.draw(isa), mean_ns, rounder, out);
            }
            _ => {
                self.fill_unrounded(isa, rows);
                round_all(isa, self.rounder, rows.as_flattened_mut());
            }
        }
    }

    /// Fresh random bits for as many rows as are being filled.
    #[inline]
    fn draw(&mut self, isa: Isa) -> &[u64] {
        fill_bits(isa, &mut self.rng, &mut self.bits);
        self.bits.as_flattened()
    }

    /// Fills the rows for all laws that are rounded afterwards.
    fn fill_unrounded(&mut self, isa: Isa, rows: &mut [[f64; L]]) {
        let out = rows.as_flattened_mut();
        match self.law {
            Law::Constant { .. } | Law::Exponential { .. } => {}
            Law::Lognormal { mu, sigma } => {
                exponential(isa, self.draw(isa), 1.0, 0.0, out);
                lognormal(isa, self.draw(isa), mu, sigma, out);
            }
            Law::Erlang {
                shape,
                mean_of_one_ns,
            } => self.fill_erlang(isa, shape, mean_of_one_ns, out),
            Law::Weibull {
                inverse_shape,
                scale_ns,
            } => weibull(isa, self.draw(isa), inverse_shape, scale_ns, out),
            Law::Hyperexponential {
                share_first,
                first_ns,
                second_ns,
            } => {
                exponential(isa, self.draw(isa), 1.0, 0.0, out);
                scale_by_either(isa, self.draw(isa), share_first, first_ns, second_ns, out);
            }
            Law::Pareto {
                inverse_alpha,
                min_ns,
                mass,
            } => pareto(isa, self.draw(isa), inverse_alpha, min_ns, mass, out),
            Law::TwoPoints {
                share_second,
                first_ns,
                second_ns,
            } => {
                out.fill(1.0);
                scale_by_either(isa, self.draw(isa), share_second, second_ns, first_ns, out);
            }
            Law::Empirical { ref values_ns } => {
                fill_bits(isa, &mut self.rng, &mut self.bits);
                let n = values_ns.len() as u64;
                for (x, bits) in out.iter_mut().zip(self.bits.as_flattened()) {
                    *x = values_ns[index_below(*bits, n) as usize];
                }
            }
            Law::Gamma { shape, scale_ns } => {
                for (number, x) in out.iter_mut().enumerate() {
                    *x = scale_ns * gamma(&mut self.rng, number % L, shape);
                }
            }
            Law::Mmpp2(ref m) => {
                for (number, x) in out.iter_mut().enumerate() {
                    let lane = number % L;
                    *x = mmpp_gap(&mut self.rng, lane, m, &mut self.phases[lane]);
                }
            }
        }
    }

    fn fill_erlang(&mut self, isa: Isa, stages: u32, mean_of_one_ns: f64, out: &mut [f64]) {
        out.fill(0.0);
        let mut stage = std::mem::take(&mut self.stage);
        stage.resize(out.len(), 0.0);
        for _ in 0..stages {
            exponential(isa, self.draw(isa), mean_of_one_ns, 0.0, &mut stage);
            for (sum, x) in out.iter_mut().zip(&stage) {
                *sum += *x;
            }
        }
        self.stage = stage;
    }
}

/// A whole number below `n` (n ≤ 2³²), each with probability 1/n to within 2⁻³².
#[inline(always)]
pub fn index_below(bits: u64, n: u64) -> u64 {
    ((bits >> 32) * n) >> 32
}

multiversion! {
    fn exponential(bits: &[u64], mean: f64, rounder: f64, out: &mut [f64]) {
        for (x, bits) in out.iter_mut().zip(bits) {
            *x = (neg_ln(open_unit(*bits)) * mean + rounder) - rounder;
        }
    }

    /// `out` holds unit exponentials e: √(2e) is a Rayleigh radius (Box and Muller 1958).
    fn lognormal(bits: &[u64], mu: f64, sigma: f64, out: &mut [f64]) {
        for (x, bits) in out.iter_mut().zip(bits) {
            let (_, cosine) = sin_cos_turns(open_unit(*bits));
            *x = exp(mu + sigma * (2.0 * *x).sqrt() * cosine);
        }
    }

    fn weibull(bits: &[u64], inverse_shape: f64, scale_ns: f64, out: &mut [f64]) {
        for (x, bits) in out.iter_mut().zip(bits) {
            *x = scale_ns * exp(-inverse_shape * neg_ln(neg_ln(open_unit(*bits))));
        }
    }

    fn scale_by_either(bits: &[u64], share: f64, a: f64, b: f64, out: &mut [f64]) {
        for (x, bits) in out.iter_mut().zip(bits) {
            *x *= if open_unit(*bits) < share { a } else { b };
        }
    }

    fn pareto(bits: &[u64], inverse_alpha: f64, min_ns: f64, mass: f64, out: &mut [f64]) {
        for (x, bits) in out.iter_mut().zip(bits) {
            let above = 1.0 - open_unit(*bits) * mass;
            *x = min_ns * exp(neg_ln(above) * inverse_alpha);
        }
    }

    fn round_all(rounder: f64, out: &mut [f64]) {
        for x in out {
            *x = (*x + rounder) - rounder;
        }
    }
}

/// A gamma variate with scale 1 (Marsaglia and Tsang 2000; their boost for shapes below 1).
fn gamma<const L: usize>(rng: &mut LaneRng<L>, lane: usize, shape: f64) -> f64 {
    if shape < 1.0 {
        let boost = exp(-neg_ln(rng.uniform_of(lane)) / shape);
        return gamma(rng, lane, shape + 1.0) * boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let radius = (2.0 * neg_ln(rng.uniform_of(lane))).sqrt();
        let z = radius * sin_cos_turns(rng.uniform_of(lane)).1;
        let t = 1.0 + c * z;
        if t <= 0.0 {
            continue;
        }
        let v = t * t * t;
        if neg_ln(rng.uniform_of(lane)) > d * (v - 1.0 + neg_ln(v)) - 0.5 * z * z {
            return d * v;
        }
    }
}

fn mmpp_gap<const L: usize>(
    rng: &mut LaneRng<L>,
    lane: usize,
    m: &Mmpp2,
    phase: &mut usize,
) -> f64 {
    let mut gap = 0.0;
    loop {
        let (arrive, leave) = (m.arrival_rates[*phase], m.leave_rates[*phase]);
        let either = arrive + leave;
        gap += neg_ln(rng.uniform_of(lane)) / either;
        // without a rate that a double can hold, no arrival would ever come
        if !either.is_normal() || rng.uniform_of(lane) * either < arrive {
            return gap;
        }
        *phase = 1 - *phase;
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::Purpose;
    use super::*;

    /// Around the smallest normal number: some lengths are rounded to zero, others are not.
    #[test]
    fn lengths_too_short_for_a_double_are_zero_with_every_instruction_set() {
        let of = |isa| {
            let law = Law::Lognormal {
                mu: -708.0,
                sigma: 2.0,
            };
            let rng = LaneRng::<8>::new(3, Purpose::Service, 0);
            let mut rows = vec![[0.0; 8]; 33];
            Sampler::new(law, rng, 0.0).fill(isa, &mut rows);
            rows
        };
        let want = of(Isa::BASELINE);
        let lengths = want.as_flattened();
        assert!(lengths.iter().all(|x| (0.0..1e-300).contains(x)));
        assert!(lengths.contains(&0.0) && lengths.iter().any(|x| *x > 0.0));
        for isa in Isa::available() {
            assert_eq!(of(isa), want, "{}", isa.name());
        }
    }
}
