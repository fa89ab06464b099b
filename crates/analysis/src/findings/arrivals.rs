//! Arrivals that make the queue themselves: no server could answer them sooner.

use taillab_model::Nanos;
use taillab_model::explanation::Finding;
use taillab_queueing::exact::Mdc;

use super::facts::{Facts, conclusive};
use crate::fmt::Percentile;

/// Arrivals are bursts if the ideal queue is so many times slower with them than with independent ones.
const IN_BURSTS: f64 = 2.0;

/// Bursts matter if at least this part of the measured percentile is the ideal's.
const MATTERS: f64 = 0.3;

/// Compares the ideal queue with the same one fed with independent arrivals (M/D/c, exactly). Its lower bound decides,
/// so that a run of crowded seconds is not taken for a habit of the clients.
pub(super) fn in_bursts(facts: &Facts<'_>) -> Option<Finding> {
    let tail = facts.tail()?;
    let ideal = &facts.server.ideal;
    let independent = Mdc::new(ideal.workers, ideal.utilization).ok()?;
    let services = independent.sojourn_upper_quantile_services(1.0 - tail.q);
    let t_ns = facts.server.service_time_ns.get() as f64;
    let independent = Nanos::new((services * t_ns).round() as u64);
    let lower = ideal.sojourn.at(tail.q).and_then(|at| at.lo);
    let at_least = lower.unwrap_or(tail.ideal);
    let is_in_bursts = at_least.get() as f64 >= IN_BURSTS * independent.get() as f64;
    let matters = tail.ideal.get() as f64 >= MATTERS * tail.measured.get() as f64;
    (is_in_bursts && matters).then(|| {
        let text = format!(
            "Requests arrive in bursts: fed with them, even the ideal queue has {} {} (measured {}); fed with \
             independent (Poisson) arrivals at the same rate, it has {independent}.",
            Percentile(tail.q),
            tail.ideal,
            tail.measured
        );
        let advice = "Look at who sends them: more even arrivals or more workers shorten this part, nothing else does.";
        Finding {
            key: Some("bursty_arrivals".to_owned()),
            ..conclusive(text, Some(advice.to_owned()), None)
        }
    })
}
