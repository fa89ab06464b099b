//! What a recording could not show, in words.

use taillab_model::summary::Matching;
use taillab_model::{HISTOGRAM_ERROR, MiddleStamps};

use crate::statistics::Observations;

/// All limits of a recording with these sojourns that was read in `windows`, the first of which had `shown_by`
/// requests. Of the requests, `silent` ask for no response, and `others` do.
pub(super) fn limits(
    measured: &Observations,
    (windows, shown_by): (u64, usize),
    polls: bool,
    (silent, others): (u64, u64),
    matching: &Matching,
) -> Vec<String> {
    let mut limits = of_length(measured, windows, shown_by);
    limits.extend(polls.then(|| POLLS.to_owned()));
    limits.extend(without_response(silent, others));
    limits.extend(in_slices(matching));
    limits
}

/// The limit of a server with a thread that polls.
const POLLS: &str = "A thread of the server never sleeps, and has no request most of the time: it polls. \
    Utilisation and t count only its time with requests.";

/// The limit of a server that has requests to which no response is due, besides `others`.
fn without_response(silent: u64, others: u64) -> Option<String> {
    /// A smaller share changes nothing: clients say `quit`, for example.
    const LEAST: f64 = 0.001;
    let share = silent as f64 / (silent + others).max(1) as f64;
    (share >= LEAST).then(|| {
        format!(
            "{:.1} % of the requests ask for no response (memcached's `noreply`, quiet commands). \
             They have no sojourn and are no arrivals of the ideal queue: their work is part of \
             the busy time of the others, and a wait behind them is part of the excess.",
            100.0 * share
        )
    })
}

/// The limit of a recording in slices.
fn in_slices(matching: &Matching) -> Option<String> {
    let one_in = matching.stamps.one_in()?;
    matches!(matching.stamps, MiddleStamps::Sampled(_)).then(|| {
        format!(
            "Everything but T1 and T6 was recorded in slices, 1/{one_in} of the time: stages, causes \
             and forecasts are those of {} requests in {} slices, and their intervals take the \
             slices as the sample. Spells of stalls by the hypervisor were not looked for.",
            matching.asked(),
            matching.slices,
        )
    })
}

/// The limits that follow from the length of the recording.
fn of_length(measured: &Observations, windows: u64, shown_by: usize) -> Vec<String> {
    let percentiles = (!measured.is_exact()).then(|| {
        format!(
            "The recording is long, so percentiles are accurate to {:.2} %.",
            100.0 * HISTOGRAM_ERROR
        )
    });
    let usual = (windows > 1).then(|| {
        format!(
            "The recording was read in several windows: what is typical of this server (t and \
             the number of its workers, unless given) was taken from its first {shown_by} requests."
        )
    });
    percentiles.into_iter().chain(usual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_ask_for_no_response_are_named_unless_they_are_few() {
        let limit = without_response(1, 3).unwrap();
        assert!(
            limit.starts_with("25.0 % of the requests ask for no response"),
            "{limit}"
        );
        assert_eq!(without_response(1, 9_999), None);
        assert_eq!(without_response(0, 0), None);
    }
}
