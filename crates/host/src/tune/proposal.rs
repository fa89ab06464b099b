//! What a mitigation would change on this machine, and why not.

use std::fmt;

use super::change::{Change, Hold};

/// Why a mitigation cannot be applied here, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub String);

/// What a mitigation would change here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// The changes, in the order in which they are made.
    pub changes: Vec<Change>,
    /// What a process has to hold meanwhile.
    pub holds: Vec<Hold>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Harm that it would do besides what is wanted.
    pub harms: Vec<Conflict>,
}

impl From<Vec<Change>> for Proposal {
    fn from(changes: Vec<Change>) -> Self {
        Self {
            changes,
            ..Self::default()
        }
    }
}

impl Proposal {
    /// Adds what a person should know.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

/// Something that gets in the way of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who or what: `irqbalance (pid 4711)`, a file.
    pub who: String,
    /// What it does to the plan.
    pub effect: String,
    /// What helps.
    pub remedy: String,
    /// Nothing is applied without `--force`.
    pub is_harmful: bool,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.who, self.effect, self.remedy)
    }
}
