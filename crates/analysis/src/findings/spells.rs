//! What happened at times only, and decides the tail of a run all the same.

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, CauseShare, Finding, HypervisorSpell, TakenByHypervisor};

use super::facts::{Facts, NOTABLE, Whole};
use crate::fmt::{Count, Percentile, plural};

/// What takes less of the server's CPUs is not worth a sentence by itself.
const LEAST_TAKEN: f64 = 0.01;

/// Spells that are told.
const SPELLS: usize = 3;

/// A cause that came more often is no single event.
const FEW: u64 = 2;

/// A single event that makes less of the excess above p99 does not decide it.
const DECIDES: f64 = 0.2;

/// When the hypervisor took far more of the server's CPUs than otherwise, or that it did all the while.
pub(super) fn hypervisor(facts: &Facts<'_>) -> Option<Finding> {
    let taken = facts.hypervisor?;
    let matters = facts.share_above_p99(Cause::Hypervisor) >= NOTABLE;
    let lasts = taken.share >= LEAST_TAKEN;
    let text = match taken.spells.as_slice() {
        [] if lasts => format!(
            "The hypervisor took {} of the server's CPU time all the while, {} {} in all.",
            Whole(taken.share),
            Count(taken.stalls),
            plural(taken.stalls, "stall", "stalls"),
        ),
        [] => return None,
        _ if !matters && !lasts => return None,
        spells => of_spells(taken, spells),
    };
    Some(Finding {
        text,
        advice: Some("Measure again: such spells last for minutes and pass.".to_owned())
            .filter(|_| !taken.spells.is_empty()),
        cause: None,
        inconclusive: false,
    })
}

fn of_spells(taken: &TakenByHypervisor, spells: &[HypervisorSpell]) -> String {
    let told = spells.iter().take(SPELLS).map(|spell| {
        let (from, to) = (spell.from_ns, spell.from_ns + spell.length_ns);
        let stalls = Count(spell.stalls);
        format!(
            "from {from} to {to} ({stalls} stalls, {})",
            Whole(spell.share)
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
        Whole(taken.share)
    )
}

/// One or two events make a good part of the tail: another run of this length may have none.
pub(super) fn single_events(facts: &Facts<'_>) -> Option<Finding> {
    let few = |share: &&CauseShare| {
        share.culprit.is_some()
            && (1..=FEW).contains(&share.episodes)
            && share.excess_share_above_p99.value >= DECIDES
    };
    let above = |share: &&CauseShare| share.excess_share_above_p99.value;
    let found = facts.causes.iter().filter(few);
    let share = found.max_by(|a, b| above(a).total_cmp(&above(b)))?;
    let culprit = share.culprit.as_ref()?.to_string();
    let times = if share.episodes == 1 { "Once" } else { "Twice" };
    let each = Nanos::new(share.mean_episode_ns.round() as u64);
    let mut text = format!(
        "{times}, for {each}{}, `{culprit}` held the server up, and that makes {} of the excess above \
         p99: another run of this length may have none of it.",
        if share.episodes == 1 { "" } else { " each" },
        Whole(share.excess_share_above_p99.value),
    );
    let change = format!("without {culprit}");
    let forecast = facts.predictions.iter().find(|it| it.change == change);
    let point = forecast.and_then(|it| it.points.iter().find(|point| point.q == 0.99));
    if let Some(point) = point {
        let (without, with) = (point.predicted_ns, point.measured_ns);
        text += &format!(" Without it, by the replay: {} {without}", Percentile(0.99));
        if let Some((lo, hi)) = point.lo_ns.zip(point.hi_ns) {
            text += &format!(" ({lo} to {hi})");
        }
        text += &format!(" instead of {with}.");
    }
    Some(Finding {
        text,
        advice: Some("Measure for longer: --precision p99=20%.".to_owned()),
        cause: None,
        inconclusive: false,
    })
}
