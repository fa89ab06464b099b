//! Overload: work comes faster than it is done, and why.

use taillab_model::Nanos;
use taillab_model::explanation::Finding;
use taillab_model::summary::{CpuTaken, Overload};

use super::facts::{Facts, WholePercent, conclusive, list};
use crate::fmt::{Count, QueueGrowth};

/// At least this share of the CPU time is a reason, and so is a cost that exceeds t by more than this share.
const NOTABLE: f64 = 0.05;

/// A smaller share of the CPUs is not listed.
const WORTH_NAMING: f64 = 0.01;

pub(super) fn overload(facts: &Facts<'_>) -> Option<Finding> {
    let overload = facts.server.measured.overload.as_ref()?;
    let mut text = format!(
        "Work arrived faster than it was done: {}.",
        QueueGrowth(overload)
    );
    let sentences = [
        cpus(overload),
        by_t(overload),
        by_the_ideal(facts, overload),
    ];
    for sentence in sentences.into_iter().flatten() {
        text += " ";
        text += &sentence;
    }
    if overload.outlasts_load {
        text += " The percentiles are those of this measurement only: they grow with its length.";
    }
    Some(Finding {
        key: Some("overload".to_owned()),
        ..conclusive(text, Some(advice(overload)), None)
    })
}

/// What the CPUs did meanwhile.
fn cpus(overload: &Overload) -> Option<String> {
    let cpu = overload.cpu.as_ref()?;
    let mut parts = vec![
        ("the server".to_owned(), cpu.server_share),
        ("receiving packets".to_owned(), cpu.receive_share),
    ];
    let named: f64 = cpu.others.iter().map(|by| by.share).sum();
    let others = cpu.others.iter();
    parts.extend(others.map(|by| (format!("`{}`", by.name), by.share)));
    let rest = match cpu.others.is_empty() {
        true => "other programs",
        false => "more programs",
    };
    parts.push((rest.to_owned(), cpu.others_share - named));
    parts.push(("interrupts and softirqs".to_owned(), cpu.interrupts_share));
    parts.push(("standing still".to_owned(), cpu.stalled_share));
    let parts = parts.iter().filter(|(_, share)| *share >= WORTH_NAMING);
    let parts: Vec<String> = parts
        .map(|(who, share)| format!("{who} {}", WholePercent(*share)))
        .collect();
    Some(format!(
        "Its CPUs were busy {} of the time ({}).",
        WholePercent(cpu.busy_share()),
        parts.join(", ")
    ))
}

/// The capacity according to t, and t; `None` where the server did more, so that t is too long.
fn known_capacity(overload: &Overload) -> Option<(f64, Nanos)> {
    /// A capacity that is higher by this share may be chance.
    const BY_CHANCE: f64 = 0.05;
    let (capacity, t) = overload.capacity_per_s.zip(overload.service_time_ns)?;
    (overload.done_per_s <= (1.0 + BY_CHANCE) * capacity).then_some((capacity, t))
}

/// What the server can do according to t, and why it did less.
fn by_t(overload: &Overload) -> Option<String> {
    /// A capacity above this share of the one that follows from t has not fallen.
    const AS_BEFORE: f64 = 0.95;
    let (capacity, t) = known_capacity(overload)?;
    let by_t = Count(capacity.round() as u64);
    if overload.done_per_s >= AS_BEFORE * capacity {
        return Some(format!(
            "At {t} of work for each request, it can answer {by_t} per second, no more."
        ));
    }
    let why = match &overload.cpu {
        None => "why it was slower was not recorded".to_owned(),
        Some(cpu) => format!("it was slower because {}", reasons(cpu, t)),
    };
    Some(format!(
        "At {t} of work for each request, it can answer {by_t} per second; {why}."
    ))
}

/// Why the capacity was lower than the one that follows from t.
fn reasons(cpu: &CpuTaken, t: Nanos) -> String {
    let mut reasons = Vec::new();
    let taken = [
        (cpu.others_share, "other programs had its CPUs"),
        (cpu.interrupts_share, "interrupts and softirqs had its CPUs"),
        (cpu.stalled_share, "its CPUs stood still"),
    ];
    for (_, why) in taken.iter().filter(|(share, _)| *share >= NOTABLE) {
        reasons.push((*why).to_owned());
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

/// Whether the ideal server cannot do so much either.
fn by_the_ideal(facts: &Facts<'_>, overload: &Overload) -> Option<String> {
    let ideal = &facts.server.ideal;
    let grows = known_capacity(overload).is_some() && ideal.utilization >= 1.0;
    grows.then(|| {
        format!(
            "The queue of an ideal server grows as well: the load is {} of what it can do.",
            WholePercent(ideal.utilization)
        )
    })
}

/// What helps.
fn advice(overload: &Overload) -> String {
    let below = Count(overload.done_per_s.round() as u64);
    let takes = |share: fn(&CpuTaken) -> f64| {
        let cpu = overload.cpu.as_ref();
        cpu.is_some_and(|cpu| share(cpu) >= NOTABLE)
    };
    let first = if takes(|cpu| cpu.others_share) {
        "Move the other programs off the server's CPUs"
    } else if takes(|cpu| cpu.interrupts_share) {
        "Move interrupts off the server's CPUs"
    } else {
        "Give the server more workers and CPUs"
    };
    format!("{first}, or lower the load to less than {below} per second.")
}
