//! Arrival processes: the one source of schedules for the generator and the simulator.

pub mod profile;

use std::fmt;
use std::str::FromStr;

use taillab_model::Nanos;

use crate::grid::Grid;
use crate::isa::Isa;
use crate::notation::{CV, Notation, NotationError, Range, SHARE};
use crate::random::lanes::{LaneRng, Purpose};
use crate::random::law::{Law, Mmpp2, Sampler};
use crate::random::math::ln_gamma;

/// How requests arrive. The mean rate is not part of it, so one process serves every load.
///
/// In text it is `poisson`, `lognormal:cv=2`, …: see [`ArrivalProcess::NOTATION`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalProcess {
    /// Equal gaps.
    Deterministic,
    /// Independent exponential gaps.
    Poisson,
    /// Independent lognormal gaps.
    Lognormal {
        /// Coefficient of variation of a gap, above 0.
        cv: f64,
    },
    /// Independent gamma gaps; with `cv` = 1/√k the Erlang distribution of k stages.
    Gamma {
        /// Coefficient of variation of a gap, 0.001 to 100.
        cv: f64,
    },
    /// Independent gaps, each the sum of equal exponential stages.
    Erlang {
        /// The number of stages, 1 to 10,000. With 10,000 the coefficient of variation is 0.01.
        stages: u32,
    },
    /// Independent Weibull gaps.
    Weibull {
        /// The shape, at least 0.1; below 1 the gaps are burstier than Poisson's.
        shape: f64,
    },
    /// Independent gaps, each from one of two exponential distributions with balanced means.
    Hyperexponential {
        /// Coefficient of variation of a gap, 1 to 1,000,000.
        cv: f64,
    },
    /// Independent Pareto gaps; their variance is infinite up to `alpha` = 2.
    Pareto {
        /// The tail index, at least 1.01.
        alpha: f64,
    },
    /// A Poisson process with bursts, in which it is faster: a Markov-modulated Poisson process with two
    /// states (Fischer and Meier-Hellstern 1993). Gaps are correlated.
    Mmpp2 {
        /// The rate within bursts ÷ the rate outside, above 1.
        ratio: f64,
        /// The share of time within bursts, between 0 and 1.
        share: f64,
        /// The mean number of requests in a burst, at least 0.001.
        burst: f64,
    },
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArrivalError {
    /// The rate is not a positive, finite number.
    #[error("the arrival rate must be a positive number of requests per second, not {0}")]
    Rate(f64),
    /// A parameter of the process is out of range.
    #[error("{parameter} of {process} arrivals must be {wanted}, not {value}")]
    Parameter {
        /// The name of the process.
        process: &'static str,
        /// The name of the parameter.
        parameter: &'static str,
        /// The range that it must be in.
        wanted: &'static str,
        /// The value given.
        value: f64,
    },
    /// There is no memory for this many arrivals.
    #[error("{0:.1e} arrivals do not fit into memory; lower the rate or the length")]
    TooMany(f64),
    /// A gap is not a number.
    #[error(
        "at {rate_per_s:e} requests per second, the gaps of {process} arrivals cannot be \
         calculated; choose another rate"
    )]
    Gap {
        /// The process.
        process: ArrivalProcess,
        /// The rate.
        rate_per_s: f64,
    },
}

impl ArrivalProcess {
    /// The notation in text, for help and error messages.
    pub const NOTATION: &str = "deterministic, poisson, lognormal:cv=2, gamma:cv=0.5, \
        erlang:stages=4, weibull:shape=0.5, hyperexponential:cv=3, pareto:alpha=2.5, \
        mmpp:ratio=10,share=0.1,burst=50";

