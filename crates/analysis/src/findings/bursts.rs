//! What the bursts of slow requests began with.

use taillab_model::explanation::{BurstRoot, Culprit, Finding};

use super::facts::{Facts, WholePercent, conclusive, list};
use crate::fmt::{Count, Counted};

/// The largest number of roots that are told.
const TOLD: usize = 3;

/// Fewer bursts say nothing of what others begin with.
const MIN_BURSTS: u64 = 3;

/// `12 of 27 bursts of slow requests: kdamond.0 on the core, 1.10 ms to 14.6 ms; 9: softirqs RCU on the core, …`.
/// It is certain of these bursts; the interval is for those of other measurements.
pub(super) fn roots(facts: &Facts<'_>) -> Option<Finding> {
    let explanation = facts.explanation;
    let (chief, others) = explanation.burst_roots.split_first()?;
    if explanation.bursts < MIN_BURSTS {
        return None;
    }
    let share = chief.share;
    let again = share.lo.zip(share.hi).map(|(lo, hi)| {
        format!(
            " (95 % interval {} to {})",
            WholePercent(lo),
            WholePercent(hi)
        )
    });
    let mut told = vec![format!(
        "{} of {} of slow requests{}: {}",
        Count(chief.bursts),
        Counted(explanation.bursts, "burst", "bursts"),
        again.unwrap_or_default(),
        what(chief)
    )];
    let shown = others.iter().take(TOLD - 1);
    told.extend(shown.map(|root| format!("{}: {}", Count(root.bursts), what(root))));
    let text = format!("{}.", told.join("; "));
    let own = chief.culprit.as_ref().and_then(Culprit::advice);
    let advice = own.or(chief.cause.info().advice).map(str::to_owned);
    Some(conclusive(text, advice, Some(chief.cause)))
}

/// What it was, and for how long it delayed requests.
fn what(root: &BurstRoot) -> String {
    let names: Vec<String> = (root.culprit.iter())
        .map(|culprit| format!("`{culprit}`"))
        .collect();
    let blame = root.cause.blame(&list(&names));
    match root.shortest_ns == root.longest_ns {
        true => format!("{blame}, {}", root.longest_ns),
        false => format!("{blame}, {} to {}", root.shortest_ns, root.longest_ns),
    }
}
