//! Why a kind is not run, a measurement is contaminated, or a result falls short. Scripts go by the
//! key; `docs/bench-causes.md` lists them all.

use taillab_model::summary::Reason;

/// A reason of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonKey {
    /// Not run: the kept recordings have none of this kind.
    NoRecording,
    /// Not run: nothing says what the cause cost each request.
    NoGroundTruth,
    /// Not run: the CPUs cannot be kept awake.
    NotKeptAwake,
    /// Not run: this machine does not allow the injection.
    Unsupported,
    /// Not run: the injection held nothing back.
    NoEffect,
    /// Contaminated: the machine delayed the same requests as the injection.
    SharedDelay,
    /// Contaminated: the slowest requests waited in silences that nothing explains.
    UnexplainedSilence,
    /// Falls short: too little is charged to the right cause and culprit.
    Undercharged,
    /// Falls short: more is charged to the culprit than its injection cost.
    Overcharged,
    /// Falls short: much is charged to a cause that this server cannot suffer from.
    ImpossibleCause,
    /// Falls short: much of the excess above p99 is unexplained.
    Unexplained,
    /// Falls short: a forecast did not come true.
    ForecastMissed,
}

impl ReasonKey {
    /// All of them, in the order of the docs.
    pub const ALL: [Self; 12] = [
        Self::NoRecording,
        Self::NoGroundTruth,
        Self::NotKeptAwake,
        Self::Unsupported,
        Self::NoEffect,
        Self::SharedDelay,
        Self::UnexplainedSilence,
        Self::Undercharged,
        Self::Overcharged,
        Self::ImpossibleCause,
        Self::Unexplained,
        Self::ForecastMissed,
    ];

    /// The name for scripts.
    pub fn key(self) -> &'static str {
        match self {
            Self::NoRecording => "no_recording",
            Self::NoGroundTruth => "no_ground_truth",
            Self::NotKeptAwake => "not_kept_awake",
            Self::Unsupported => "unsupported",
            Self::NoEffect => "no_effect",
            Self::SharedDelay => "shared_delay",
            Self::UnexplainedSilence => "unexplained_silence",
            Self::Undercharged => "undercharged",
            Self::Overcharged => "overcharged",
            Self::ImpossibleCause => "impossible_cause",
            Self::Unexplained => "unexplained",
            Self::ForecastMissed => "forecast_missed",
        }
    }

    /// The reason with its line for people.
    pub fn because(self, text: impl Into<String>) -> Reason {
        Reason::new(self.key(), text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_reason_has_its_own_key_and_a_row_in_the_docs() {
        const DOCS: &str = include_str!("../../../../docs/bench-causes.md");
        let mut seen = HashSet::new();
        for (place, reason) in ReasonKey::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place, "{reason:?} is out of order");
            let key = reason.key();
            assert!(
                key.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
                "{key}"
            );
            assert!(seen.insert(key), "{key} twice");
            let row = format!("| `{key}` |");
            assert_eq!(
                DOCS.matches(&row).count(),
                1,
                "{key} in docs/bench-causes.md"
            );
        }
    }
}
