//! What was left out of the experiment's view of a measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Culprit;
use crate::{CutReason, Nanos, Tid};

/// When more than this share of the time was cut, the rest is too little to say what the schedule's arrivals
/// would have seen.
pub const MAX_CUT_SHARE: f64 = 1.0 / 3.0;

/// A percentile of `scheduled` is withdrawn where more than this share of the requests above it are missing because
/// cuts follow each other too soon. Where a quarter is missing, what is called p99 is p98.7.
pub const MAX_UNSETTLED_SHARE: f64 = 0.25;

/// Stretches in which the load was not what it should have been, by the generator's own clock and
/// schedule. What disturbed only the server is not among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CutSummary {
    /// Share of the measurement's time that was cut.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
    /// The length of all cuts together.
    pub length_ns: Nanos,
    /// Requests that are therefore left out of `scheduled`.
    pub requests: u64,
    /// What is missing because a cut lasts until the server is idle: by percentile, in ascending order.
    pub unsettled: Vec<UnsettledAt>,
    /// The cuts by reason, the longest first.
    pub by_reason: Vec<CutsForReason>,
}

/// What is missing above a percentile. A request that finds the server busy since before the end of
/// the last cut is not counted, so there are too few requests of long busy periods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnsettledAt {
    /// The percentile's probability.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// About this share of the requests above it is missing.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
}

/// What was cut for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CutsForReason {
    /// What was wrong.
    pub why: CutReason,
    /// Who did it, as far as that is known: `stress (pid 77) on CPU 1`.
    pub who: String,
    /// Number of cuts.
    pub times: u64,
    /// Their length in all, with the time in which the server worked off the backlog.
    pub length_ns: Nanos,
    /// Requests that were left out.
    pub requests: u64,
}

/// What is said of a stall that no other task caused: it was the hypervisor, or an interrupt.
const NO_TASK: &str = "the hypervisor or an interrupt";

impl CutsForReason {
    /// Who did it, as the causes name their culprits.
    pub fn culprit(&self) -> Culprit {
        if self.why != CutReason::GeneratorNotScheduled {
            return Culprit::Interrupt {
                name: NO_TASK.to_owned(),
                number: None,
            };
        }
        let who = self.who_and_cpu().0;
        let who = who.strip_suffix(" and others").unwrap_or(who);
        let with_number = |begins: &str| {
            let (name, number) = who.strip_suffix(')')?.rsplit_once(begins)?;
            Some((name.to_owned(), number.parse::<Tid>().ok()?))
        };
        let (of_process, of_thread) = (with_number(" (pid "), with_number(" (thread "));
        let (pid, tid) = (of_process.as_ref(), of_thread.as_ref());
        let (pid, tid) = (pid.map(|(_, pid)| *pid), tid.map(|(_, tid)| *tid));
        let name = of_process.or(of_thread).map(|(name, _)| name);
        Culprit::Thread {
            name: name.unwrap_or_else(|| who.to_owned()),
            pid,
            tid,
            process: None,
        }
    }

    /// The CPU of the generator on which that was.
    pub fn cpu(&self) -> Option<u32> {
        self.who_and_cpu().1
    }

    /// `stress (pid 77)` and 1 of `stress (pid 77) on CPU 1`.
    fn who_and_cpu(&self) -> (&str, Option<u32>) {
        let parts = self.who.rsplit_once(" on CPU ");
        let parts = parts.and_then(|(who, cpu)| Some((who, cpu.parse().ok()?)));
        parts.map_or((self.who.as_str(), None), |(who, cpu)| (who, Some(cpu)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_held_the_generator_up_is_read_from_the_words() {
        let read = |why, who: &str| {
            let by = CutsForReason {
                why,
                who: who.to_owned(),
                times: 1,
                length_ns: Nanos::ZERO,
                requests: 0,
            };
            (by.culprit().to_string(), by.cpu())
        };
        let task = CutReason::GeneratorNotScheduled;
        for (who, name, cpu) in [
            ("stress (pid 77) on CPU 1", "stress (pid 77)", Some(1)),
            (
                "a (b) (pid 7) and others on CPU 12",
                "a (b) (pid 7)",
                Some(12),
            ),
            ("cc (thread 9) on CPU 0", "cc (thread 9)", Some(0)),
            ("another task on CPU 0", "another task", Some(0)),
            ("stress", "stress", None),
        ] {
            assert_eq!(read(task, who), (name.to_owned(), cpu));
        }
        let stalls = [
            (
                CutReason::GeneratorStalled,
                "the hypervisor, or an interrupt, on CPU 1",
            ),
            (
                CutReason::GeneratorLate,
                "interrupts, or the hypervisor, on CPU 1",
            ),
        ];
        for (why, who) in stalls {
            assert_eq!(read(why, who), (NO_TASK.to_owned(), Some(1)));
        }
    }
}
