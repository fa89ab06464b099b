//! Service times drawn one by one, for a worker that serves in real time.

use taillab_model::Nanos;

use super::{Service, ServiceError};
use crate::isa::Isa;
use crate::random::lanes::{LaneRng, Purpose};
use crate::random::law::Sampler;

/// Adding and subtracting it rounds to whole nanoseconds.
const TO_WHOLE_NS: f64 = 1.5 * 4_503_599_627_370_496.0;

/// The upper limit of drawn times, 26 days: rounding does not work beyond it.
const LONGEST_NS: f64 = 2_251_799_813_685_248.0;

/// A reproducible, endless stream of service times.
///
/// Each is drawn when it is needed, not in blocks: a server must not be slower at every hundredth request.
/// Drawing makes no system call (the first draw allocates memory).
#[derive(Clone, Debug)]
pub struct ServiceTimes {
    sampler: Sampler<1>,
}

impl Service {
    /// The service times of worker `stream` (any number); the same seed and stream give
    /// the same times, different streams are independent.
    ///
    /// # Errors
    /// [`ServiceError`] when a parameter is out of range.
    pub fn times(&self, seed: u64, stream: u64) -> Result<ServiceTimes, ServiceError> {
        self.check()?;
        let rng = LaneRng::new(seed, Purpose::Service, stream);
        Ok(ServiceTimes {
            sampler: Sampler::new(self.law(), rng, TO_WHOLE_NS),
        })
    }
}

impl ServiceTimes {
    /// The next service time.
    #[inline]
    pub fn draw(&mut self) -> Nanos {
        let mut row = [[0.0]];
        // a single draw does not profit from vectors
        self.sampler.fill(Isa::BASELINE, &mut row);
        Nanos::new(row[0][0].clamp(0.0, LONGEST_NS) as u64)
    }
}

impl Iterator for ServiceTimes {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        Some(self.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_stream_always_give_the_same_times() {
        let service: Service = "exponential:50us".parse().unwrap();
        let first = |seed, stream| -> Vec<Nanos> {
            service.times(seed, stream).unwrap().take(20).collect()
        };
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
    }

    /// The mean within five standard errors, for each distribution.
    #[test]
    fn the_times_have_the_mean_they_say() {
        const N: usize = 200_000;
        for text in [
            "deterministic:50us",
            "exponential:50us",
            "lognormal:50us,cv=1.5",
            "bimodal:short=10us,long=1ms,share=0.02",
            "bounded-pareto:alpha=1.5,min=10us,max=500us",
        ] {
            let service: Service = text.parse().unwrap();
            let times = service.times(7, 3).unwrap();
            let mean = times.take(N).map(|t| t.get() as f64).sum::<f64>() / N as f64;
            let want = service.mean_ns();
            let error = 5.0 * want * service.cv() / (N as f64).sqrt();
            // times are rounded to the nanosecond
            assert!(
                (mean - want).abs() <= error + 0.5,
                "{text}: {mean}, not {want}"
            );
        }
    }

    /// The longest drawn time can be added to any time of a clock.
    #[test]
    fn even_an_absurd_tail_has_an_end() {
        let service: Service = "lognormal:10000s,cv=1000000".parse().unwrap();
        let longest = service.times(1, 0).unwrap().take(1_000_000).max().unwrap();
        assert!(longest <= Nanos::new(LONGEST_NS as u64));
        assert!(longest > Nanos::from_secs(1_000_000), "{longest}");
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert!(Service::deterministic(Nanos::ZERO).times(1, 0).is_err());
    }
}