    /// The due times, as offsets from the start, of all arrivals within `length`.
    ///
    /// The same process, rate, length and seed give the same schedule everywhere, and
    /// the same arrivals as the first replication of a simulation with that seed.
    ///
    /// # Errors
    /// [`ArrivalError`] when the rate or a parameter is out of range, or memory is too small.
    pub fn schedule(
        &self,
        rate_per_s: f64,
        length: Nanos,
        seed: u64,
    ) -> Result<Vec<Nanos>, ArrivalError> {
        if !(rate_per_s > 0.0 && rate_per_s.is_finite()) {
            return Err(ArrivalError::Rate(rate_per_s));
        }
        self.check()?;
        let mean_gap_ns = 1e9 / rate_per_s;
        let length_ns = length.get() as f64;
        let expected = length_ns / mean_gap_ns;
        let usual_most = ((expected + 6.0 * expected.sqrt()) as usize).saturating_add(16);
        let mut due = Vec::new();
        due.try_reserve_exact(usual_most)
            .map_err(|_| ArrivalError::TooMany(expected))?;
        let rounder = Grid::for_mean_gap(mean_gap_ns).rounder();
        let rng = LaneRng::<1>::new(seed, Purpose::Arrivals, 0);
        let mut gaps = Sampler::new(self.law(mean_gap_ns), rng, rounder);
        let mut block = [[0.0]; 256];
        let isa = Isa::detect();
        // whole nanoseconds and the rest are kept separately, so that rounding errors do not add up
        let (mut whole, mut rest) = (0_u64, 0.0_f64);
        loop {
            gaps.fill(isa, &mut block);
            for [gap] in block {
                rest += gap;
                let carry = rest.floor();
                whole = whole.saturating_add(carry as u64);
                rest -= carry;
                if whole >= length.get() {
                    return Ok(due);
                }
                if rest.is_nan() {
                    // the end would never come
                    let process = *self;
                    return Err(ArrivalError::Gap {
                        process,
                        rate_per_s,
                    });
                }
                due.push(Nanos::new(whole));
            }
        }
    }

    /// The coefficient of variation of a gap; infinite for Pareto up to alpha 2.
    pub fn cv(&self) -> f64 {
        match *self {
            Self::Deterministic => 0.0,
            Self::Poisson => 1.0,
            Self::Lognormal { cv } | Self::Gamma { cv } | Self::Hyperexponential { cv } => cv,
            Self::Erlang { stages } => 1.0 / f64::from(stages).sqrt(),
            Self::Weibull { shape } => {
                let squared =
                    (ln_gamma(1.0 + 2.0 / shape) - 2.0 * ln_gamma(1.0 + 1.0 / shape)).exp() - 1.0;
                squared.max(0.0).sqrt()
            }
            Self::Pareto { alpha } if alpha > 2.0 => 1.0 / (alpha * (alpha - 2.0)).sqrt(),
            Self::Pareto { .. } => f64::INFINITY,
            Self::Mmpp2 {
                ratio,
                share,
                burst,
            } => {
                let (m1, m2) = mmpp2(1.0, ratio, share, burst).gap_moments();
                (m2 / (m1 * m1) - 1.0).max(0.0).sqrt()
            }
        }
    }

