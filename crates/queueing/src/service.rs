//! Service times: how long a worker is busy with one request.

mod times;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use taillab_model::Nanos;

use crate::arrivals::lognormal;
use crate::notation::{CV, Notation, NotationError, Range, SHARE};
use crate::random::law::Law;

pub use self::times::ServiceTimes;

/// The distribution of the service times, independent from request to request.
///
/// In text it is `deterministic:50us`, `lognormal:50us,cv=2`, …: see [`Service::NOTATION`]. Measured values
/// cannot be read back from text.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// Always the same.
    Deterministic {
        /// The service time.
        time: Nanos,
    },
    /// Exponential.
    Exponential {
        /// The mean.
        mean: Nanos,
    },
    /// Lognormal.
    Lognormal {
        /// The mean.
        mean: Nanos,
        /// Coefficient of variation, above 0.
        cv: f64,
    },
    /// One of two values.
    Bimodal {
        /// The usual value.
        short: Nanos,
        /// The other value.
        long: Nanos,
        /// The probability of `long`, between 0 and 1.
        share: f64,
    },
    /// Pareto, bounded by a largest value (the distribution given X ≤ `max`).
    BoundedPareto {
        /// Tail index, above 0.
        alpha: f64,
        /// The smallest value.
        min: Nanos,
        /// The largest value, above `min`.
        max: Nanos,
    },
    /// Measured values, each equally likely.
    Empirical {
        /// The values; not empty.
        values: Arc<[Nanos]>,
    },
}

/// Why there are no service times.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ServiceError {
    /// The mean is zero.
    #[error("the {0} must be above zero")]
    Zero(&'static str),
    /// A parameter is out of range.
    #[error("{parameter} of {distribution} service must be {wanted}, not {value}")]
    Parameter {
        /// The name of the distribution.
        distribution: &'static str,
        /// The name of the parameter.
        parameter: &'static str,
        /// The range that it must be in.
        wanted: &'static str,
        /// The value given.
        value: f64,
    },
    /// The largest value of a bounded Pareto is not above the smallest.
    #[error("max of bounded-pareto service must be above min, but {max} is not above {min}")]
    Bounds {
        /// The smallest value.
        min: Nanos,
        /// The largest value.
        max: Nanos,
    },
    /// There are no measured values, or too many to index.
    #[error("measured service times must be 1 to 4294967296 values, not {0}")]
    Values(usize),
}

const ALPHA: Range = Range::new("a number above 0.05", |x| x > 0.05);

impl Service {
    /// The notation in text, for help and error messages.
    pub const NOTATION: &str = "deterministic:50us, exponential:50us, lognormal:50us,cv=2, \
        bimodal:short=10us,long=1ms,share=0.01, bounded-pareto:alpha=1.5,min=10us,max=10ms";

    /// The same time for every request.
    pub fn deterministic(time: Nanos) -> Self {
        Self::Deterministic { time }
    }

    /// Measured values, each equally likely.
    ///
    /// # Errors
    /// [`ServiceError`] if there are none or too many, or all are zero.
    pub fn empirical(values: impl Into<Arc<[Nanos]>>) -> Result<Self, ServiceError> {
        let service = Self::Empirical {
            values: values.into(),
        };
        service.check().map(|()| service)
    }

