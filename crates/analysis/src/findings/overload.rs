//! Overload: requests arrive faster than they are served, and why.

use taillab_model::Nanos;
use taillab_model::explanation::Finding;
use taillab_model::summary::{CpuTaken, Overload};

use super::facts::{Facts, Whole, conclusive, list};
use crate::fmt::{Count, Grew};

/// A capacity above this share of the one that follows from t has not fallen.
const AS_BEFORE: f64 = 0.95;

/// At least this share of the CPU time is a reason, and so is a cost that exceeds t by more than this share.
const NOTABLE: f64 = 0.05;

pub(super) fn overload(facts: &Facts<'_>) -> Option<Finding> {
    let overload = facts.server.measured.overload?;
    let Overload {
        done_per_s,
        capacity_per_s,
        ..
    } = overload;
    let by_t = Count(capacity_per_s.round() as u64);
    let fell = done_per_s < AS_BEFORE * capacity_per_s;
    let why = match (fell, overload.cpu) {
        (false, _) => format!(
            " That is the capacity that follows from t, {by_t}/s: more arrived than it can \
             serve."
        ),
        (true, None) => {
            format!(" According to t, the capacity is {by_t}/s; why it was lower was not recorded.")
        }
        (true, Some(cpu)) => format!(
            " According to t, the capacity is {by_t}/s; it was lower because {}.",
            reasons(&overload, &cpu)
        ),
    };
    let advice = match fell {
        false => "Lower the load, or give the server more workers and CPUs.",
        true => "Move other work off the server's CPUs, or lower the load.",
    };
    let text = format!("Overload: {}.{why}", Grew(&overload));
    Some(conclusive(text, Some(advice.to_owned()), None))
}

/// Why the capacity was lower than the one that follows from t.
fn reasons(overload: &Overload, cpu: &CpuTaken) -> String {
    let t = overload.service_time_ns;
    let mut reasons = Vec::new();
    for (share, who) in [
        (cpu.others_share, "threads of other programs took"),
        (cpu.interrupts_share, "interrupts and softirqs took"),
    ] {
        if share >= NOTABLE {
            reasons.push(format!("{who} {} of the server's CPU time", Whole(share)));
        }
    }
    if cpu.stalled_share >= NOTABLE {
        let share = Whole(cpu.stalled_share);
        reasons.push(format!("the CPUs stood still for {share} of the time"));
    }
    if cpu.busy_ns_per_request > (1.0 + NOTABLE) * t.get() as f64 {
        let cost = Nanos::new(cpu.busy_ns_per_request.round() as u64);
        reasons.push(format!("a request cost {cost} instead of {t}"));
    }
    if reasons.is_empty() {
        return "of something that was not recorded (the workers slept, or waited for each other)"
            .to_owned();
    }
    list(&reasons)
}
