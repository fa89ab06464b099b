//! Whether a measured server can be compared with the ideal queue of the same arrivals.
//!
//! Where t is not known exactly, the ideal has a wider interval. Only where t is contradicted, or the clients
//! wait for their answers, is there no comparison.

mod closed_loop;

use taillab_model::explanation::{Cause, Prediction};
use taillab_model::summary::{BusyPeriods, Withdrawn};
use taillab_model::{Distribution, Nanos};

pub(crate) use closed_loop::Inside;

/// A service time that was given may be this much longer or shorter than the interval of what the busy
/// periods show.
pub(crate) const AGREES: f64 = 1.25;

/// Why a given service time cannot be that of the recorded server.
pub(crate) fn disagrees(given: Nanos, recorded: &BusyPeriods) -> Option<Withdrawn> {
    let given_ns = given.get() as f64;
    let least = recorded.lo_ns.get() as f64 / AGREES;
    let most = recorded.hi_ns.get() as f64 * AGREES;
    let agrees = (least..=most).contains(&given_ns);
    (!agrees).then_some(Withdrawn::ServiceTimeDisagrees {
        given_ns: given,
        recorded_ns: recorded.service_time_ns,
    })
}

/// Why a t that no busy period confirms is too long: the median of the ideal is above the measured one.
pub(crate) fn is_above(ideal: &Distribution, measured: &Distribution) -> Option<Withdrawn> {
    let (ideal, measured) = (ideal.at(0.5)?, measured.at(0.5)?);
    // t may be as short as its interval says
    let least = ideal.lo.or(ideal.value)?;
    (least >= measured.value?).then_some(Withdrawn::IdealAboveMeasured {
        ideal_ns: ideal.value?,
        measured_ns: measured.value?,
    })
}

/// What no server can be faster than.
#[derive(Clone, Debug)]
pub(crate) struct LeastSojourns<'a> {
    /// The ideal sojourns.
    pub(crate) ideal: &'a Distribution,
    /// Percentiles of them if another CPU receives the requests; empty where it is not known what that saves.
    pub(crate) receiver_elsewhere: Vec<(f64, Nanos)>,
}

impl LeastSojourns<'_> {
    /// The least at this percentile if another CPU receives the requests.
    fn receiver_elsewhere(&self, q: f64) -> Option<Nanos> {
        let mut known = self.receiver_elsewhere.iter();
        known
            .find(|(known, _)| *known == q)
            .map(|(_, least)| *least)
    }
}

/// Widens the intervals of forecasts that lie below the ideal's up to its lower end: no server is faster, so one
/// of the two is off by that much. The forecast itself stays the one whose curve is drawn.
///
/// Where a change takes the receive softirqs away, t is shorter by that, and so is the ideal: below that one the
/// interval does not begin.
pub(crate) fn widen(predictions: &mut [Prediction], least: &LeastSojourns<'_>) {
    for prediction in predictions {
        let receives_elsewhere = prediction.removes.contains(&Cause::Softirq);
        for point in &mut prediction.points {
            let elsewhere = least.receiver_elsewhere(point.q);
            let elsewhere = elsewhere.filter(|_| receives_elsewhere);
            if let Some(least) = elsewhere {
                point.lo_ns = (point.lo_ns).map(|lo| lo.max(least).min(point.predicted_ns));
            }
            let least = elsewhere.or(least.ideal.at(point.q).and_then(|ideal| ideal.lo));
            point.hi_ns = point.hi_ns.map(|hi| hi.max(least.unwrap_or(hi)));
        }
    }
}

/// A distribution without any value, for a withdrawn comparison.
pub(crate) fn no_distribution() -> Distribution {
    Distribution::from_sorted(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::explanation::PredictedPoint;

    fn spread(from: u64, to: u64) -> Distribution {
        let lengths: Vec<Nanos> = (0..20_000)
            .map(|i| Nanos::new(from + (to - from) * i / 20_000))
            .collect();
        Distribution::from_sorted(&lengths)
    }

    /// A cost of 16 µs, known to 5 %.
    const RECORDED: BusyPeriods = BusyPeriods {
        service_time_ns: Nanos::from_micros(16),
        lo_ns: Nanos::new(15_200),
        hi_ns: Nanos::new(16_800),
        receive_ns: Nanos::from_micros(3),
        after_response_ns: Nanos::ZERO,
        seen: 10_000,
        left_out: 0,
    };

    #[test]
    fn a_service_time_that_is_wrong_on_purpose_is_contradicted() {
        let given = |times: f64| {
            let t = Nanos::new((16_000.0 * times) as u64);
            disagrees(t, &RECORDED)
        };
        assert!(given(1.5).is_some() && given(0.6).is_some());
        assert_eq!((given(1.0), given(1.15), given(0.87)), (None, None, None));
    }

    #[test]
    fn an_ideal_above_the_measured_is_none() {
        let ideal = spread(20, 1_000_000);
        assert!(is_above(&ideal, &spread(10, 900_000)).is_some());
        assert_eq!(is_above(&ideal, &spread(30, 1_200_000)), None);
    }

    /// The upper half of the ideal may be right, although its median is above the measured one.
    #[test]
    fn an_ideal_whose_interval_reaches_below_the_measured_stays() {
        let mut ideal = spread(20, 1_000_000);
        for at in &mut ideal.quantiles {
            at.lo = at.lo.map(|lo| Nanos::new(lo.get() / 2));
        }
        assert_eq!(is_above(&ideal, &spread(10, 900_000)), None);
    }

    /// Redis at 8,000/s: 12.6 µs forecast, an ideal of 30 µs.
    #[test]
    fn a_forecast_below_the_ideal_has_an_interval_that_reaches_it() {
        let mut predictions = [Prediction {
            change: "without all of these".into(),
            description: String::new(),
            command: None,
            removes: vec![Cause::SlowService],
            cost: None,
            points: vec![PredictedPoint {
                q: 0.5,
                measured_ns: Nanos::new(80_000),
                predicted_ns: Nanos::new(12_600),
                lo_ns: Some(Nanos::new(12_000)),
                hi_ns: Some(Nanos::new(13_500)),
            }],
        }];
        let ideal = spread(10_000, 50_000);
        let least = LeastSojourns {
            ideal: &ideal,
            receiver_elsewhere: vec![(0.5, Nanos::new(12_300))],
        };
        widen(&mut predictions, &least);
        let point = predictions[0].points[0];
        assert_eq!(point.predicted_ns, Nanos::new(12_600));
        assert_eq!(point.hi_ns, ideal.at(0.5).unwrap().lo);
        assert_eq!(point.lo_ns, Some(Nanos::new(12_000)));
        // a server that receives elsewhere has another ideal
        let point = |least_ns| {
            let mut prediction = predictions[0].clone();
            prediction.removes.push(Cause::Softirq);
            prediction.points[0].hi_ns = Some(Nanos::new(13_500));
            let least = LeastSojourns {
                receiver_elsewhere: vec![(0.5, Nanos::new(least_ns))],
                ..least.clone()
            };
            widen(std::slice::from_mut(&mut prediction), &least);
            prediction.points[0]
        };
        let ends = |point: PredictedPoint| (point.lo_ns, point.hi_ns);
        let ns = |lo, hi| (Some(Nanos::new(lo)), Some(Nanos::new(hi)));
        assert_eq!(ends(point(12_300)), ns(12_300, 13_500));
        assert_eq!(ends(point(20_000)), ns(12_600, 20_000));
    }
}
