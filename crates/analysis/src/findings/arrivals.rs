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

/// Where the arrivals of one accident do not show.
const USUAL: f64 = 0.9;

/// Compares the ideal queue with the same one fed with independent arrivals (M/D/c, exactly). Its lower bound decides,
/// in the tail and below it, so that a few crowded moments are not taken for a habit of the clients.
pub(super) fn in_bursts(facts: &Facts<'_>) -> Option<Finding> {
    let tail = facts.tail()?;
    let ideal = &facts.server.ideal;
    let queue = Mdc::new(ideal.workers, ideal.utilization).ok()?;
    let t_ns = facts.server.service_time_ns.get() as f64;
    let independent = |q: f64| {
        let services = queue.sojourn_upper_quantile_services(1.0 - q);
        Nanos::new((services * t_ns).round() as u64)
    };
    let is_slower = |q: f64, value: Nanos| {
        let lower = ideal.sojourn.at(q).and_then(|at| at.lo).unwrap_or(value);
        lower.get() as f64 >= IN_BURSTS * independent(q).get() as f64
    };
    let usual = facts.ideal.quantile(USUAL);
    let is_habit = usual.is_none_or(|usual| is_slower(USUAL, usual));
    let matters = tail.ideal.get() as f64 >= MATTERS * tail.measured.get() as f64;
    let is_in_bursts = is_habit && is_slower(tail.q, tail.ideal);
    let independent = independent(tail.q);
    (is_in_bursts && matters).then(|| {
        // the table has another ideal where requests differ in their work
        let queue = match ideal.base_of_own_work() {
            Some(_) => "an ideal queue in which each request takes t",
            None => "the ideal queue",
        };
        let text = format!(
            "Requests arrive in bursts: fed with them, even {queue} has {} {} (measured {}); fed with independent \
             (Poisson) arrivals at the same rate, it has {independent}.",
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
