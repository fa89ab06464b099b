//! Stretches of a recording in which the load was not on schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Monotonic;

/// More cuts than a recording of hours has; a file that claims more is not believed.
const MAX_CUTS: usize = 1 << 20;

/// A stretch in which the load was not what it should have been.
///
/// It is found by the generator's own clock and schedule, never by what the server did. Requests
/// that came in it, or while the server worked off its backlog, are left out of what the schedule's
/// arrivals saw ([`Scheduled`](crate::summary::Scheduled)), and only of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// When the first request that was not sent as planned was due.
    pub from: Monotonic,
    /// When sends were on time again.
    pub to: Monotonic,
    /// What was wrong.
    pub why: CutReason,
    /// Who did it, as far as that is known: `stress (pid 77) on CPU 1`.
    pub who: String,
}

/// Why a stretch was not on schedule.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CutReason {
    /// The generator was held up several times and sent late.
    GeneratorLate,
    /// The generator stood still, and no other task had its CPU.
    GeneratorStalled,
    /// Another task had the generator's CPU.
    GeneratorNotScheduled,
    /// The server's capacity was measured.
    CapacityCheck,
}

impl CutReason {
    /// The words that people read, after `because`.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::GeneratorLate => "the generator was held up",
            Self::GeneratorStalled => "the generator's CPU stood still",
            Self::GeneratorNotScheduled => "the generator was not on its CPU",
            Self::CapacityCheck => "the capacity was checked",
        }
    }
}

/// Checks that the cuts can be used in calculations: in order of time, none ending before it begins or
/// after `latest`, in nanoseconds since boot.
///
/// # Errors
/// What is wrong with them.
pub(super) fn check(cuts: &[Cut], latest: u64) -> Result<(), String> {
    if cuts.len() > MAX_CUTS {
        return Err(format!("there are more than {MAX_CUTS} cuts"));
    }
    if !cuts.iter().all(|cut| cut.from <= cut.to) || !cuts.is_sorted_by_key(|cut| cut.from) {
        return Err("the cuts are not in order of time".into());
    }
    if (cuts.iter()).any(|cut| cut.to.nanos_since_boot() > latest) {
        return Err("a cut is more than 73 years after boot".into());
    }
    Ok(())
}
