//! The observations of a simulation: pooled counts, with intervals from independent batches.

use taillab_model::interval::{error_of_ratio, student_975};
use taillab_model::{Distribution, Nanos, Quantile, REPORTED_QUANTILES};

use crate::histogram::Histogram;

/// A curve ends where fewer requests are above it.
const FEWEST_ABOVE: f64 = 4.0;
/// The largest standard error of a point of a curve, relative to the share itself.
const LARGEST_ERROR: f64 = 0.3;

/// An estimate with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate from all observations.
    pub value: f64,
    /// Its standard error from the spread of the batches.
    pub standard_error: f64,
}

impl Estimate {
    /// By how many standard errors the estimate is above `truth`.
    pub fn z(&self, truth: f64) -> f64 {
        let off = self.value - truth;
        if off == 0.0 {
            0.0
        } else {
            off / self.standard_error
        }
    }
}

/// A quantile with its 95 % interval, in nanoseconds, not rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantileEstimate {
    /// The probability.
    pub q: f64,
    /// The quantile of all observations.
    pub value_ns: f64,
    /// Lower end of the interval.
    pub lo_ns: f64,
    /// Upper end of the interval.
    pub hi_ns: f64,
    /// Half the interval's width ÷ Student's factor: comparable with a standard error.
    pub standard_error_ns: f64,
}

impl QuantileEstimate {
    /// Half the interval's width relative to the quantile.
    pub fn relative_half_width(&self) -> f64 {
        (self.hi_ns - self.lo_ns) / 2.0 / self.value_ns
    }
}

/// A quantile with at least this many independent clusters of requests beyond it shows by itself how strongly they
/// cluster.
const WELL_KNOWN: f64 = 50.0;

/// Observations in independent batches.
///
/// Waits of successive requests are correlated, so precision follows from the spread between batches, and
/// not from the number of requests. Quantiles come from the counts of all batches together, since the
/// average of the batches' quantiles is biased in the tail.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    batches: Vec<Histogram>,
    pooled: Histogram,
    clustering: f64,
}

impl Sample {
    /// A sample of these batches; empty ones are ignored. `clustering` is the factor by which clusters of slow requests
    /// multiply the variance of the share beyond a far quantile, as the model knows it
    /// ([`Simulation::clustering`](crate::simulation::Simulation::clustering)).
    pub fn new(batches: Vec<Histogram>, clustering: f64) -> Self {
        let batches: Vec<_> = batches.into_iter().filter(|b| b.count() > 0).collect();
        let mut pooled = Histogram::default();
        for batch in &batches {
            pooled.merge(batch);
        }
        Self {
            batches,
            pooled,
            clustering: clustering.max(1.0),
        }
    }

    /// All observations together.
    pub fn pooled(&self) -> &Histogram {
        &self.pooled
    }

    /// The sum of this over all batches ÷ the number of observations, with the usual error of a ratio;
    /// `None` for an empty sample.
    pub fn ratio(&self, numerator: impl Fn(&Histogram) -> f64) -> Option<Estimate> {
        let parts: Vec<(f64, f64)> = self
            .batches
            .iter()
            .map(|batch| (numerator(batch), batch.count() as f64))
            .collect();
        let (value, standard_error) = error_of_ratio(&parts)?;
        Some(Estimate {
            value,
            standard_error,
        })
    }

    /// The mean in nanoseconds; `None` for an empty sample.
    pub fn mean_ns(&self) -> Option<Estimate> {
        self.ratio(|b| b.mean_ns().unwrap_or(0.0) * b.count() as f64)
    }

    /// The share of observations above `x_ns`; `None` for an empty sample.
    pub fn share_above(&self, x_ns: f64) -> Option<Estimate> {
        self.ratio(|b| b.count_above(x_ns))
    }

    /// The quantile `q` with its interval; `None` if a sample of this size does not support it, or if it
    /// [is beyond](Self::is_beyond) what has a value. The upper end is infinite where it is beyond the largest
    /// observation, or beyond that.
    ///
    /// Whether it is supported follows from the number of observations and the model alone. A sample in which clusters of
    /// slow requests happen to be few or small looks precise, and would be shown just then. For the same reason the
    /// interval of a far quantile is at least as wide as the model says.
    pub fn quantile(&self, q: f64) -> Option<QuantileEstimate> {
        if !(q > 0.0 && q < 1.0) || self.batches.len() < 2 {
            return None;
        }
        let n = self.pooled.count() as f64;
        if n < self.needed(q) {
            return None;
        }
        let value_ns = self.pooled.quantile_ns(q).filter(|x| x.is_finite())?;
        let t = student_975(self.batches.len() - 1);
        // With an atom at the quantile there is no spread above it, but the estimate is no better than the
        // shares next to it. So the error is at least the binomial one.
        let binomial = (q * (1.0 - q) / n).sqrt();
        let clustered = match (1.0 - q) * n / self.clustering < WELL_KNOWN {
            true => binomial * self.clustering.sqrt(),
            false => binomial,
        };
        let half = t * self.share_above(value_ns)?.standard_error.max(clustered);
        let lo_ns = self.pooled.quantile_ns((q - half).max(0.0))?;
        // at least one observation must be above the interval
        let hi_ns = match (1.0 - q - half) * n < 1.0 {
            true => f64::INFINITY,
            false => self.pooled.quantile_ns(q + half)?,
        };
        Some(QuantileEstimate {
            q,
            value_ns,
            lo_ns,
            hi_ns,
            standard_error_ns: (hi_ns - lo_ns) / (2.0 * t),
        })
    }

