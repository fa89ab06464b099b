//! Why a setting was not changed or not put back.

use std::path::PathBuf;

use crate::journal::JournalError;

/// Why nothing was changed, or what is left.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The journal cannot be kept: then nothing is changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// No place for the journal.
    #[error(
        "no place for the journal of changes: neither HOME nor XDG_STATE_HOME names a folder of this user; set \
         one of them, or run as root (sudo)"
    )]
    NoHome,
    /// A journal that cannot be followed.
    #[error("cannot follow the journal {path}: {reason}")]
    Damaged {
        /// Its file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// No mitigation of this name.
    #[error("there is no mitigation \"{name}\": see `taillab tune list`{}", near.as_ref().map_or(String::new(), |near| format!(" (did you mean \"{near}\"?)")))]
    Unknown {
        /// What was asked for.
        name: String,
        /// A name that is much like it.
        near: Option<&'static str>,
    },
    /// It is advice, and no mitigation that is applied.
    #[error("{0} is done by hand: docs/advice.md#{0} has the commands, and those that undo it")]
    ByHand(String),
    /// What it is applied to does not exist.
    #[error("{0}")]
    Scope(String),
    /// This machine cannot have it.
    #[error("{mitigation} cannot be applied here: {reason}")]
    Unavailable {
        /// The mitigation.
        mitigation: &'static str,
        /// Why, and what to do.
        reason: String,
    },
    /// It would do harm, or somebody would overwrite it.
    #[error("refused: {}; --force applies it anyway", .0.join("; "))]
    Harmful(Vec<String>),
    /// The kernel refused a change; what was changed before it is put back.
    #[error("nothing is changed: {why}")]
    Refused {
        /// What was refused, why, what to do.
        why: String,
        /// A privilege or a feature is missing.
        unsupported: bool,
    },
    /// The kernel refused a change, and not all that was changed before it could be put back.
    #[error(
        "{why}; and this could not be put back: {}; `taillab tune revert` tries again",
        left.join(", ")
    )]
    HalfApplied {
        /// What was refused, why, what to do.
        why: String,
        /// What is left changed.
        left: Vec<String>,
    },
    /// There is no apply with this number.
    #[error("there is no apply number {0}: `taillab tune status` lists what there is")]
    NoApply(u32),
    /// The process that holds it still runs.
    #[error(
        "number {id} is held by pid {pid}: end that process first (Ctrl-C), which puts it back"
    )]
    InUse {
        /// The apply.
        id: u32,
        /// Whoever holds it.
        pid: u32,
    },
}
