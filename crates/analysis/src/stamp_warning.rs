//! What a reader should know of the stamps, whoever sent the requests.

use std::fmt;

use taillab_model::Nanos;
use taillab_model::summary::{MIN_COMPLETE_SHARE, Matching};

use crate::words::{Percent, share};

/// What is not as it should be with the stamps, and spoils nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum StampWarning {
    /// Events out of order by more than the matcher puts right.
    LateEvents {
        /// How many.
        events: u64,
    },
    /// Stamps that contradict each other.
    OutOfOrder {
        /// In so many requests.
        requests: u64,
    },
    /// Fewer complete requests than there should be.
    Incomplete {
        /// With all six stamps.
        complete: u64,
        /// Of.
        responses: u64,
    },
    /// The probe was blind for a while.
    BlindWindows {
        /// How many.
        windows: u64,
        /// Together, at most.
        total: Nanos,
        /// Requests that overlap one.
        requests: u64,
    },
}

/// Those of a matching with so many late events, in the order of weight.
pub(crate) fn stamp_warnings(matching: &Matching, late_events: u64) -> Vec<StampWarning> {
    let mut warnings = Vec::new();
    if late_events > 0 {
        warnings.push(StampWarning::LateEvents {
            events: late_events,
        });
    }
    if matching.out_of_order > 0 {
        warnings.push(StampWarning::OutOfOrder {
            requests: matching.out_of_order,
        });
    }
    if share(matching.complete, matching.responses) < MIN_COMPLETE_SHARE {
        warnings.push(StampWarning::Incomplete {
            complete: matching.complete,
            responses: matching.responses,
        });
    }
    if matching.blind_windows > 0 {
        warnings.push(StampWarning::BlindWindows {
            windows: matching.blind_windows,
            total: matching.blind_ns,
            requests: matching.blind_requests,
        });
    }
    warnings
}

impl fmt::Display for StampWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LateEvents { events } => write!(
                f,
                "{events} events were out of order by more than the matcher puts right, which can cost matches: report this as a defect, with the capture"
            ),
            Self::OutOfOrder { requests } => write!(
                f,
                "{requests} requests have stamps that contradict each other: they stay in the sojourn and not in the stages"
            ),
            Self::Incomplete {
                complete,
                responses,
            } => write!(
                f,
                "only {} of {responses} responses have all six stamps (aim: {}): the stages stand for these alone; processes of the server that started later are not seen, except with --cgroup",
                Percent(share(*complete, *responses)),
                Percent(MIN_COMPLETE_SHARE)
            ),
            Self::BlindWindows {
                windows,
                total,
                requests,
            } => write!(
                f,
                "the probe was blind in {windows} windows, {total} at most, that {requests} requests overlap: their sojourns are right, some of their stages are not known; a kernel that lets probes run in every thread avoids it"
            ),
        }
    }
}
