//! The verdict's reservations as a person needs them: those with one root together, those that touch most first.

use taillab_model::explanation::{Cause, Finding};
use taillab_model::summary::{Claim, ClaimName, Reason, Report, Verdict};

use crate::schedule::OffSchedule;

/// Work came faster than it was done.
const OVERLOAD: &[&str] = &["overload", "growing", "server_overloaded"];

/// The generator was held up, or could not send as it should.
const SENDS: &[&str] = &[
    "rate_missed",
    "client_busy",
    "late_client",
    "cut",
    "cut_too_often",
    "arrivals",
    "lateness",
    "arrival_gaps",
];

/// Too few requests, bursts or slices: intervals are wide.
const WIDE: &[&str] = &[
    "unsupported_percentile",
    "share_intervals",
    "few_slices",
    "bursts_not_judged",
];

/// Of nearly every result here, and without effect on how its figures are read.
const MINOR: &[&str] = &["arrival_gaps", "gaps_not_judged", "virtual_machine"];

/// Keys of reservations that have the same root, so that one of them stands for the others.
const ROOTS: [&[&str]; 9] = [
    OVERLOAD,
    SENDS,
    WIDE,
    // the server failed
    &["errors", "unanswered", "connections_ended"],
    // t does not describe these requests
    &[
        "service_time_disagrees",
        "ideal_above_measured",
        "service_time_unknown",
        "faster_than_ideal",
    ],
    // other programs on the machine
    &["not_server_limited", "busy_processes", "irqbalance"],
    // requests that the probe did not see, or could not tell apart
    &[
        "lost_events",
        "losses_unknown",
        "damaged",
        "unmatched",
        "unseen_by_probe",
        "ambiguous",
        "late_events",
    ],
    // stages that it did not see
    &[
        "incomplete",
        "blind_windows",
        "beyond_slice",
        "stamps_out_of_order",
    ],
    // what it cost to measure
    &[
        "tracer_in_tail",
        "generator_in_tail",
        "probe_cost",
        "observer_cost",
        "shared_cpus",
    ],
];

/// Reservations with one root.
#[derive(Clone, Debug)]
pub(crate) struct Reservation<'v> {
    /// The one that touches most, which stands for all.
    pub(crate) chief: &'v Reason,
    /// The others.
    pub(crate) others: Vec<&'v Reason>,
    touches: Touches,
}

/// All reservations, those that touch most first. Those with keys in `told` are said elsewhere.
pub(crate) fn of<'v>(verdict: &'v Verdict, told: &[&str]) -> Vec<Reservation<'v>> {
    let untold = |reason: &&Reason| !told.contains(&reason.key.as_str());
    let mut warnings: Vec<&Reason> = verdict.warnings.iter().filter(untold).collect();
    warnings.sort_by_key(|reason| touches(verdict, reason));
    let mut found: Vec<Reservation<'v>> = Vec::new();
    for reason in warnings {
        let same = |known: &&mut Reservation<'_>| have_one_root(&known.chief.key, &reason.key);
        match found.iter_mut().find(same) {
            Some(known) => known.others.push(reason),
            None => found.push(Reservation {
                chief: reason,
                others: Vec::new(),
                touches: touches(verdict, reason),
            }),
        }
    }
    found
}

/// What these say, with a sentence about the schedule in its place among them: before all that touches only a percentile, where
/// the generator made the load.
pub(crate) fn lines<'v>(of: &[Reservation<'v>], schedule: Option<&'v OffSchedule>) -> Vec<&'v str> {
    let mut lines: Vec<&str> = of.iter().map(|one| one.chief.text.as_str()).collect();
    if let Some(schedule) = schedule {
        let place = of.partition_point(|one| match schedule.made_the_load {
            true => one.touches <= Touches::Everything,
            false => one.touches < Touches::Schedule,
        });
        lines.insert(place, &schedule.text);
    }
    lines
}

/// The place of its root in the table; `None` where it has a root of its own.
fn root(key: &str) -> Option<usize> {
    ROOTS.iter().position(|keys| keys.contains(&key))
}

/// Whether two keys say the same thing in two ways.
pub(crate) fn have_one_root(a: &str, b: &str) -> bool {
    root(a).is_some() && root(a) == root(b)
}

/// What a reservation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Touches {
    /// What the whole result means.
    Everything,
    /// A percentile that most readers look at.
    Percentiles,
    /// The comparison with the ideal, the causes or the forecasts.
    Comparison,
    /// What arrivals on schedule would see.
    Schedule,
    /// What it takes to read some figures right.
    Figures,
    /// A percentile further out.
    FarPercentiles,
    /// Hardly anything.
    Little,
}

