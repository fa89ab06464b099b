//! Rare events that nevertheless decide the tail of a run.

use taillab_model::explanation::{Cause, CauseShare, Finding, HypervisorSpell, TakenByHypervisor};
use taillab_model::{MiddleStamps, Nanos};

use super::facts::{Facts, NOTABLE, WholePercent, conclusive};
use crate::fmt::{Count, Counted, Percentile, plural};

/// A hypervisor that takes a smaller share of the server's CPU time is not worth a sentence.
const LEAST_TAKEN: f64 = 0.01;

/// The largest number of spells that are listed.
const SPELLS: usize = 3;

/// A culprit that occurred more often is not a single event.
const FEW: u64 = 2;

/// A single event with a smaller share of the excess above p99 does not decide the tail.
const DECIDES: f64 = 0.2;

/// The hypervisor took the server's CPUs, either in spells or all the time.
pub(super) fn hypervisor(facts: &Facts<'_>) -> Option<Finding> {
    let taken = facts.explanation.hypervisor.as_ref()?;
    let matters = facts.share_above_p99(Cause::Hypervisor) >= NOTABLE;
    let lasts = taken.share >= LEAST_TAKEN;
    let text = match taken.spells.as_slice() {
        [] if lasts => format!(
            "The hypervisor took {} of the server's CPU time throughout, in {}.",
            WholePercent(taken.share),
            Counted(taken.stalls, "stall", "stalls"),
        ),
        [] => return None,
        _ if !matters && !lasts => return None,
        spells => of_spells(taken, spells),
    };
    let advice = (!taken.spells.is_empty())
        .then(|| "Measure again: such spells last for minutes and pass.".to_owned());
    Some(conclusive(text, advice, None))
}

fn of_spells(taken: &TakenByHypervisor, spells: &[HypervisorSpell]) -> String {
    let told = spells.iter().take(SPELLS).map(|spell| {
        let (from, to) = (spell.from_ns, spell.from_ns + spell.length_ns);
        let stalls = Count(spell.stalls);
        format!(
            "from {from} to {to} ({stalls} stalls, {})",
            WholePercent(spell.share)
        )
    });
    let more = match spells.len().saturating_sub(SPELLS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let word = plural(spells.len() as u64, "a spell", "spells");
    format!(
        "The hypervisor took the server's CPU in {word}: {}{more}; in all {} of the time.",
        told.collect::<Vec<_>>().join(", "),
        WholePercent(taken.share)
    )
}

/// One or two events cause much of the tail; another run of this length may have none.
pub(super) fn single_events(facts: &Facts<'_>) -> Option<Finding> {
    // what was seen once in slices happened more often
    if matches!(facts.server.matching.stamps, MiddleStamps::Sampled(_)) {
        return None;
    }
    let few = |share: &&CauseShare| {
        share.culprit.is_some()
            && (1..=FEW).contains(&share.events)
            && share.excess_share_above_p99.value >= DECIDES
    };
    let above = |share: &&CauseShare| share.excess_share_above_p99.value;
    let found = facts.server.causes.iter().filter(few);
    let share = found.max_by(|a, b| above(a).total_cmp(&above(b)))?;
    let culprit = share.culprit.as_ref()?.to_string();
    let times = if share.events == 1 { "once" } else { "twice" };
    let each = Nanos::new(share.mean_event_ns.round() as u64);
    let above_p99 = share.excess_share_above_p99;
    let may_be = above_p99.hi.filter(|_| above_p99.is_in_doubt());
    let interval = may_be.map_or_else(String::new, |hi| format!(" (0 to {})", WholePercent(hi)));
    let mut text = format!(
        "`{culprit}`: {times}, for {each}{}, delayed {}, {}{interval} {}",
        if share.events == 1 { "" } else { " each" },
        Counted(share.requests, "request", "requests"),
        WholePercent(above_p99.value),
        facts.above_p99(),
    );
    let change = format!("without {culprit}");
    let mut forecasts = facts.server.predictions.iter();
    let forecast = forecasts.find(|it| it.change == change);
    let point = forecast.and_then(|it| it.points.iter().find(|point| point.q == 0.99));
    if let Some(point) = point {
        text += &format!("; {} without it: {}", Percentile(0.99), point.predicted_ns);
        if let Some((lo, hi)) = point.lo_ns.zip(point.hi_ns) {
            text += &format!(" ({lo} to {hi})");
        }
    }
    text += ". Another run of this length may have none of it.";
    let advice = "Measure for longer (-d), or with `taillab run --precision p99=20%`.".to_owned();
    Some(Finding {
        inconclusive: above_p99.is_in_doubt(),
        ..conclusive(text, Some(advice), None)
    })
}
