//! What the evidence of a measurement supports.

use taillab_model::explanation::FanOut;
use taillab_model::load_result::ClosedLoop;
use taillab_model::summary::{ClaimName, LoadSummary, TOO_FEW};
use taillab_model::{Distribution, Nanos};

/// Points (x, P(at least x)) of a distribution.
type Points = Vec<(Nanos, f64)>;

/// What a result may claim. Only [`judge`](super::judge) makes it, from the evidence; whoever builds a part of a result
/// asks it first, so that what it does not support is never made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Supported {
    /// The lowest percentile that is not supported; of an invalid result, 0.
    from: Option<f64>,
    /// The lowest one that more requests would not support either.
    spoiled_from: Option<f64>,
    ideal: bool,
    causes: bool,
    forecasts: bool,
}

impl Supported {
    /// Nothing at all.
    pub(super) const NOTHING: Self = Self {
        from: Some(0.0),
        spoiled_from: Some(0.0),
        ideal: false,
        causes: false,
        forecasts: false,
    };

    /// What is left of the claims; `against` has the keys of the rules against one. An invalid result has none.
    pub(super) fn of(is_valid: bool, against: impl Fn(ClaimName) -> Vec<&'static str>) -> Self {
        if !is_valid {
            return Self::NOTHING;
        }
        let first = |is_against: fn(&&'static str) -> bool| {
            let mut percentiles = ClaimName::PERCENTILES.into_iter();
            let first = percentiles.find(|claim| against(*claim).iter().any(is_against));
            first.and_then(ClaimName::quantile)
        };
        let holds = |claim| against(claim).is_empty();
        Self {
            from: first(|_| true),
            spoiled_from: first(|key| *key != TOO_FEW),
            ideal: holds(ClaimName::Ideal),
            causes: holds(ClaimName::Causes),
            forecasts: holds(ClaimName::Forecasts),
        }
    }

    /// Whether a result may make this claim.
    pub fn claim(&self, claim: ClaimName) -> bool {
        match claim {
            ClaimName::Ideal => self.ideal,
            ClaimName::Causes => self.causes,
            ClaimName::Forecasts => self.forecasts,
            _ => claim.quantile().is_none_or(|q| self.percentile(q)),
        }
    }

    /// Whether a result may say what this percentile is.
    pub fn percentile(&self, q: f64) -> bool {
        self.from.is_none_or(|from| q < from)
    }

    /// Whether it is known which requests are above this percentile, even if they are too few for its interval.
    pub fn beyond(&self, q: f64) -> bool {
        self.spoiled_from.is_none_or(|from| q < from)
    }

    /// Whether there is a result at all.
    pub fn anything(&self) -> bool {
        self.from != Some(0.0)
    }

    /// A distribution for a result: only percentiles that are supported have a value.
    #[must_use]
    pub fn distribution(&self, mut all: Distribution) -> Distribution {
        for at in all.quantiles.iter_mut().filter(|at| !self.percentile(at.q)) {
            (at.value, at.lo, at.hi) = (None, None, None);
        }
        all
    }

    /// The part of a curve below the first percentile that is not supported, and without that percentile itself.
    #[must_use]
    pub fn curve(&self, mut points: Points) -> Points {
        // at most so long took all that do not take as long as the next point says
        let later = points.iter().skip(1).map(|(_, beyond)| 1.0 - beyond);
        let known = later
            .chain([1.0])
            .take_while(|q| self.percentile(*q))
            .count();
        points.truncate(known);
        points
    }

    /// What users of several servers wait: it is a far percentile of one of them.
    #[must_use]
    pub fn fan_out(&self, all: &[FanOut]) -> Vec<FanOut> {
        let of = |at: &FanOut| {
            let of_one = |q: f64| q.powf(f64::from(at.servers.max(1)).recip());
            FanOut {
                servers: at.servers,
                p50_ns: at.p50_ns.filter(|_| self.percentile(of_one(0.5))),
                p99_ns: at.p99_ns.filter(|_| self.percentile(of_one(0.99))),
            }
        };
        all.iter().map(of).collect()
    }

    /// What the client saw, for a result.
    #[must_use]
    pub fn load(&self, all: LoadSummary) -> LoadSummary {
        LoadSummary {
            response_time: self.distribution(all.response_time),
            service_time: self.distribution(all.service_time),
            ..all
        }
    }

    /// The same of a closed loop.
    #[must_use]
    pub fn closed_loop(&self, all: ClosedLoop) -> ClosedLoop {
        ClosedLoop {
            service_time: self.distribution(all.service_time),
            ..all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first percentile that was not supported was the last point of the curve.
    #[test]
    fn a_curve_ends_before_the_first_percentile_that_is_not_known() {
        let known_below = |from: f64| {
            Supported::of(true, |claim| {
                let spoiled = claim.quantile().is_some_and(|q| q >= from);
                spoiled.then_some("lost_events").into_iter().collect()
            })
        };
        // p90 of these is 9 ns
        let points: Points = (0..10_u32)
            .map(|n| (Nanos::new(u64::from(n) + 1), 1.0 - f64::from(n) / 10.0))
            .collect();
        let left = known_below(0.9).curve(points.clone());
        assert_eq!(left, points[..8]);
        assert_eq!(known_below(2.0).curve(points.clone()), points);
    }

    #[test]
    fn what_many_servers_take_goes_with_the_percentile_of_one() {
        let supported = Supported::of(true, |claim| {
            let spoiled = claim.quantile().is_some_and(|q| q >= 0.99);
            spoiled.then_some("lost_events").into_iter().collect()
        });
        let at = |servers| FanOut {
            servers,
            p50_ns: Some(Nanos::new(1)),
            p99_ns: Some(Nanos::new(2)),
        };
        let left = supported.fan_out(&[at(1), at(50), at(100)]);
        // the median of 50 is p98.6 of one, the median of 100 is p99.3 of one
        let medians = left.iter().map(|at| at.p50_ns.is_some());
        assert_eq!(medians.collect::<Vec<_>>(), [true, true, false]);
        assert!(left.iter().all(|at| at.p99_ns.is_none()));
    }

    /// More requests would show p99.9, and nothing would bring back what was lost.
    #[test]
    fn too_few_requests_leave_it_known_which_are_slow() {
        let because = |key: &'static str| {
            Supported::of(true, move |claim| {
                let spoiled = claim.quantile().is_some_and(|q| q >= 0.999);
                spoiled.then_some(key).into_iter().collect()
            })
        };
        let (few, lost) = (because(TOO_FEW), because("lost_events"));
        assert!(!few.percentile(0.999) && !lost.percentile(0.999));
        assert!(few.beyond(0.999) && !lost.beyond(0.999) && lost.beyond(0.99));
        let nothing = Supported::of(false, |_| Vec::new());
        assert!(!nothing.anything() && !nothing.percentile(0.5) && !nothing.beyond(0.5));
        assert!(!nothing.claim(ClaimName::Ideal) && few.anything());
    }
}