    /// The mean in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.raw_moment(1)
    }

    /// E[Sᵏ] in nanosecondsᵏ.
    pub fn raw_moment(&self, k: i32) -> f64 {
        let ns = |t: Nanos| t.get() as f64;
        match self {
            Self::Deterministic { time } => ns(*time).powi(k),
            Self::Exponential { mean } => {
                (1..=k).map(f64::from).product::<f64>() * ns(*mean).powi(k)
            }
            Self::Lognormal { mean, cv } => {
                let k = f64::from(k);
                ns(*mean).powf(k) * (1.0 + cv * cv).powf(k * (k - 1.0) / 2.0)
            }
            Self::Bimodal { short, long, share } => {
                (1.0 - share) * ns(*short).powi(k) + share * ns(*long).powi(k)
            }
            Self::BoundedPareto { alpha, min, max } => {
                let (low, high, k) = (ns(*min), ns(*max), f64::from(k));
                let mass = 1.0 - (low / high).powf(*alpha);
                // relative to the smallest value, whose power of alpha may be too large for a double
                let scale = alpha * low.powf(k) / mass;
                if (k - alpha).abs() < 1e-12 {
                    scale * (high / low).ln()
                } else {
                    scale * ((high / low).powf(k - alpha) - 1.0) / (k - alpha)
                }
            }
            Self::Empirical { values } => {
                values.iter().map(|v| ns(*v).powi(k)).sum::<f64>() / values.len() as f64
            }
        }
    }

    /// The coefficient of variation.
    pub fn cv(&self) -> f64 {
        let mean = self.mean_ns();
        (self.raw_moment(2) / (mean * mean) - 1.0).max(0.0).sqrt()
    }

    /// The service time if it is always the same.
    pub fn constant(&self) -> Option<Nanos> {
        match self {
            Self::Deterministic { time } => Some(*time),
            _ => None,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`ServiceError`] names what is out of range.
    pub fn check(&self) -> Result<(), ServiceError> {
        let parameter = |distribution, parameter, value: f64, range: Range| {
            if range.contains(value) {
                Ok(())
            } else {
                Err(ServiceError::Parameter {
                    distribution,
                    parameter,
                    wanted: range.wanted,
                    value,
                })
            }
        };
        match self {
            Self::Deterministic { time: mean } | Self::Exponential { mean } => {
                positive(*mean, "service time")
            }
            Self::Lognormal { mean, cv } => {
                positive(*mean, "service time")?;
                parameter("lognormal", "cv", *cv, CV)
            }
            Self::Bimodal { short, long, share } => {
                parameter("bimodal", "share", *share, SHARE)?;
                positive((*short).max(*long), "longer service time")
            }
            Self::BoundedPareto { alpha, min, max } => {
                parameter("bounded-pareto", "alpha", *alpha, ALPHA)?;
                positive(*min, "smallest service time")?;
                if max > min {
                    Ok(())
                } else {
                    Err(ServiceError::Bounds {
                        min: *min,
                        max: *max,
                    })
                }
            }
            Self::Empirical { values } => {
                if values.is_empty() || values.len() as u64 > 1 << 32 {
                    return Err(ServiceError::Values(values.len()));
                }
                let longest = values.iter().max().copied().unwrap_or(Nanos::ZERO);
                positive(longest, "longest measured service time")
            }
        }
    }

    /// The law of the service times; the parameters must be in range.
    pub fn law(&self) -> Law {
        let ns = |t: Nanos| t.get() as f64;
        match self {
            Self::Deterministic { time } => Law::Constant {
                value_ns: ns(*time),
            },
            Self::Exponential { mean } => Law::Exponential { mean_ns: ns(*mean) },
            Self::Lognormal { mean, cv } => lognormal(ns(*mean), *cv),
            Self::Bimodal { short, long, share } => Law::TwoPoints {
                share_second: *share,
                first_ns: ns(*short),
                second_ns: ns(*long),
            },
            Self::BoundedPareto { alpha, min, max } => Law::Pareto {
                inverse_alpha: 1.0 / alpha,
                min_ns: ns(*min),
                mass: 1.0 - (ns(*min) / ns(*max)).powf(*alpha),
            },
            Self::Empirical { values } => Law::Empirical {
                values_ns: values.iter().map(|v| ns(*v)).collect(),
            },
        }
    }
}

fn positive(length: Nanos, what: &'static str) -> Result<(), ServiceError> {
    if length > Nanos::ZERO {
        Ok(())
    } else {
        Err(ServiceError::Zero(what))
    }
}