    /// How many observations the quantile `q` needs: as many as leave one above the interval that the model expects.
    pub fn needed(&self, q: f64) -> f64 {
        let t = student_975(self.batches.len().max(2) - 1);
        let above = 1.0 - q;
        let spread = t * (self.clustering * q * above).sqrt();
        // above · n − spread · √n = 1
        ((spread + (spread * spread + 4.0 * above).sqrt()) / (2.0 * above)).powi(2)
    }

    /// The curve of the distribution: (time in nanoseconds, share of requests that take longer), as far as
    /// the sample supports it. Beyond, a few busy periods would decide it.
    pub fn ccdf(&self) -> Vec<(f64, f64)> {
        let (Some(min), Some(max)) = (self.pooled.min_ns(), self.pooled.max_ns()) else {
            return Vec::new();
        };
        let mut points = vec![(min, 1.0)];
        if min == max {
            // all observations are equal: the curve falls straight to 0
            points.push((max, 0.0));
            return points;
        }
        let n = self.pooled.count() as f64;
        let fewest = FEWEST_ABOVE.max(self.clustering / LARGEST_ERROR.powi(2));
        let supported = |&(time_ns, share): &(f64, f64)| {
            let error = self.share_above(time_ns).map(|share| share.standard_error);
            share * n >= fewest && error.is_some_and(|error| error <= LARGEST_ERROR * share)
        };
        let curve = self.pooled.ccdf();
        points.extend_from_slice(&curve[..curve.partition_point(supported)]);
        points
    }

    /// Whether the quantile `q` is longer than a result can hold: 2⁶⁴ ns, 584 years.
    pub fn is_beyond(&self, q: f64) -> bool {
        let value_ns = self.pooled.quantile_ns(q);
        value_ns.is_some_and(|x| Nanos::try_from_nanos_f64(x).is_none())
    }

    /// The quantile `q` in the form of reports, without figures if the sample does not support it. What is longer
    /// than a result can hold has none either.
    pub fn reported(&self, q: f64) -> Quantile {
        let estimate = self.quantile(q).filter(|_| !self.is_beyond(q));
        let end = |of: fn(QuantileEstimate) -> f64| Nanos::try_from_nanos_f64(of(estimate?));
        Quantile {
            q,
            value: end(|e| e.value_ns),
            lo: end(|e| e.lo_ns),
            hi: end(|e| e.hi_ns),
        }
    }

    /// The distribution in the form of reports.
    pub fn distribution(&self) -> Distribution {
        Distribution {
            unit: Default::default(),
            count: self.pooled.count(),
            mean: self.pooled.mean_ns(),
            min: self.pooled.min_ns().and_then(Nanos::try_from_nanos_f64),
            max: self.pooled.max_ns().and_then(Nanos::try_from_nanos_f64),
            unanswered: 0,
            quantiles: (REPORTED_QUANTILES.iter())
                .map(|&q| self.reported(q))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(xs: &[f64]) -> Histogram {
        let mut h = Histogram::default();
        for &x in xs {
            h.record(x);
        }
        h
    }

    #[test]
    fn the_error_comes_from_the_batches() {
        let sample = Sample::new(vec![batch(&[1.0, 3.0]), batch(&[5.0, 7.0])], 1.0);
        let mean = sample.mean_ns().unwrap();
        assert_eq!(mean.value, 4.0);
        // batch means 2 and 6: s = 2√2, over √2
        assert!((mean.standard_error - 2.0).abs() < 1e-12);
        assert_eq!(mean.z(8.0), -2.0);
        assert_eq!(sample.share_above(4.0).unwrap().value, 0.5);
    }

    #[test]
    fn a_quantile_that_the_sample_cannot_support_has_no_value() {
        let batches = (0..32)
            .map(|b| batch(&(0..100).map(|i| f64::from(i * 32 + b)).collect::<Vec<_>>()))
            .collect();
        let sample = Sample::new(batches, 1.0);
        assert!(sample.quantile(0.5).is_some());
        assert!(sample.quantile(0.9999).is_none());
        // the sample is the same, but slow requests are known to come in clusters
        let clustered = Sample::new(sample.batches.clone(), 20.0);
        assert!(sample.quantile(0.99).is_some() && clustered.quantile(0.99).is_none());
        let (alone, together) = (sample.quantile(0.9), clustered.quantile(0.9));
        let width = |of: Option<QuantileEstimate>| of.map(|found| found.relative_half_width());
        assert!(width(together).unwrap() > 3.0 * width(alone).unwrap());
        let d = sample.distribution();
        assert_eq!(d.count, 3_200);
        assert_eq!(d.quantiles.last().unwrap().value, None);
    }

    /// 90 % of the sojourns are a minute, the others a thousand years.
    #[test]
    fn what_no_result_can_hold_has_no_value() {
        let (minute, longer) = (6e10, 3e19);
        let of = |i: u32| if i % 10 == 9 { longer } else { minute };
        let batches = (0..32).map(|_| batch(&(0..100).map(of).collect::<Vec<_>>()));
        let found = Sample::new(batches.collect(), 1.0).distribution();
        let values = |q: f64| found.at(q).map(|x| (x.value.is_some(), x.hi.is_some()));
        assert_eq!(values(0.5), Some((true, true)));
        assert_eq!(values(0.9), Some((true, false)));
        assert_eq!(values(0.99), Some((false, false)));
        assert_eq!((found.max, found.min), (None, Some(Nanos::from_secs(60))));
    }

    #[test]
    fn nothing_seen_gives_no_numbers() {
        let empty = Sample::new(vec![Histogram::default()], 1.0);
        assert_eq!(empty.mean_ns(), None);
        assert_eq!(empty.quantile(0.5), None);
        assert_eq!(empty.distribution().count, 0);
    }
}
