//! Findings that are not conclusive, with what to measure next.

use taillab_model::MiddleStamps;
use taillab_model::explanation::{Cause, Finding, FitPoint};

use super::facts::{Facts, WholePercent, conclusive, inconclusive, list};
use crate::fmt::{Counted, Percentile};
use crate::predict::PREDICTED_QUANTILES;

/// If a larger share of the excess above p99 has no cause, another recording is advised.
const MAX_UNEXPLAINED: f64 = 0.1;

pub(super) fn unexplained(facts: &Facts<'_>) -> Option<Finding> {
    let share = facts.share_above_p99(Cause::Unexplained);
    (share >= MAX_UNEXPLAINED).then(|| {
        let text = format!(
            "{} {} has no recorded cause.",
            WholePercent(share),
            facts.above_p99()
        );
        let advice = if facts.disturbances {
            "Record for longer. With `trace`, also leave taillab a CPU that the server does not use: \
             from there it sees when the hypervisor stops the server's."
        } else {
            "Record again with `--disturbances all`."
        };
        inconclusive(text, advice, Some(Cause::Unexplained))
    })
}

/// Responses that were sent again: their clients may have waited for longer than the sojourn says.
pub(super) fn sent_again(facts: &Facts<'_>) -> Option<Finding> {
    let again = facts.server.sent_again?;
    let responses = Counted(again.responses, "response was", "responses were");
    let later = match again.responses {
        1 => format!("{} later", again.median_ns),
        _ => format!(
            "{} later at the median, {} at most",
            again.median_ns, again.longest_ns
        ),
    };
    let text = format!(
        "{responses} sent again, {later}. A client whose first packet was lost waited for that; the sojourn ends \
         before."
    );
    let advice =
        "Look where packets are lost: `tc -s qdisc show`, `ethtool -S`, `ss -ti` (retrans, dsack).";
    let key = Some("sent_again".to_owned());
    Some(Finding {
        key,
        ..conclusive(text, Some(advice.to_owned()), None)
    })
}

pub(super) fn unobserved(facts: &Facts<'_>) -> Option<Finding> {
    const OF_PROCESS_1: &str = "Some kernels run no probe in threads of process 1: keep these off \
         the server's CPUs, or record for longer.";

    let share = facts.share_above_p99(Cause::Unobserved);
    (share >= MAX_UNEXPLAINED).then(|| {
        let matching = &facts.server.matching;
        let was_blind = matching.blind_windows > 0 || matching.lost_events > 0;
        // the times between slices are no blind windows
        let (times, advice) = match matching.stamps {
            _ if was_blind => {
                let times = format!(
                    "when the probe was blind: {}, {} on all CPUs together, {}",
                    Counted(matching.blind_windows, "window", "windows"),
                    matching.blind_ns,
                    Counted(matching.lost_events, "lost event", "lost events")
                );
                let advice = if matching.lost_events > 0 {
                    "Record fewer kinds of disturbance (--disturbances), or give the probe larger \
                     buffers (--ring-bytes)."
                } else {
                    OF_PROCESS_1
                };
                (times, advice)
            }
            MiddleStamps::Sampled(_) => {
                let late = Counted(matching.left_late, "request left", "requests left");
                let times = format!("between slices: {late} after the end of a slice");
                (times, "Record everything all the time (--stamps all).")
            }
            _ => {
                let times = "of which it is not known what the CPU did, or which thread served";
                (times.to_owned(), OF_PROCESS_1)
            }
        };
        let text = format!(
            "{} {} falls into times {times}.",
            WholePercent(share),
            facts.above_p99()
        );
        inconclusive(text, advice, Some(Cause::Unobserved))
    })
}

pub(super) fn poor_fit(facts: &Facts<'_>) -> Option<Finding> {
    let fit = facts.server.model_fit.as_ref()?;
    let missed = fit.points.iter().filter(|point| {
        let is_forecast = PREDICTED_QUANTILES.contains(&point.q);
        is_forecast && !fit.bears(point.q)
    });
    let missed: Vec<&FitPoint> = missed.collect();
    let worst = missed
        .iter()
        .max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()))?;
    let names: Vec<String> = missed
        .iter()
        .map(|point| Percentile(point.q).to_string())
        .collect();
    let text = format!(
        "No forecasts of {}: the replayed queue gives {} {} where {} was measured, an error of {}; \
         more than {} is too much.",
        list(&names),
        Percentile(worst.q),
        worst.replayed_ns,
        worst.measured_ns,
        WholePercent(worst.error.abs()),
        WholePercent(fit.largest_borne)
    );
    let advice = if facts.disturbances {
        "Something delays requests that the replay does not model: see the causes, and the \
         slowest requests (report.html, or --slowest 3)."
    } else {
        "Record again with `--disturbances all`."
    };
    Some(inconclusive(text, advice, None))
}

pub(super) fn without_disturbances(facts: &Facts<'_>) -> Option<Finding> {
    (!facts.disturbances).then(|| {
        inconclusive(
            "Interrupts, softirqs and wake-ups were not recorded: their cost is charged to other \
             causes."
                .to_owned(),
            "Record again with `--disturbances all`.",
            None,
        )
    })
}
