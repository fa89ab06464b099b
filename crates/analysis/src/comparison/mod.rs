//! Whether a measured server can be compared with the ideal queue of the same arrivals.
//!
//! Where the comparison does not hold, nothing that follows from it is shown: no ideal, no excess,
//! no causes and no forecasts.

mod closed_loop;

use taillab_model::explanation::{Cause, Prediction};
use taillab_model::summary::Withdrawn;
use taillab_model::{Distribution, Quantile};

use crate::statistics::SCORE_Z;

pub(crate) use closed_loop::Inside;

/// If a larger share of the requests is faster than the ideal, t is too long.
///
/// Some always are: t is the core's time per request at the peak, which includes work before T1
/// and after T6, and an ideal sojourn is never shorter than t. And where service times vary, t is
/// their mean, and many are shorter.
const MAX_FASTER_THAN_IDEAL: f64 = 0.5;

/// The part of t that may lie before T1 and after T6. A forecast may be below the ideal by this
/// share of it without casting doubt on t.
const OUTSIDE: f64 = 0.1;

/// Why the comparison does not hold, judged by the distributions and by the share of requests that
/// were faster than their ideal.
pub(crate) fn withdrawn(
    measured: &Distribution,
    ideal: &Distribution,
    faster_share: f64,
) -> Option<Withdrawn> {
    let above = (ideal.quantiles.iter())
        .zip(&measured.quantiles)
        .find_map(|(ideal, measured)| is_above(ideal, measured));
    // with few requests, the true share may be below the measured one by this much
    let share = MAX_FASTER_THAN_IDEAL;
    let n = measured.count.max(1) as f64;
    let chance = SCORE_Z * (share * (1.0 - share) / n).sqrt();
    let faster = Withdrawn::FasterThanIdeal {
        share: faster_share,
    };
    above.or((faster_share > share + chance).then_some(faster))
}

/// The ideal median is not below the measured one, or another ideal percentile is above the
/// measured one by more than their intervals.
fn is_above(ideal: &Quantile, measured: &Quantile) -> Option<Withdrawn> {
    let (ideal_ns, measured_ns) = (ideal.value?, measured.value?);
    let above = match ideal.q {
        q if q <= 0.5 => ideal_ns >= measured_ns,
        _ => measured
            .hi
            .is_some_and(|hi| ideal.lo.is_some_and(|lo| lo > hi)),
    };
    above.then_some(Withdrawn::IdealAboveMeasured {
        q: ideal.q,
        ideal_ns,
        measured_ns,
    })
}

/// Raises forecasts that are below the ideal's interval to its lower end; their own intervals still say
/// that they may be lower. A forecast whose whole interval is below the ideal's, by more than the part of t
/// that may lie outside of a sojourn, shows that t is too long. One that takes interrupts or softirqs off the
/// server's CPUs does not show that, because it removes a part of t.
pub(crate) fn hold(predictions: &mut [Prediction], ideal: &Distribution) -> Option<Withdrawn> {
    let mut beaten = None;
    for prediction in predictions {
        let takes_work = [Cause::Softirq, Cause::Irq];
        let keeps_work = !takes_work
            .iter()
            .any(|cause| prediction.removes.contains(cause));
        for point in &mut prediction.points {
            let known = ideal.at(point.q);
            let Some((value, lo)) = known.and_then(|known| known.value.zip(known.lo)) else {
                continue;
            };
            let forecast_ns = point.hi_ns.unwrap_or(point.predicted_ns);
            let far_below = (forecast_ns.get() as f64) < (1.0 - OUTSIDE) * lo.get() as f64;
            if keeps_work && far_below {
                beaten = beaten.or(Some(Withdrawn::ForecastBelowIdeal {
                    q: point.q,
                    ideal_ns: value,
                    forecast_ns,
                }));
            }
            point.predicted_ns = point.predicted_ns.max(lo);
            point.hi_ns = point.hi_ns.map(|hi| hi.max(point.predicted_ns));
        }
    }
    beaten
}

/// A distribution without any value, for a withdrawn comparison.
pub(crate) fn no_distribution() -> Distribution {
    Distribution::from_sorted(&[])
}

#[cfg(test)]
mod tests {
    use taillab_model::Nanos;
    use taillab_model::explanation::PredictedPoint;

    use super::*;

    fn spread(from: u64, to: u64) -> Distribution {
        let lengths: Vec<Nanos> = (0..20_000)
            .map(|i| Nanos::new(from + (to - from) * i / 20_000))
            .collect();
        Distribution::from_sorted(&lengths)
    }

    #[test]
    fn an_ideal_below_the_measured_holds() {
        let (ideal, measured) = (spread(10, 900_000), spread(20, 1_000_000));
        assert_eq!(withdrawn(&measured, &ideal, 0.2), None);
        assert_eq!(
            withdrawn(&measured, &ideal, 0.53),
            Some(Withdrawn::FasterThanIdeal { share: 0.53 })
        );
    }

    /// Measured p99 2.43 ms, ideal 38.3 ms: the median alone does not show it.
    #[test]
    fn an_ideal_above_the_measured_is_none() {
        let measured = spread(1_000_000, 2_430_000);
        let mut ideal = spread(100_000, 1_000_000);
        for quantile in &mut ideal.quantiles[2..] {
            let far = Some(Nanos::from_micros(38_300));
            (quantile.value, quantile.lo, quantile.hi) = (far, far, far);
        }
        let Some(Withdrawn::IdealAboveMeasured { q, .. }) = withdrawn(&measured, &ideal, 0.01)
        else {
            panic!("it is compared");
        };
        assert_eq!(q, 0.99);
        let same = withdrawn(&measured, &measured, 0.0);
        assert!(matches!(
            same,
            Some(Withdrawn::IdealAboveMeasured { q: 0.5, .. })
        ));
    }

    /// Redis at 8,000/s: 12.6, 29.4 and 36.1 µs forecast, an ideal of 21.0, 45.9 and 63.1 µs.
    #[test]
    fn no_server_is_faster_than_the_ideal() {
        let point = |q, predicted: u64, hi: u64| PredictedPoint {
            q,
            measured_ns: Nanos::new(80_000),
            predicted_ns: Nanos::new(predicted),
            lo_ns: None,
            hi_ns: Some(Nanos::new(hi)),
        };
        let of = |removes: Vec<Cause>, points: Vec<PredictedPoint>| {
            let mut predictions = [Prediction {
                change: "without all of these".into(),
                description: String::new(),
                command: None,
                removes,
                cost: None,
                points,
            }];
            let withdrawn = hold(&mut predictions, &spread(10_000, 50_000));
            let least = predictions[0].points[0].predicted_ns;
            assert!(least >= Nanos::new(29_000), "{least}");
            withdrawn
        };
        let slow = || vec![Cause::SlowService];
        assert!(of(slow(), vec![point(0.5, 12_600, 13_500)]).is_some());
        // a forecast may be in the ideal's interval, or a little below it: t includes work outside
        assert_eq!(of(slow(), vec![point(0.5, 29_000, 31_000)]), None);
        assert_eq!(of(slow(), vec![point(0.5, 33_000, 34_000)]), None);
        assert_eq!(of(slow(), vec![point(0.5, 27_500, 28_000)]), None);
        // without softirqs the server has less to do than t
        let without = vec![Cause::SlowService, Cause::Softirq];
        assert_eq!(of(without, vec![point(0.5, 12_600, 13_500)]), None);
    }
}