    /// The limiting index of dispersion: the variance ÷ the mean of the number of arrivals in a long time. Of
    /// independent gaps, it is the square of their coefficient of variation. Correlated gaps make it larger: bursts
    /// add up.
    pub fn dispersion(&self) -> f64 {
        match *self {
            Self::Mmpp2 {
                ratio,
                share,
                burst,
            } => mmpp2(1.0, ratio, share, burst).dispersion(),
            _ => self.cv() * self.cv(),
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`ArrivalError::Parameter`] names the first one that is out of range.
    pub fn check(&self) -> Result<(), ArrivalError> {
        let (process, parameters) = self.parts();
        let bad = (parameters.into_iter()).find(|(_, value, range)| !range.contains(*value));
        bad.map_or(Ok(()), |(parameter, value, range)| {
            Err(ArrivalError::Parameter {
                process,
                parameter,
                wanted: range.wanted,
                value,
            })
        })
    }

    /// The name, and each parameter with its value and its range.
    fn parts(&self) -> (&'static str, Vec<(&'static str, f64, Range)>) {
        match *self {
            Self::Deterministic => ("deterministic", vec![]),
            Self::Poisson => ("poisson", vec![]),
            Self::Lognormal { cv } => ("lognormal", vec![("cv", cv, CV)]),
            Self::Gamma { cv } => ("gamma", vec![("cv", cv, CV_GAMMA)]),
            Self::Erlang { stages } => ("erlang", vec![("stages", stages.into(), STAGES)]),
            Self::Weibull { shape } => ("weibull", vec![("shape", shape, SHAPE)]),
            Self::Hyperexponential { cv } => ("hyperexponential", vec![("cv", cv, CV_HYPER)]),
            Self::Pareto { alpha } => ("pareto", vec![("alpha", alpha, ALPHA)]),
            Self::Mmpp2 {
                ratio,
                share,
                burst,
            } => {
                let parameters = vec![
                    ("ratio", ratio, RATIO),
                    ("share", share, SHARE),
                    ("burst", burst, BURST),
                ];
                ("mmpp", parameters)
            }
        }
    }

    /// The law of the gaps with this mean; the parameters must be in range.
    pub fn law(&self, mean_ns: f64) -> Law {
        match *self {
            Self::Deterministic => Law::Constant { value_ns: mean_ns },
            Self::Poisson => Law::Exponential { mean_ns },
            Self::Lognormal { cv } => lognormal(mean_ns, cv),
            Self::Gamma { cv } => Law::Gamma {
                shape: 1.0 / (cv * cv),
                scale_ns: mean_ns * cv * cv,
            },
            Self::Erlang { stages } => Law::Erlang {
                shape: stages,
                mean_of_one_ns: mean_ns / f64::from(stages),
            },
            Self::Weibull { shape } => Law::Weibull {
                inverse_shape: 1.0 / shape,
                scale_ns: mean_ns / ln_gamma(1.0 + 1.0 / shape).exp(),
            },
            Self::Hyperexponential { cv } => {
                let c2 = cv * cv;
                let share_first = 0.5 * (1.0 + ((c2 - 1.0) / (c2 + 1.0)).sqrt());
                Law::Hyperexponential {
                    share_first,
                    first_ns: mean_ns / (2.0 * share_first),
                    second_ns: mean_ns / (2.0 * (1.0 - share_first)),
                }
            }
            Self::Pareto { alpha } => Law::Pareto {
                inverse_alpha: 1.0 / alpha,
                min_ns: mean_ns * (alpha - 1.0) / alpha,
                mass: 1.0,
            },
            Self::Mmpp2 {
                ratio,
                share,
                burst,
            } => Law::Mmpp2(mmpp2(mean_ns, ratio, share, burst)),
        }
    }
}

const CV_GAMMA: Range = Range::new("a number between 0.001 and 100", |x| {
    (0.001..=100.0).contains(&x)
});
// each stage of each gap is drawn
const STAGES: Range = Range::new("a whole number between 1 and 10000", |x| {
    (1.0..=10_000.0).contains(&x) && x.fract() == 0.0
});
// far above, the longer of the two exponentials is so rare that it is never drawn
const CV_HYPER: Range = Range::new("a number between 1 and 1000000", |x| {
    (1.0..=1e6).contains(&x)
});
const SHAPE: Range = Range::new("a number of at least 0.1", |x| x >= 0.1);
// close to 1 nearly all of the mean is in gaps that a schedule never reaches
const ALPHA: Range = Range::new("a number of at least 1.01", |x| x >= 1.01);
const RATIO: Range = Range::new("a number above 1", |x| x > 1.0);
// each change of the state is drawn
const BURST: Range = Range::new("a number of at least 0.001", |x| x >= 0.001);

