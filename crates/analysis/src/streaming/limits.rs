//! What a recording could not show, in words.

use taillab_model::summary::Matching;
use taillab_model::{HISTOGRAM_ERROR, MiddleStamps};

use crate::statistics::Observations;

/// What the limits of a recording follow from.
pub(super) struct RecordingLimits<'a> {
    /// The sojourns.
    pub(super) measured: &'a Observations,
    /// In how many windows the recording was read.
    pub(super) windows: u64,
    /// How many requests the first of them had.
    pub(super) shown_by: usize,
    /// A thread of the server polls.
    pub(super) polls: bool,
    /// Requests that ask for no response.
    pub(super) without_response: u64,
    /// Requests that ask for one.
    pub(super) with_response: u64,
    pub(super) matching: &'a Matching,
}

impl RecordingLimits<'_> {
    pub(super) fn texts(&self) -> Vec<String> {
        let mut limits = of_length(self.measured, self.windows, self.shown_by);
        limits.extend(self.polls.then(|| POLLS.to_owned()));
        limits.extend(without_response(self.without_response, self.with_response));
        limits.extend(in_slices(self.matching));
        limits
    }
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
