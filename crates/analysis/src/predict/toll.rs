//! What a change costs, although it takes a cause away.
//!
//! No request is slower for what is taken away. Where the replay says so all the same, it is either a toll that
//! the change is known to have, which the forecast then names, or an error of the replay, which is taken out.

use crate::fmt::Percentile;
use crate::replay::Change;

/// Why requests may be slower with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toll {
    /// The CPU, which others kept awake, sleeps between requests.
    Sleep,
    /// Requests no longer overtake others, or go to other workers.
    Turn,
    /// There is a CPU less.
    Cpu,
}

impl Toll {
    pub(super) const ALL: [Self; 3] = [Self::Sleep, Self::Turn, Self::Cpu];

    /// Takes the toll out of a change; `false` if the change has none of it.
    pub(super) fn spare(self, change: &mut Change, unchanged: &Change) -> bool {
        match self {
            Self::Sleep => {
                let has = change.awake != unchanged.awake;
                change.awake.clone_from(&unchanged.awake);
                has
            }
            Self::Turn => {
                let has = change.discipline != unchanged.discipline;
                change.discipline = unchanged.discipline;
                has
            }
            Self::Cpu => {
                let has = change.fewer_servers != unchanged.fewer_servers;
                change.fewer_servers = unchanged.fewer_servers;
                has
            }
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::Sleep => {
                "with nothing else to run, the CPU sleeps, and requests wait until it is awake"
            }
            Self::Turn => "requests that were served before their turn wait for it",
            Self::Cpu => "fewer CPUs serve requests",
        }
    }
}

/// `p50 gets worse: requests that were served before their turn wait for it`.
pub(super) fn sentence(worse: &[f64], tolls: &[Toll]) -> String {
    let worse: Vec<String> = worse.iter().map(|q| Percentile(*q).to_string()).collect();
    let verb = if worse.len() == 1 { "gets" } else { "get" };
    let reasons: Vec<&str> = tolls.iter().map(|toll| toll.reason()).collect();
    format!("{} {verb} worse: {}", worse.join(", "), reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toll_names_the_percentiles_and_the_reasons() {
        assert_eq!(
            sentence(&[0.5], &[Toll::Cpu]),
            "p50 gets worse: fewer CPUs serve requests"
        );
        let both = sentence(&[0.5, 0.99], &[Toll::Turn, Toll::Cpu]);
        assert_eq!(
            both,
            "p50, p99 get worse: requests that were served before their turn wait for it; fewer \
             CPUs serve requests"
        );
    }
}