fn touches(verdict: &Verdict, reason: &Reason) -> Touches {
    /// The highest percentile that most readers look at.
    const FAR: f64 = 0.99;
    let key = reason.key.as_str();
    let is_because = |claim: &&Claim| claim.because.iter().any(|because| because == key);
    let withdrawn = verdict.claims.iter().find(is_because);
    match withdrawn.map(|claim| claim.claim) {
        _ if OVERLOAD.contains(&key) => Touches::Everything,
        Some(claim) if claim.quantile().is_some_and(|q| q <= FAR) => Touches::Percentiles,
        Some(ClaimName::Ideal | ClaimName::Causes | ClaimName::Forecasts) => Touches::Comparison,
        Some(_) => Touches::FarPercentiles,
        None if MINOR.contains(&key) => Touches::Little,
        None if SENDS.contains(&key) => Touches::Schedule,
        None if WIDE.contains(&key) => Touches::FarPercentiles,
        None => Touches::Figures,
    }
}

/// The keys of the reservations that the findings say, too, or the sentence about the schedule, where there is one.
pub(crate) fn told(report: &Report, has_sentence: bool) -> Vec<&str> {
    let explanation = report.server.explanation.as_ref();
    let findings: &[Finding] = explanation.map_or(&[], |explanation| &explanation.findings);
    let mut keys: Vec<&str> = findings.iter().filter_map(|of| of.key.as_deref()).collect();
    let is_found = |cause: Cause| {
        let mut certain = findings.iter().filter(|of| !of.inconclusive);
        certain.any(|of| of.cause == Some(cause))
    };
    if is_found(Cause::Background) {
        keys.push("busy_processes");
    }
    if is_found(Cause::Hypervisor) {
        keys.push("steal");
    }
    if has_sentence {
        keys.extend(SENDS);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(keys: &[&str], claims: &[(ClaimName, &str)]) -> Verdict {
        let warning = |key: &&str| Reason::new(*key, format!("{key} was seen: do something"));
        let claim = |&(claim, because): &(ClaimName, &str)| Claim {
            claim,
            valid: false,
            because: vec![because.to_owned()],
        };
        Verdict {
            valid: true,
            warnings: keys.iter().map(warning).collect(),
            claims: claims.iter().map(claim).collect(),
            ..Verdict::default()
        }
    }

    fn keys(verdict: &Verdict, told: &[&str]) -> Vec<(String, usize)> {
        let found = of(verdict, told).into_iter();
        found
            .map(|one| (one.chief.key.clone(), one.others.len()))
            .collect()
    }

    fn known(expected: &[(&str, usize)]) -> Vec<(String, usize)> {
        let known = expected.iter();
        known.map(|(key, n)| ((*key).to_owned(), *n)).collect()
    }

    /// A run beside four busy loops had ten.
    #[test]
    fn reservations_with_one_root_are_one() {
        let noisy = verdict(
            &[
                "rate_missed",
                "client_busy",
                "unsupported_percentile",
                "cut",
                "not_server_limited",
                "share_intervals",
                "probe_cost",
                "arrival_gaps",
                "virtual_machine",
                "busy_processes",
            ],
            &[(ClaimName::P999, "unsupported_percentile")],
        );
        assert_eq!(
            keys(&noisy, &[]),
            known(&[
                ("rate_missed", 3),
                ("not_server_limited", 1),
                ("probe_cost", 0),
                ("unsupported_percentile", 1),
                ("virtual_machine", 0),
            ])
        );
        // what the screen says elsewhere is left out
        let told = [SENDS, &["busy_processes"]].concat();
        assert_eq!(
            keys(&noisy, &told)[0],
            known(&[("not_server_limited", 0)])[0]
        );
    }

    #[test]
    fn what_touches_most_comes_first() {
        let found = verdict(
            &[
                "virtual_machine",
                "arrival_gaps",
                "unsupported_percentile",
                "probe_cost",
                "closed_loop",
                "unmatched",
                "overload",
            ],
            &[
                (ClaimName::P99, "unmatched"),
                (ClaimName::P9999, "unsupported_percentile"),
                (ClaimName::Ideal, "closed_loop"),
            ],
        );
        let order = [
            "overload",
            "unmatched",
            "closed_loop",
            "probe_cost",
            "unsupported_percentile",
            "virtual_machine",
            "arrival_gaps",
        ];
        assert_eq!(keys(&found, &[]), known(&order.map(|key| (key, 0))));
        let of = of(&found, &[]);
        let place = |made_the_load| {
            let text = "the schedule".to_owned();
            let schedule = OffSchedule {
                text,
                made_the_load,
            };
            let lines = lines(&of, Some(&schedule));
            lines.iter().position(|line| *line == "the schedule")
        };
        assert_eq!([false, true].map(place), [Some(3), Some(1)]);
    }

    #[test]
    fn each_key_is_one_of_the_verdict_and_has_one_root() {
        const DOCS: &str = include_str!("../../../docs/verdict.md");
        let all = ROOTS.concat();
        for key in &all {
            assert_eq!(all.iter().filter(|other| *other == key).count(), 1, "{key}");
            assert!(DOCS.contains(&format!("`{key}`")), "{key}");
        }
    }
}