/// The lognormal law of this mean and coefficient of variation.
pub(crate) fn lognormal(mean_ns: f64, cv: f64) -> Law {
    let variance = (cv * cv).ln_1p();
    Law::Lognormal {
        mu: mean_ns.ln() - variance / 2.0,
        sigma: variance.sqrt(),
    }
}

fn mmpp2(mean_gap_ns: f64, ratio: f64, share: f64, burst: f64) -> Mmpp2 {
    let calm = 1.0 / mean_gap_ns / (share * ratio + 1.0 - share);
    let fast = calm * ratio;
    let leave_burst = fast / burst;
    Mmpp2 {
        arrival_rates: [calm, fast],
        leave_rates: [leave_burst * share / (1.0 - share), leave_burst],
    }
}

impl Mmpp2 {
    /// The limiting index of dispersion of counts (Fischer and Meier-Hellstern 1993, section 3).
    fn dispersion(&self) -> f64 {
        let [l0, l1] = self.arrival_rates;
        let [q0, q1] = self.leave_rates;
        1.0 + 2.0 * (l1 - l0).powi(2) * q0 * q1 / ((q0 + q1).powi(2) * (q1 * l0 + q0 * l1))
    }

    /// E[X] and E[X²] of the gap X between two arrivals: k! φ (−D₀)⁻ᵏ 1, with φ the phase
    /// just after an arrival (Fischer and Meier-Hellstern 1993, section 2).
    fn gap_moments(&self) -> (f64, f64) {
        let [l0, l1] = self.arrival_rates;
        let [q0, q1] = self.leave_rates;
        let (w0, w1) = (q1 * l0, q0 * l1);
        let phi = [w0 / (w0 + w1), w1 / (w0 + w1)];
        let det = (l0 + q0) * (l1 + q1) - q0 * q1;
        let solve = |b: [f64; 2]| {
            [
                ((l1 + q1) * b[0] + q0 * b[1]) / det,
                (q1 * b[0] + (l0 + q0) * b[1]) / det,
            ]
        };
        let x1 = solve([1.0, 1.0]);
        let x2 = solve(x1);
        let mean = phi[0] * x1[0] + phi[1] * x1[1];
        (mean, 2.0 * (phi[0] * x2[0] + phi[1] * x2[1]))
    }
}

impl FromStr for ArrivalProcess {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut n = Notation::new(text, &[]);
        let process = match n.name.as_str() {
            "deterministic" | "uniform" => Self::Deterministic,
            "poisson" => Self::Poisson,
            "lognormal" => Self::Lognormal {
                cv: n.like("lognormal:cv=2").number("cv", CV)?,
            },
            "gamma" => Self::Gamma {
                cv: n.like("gamma:cv=0.5").number("cv", CV_GAMMA)?,
            },
            "erlang" => Self::Erlang {
                stages: n.like("erlang:stages=4").number("stages", STAGES)? as u32,
            },
            "weibull" => Self::Weibull {
                shape: n.like("weibull:shape=0.5").number("shape", SHAPE)?,
            },
            "hyperexponential" => Self::Hyperexponential {
                cv: n.like("hyperexponential:cv=3").number("cv", CV_HYPER)?,
            },
            "pareto" => Self::Pareto {
                alpha: n.like("pareto:alpha=2.5").number("alpha", ALPHA)?,
            },
            "mmpp" | "mmpp2" | "mmpp-2" => {
                n.like("mmpp:ratio=10,share=0.1,burst=50");
                Self::Mmpp2 {
                    ratio: n.number("ratio", RATIO)?,
                    share: n.number("share", SHARE)?,
                    burst: n.number("burst", BURST)?,
                }
            }
            _ => {
                return Err(NotationError::Unknown {
                    kind: "an arrival process",
                    name: n.name,
                    known: Self::NOTATION,
                });
            }
        };
        n.finish()?;
        Ok(process)
    }
}