impl FromStr for Service {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut n = Notation::new(text, &[]);
        let service = match n.name.as_str() {
            "deterministic" => Self::Deterministic {
                time: n.like("deterministic:50us").length("time")?,
            },
            "exponential" => Self::Exponential {
                mean: n.like("exponential:50us").length("mean")?,
            },
            "lognormal" => Self::Lognormal {
                cv: n
                    .like("lognormal:50us,cv=2")
                    .has("cv")
                    .then(|| n.number("cv", CV))
                    .transpose()?
                    .ok_or_else(|| NotationError::Missing {
                        text: text.to_owned(),
                        key: "cv",
                        example: "lognormal:50us,cv=2",
                    })?,
                mean: n.length("mean")?,
            },
            "bimodal" => {
                n.like("bimodal:short=10us,long=1ms,share=0.01");
                Self::Bimodal {
                    short: n.length("short")?,
                    long: n.length("long")?,
                    share: n.number("share", SHARE)?,
                }
            }
            "bounded-pareto" | "pareto" => {
                n.like("bounded-pareto:alpha=1.5,min=10us,max=10ms");
                let alpha = n.number("alpha", ALPHA)?;
                let min = n.length("min")?;
                let max = n.length("max")?;
                if max <= min {
                    return Err(n.bad_value("max", "above `min`", &max.to_exact_string()));
                }
                Self::BoundedPareto { alpha, min, max }
            }
            _ => {
                return Err(NotationError::Unknown {
                    kind: "a service time distribution",
                    name: n.name,
                    known: Self::NOTATION,
                });
            }
        };
        n.finish()?;
        Ok(service)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Nanos::to_exact_string;
        match self {
            Self::Deterministic { time } => write!(f, "deterministic:{}", text(*time)),
            Self::Exponential { mean } => write!(f, "exponential:{}", text(*mean)),
            Self::Lognormal { mean, cv } => write!(f, "lognormal:{},cv={cv}", text(*mean)),
            Self::Bimodal { short, long, share } => {
                let (short, long) = (text(*short), text(*long));
                write!(f, "bimodal:short={short},long={long},share={share}")
            }
            Self::BoundedPareto { alpha, min, max } => {
                let (min, max) = (text(*min), text(*max));
                write!(f, "bounded-pareto:alpha={alpha},min={min},max={max}")
            }
            Self::Empirical { values } => write!(f, "empirical ({} values)", values.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::random::lanes::{LaneRng, Purpose};
    use crate::random::law::Sampler;

    #[test]
    fn text_is_read_and_written_back() {
        for text in [
            "deterministic:50us",
            "exponential:50us",
            "lognormal:50us,cv=2",
            "bimodal:short=10us,long=1ms,share=0.01",
            "bounded-pareto:alpha=1.5,min=10us,max=10ms",
        ] {
            let service: Service = text.parse().unwrap();
            assert_eq!(service.to_string(), text);
            assert!(Service::NOTATION.contains(text));
        }
        let positional: Service = "bimodal:10us,1ms,0.01".parse().unwrap();
        assert_eq!(
            positional.to_string(),
            "bimodal:short=10us,long=1ms,share=0.01"
        );
    }

    #[test]
    fn errors_in_text_say_what_would_be_right() {
        let error = |text: &str| text.parse::<Service>().unwrap_err().to_string();
        assert_eq!(
            error("deterministic"),
            "`deterministic` lacks `time`; write e.g. `deterministic:50us`"
        );
        assert_eq!(
            error("exponential:0us"),
            "in `exponential:0us`, `mean` must be a length of time above zero, e.g. 50us, not `0us`"
        );
        assert!(error("lognormal:50us").contains("lacks `cv`"));
        assert!(error("bounded-pareto:1.5,min=2us,max=1us").contains("above `min`"));
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let us = Nanos::from_micros;
        for service in [
            Service::deterministic(Nanos::ZERO),
            Service::Lognormal {
                mean: us(1),
                cv: f64::NAN,
            },
            Service::Bimodal {
                short: us(1),
                long: us(2),
                share: 1.5,
            },
            Service::BoundedPareto {
                alpha: 1.0,
                min: us(2),
                max: us(2),
            },
            Service::Empirical {
                values: Arc::from([]),
            },
        ] {
            assert!(service.check().is_err(), "{service}");
        }
    }

    /// Nearly all of a steep Pareto distribution is at its smallest value.
    #[test]
    fn a_steep_tail_has_a_mean() {
        let steep: Service = "bounded-pareto:alpha=1000,min=10us,max=10ms"
            .parse()
            .unwrap();
        // α/(α − 1) of the smallest value
        let want = 10_000.0 * 1000.0 / 999.0;
        assert!((steep.mean_ns() / want - 1.0).abs() < 1e-12);
        assert!((steep.cv() - 1e-3).abs() < 1e-5, "{}", steep.cv());
    }

    /// Drawn service times have the moments that the formulas give.
    #[test]
    fn drawn_times_have_the_moments_they_say() {
        let us = Nanos::from_micros;
        for service in [
            Service::deterministic(us(50)),
            Service::Exponential { mean: us(50) },
            Service::Lognormal {
                mean: us(50),
                cv: 1.5,
            },
            Service::Bimodal {
                short: us(10),
                long: us(1000),
                share: 0.02,
            },
            Service::BoundedPareto {
                alpha: 1.5,
                min: us(10),
                max: us(500),
            },
            Service::BoundedPareto {
                alpha: 1.0,
                min: us(10),
                max: us(500),
            },
            Service::empirical([us(1), us(2), us(30)]).unwrap(),
        ] {
            let rng = LaneRng::<8>::new(3, Purpose::Service, 0);
            let mut sampler = Sampler::new(service.law(), rng, 1.5 * 2.0_f64.powi(42));
            let mut block = vec![[0.0; 8]; 256];
            for power in [1, 2] {
                let want = service.raw_moment(power);
                let means: Vec<f64> = (0..800)
                    .map(|_| {
                        sampler.fill(Isa::detect(), &mut block);
                        let xs = block.as_flattened();
                        xs.iter().map(|x: &f64| x.powi(power)).sum::<f64>() / xs.len() as f64
                    })
                    .collect();
                let n = means.len() as f64;
                let mean = means.iter().sum::<f64>() / n;
                let se =
                    (means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt();
                let off = (mean - want).abs();
                assert!(
                    off <= 4.0 * se + 1e-9 * want,
                    "{service}: E[S^{power}] {mean}, not {want}"
                );
            }
        }
    }
}