impl fmt::Display for ArrivalProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, parameters) = self.parts();
        f.write_str(name)?;
        for (place, (key, value, _)) in parameters.iter().enumerate() {
            let separator = if place == 0 { ':' } else { ',' };
            write!(f, "{separator}{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_written_back() {
        for text in [
            "deterministic",
            "poisson",
            "lognormal:cv=2",
            "gamma:cv=0.5",
            "erlang:stages=4",
            "weibull:shape=0.5",
            "hyperexponential:cv=3",
            "pareto:alpha=2.5",
            "mmpp:ratio=10,share=0.1,burst=50",
        ] {
            let process: ArrivalProcess = text.parse().unwrap();
            assert_eq!(process.to_string(), text);
            assert!(ArrivalProcess::NOTATION.contains(text));
        }
    }

    /// Counts in windows that are long compared with a burst.
    #[test]
    fn the_dispersion_is_that_of_counts_in_long_windows() {
        for (text, expected) in [
            ("deterministic", 0.0),
            ("poisson", 1.0),
            ("erlang:stages=4", 0.25),
            ("hyperexponential:cv=3", 9.0),
            ("mmpp:ratio=10,share=0.1,burst=50", 35.0),
        ] {
            let process: ArrivalProcess = text.parse().unwrap();
            let known = process.dispersion();
            assert!(
                (known - expected).abs() <= 0.05 * expected,
                "{text}: {known}"
            );
            let due = process.schedule(1e6, Nanos::from_secs(1), 3).unwrap();
            let mut counts = vec![0.0_f64; 500];
            for at in due {
                counts[(at.get() / 2_000_000) as usize] += 1.0;
            }
            let mean = counts.iter().sum::<f64>() / 500.0;
            let variance = counts.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 499.0;
            let found = variance / mean;
            assert!(
                (found - known).abs() <= 0.25 * known + 0.01,
                "{text}: {found}, not {known}"
            );
        }
    }

    #[test]
    fn errors_in_text_say_what_would_be_right() {
        let error = |text: &str| text.parse::<ArrivalProcess>().unwrap_err().to_string();
        assert!(error("posson").contains("`posson` is not an arrival process; choose one of: det"));
        assert_eq!(
            error("lognormal"),
            "`lognormal` lacks `cv`; write e.g. `lognormal:cv=2`"
        );
        assert_eq!(
            error("lognormal:cv=nan"),
            "in `lognormal:cv=nan`, `cv` must be a number above 0 and at most 1000000, not `nan`"
        );
        assert_eq!(
            error("weibull:shape=1,cv=2"),
            "`weibull:shape=1,cv=2` has no parameter `cv`; write e.g. `weibull:shape=0.5`"
        );
        for stages in ["0", "2.5", "10001", "4000000000"] {
            let error = error(&format!("erlang:stages={stages}"));
            assert!(
                error.contains("`stages` must be a whole number between 1 and 10000"),
                "{error}"
            );
        }
        assert!("erlang:stages=10000".parse::<ArrivalProcess>().is_ok());
    }

    #[test]
    fn a_rate_or_a_parameter_out_of_range_is_refused() {
        let second = Nanos::from_secs(1);
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ArrivalProcess::Poisson.schedule(rate, second, 1).is_err());
        }
        let bad = ArrivalProcess::Pareto { alpha: 1.0 };
        let error = bad.schedule(10.0, second, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "alpha of pareto arrivals must be a number of at least 1.01, not 1"
        );
        let bad = ArrivalProcess::Erlang { stages: 10_001 };
        assert!(bad.schedule(10.0, second, 1).is_err());
        let bad = ArrivalProcess::Hyperexponential { cv: 1e9 };
        assert!(bad.schedule(10.0, second, 1).is_err());
    }

    #[test]
    fn a_schedule_that_would_never_end_is_refused() {
        let error = ArrivalProcess::Poisson.schedule(1e18, Nanos::from_secs(100), 1);
        assert!(matches!(error, Err(ArrivalError::TooMany(_))), "{error:?}");
        // the mean gap is infinite, and its logarithm, too
        let lognormal = ArrivalProcess::Lognormal { cv: 2.0 };
        let error = lognormal.schedule(1e-300, Nanos::from_secs(1), 1);
        assert!(matches!(error, Err(ArrivalError::Gap { .. })), "{error:?}");
        // all rates are zero
        let mmpp: ArrivalProcess = "mmpp:ratio=10,share=0.1,burst=50".parse().unwrap();
        let none = mmpp.schedule(1e-300, Nanos::from_secs(1), 1);
        assert_eq!(none, Ok(Vec::new()));
    }

    /// From about cv 8 on, the smallest gaps are too short for a double.
    #[test]
    fn gamma_gaps_have_their_mean_however_much_they_vary() {
        for cv in [10.0, 20.0, 100.0] {
            let process = ArrivalProcess::Gamma { cv };
            let rng = LaneRng::<8>::new(7, Purpose::Arrivals, 0);
            let mut rows = vec![[0.0; 8]; 1 << 16];
            Sampler::new(process.law(1.0), rng, 0.0).fill(Isa::detect(), &mut rows);
            let gaps = rows.as_flattened();
            assert!(gaps.iter().all(|gap| gap.is_finite() && *gap >= 0.0));
            let n = gaps.len() as f64;
            let mean = gaps.iter().sum::<f64>() / n;
            let z = (mean - 1.0) / (cv / n.sqrt());
            assert!(z.abs() < 5.0, "cv {cv}: mean {mean} (z = {z})");
            let second = Nanos::from_secs(1);
            let due = process.schedule(1e4, second, 7).unwrap();
            assert!(due.is_sorted() && due.last().is_none_or(|last| *last < second));
        }
    }

    /// The rate and the variation of the gaps in schedules, compared with the formulas in standard errors
    /// from blocks (the gaps of the Markov-modulated process are correlated).
    #[test]
    fn schedules_have_the_mean_and_the_variation_they_say() {
        for text in [
            "poisson",
            "lognormal:cv=1.5",
            "gamma:cv=0.5",
            "gamma:cv=2",
            "erlang:stages=4",
            "weibull:shape=0.7",
            "weibull:shape=2",
            "hyperexponential:cv=3",
            "pareto:alpha=6",
            "mmpp:ratio=8,share=0.2,burst=10",
        ] {
            let process: ArrivalProcess = text.parse().unwrap();
            let due = process.schedule(1e5, Nanos::from_secs(20), 42).unwrap();
            let gaps: Vec<f64> = due
                .windows(2)
                .map(|w| (w[1] - w[0]).get() as f64 / 1e4)
                .collect();
            let want = [1.0, 1.0 + process.cv().powi(2)];
            for (power, want) in [1, 2].into_iter().zip(want) {
                let blocks: Vec<f64> = gaps
                    .chunks_exact(gaps.len() / 40)
                    .map(|b| b.iter().map(|g| g.powi(power)).sum::<f64>() / b.len() as f64)
                    .collect();
                let n = blocks.len() as f64;
                let mean = blocks.iter().sum::<f64>() / n;
                let variance = blocks.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / (n - 1.0);
                let z = (mean - want) / (variance / n).sqrt();
                assert!(
                    z.abs() < 4.0,
                    "{text}: E[gap^{power}] = {mean}, not {want} (z = {z})"
                );
            }
        }
    }

    #[test]
    fn equal_gaps_are_equal() {
        let due = ArrivalProcess::Deterministic
            .schedule(1e6, Nanos::from_millis(1), 9)
            .unwrap();
        assert_eq!(due.len(), 999);
        assert!(
            due.iter()
                .enumerate()
                .all(|(i, t)| t.get() == 1_000 * (i as u64 + 1))
        );
    }
}
